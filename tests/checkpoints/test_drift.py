import math

import pytest
import torch
from safetensors.torch import load_file

from qwen3nb.checkpoints.averaging import averaged, select_checkpoints
from qwen3nb.checkpoints.drift import distance_to, weight_drift
from qwen3nb.checkpoints.types import CheckpointError


@pytest.fixture(scope="module")
def training(make_checkpoint, tmp_path_factory):
    folder = tmp_path_factory.mktemp("training")
    for step in (10, 20, 30):
        make_checkpoint(folder / f"checkpoint-{step}", seed=step, eval_loss=1 / step)
    return folder


@pytest.fixture
def steps(training):
    return [training / f"checkpoint-{step}" for step in (10, 20, 30)]


def test_the_change_of_a_tensor_by_hand(steps):
    changes = weight_drift(steps)
    wanted = ("checkpoint-20", "checkpoint-30", 1, "mlp.up_proj")
    (relative,) = (
        each.relative
        for each in changes
        if (each.earlier, each.later, each.layer, each.module) == wanted
    )
    name = "model.encoder.layers.1.mlp.up_proj.weight"
    before, after = (load_file(folder / "model.safetensors")[name] for folder in steps[1:])
    assert math.isclose(relative, float((after - before).norm() / before.norm()), rel_tol=1e-5)
    assert {each.module for each in changes if each.layer is None} == {"embedding", "last norm"}
    assert len(changes) == 2 * (2 * 11 + 2)
    with pytest.raises(CheckpointError, match="2 or more checkpoints; got 1"):
        weight_drift(steps[:1])


def test_the_mean_lies_between_its_sources(training, steps):
    center = averaged(select_checkpoints(training, last=2))
    assert center.name == "last-2"
    assert averaged(select_checkpoints(training, last=2)) == center
    assert averaged(select_checkpoints(training, last=1)) == training / "checkpoint-30"
    distances = distance_to(center, steps)
    assert set(distances) == {"checkpoint-10", "checkpoint-20", "checkpoint-30"}
    assert distances["checkpoint-20"] == pytest.approx(distances["checkpoint-30"], rel=1e-4)
    assert distances["checkpoint-10"] > distances["checkpoint-20"]
    names = [n for n in load_file(center / "model.safetensors") if "decoder" not in n]
    mean = load_file(center / "model.safetensors")
    other = load_file(training / "checkpoint-20" / "model.safetensors")
    moved = torch.sqrt(sum((other[n] - mean[n]).square().sum() for n in names))
    size = torch.sqrt(sum(mean[n].square().sum() for n in names))
    assert distances["checkpoint-20"] == pytest.approx(float(moved / size), rel=1e-5)
