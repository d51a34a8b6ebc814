import math

import numpy as np
import papermill
import pytest
from helpers import REPOSITORY
from helpers.beir import write_words
from helpers.records import make, noisy
from helpers.rerankers import write_reranker

from qwen3nb.evaluation.retrieval.rerank import rerank
from qwen3nb.execution.notebook import resolved_parameters
from qwen3nb.execution.parameters import ParameterError
from qwen3nb.metrics.aggregate import aggregate
from qwen3nb.models.rerankers.load import load_reranker
from qwen3nb.report.leaderboard.one_model import model_and_run_table
from qwen3nb.report.studies.reranking import (
    Reranked,
    cases_table,
    expected_error,
    gain_figure,
    order_table,
    rerank_conclusion,
    rerank_table,
    reranked,
    reranker_table,
)
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
    """The reranker, and the records with their runs."""
    reranker, output = load_reranker(model, device="cpu"), folder / "results"
    suite = rerank(reranker, [words], depth=6, output=output, show_progress=False)
    return reranker, suite.results, reranked(suite.results, [words], folder=output)


def test_the_page_shows_the_values_of_the_record(done):
    reranker, (result,), (page,) = done
    text = rerank_table([result], seed=0).to_html()
    gains = result.per_query["gain nDCG@10"].values()
    won, lost = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
    assert f"{won}, {5 - won - lost}, {lost}" in text
    difference = result.main.value - result.metrics["first nDCG@10"].value
    assert typeset(f"{difference:+.3f}") in text
    assert typeset(f"{result.metrics['oracle nDCG@10'].value:.3f}") in text
    assert f"{result.config['counts']['pairs']:,}" in reranker_table(reranker, [result]).to_html()
    assert "pairs" in model_and_run_table([result]).to_html()
    frame = page.to_frame()
    assert len(frame) == result.config["counts"]["pairs"]
    retrieved = sum(f"d{query[1:]}" in run for query, run in page.run.items())
    assert frame["relevant"].sum() == retrieved


def test_cases_are_those_that_changed_most_and_their_texts_are_escaped(done):
    _, (result,), pages = done
    gains = result.per_query["gain nDCG@10"].values()
    table = cases_table(pages)
    won = sorted((gain for gain in gains if gain > 0), reverse=True)[:2]
    lost = sorted(gain for gain in gains if gain < 0)[:2]
    heads = [row[0].detail for row in table.rows if row[0].text]
    assert heads == [f"words, nDCG@10 {gain:+.3f}" for gain in (*won, *lost)]
    assert "&lt;script&gt;" in table.to_html()
    assert "<script>" not in table.to_html()
    assert "No query changed" in cases_table([]).note


def test_order_by_hand(done):
    _, (result,), (page,) = done
    run = {"q0": {"d0": 2.0, "d1": 1.0, "d2": 3.0, "d3": 2.0}, "q1": {"d5": 1.0}}
    hand = Reranked(result, page.collection, page.first, run)
    # d0 is relevant: above one of three, equal to one. q1 has no relevant candidate.
    assert hand.order() == {"q0": pytest.approx((1 + 0.5) / 3)}


def test_calibration_by_hand():
    chance = np.array([0.05, 0.05, 0.95, 0.95, 1.0])
    labels = np.array([False, True, True, True, False])
    # Mean P(yes) .05 against 1 of 2 that are relevant; 2.9 / 3 against 2 of 3.
    error = (2 * 0.45 + 3 * (2.9 / 3 - 2 / 3)) / 5
    assert expected_error(chance, labels) == pytest.approx(error)


def test_the_page_shows_every_query_and_pair(done):
    _, results, pages = done
    (axis,) = gain_figure(results).axes
    heights = [patch.get_height() for patch in axis.patches]
    gains = results[0].per_query["gain nDCG@10"].values()
    assert sorted(heights) == pytest.approx(sorted(gain for gain in gains if gain))
    frame = pages[0].to_frame()
    assert frame["P(yes)"].to_numpy() == pytest.approx(1 / (1 + np.exp(-frame["log-odds"])))
    assert math.isfinite(float(order_table(pages).rows[0][5].text))


def scored(before, after, *, name="NFCorpus"):
    """A record of `rerank`: scores of the first stage and after, and the best order's."""
    result = make("judge", task=f"{name}.bm25", scores=after, config={"collection": name})
    columns = {"first nDCG@10": before, "oracle nDCG@10": np.full(len(after), 0.9)}
    for column, values in columns.items():
        result.per_query[column] = dict(zip(result.per_query["nDCG@10"], values, strict=True))
        result.metrics[column] = aggregate(result.per_query, how="mean", columns=(column,))
    return result


@pytest.mark.parametrize(
    ("gain", "words"), [(0.2, "helps on"), (-0.2, "hurts on"), (0.0, "makes no significant")]
)
def test_reranking_one_data_set(gain, words):
    before, after = noisy(0.5), noisy(0.5 + gain, seed=1)
    text = str(rerank_conclusion([scored(before, after)]))
    assert text.startswith(f"Reranking with judge {words}")
    assert f"nDCG@10 goes from {before.mean():.3f} to {after.mean():.3f}" in text
    assert f"a paired difference of {(after - before).mean():+.3f} [" in text
    assert text.endswith("n = 40. The best order of the same candidates would reach 0.900.")


def test_reranking_several_data_sets():
    records = [
        scored(noisy(0.5), noisy(0.5 + gain, seed=i), name=f"D{i}")
        for i, gain in enumerate((0.3, 0.2, 0.0))
    ]
    text = str(rerank_conclusion(records))
    assert text.startswith("Of 3 data sets, reranking with judge helps on 2 and hurts on none by")
    assert "(the largest, on D0: +0.3" in text
    assert str(rerank_conclusion([])) == "Nothing was reranked."


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"first_stage": "bm52"}, "bm52"),
        ({"data": "PyDocsSampleRetreival"}, "PyDocsSampleRetrieval"),
        ({"depth": 0}, "depth is 0; expected at least 1"),
        ({"template": "double"}, "template"),
        ({"adapter": "nowhere"}, "adapter_config.json"),
        ({"batch_tokens": -1}, "batch_tokens is -1"),
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
