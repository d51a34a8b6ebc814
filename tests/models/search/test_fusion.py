import pytest

from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.models.load import load_encoder, load_model
from qwen3nb.models.search.fusion import fuse
from qwen3nb.records.store import verify


def test_reciprocal_ranks_by_hand():
    runs = [{"q": {"a": 9.0, "b": 1.0}}, {"q": {"b": 0.5}, "r": {"c": 1.0}}]
    assert fuse(runs) == {
        "q": {"a": pytest.approx(1 / 61), "b": pytest.approx(1 / 62 + 1 / 61)},
        "r": {"c": pytest.approx(1 / 61)},
    }


@pytest.mark.integration
def test_a_fusion_runs_mteb_tasks_as_one_model(encoder_folder):
    spec = f"bm25+{encoder_folder}"
    model = load_model(spec, cache=False, show_progress=False)
    assert model.label == "bm25-plus-tiny"
    assert model.identity != load_model(f"bm25+{encoder_folder}", pooling="cls").identity
    names = "PyDocsSampleRetrieval,PyDocsSampleReranking,AuthorSTS"
    run = evaluate(model, tasks=names, show_progress=False)
    assert {result.task.name for result in run.results} == set(names.split(",")[:2])
    assert run.skipped == {"AuthorSTS": "bm25-plus-tiny has no vectors"}
    assert all(verify(result) == [] for result in run.results)
    alone = evaluate(load_model("bm25"), tasks=names, show_progress=False).results[0]
    assert run.results[0].main.value != alone.main.value
    assert run.results[0].main.value > 0.1  # random documents would be near 0.01
    with pytest.raises(ValueError, match="has no vectors; load_model"):
        load_encoder(spec)
    with pytest.raises(ValueError, match="no model 'nothing'"):
        load_model("bm25+nothing")
