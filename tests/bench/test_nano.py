"""The benchmark of small sets counts what it says."""

import gzip
import json
import math

import numpy as np
import pytest
from scipy.stats import spearmanr

from benchmarks.nano import Field, agreement, differences, of_published, shown, spearman_interval
from qwen3nb.datasets.collection import TestCollection
from qwen3nb.evaluation.retrieval.nano import nano_collection
from qwen3nb.metrics.retrieval import score_run


def test_published_pairs_are_counted(tmp_path):
    """By hand: three models with both; NanoBEIR swaps the two that are 0.005 apart."""
    (tmp_path / "benchmarks.json").write_text(json.dumps({"BEIR": ["A"], "NanoBEIR": ["N"]}))
    scores = {"a": (0.5, 0.6), "b": (0.505, 0.59), "c": (0.7, 0.8), "d": (0.9, None)}
    rows = ["model\trevision\ttask\tscore\tseconds"]
    for model, values in scores.items():
        for task, value in zip("AN", values, strict=True):
            if value is not None:
                rows.append(f"{model}\t1\t{task}\t{value}\t")
    (tmp_path / "scores.tsv.gz").write_bytes(gzip.compress("\n".join(rows).encode()))
    with pytest.MonkeyPatch.context() as patch:  # of three models there is no interval
        patch.setattr("benchmarks.nano.spearman_interval", lambda rho, count: (0.0, 1.0))
        patch.setattr("benchmarks.nano._EDGES", (0.0, 0.01, 1.0))
        found = of_published(tmp_path)
    assert [(row.models, row.pairs, round(row.alike, 3)) for row in found] == [
        (3, 3, 0.667),
        (3, 1, 0.0),
        (3, 2, 1.0),
    ]
    assert found[0].spearman == spearmanr([0.5, 0.505, 0.7], [0.6, 0.59, 0.8]).statistic
    assert "| 66.7% |" in shown(found)


def test_the_interval_is_that_of_bonett_and_wright():
    """By hand: rho 0, 103 models: tanh(1.96 / 10)."""
    assert spearman_interval(0.0, 103) == pytest.approx((-0.19352, 0.19352), abs=1e-5)


def test_a_pair_is_told_apart_by_its_queries():
    scores = {"a": np.array([0.1, 0.2, 0.3, 0.2]), "b": np.array([0.6, 0.8, 0.8, 0.7])}
    scores["c"] = scores["b"] + np.array([0.1, -0.1, 0.1, -0.1])
    found = differences(scores)
    assert found["a", "b"] == (pytest.approx(-0.525), True)
    assert found["b", "c"] == (pytest.approx(0.0), False)


def test_a_set_that_is_no_smaller_agrees():
    words = ["sun", "rain", "fog", "snow", "wind", "hail"]
    documents = {f"d{place}": f"{word} and {word}" for place, word in enumerate(words)}
    queries = {f"q{place}": word for place, word in enumerate(words)}
    qrels = {f"q{place}": [f"d{place}"] for place in range(len(words))}
    collection = TestCollection.from_texts(queries, documents, qrels)
    field = Field(collection, ["bm25", "random"])
    # Half of the places would leave no room for all queries.
    row = agreement(field, 2, 1.0)
    assert (row.models, row.seeds, row.documents) == (2, 2, 6)
    assert row.spearman == pytest.approx(1.0)
    assert row.wrong == 0
    # The scores are those that a search of the small set has.
    part = nano_collection(collection)
    found = field.scores(part)
    run = field._run("random", part)
    expected = score_run(part.qrels, run, ["nDCG@10"])["nDCG@10"]
    assert found["random"].tolist() == [expected[query] for query in part.queries]
    assert not math.isnan(row.bm25)
