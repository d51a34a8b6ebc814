"""Limited tasks, and task types that only MTEB can score."""

import pytest
from datasets import Dataset
from helpers.mteb_tasks import WORDS, loaded

from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.mteb.select import limited, select_tasks
from qwen3nb.models.load import load_encoder
from qwen3nb.records.store import load_results, verify


@pytest.fixture(scope="module")
def encoder(encoder_folder):
    return load_encoder(encoder_folder, cache=False, show_progress=False)


def search(documents=40, queries=10):
    split = {
        "corpus": Dataset.from_list(
            [{"id": f"d{i}", "text": f"{WORDS[i % 12]} {i}", "title": ""} for i in range(documents)]
        ),
        "queries": Dataset.from_list([{"id": f"q{i}", "text": WORDS[i]} for i in range(queries)]),
        "relevant_docs": {f"q{i}": {f"d{i}": 1, f"d{i + 12}": 2} for i in range(queries)},
        "top_ranked": None,
    }
    return loaded("SciFact", {"default": {"test": split}})


def test_a_limited_search_keeps_what_is_judged_and_is_the_same_for_all():
    task = search()
    whole = task.dataset
    with limited(task, 4):
        part = task.dataset["default"]["test"]
        kept = {*part["corpus"]["id"]}
        judged = {document for grades in part["relevant_docs"].values() for document in grades}
        assert set(part["relevant_docs"]) == {*part["queries"]["id"]}
        assert len(part["queries"]) == 4
        assert judged < kept
        assert len(kept) == len(judged) + 4
    assert task.dataset is whole
    other = search()
    with limited(other, 4):
        assert {*other.dataset["default"]["test"]["corpus"]["id"]} == kept
    with limited(task, 0):
        assert task.dataset is whole
    with limited(task, 1000):
        assert len(task.dataset["default"]["test"]["corpus"]) == 40


def test_a_limited_record_has_another_name_and_stays_out_of_mtebs_files(encoder, tmp_path):
    run = evaluate(encoder, tasks=[search()], limit=4, output=tmp_path, show_progress=False)
    (result,) = run.results
    assert result.task.key == "SciFact-limit4"
    assert result.task.name == "SciFact"
    assert (result.task.size["queries"], result.main.n) == (4, 4)
    assert verify(result) == []
    assert not (tmp_path / "mteb").exists()
    again = evaluate(encoder, tasks=[search()], limit=4, output=tmp_path, show_progress=False)
    assert again.reused == ("SciFact-limit4",)
    whole = evaluate(encoder, tasks=[search()], output=tmp_path, show_progress=False)
    assert (whole.reused, whole.results[0].main.n) == ((), 10)
    assert {r.task.key for r in load_results(tmp_path)} == {"SciFact", "SciFact-limit4"}


@pytest.mark.integration
@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("AuthorSTS", 12),
        ("PyDocsSampleClassification", 30),
        ("PyDocsSampleReranking", 3),
        ("PyDocsSampleClustering", 40),
    ],
)
def test_every_type_can_be_limited(encoder, tmp_path, name, rows):
    (result,) = evaluate(
        encoder, tasks=name, limit=rows, output=tmp_path, show_progress=False
    ).results
    assert result.task.key == f"{name}-limit{rows}"
    assert verify(result) == []
    # Clustering draws several times from the remaining rows.
    assert result.main.n == (rows if result.task.type != "Clustering" else result.main.n)
    assert result.task.size.get("texts", rows) == rows


def test_lists_within_rows_are_cut_alike():
    pairs = {"sentence1": [list(WORDS)], "sentence2": [list(WORDS[::-1])], "labels": [[0, 1] * 6]}
    task = loaded("TwitterURLCorpus", {"test": Dataset.from_dict(pairs)})
    with limited(task, 5):
        (row,) = task.dataset["test"]
        assert [len(values) for values in row.values()] == [5, 5, 5]
        ranks = [WORDS.index(word) for word in row["sentence1"]]
        assert row["sentence2"] == [WORDS[::-1][rank] for rank in ranks]


def test_texts_to_learn_from_are_not_limited():
    (task,) = select_tasks(names=["PyDocsSampleClassification"])
    task.load_data()
    before = len(task.dataset["train"])
    with limited(task, 5):
        assert (len(task.dataset["train"]), len(task.dataset["test"])) == (before, 5)


def test_bitext_mining_and_summarisation_are_mtebs(encoder, tmp_path):
    """Sentences paired with themselves are all matched; a summary equal to a human one is best."""
    same = {"sentence1": list(WORDS), "sentence2": list(WORDS)}
    bitext = loaded("Tatoeba", {"deu-eng": {"test": Dataset.from_dict(same)}}, languages=["deu"])
    summaries = {
        "text": ["weather", "seasons"],
        "human_summaries": [["rain and wind"], ["snow in winter"]],
        "machine_summaries": [["rain and wind", "a cat", "storm"], ["snow in winter", "x", "mist"]],
        "relevance": [[5.0, 1.0, 2.0], [5.0, 1.0, 2.0]],
    }
    summary = loaded("SummEvalSummarization.v2", {"test": Dataset.from_dict(summaries)})
    run = evaluate(encoder, tasks=[bitext, summary], output=tmp_path, show_progress=False)
    mined, summarised = run.results
    assert mined.main.value == pytest.approx(1.0)
    assert (mined.main.how, mined.main.low, mined.per_query) == ("reported", None, {})
    assert summarised.task.type == "Summarization"
    assert summarised.main.value > 0
    assert all(verify(result) == [] for result in run.results)
