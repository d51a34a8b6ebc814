"""The records of evaluations."""

import pytest
from helpers.records import make

from qwen3nb.evaluation.recording import Work, assemble, stored
from qwen3nb.records.record import Environment, ModelInfo, Result, TaskInfo

TASK = TaskInfo(name="x", type="Retrieval", main_metric="m")


@pytest.mark.parametrize(
    ("parameters", "device", "precision", "linear"),
    [
        (10, "cpu", "float32", "mkl"),
        (10, "cpu", "bfloat16", ""),
        (10, "cuda:0", "float32", "H100, without TF32"),
        (10, "cuda", "bfloat16", "H100, without TF32"),
        (None, "cuda", "float32", ""),
        (None, "cpu", "float32", ""),
    ],
)
def test_a_record_names_the_library_that_multiplied(
    tmp_path, monkeypatch, parameters, device, precision, linear
):
    monkeypatch.setenv("QWEN3NB_LINEAR", "mkl")
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: "H100")
    result = assemble(
        model=ModelInfo("a", "f" * 64, parameters=parameters),
        task=TASK,
        per_query={"m": {"q1": 1.0, "q2": 0.0}},
        work=Work(),
        seed=0,
        run="r",
        config={},
        device=device,
        precision=precision,
    )
    assert Result.load(result.save(tmp_path)).environment.linear == linear


@pytest.mark.parametrize(
    ("question", "versions", "reused"),
    [
        ({}, {}, True),
        ({"identity": "0" * 64}, {}, False),
        ({"metrics": ("nDCG@10", "Hit@5")}, {}, False),
        ({"same": lambda _: False}, {}, False),
        ({}, {"torch": "1.0.0"}, False),
        ({}, {"another": "1.0.0"}, False),
    ],
)
def test_a_record_is_reused_only_if_all_is_as_asked(home, question, versions, reused):
    installed = Environment.current().versions | versions
    result = make(environment=Environment(versions=installed))
    file = result.save()
    own = {"identity": result.model.identity, "metrics": ("nDCG@10",), "same": lambda _: True}
    question = own | question
    assert (stored(file, **question) == result) is reused
    file.write_text(file.read_text().replace('"seed": 0', '"seed": 1'))
    assert stored(file, **question) is None
