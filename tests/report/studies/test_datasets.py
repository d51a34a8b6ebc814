"""Whether PyDocs separates models, in words that follow from scores and intervals."""

from qwen3nb.metrics.aggregate import Aggregate
from qwen3nb.report.studies.datasets import data_conclusion, difficulty_table


def score(value, low, high):
    return Aggregate(value, low, high, 500, "mean", columns=("nDCG@10",), interval="wilson")


BM25, RANDOM = score(0.529, 0.491, 0.567), score(0.0, 0.0, 0.008)


def sentence(**scores):
    return str(data_conclusion(scores))


def test_models_whose_intervals_do_not_overlap_are_told_apart():
    assert sentence(random=RANDOM, bm25=BM25) == (
        "PyDocs tells good models from bad ones, and leaves room above: bm25 scores 0.529 [0.491, "
        "0.567] nDCG@10 and random scores 0.000 [0.000, 0.008] nDCG@10, each over 500 queries."
    )
    assert "leaves little room above" in sentence(random=RANDOM, best=score(0.96, 0.94, 0.98))


def test_overlapping_intervals_tell_nothing_apart():
    text = sentence(bm25=BM25, other=score(0.5, 0.46, 0.54))
    assert text.startswith("Whether PyDocs tells these models apart is not shown: bm25 scores")
    assert text.endswith("the intervals overlap.")


def test_one_model_and_none():
    assert sentence(bm25=BM25).endswith("one model cannot show whether PyDocs tells models apart.")
    assert sentence().startswith("No model was measured")
    undefined = Aggregate(None, None, None, 0, "mean", columns=("nDCG@10",), undefined="none")
    assert sentence(bm25=undefined).startswith("No model was measured")


def test_the_table_has_caption_and_name():
    table = difficulty_table({"bm25": BM25})
    assert (table.name, table.rows[0][2].text) == ("difficulty", "500 queries")
    assert "95 % intervals" in table.caption
