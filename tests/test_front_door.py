"""The front door: what `import qwen3nb as q` shows, and that it is enough for a first hour."""

import json
import operator
import re
import types

import numpy as np
import pytest
from helpers import REPOSITORY
from helpers.records import make
from packaging.version import Version

import qwen3nb as q
from qwen3nb.answers.comparison import Comparison
from qwen3nb.answers.evaluation import Evaluation
from qwen3nb.answers.explorer import Explorer
from qwen3nb.old_names import NEW_OF_OLD
from qwen3nb.records.results import Results

NAMES = """
Conclusion Encoder Model Qwen3EncoderConfig Qwen3EncoderModel Qwen3EncoderPooler Reranker
Result Results Table TestCollection TrainingEvaluator
ablation ann average_checkpoints check_and_evaluate compare contamination data diff evaluate
evaluate_domain evaluate_sts extract forecast leaderboard list_checkpoints load_encoder
load_reranker load_results parity probe reproduce rerank sanity_check speed status
training_checkpoints training_components verify verify_sentence_transformers_loading
""".split()  # noqa: SIM905 - a list of words reads better as lines
NAMESPACES = ["datasets", "paths", "stats"]


def test_the_public_names_are_these_and_documented():
    assert q.__all__ == dir(q) == sorted([*NAMES, *NAMESPACES, "__version__"])
    assert Version(q.__version__) > Version("0")  # of a tag, or after one: 0.1.1.dev7+gab12cd3
    assert [name for name in NAMES if not getattr(q, name).__doc__] == []
    inside = [each for name in NAMESPACES for each in getattr(q, name).__all__]
    assert (len(dir(q)) <= 45, len(dir(q)) + len(inside) <= 90) == (True, True)


@pytest.mark.parametrize("name", NAMESPACES)
def test_a_namespace_lists_its_names_and_they_resolve(name):
    namespace = getattr(q, name)
    assert isinstance(namespace, types.ModuleType)  # no module of the same name hides it
    assert namespace.__doc__
    assert namespace.__all__
    for each in namespace.__all__:
        assert getattr(namespace, each).__doc__, each


@pytest.mark.parametrize(
    ("namespace", "typo", "meant"),
    [(q, "extrac", "extract"), (q, "load_model", "load_"), (q.stats, "holmm", "holm")],
)
def test_a_mistyped_name_suggests_the_one_meant(namespace, typo, meant):
    with pytest.raises(AttributeError, match=meant):
        getattr(namespace, typo)


@pytest.mark.parametrize("old", sorted(NEW_OF_OLD))
def test_an_old_name_says_what_to_write(old):
    with pytest.raises(AttributeError, match=rf"q\.{re.escape(old)} is now ") as refused:
        operator.attrgetter(old)(q)
    assert "\n" not in str(refused.value)
    value, _, name = NEW_OF_OLD[old].partition("(")[0].partition(".")
    homes = {
        "q": q,
        "results": Results,
        "comparison": Comparison,
        "explorer": Explorer,
        "run": Evaluation,
    }
    if value in homes:  # else it is plain Python
        assert operator.attrgetter(name)(homes[value]), "what it says to write is not there"


@pytest.mark.integration
def test_a_string_stands_for_a_model_and_a_tier(home):
    run = q.evaluate("bm25", tier="smoke", show_progress=False)
    assert set(run.results.tasks) == {"PyDocsSampleRetrieval", "PyDocsSampleReranking"}
    again = q.evaluate("bm25", tier="smoke", show_progress=False)
    assert set(again.reused) == set(run.results.tasks)
    assert "bm25 on PyDocsSampleRetrieval: nDCG@10 0." in repr(run)
    assert q.verify(run.results) == []


def test_what_the_front_door_gives_prints_something_useful():
    results = Results(
        make(name, scores=scores)
        for name, scores in (("a", (0.1, 0.2, 0.9, 0.4)), ("b", (0.2, 0.3, 0.8, 0.5)))
    )
    comparison = q.compare(results, baseline="a")
    collection = q.TestCollection.from_texts({"q": "sort"}, {"d": "sort a list"}, {"q": ["d"]})
    encoder = q.load_encoder("random", cache=False)
    check = q.sanity_check(encoder)
    for thing, shown in (
        (results, "models a, b"),
        (results[0], "a on PyDocsSampleRetrieval"),
        (comparison, "b"),
        (results.leaderboard(), "Search"),
        (results.plot(), "Figure"),
        (collection, "1 documents"),
        (encoder, "128 dimensions"),
        (check, check.verdict),
    ):
        assert shown in repr(thing)
        assert " object at 0x" not in repr(thing)
    assert "<table" in comparison._repr_html_()
    assert "<table" in results._repr_html_()


def test_frames_are_numbers_with_stable_names():
    results = Results(
        [
            *(make(name, scores=scores) for name, scores in (("a", (0.1, 0.9)), ("b", (0.2, 0.4)))),
            make("a", (0.5, 0.7), task="other"),
        ]
    )
    pivot = results.pivot()
    assert pivot.loc["a"].tolist() == pytest.approx([0.5, 0.6])
    assert np.isnan(pivot.loc["b", "other"])
    differences = results.compare(baseline="a").to_frame()
    texts = ["task", "metric", "first", "second"]
    assert list(differences.select_dtypes(exclude="number").columns) == texts
    assert differences.loc[0, ["value", "baseline", "difference"]].tolist() == pytest.approx(
        [0.3, 0.5, -0.2]
    )
    assert results[0].value == pytest.approx(0.5)


def test_records_are_named_by_model_task_and_type():
    results = Results([make("a"), make("b"), make("a", task="other")])
    assert (len(results["a"]), len(results["other"]), len(results["Retrieval"])) == (2, 1, 3)
    assert len(results.filter(task="Retrieval", model="b")) == 1
    with pytest.raises(ValueError, match="unknown model or task 'c'; choose one of: a, b"):
        results["c"]
    with pytest.raises(ValueError, match="unknown metric 'MAP'; choose one of: nDCG@10"):
        results.pivot("MAP")


@pytest.mark.parametrize(
    ("call", "written"),
    [
        (lambda: q.compare("bm25", "e5"), r"q.load_results\(\).compare\('bm25', 'e5'\)"),
        (lambda: q.load_encoder("random", cache=False).similarity("a", "b"), "encode\\(queries"),
    ],
)
def test_what_is_not_understood_is_answered_with_what_to_write(call, written):
    with pytest.raises(TypeError, match=written):
        call()


def test_the_notebooks_use_the_front_door_only():
    inside = re.compile(r"^\s*(?:from qwen3nb[. ]|import qwen3nb(?! as q$))", re.MULTILINE)
    files = [*(REPOSITORY / "notebooks").glob("**/*.ipynb")]
    assert len(files) > 20
    for file in files:
        cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        assert [each for each in code if inside.search(each)] == [], file.name


def test_nothing_inside_the_package_uses_the_front_door():
    doors = re.compile(r"from qwen3nb import (?!paths|tiers|__version__)")
    for file in (REPOSITORY / "qwen3nb").rglob("*.py"):
        assert not doors.search(file.read_text(encoding="utf-8")), file.name
