"""MTEB's own tools read ``results/mteb``."""

import json

import mteb
import pytest
from mteb.models.model_meta import ModelMeta
from mteb.results import TaskResult

from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.models.load import load_encoder

FILLED = (
    "n_parameters",
    "memory_usage_mb",
    "max_tokens",
    "embed_dim",
    "framework",
    "similarity_fn_name",
    "revision",
    "use_instructions",
)


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


@pytest.mark.filterwarnings("ignore:is_cross_encoder:DeprecationWarning")  # of MTEB's own file
def test_result_files_and_the_description_of_the_model_are_valid(evaluated):
    folder, records = evaluated
    files = sorted((folder / "mteb" / "results").glob("*/*/*.json"))
    results = [file for file in files if file.name != "model_meta.json"]
    assert len(results) == len(records)
    for file in results:
        TaskResult.from_disk(file)
    (own,) = [f for f in files if f.name == "model_meta.json" and "tiny" in f.parent.parent.name]
    meta = ModelMeta.model_validate_json_resolved(own.read_text())
    assert all(json.loads(own.read_text())[name] is not None for name in FILLED)
    assert meta.n_parameters == records[0].model.parameters
