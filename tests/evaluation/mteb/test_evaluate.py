import json
import sys

import mteb
import numpy as np
import pytest
from mteb.mocks.mock_tasks import MockRetrievalTask

from qwen3nb.datasets.pydocs.mteb_tasks import embedded_task
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.run import EvaluationError
from qwen3nb.models.load import load_encoder, load_model
from qwen3nb.records.store import result_files


def test_nan_vectors_give_an_error_and_no_number(tmp_path, monkeypatch):
    """mteb by itself scored all-NaN vectors with an nDCG of 0.82."""
    model = load_model("random", cache=False, show_progress=False)
    monkeypatch.setattr(model, "_embed", lambda texts: np.full((len(texts), 128), np.nan, "f4"))
    with pytest.raises(EvaluationError, match="is not finite"):
        evaluate(model, tasks=[embedded_task("AuthorSTS")], output=tmp_path, show_progress=False)
    assert result_files(tmp_path) == []


def test_a_search_by_words_needs_no_sentence_transformers(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)  # importing it is an error
    task = MockRetrievalTask()
    (record,) = evaluate("bm25", tasks=[task], output=tmp_path, show_progress=False)
    (stored,) = (tmp_path / "mteb").rglob(f"{task.metadata.name}.json")
    (scores,) = json.loads(stored.read_bytes())["scores"]["test"]
    assert scores["main_score"] == record.task.mteb.value == pytest.approx(record.value)


@pytest.fixture(scope="module")
def evaluated(encoder_folder, tmp_path_factory):
    """Records of two models, beside MTEB's results."""
    folder = tmp_path_factory.mktemp("results")
    encoder = load_encoder(encoder_folder, cache=False, show_progress=False)
    options = {"output": folder, "show_progress": False}
    return folder, [
        *evaluate(encoder, tasks="AuthorSTS", **options),
        *evaluate("bm25", tasks="PyDocsSampleReranking", **options),
    ]


@pytest.mark.integration
def test_mteb_loads_every_score(evaluated):
    folder, records = evaluated
    loaded = mteb.ResultCache(folder / "mteb").load_results(include_remote=False)
    theirs = {
        (model.model_name, model.model_revision, each.task_name): each.get_score()
        for model in loaded.model_results
        for each in model.task_results
    }
    assert theirs == {
        (f"qwen3nb/{r.model.label}", r.model.identity[:40], r.task.name): pytest.approx(
            r.task.mteb.value, abs=1e-6
        )
        for r in records
    }
    frame = loaded.to_dataframe(aggregation_level="task")
    assert set(frame["task_name"]) == {"AuthorSTS", "PyDocsSampleReranking"}
