import numpy as np
import papermill
import pytest
from helpers import REPOSITORY
from helpers.beir import write_words
from helpers.rerankers import write_reranker

from qwen3nb.answers.one_model import model_and_run_table
from qwen3nb.answers.reranking import cases_table, reranking
from qwen3nb.evaluation.retrieval.rerank import rerank
from qwen3nb.execution.notebook import resolved_parameters
from qwen3nb.execution.parameters import ParameterError
from qwen3nb.models.rerankers import load_reranker
from qwen3nb.utils.format import typeset

NOTEBOOK = REPOSITORY / "notebooks" / "rerank.ipynb"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("reranker")


@pytest.fixture(scope="module")
def model(folder):
    return write_reranker(folder / "tiny")


@pytest.fixture(scope="module")
def words(folder):
    return write_words(folder / "words")


@pytest.fixture(scope="module")
def done(model, words, folder):
    """The gains, with the runs."""
    reranker, output = load_reranker(model, device="cpu"), folder / "results"
    suite = rerank(reranker, [words], depth=6, output=output, show_progress=False)
    return reranking(suite.results, [words], folder=output)


def test_the_page_shows_the_values_of_the_record(done):
    (result,), (data,) = done.results, done.runs
    text = done.table().to_html()
    gains = result.per_query["gain nDCG@10"].values()
    won, lost = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
    assert f"{won}, {5 - won - lost}, {lost}" in text
    difference = result.main.value - result.metrics["first nDCG@10"].value
    assert typeset(f"{difference:+.3f}") in text
    assert typeset(f"{result.metrics['oracle nDCG@10'].value:.3f}") in text
    assert f"{difference:+.3f}" in str(done.conclusion)
    assert str(reranking([]).conclusion) == "Nothing was reranked."
    assert "pairs" in model_and_run_table([result]).to_html()
    frame = done.pairs()
    assert len(frame) == result.search.counts["pairs"]
    retrieved = sum(f"d{query[1:]}" in run for query, run in data.run.items())
    assert frame["relevant"].sum() == retrieved


def test_cases_are_those_that_changed_most_and_their_texts_are_escaped(done):
    (result,) = done.results
    gains = result.per_query["gain nDCG@10"].values()
    table = done.cases()
    won = sorted((gain for gain in gains if gain > 0), reverse=True)[:2]
    lost = sorted(gain for gain in gains if gain < 0)[:2]
    heads = [row[0].detail for row in table.rows if row[0].text]
    assert heads == [f"words, nDCG@10 {gain:+.3f}" for gain in (*won, *lost)]
    assert "&lt;script&gt;" in table.to_html()
    assert "<script>" not in table.to_html()
    assert "No query changed" in cases_table([]).note


def test_the_page_shows_every_query_and_pair(done):
    (axis,) = done.figure().axes
    gains = sorted(filter(None, done.results[0].per_query["gain nDCG@10"].values()))
    assert sorted(patch.get_height() for patch in axis.patches) == pytest.approx(gains)
    frame = done.pairs()
    assert frame["P(yes)"].to_numpy() == pytest.approx(1 / (1 + np.exp(-frame["log-odds"])))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"first_stage": "bm52"}, "bm52"),
        ({"depth": 0}, "depth is 0; expected at least 1"),
        ({"adapter": "nowhere"}, "adapter_config.json"),
    ],
)
def test_parameters_are_checked_before_anything_runs(model, given, message):
    with pytest.raises(ParameterError, match=message):
        resolved_parameters(NOTEBOOK, {"checkpoint": str(model), **given})


@pytest.mark.integration
def test_the_notebook_runs_through_papermill_alone(model, words, checkout, tmp_path, monkeypatch):
    monkeypatch.delenv("MPLBACKEND", raising=False)
    output = tmp_path / "out.ipynb"
    given = {"checkpoint": str(model), "data": str(words), "depth": 4, "device": "cpu"}
    given["first_stage"] = "bm25,random"
    notebook = checkout / "notebooks" / NOTEBOOK.name
    papermill.execute_notebook(notebook, output, given, cwd=checkout, progress_bar=False)
    text = output.read_text()  # papermill raises what a cell raises
    assert "rrf-bm25-random-4" in text
    assert "q-svg" in text
    (record,) = (checkout / "results").glob("*/seed_0/words.rrf-bm25-random-4.json")
    assert list(record.parent.glob("words.rrf-bm25-random-4.*.trec"))
