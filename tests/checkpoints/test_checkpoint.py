import json
import os

import pytest
import torch
from helpers.checkpoints import folder_with, save_bin
from safetensors.torch import save_file

from qwen3nb.checkpoints.checkpoint import (
    list_checkpoints,
    metric_of,
    open_checkpoint,
    strip_wrappers,
)
from qwen3nb.checkpoints.types import CheckpointError


def test_other_folders_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match="no such folder"):
        open_checkpoint(tmp_path / "nope")
    with pytest.raises(CheckpointError, match=r"no config\.json"):
        open_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(CheckpointError, match="expected an object"):
        open_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "training_state.pt").write_bytes(b"pickle")
    with pytest.raises(CheckpointError, match=r"no weights; .*training_state\.pt: a pickle"):
        open_checkpoint(tmp_path)
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"contains adapter_config\.json"):
        open_checkpoint(tmp_path)


def test_a_pipe_is_not_a_weight_file(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    os.mkfifo(tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="not a regular file"):
        open_checkpoint(tmp_path)


def test_a_link_may_lead_to_the_hub_cache_only(tmp_path):
    outside = folder_with(tmp_path / "outside", {"w": torch.ones(2)})
    folder = tmp_path / "linked"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").symlink_to(outside / "model.safetensors")
    with pytest.raises(CheckpointError, match="links out of its folder"):
        open_checkpoint(folder)
    snapshot = tmp_path / "models--a--b" / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    blobs = tmp_path / "models--a--b" / "blobs"
    blobs.mkdir()
    (outside / "model.safetensors").rename(blobs / "beef")
    (snapshot / "model.safetensors").symlink_to("../../blobs/beef")
    (snapshot / "config.json").write_text("{}")
    assert torch.equal(open_checkpoint(snapshot).read("w"), torch.ones(2))


def test_shards_of_a_state_dict(tmp_path):
    folder = save_bin(tmp_path, {"a": torch.ones(2)})
    (folder / "pytorch_model.bin").rename(folder / "pytorch_model-00001-of-00002.bin")
    torch.save({"b": torch.zeros(3)}, folder / "pytorch_model-00002-of-00002.bin")
    index = {"a": "pytorch_model-00001-of-00002.bin", "b": "pytorch_model-00002-of-00002.bin"}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": index}))
    assert set(open_checkpoint(folder).tensors) == {"a", "b"}


def test_safetensors_are_preferred_to_a_pickle(tmp_path):
    folder = folder_with(tmp_path, {"w": torch.ones(2)})
    (folder / "pytorch_model.bin").write_bytes(b"never looked at")
    assert torch.equal(open_checkpoint(folder).read("w"), torch.ones(2))


def test_shards_and_a_single_file_are_the_same_weights(tmp_path):
    a, b = torch.arange(6.0).reshape(2, 3), torch.ones(4)
    single = open_checkpoint(folder_with(tmp_path / "single", {"a": a, "b": b}))
    sharded = folder_with(tmp_path / "shards", {"a": a}, "model-00001-of-00002.safetensors")
    save_file({"b": b}, sharded / "model-00002-of-00002.safetensors")
    index = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (sharded / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    opened = open_checkpoint(sharded)
    assert opened.digest() == single.digest()
    assert torch.equal(opened.read("b"), b)
    (sharded / "model.safetensors").write_bytes(
        (tmp_path / "single/model.safetensors").read_bytes()
    )
    with pytest.raises(CheckpointError, match="both model.safetensors and"):
        open_checkpoint(sharded)
    (sharded / "model.safetensors").unlink()
    save_file({"c": b}, sharded / "model-00002-of-00002.safetensors")
    with pytest.raises(CheckpointError, match="b is not in both this shard and the index"):
        open_checkpoint(sharded)


@pytest.mark.parametrize("shard", ["../outside.safetensors", "/etc/passwd", "sub/x.safetensors"])
def test_an_index_that_points_elsewhere_is_refused(tmp_path, shard):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": shard}}))
    with pytest.raises(CheckpointError, match="not a bare file name"):
        open_checkpoint(tmp_path)


def test_wrappers_are_stripped_and_a_changed_byte_changes_the_digest(tmp_path):
    for wrapped in ("_orig_mod.module.model.shared.weight", "model._orig_mod.shared.weight",
                    "module._fsdp_wrapped_module.model.shared.weight"):  # fmt: skip
        assert strip_wrappers(wrapped) == "model.shared.weight"
    assert strip_wrappers("model.module.weight") == "model.module.weight"
    plain = open_checkpoint(folder_with(tmp_path / "a", {"w": torch.ones(3)}))
    wrapped = open_checkpoint(folder_with(tmp_path / "b", {"module.w": torch.ones(3)}))
    other = open_checkpoint(folder_with(tmp_path / "c", {"w": torch.tensor([1.0, 1.0, 1.5])}))
    assert plain.digest() == wrapped.digest() != other.digest()


def test_values_that_are_not_weights_are_refused(tmp_path):
    bad = open_checkpoint(folder_with(tmp_path / "nan", {"w": torch.tensor([1.0, float("nan")])}))
    with pytest.raises(CheckpointError, match="w contains NaN or infinity"):
        bad.read("w")
    integers = open_checkpoint(folder_with(tmp_path / "int", {"w": torch.tensor([1, 2])}))
    with pytest.raises(CheckpointError, match="w has dtype I64"):
        integers.read("w")


def test_only_numbered_checkpoints_count_and_by_number(tmp_path):
    for name in ("checkpoint-1000", "checkpoint-200", "checkpoint-step-30", "checkpoint-best",
                 "checkpoint-final", "checkpoint-averaged", "other"):  # fmt: skip
        (tmp_path / name).mkdir()
    names = [path.name for path in list_checkpoints(tmp_path)]
    assert names == ["checkpoint-step-30", "checkpoint-200", "checkpoint-1000"]
    with pytest.raises(CheckpointError, match="checkpoint-N"):
        list_checkpoints(tmp_path / "other")


def test_the_metric_is_that_of_the_step(tmp_path):
    log = [{"step": 10, "eval_loss": 1.0}, {"step": 20, "loss": 3.0}]
    state = {"global_step": 20, "log_history": log}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    with pytest.raises(CheckpointError, match="no eval_loss at step 20; it logs: eval_loss, loss"):
        metric_of(tmp_path)
    log += [{"step": 20, "eval_loss": 2.5}, {"step": 19, "grad_norm": float("nan")}]
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    assert metric_of(tmp_path) == 2.5
    log.append({"step": 20, "eval_loss": float("nan")})
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    with pytest.raises(CheckpointError, match="eval_loss at step 20 is nan"):
        metric_of(tmp_path)
    (tmp_path / "trainer_state.json").write_text('{"log_history": 3}')
    with pytest.raises(CheckpointError, match="not a trainer state"):
        metric_of(tmp_path)
