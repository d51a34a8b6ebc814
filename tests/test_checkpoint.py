import json
import struct

import pytest
import torch
from safetensors.torch import load_file, save_file

from qwen3nb.extraction.averaging import average_checkpoints, select_checkpoints
from qwen3nb.extraction.checkpoint import (
    CheckpointError,
    list_checkpoints,
    metric_of,
    open_checkpoint,
    read_header,
    strip_wrappers,
)
from qwen3nb.extraction.tensorfile import TensorWriter


def folder_with(tmp_path, tensors, name="model.safetensors", metadata=None):
    tmp_path.mkdir(parents=True, exist_ok=True)
    (tmp_path / "config.json").write_text('{"model_type": "qwen3_encdec"}')
    save_file(tensors, tmp_path / name, metadata=metadata)
    return tmp_path


def raw(header, data=b""):
    text = json.dumps(header).encode() if not isinstance(header, bytes) else header
    return struct.pack("<Q", len(text)) + text + data


F4 = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
BAD = {
    "empty": (b"", "cut short"),
    "truncated": (raw({"a": F4}, b"\0\0"), "tensors end at byte"),
    "trailing bytes": (raw({"a": F4}, b"\0" * 9), "tensors end at byte"),
    "header too long": (struct.pack("<Q", 10**18) + b"{}", "cut short"),
    "not json": (raw(b"{nope"), "unreadable safetensors header"),
    "twice": (raw(b'{"a":1,"a":2}'), "a name appears twice"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "git-LFS pointer"),
    "html": (b"<!DOCTYPE html><html>not found</html>", "an HTML page"),
    "overlap": (
        raw({"a": F4, "b": {**F4, "data_offsets": [2, 6]}}, b"\0" * 6),
        "b overlaps the tensor before it",
    ),
    "gap": (raw({"a": F4, "b": {**F4, "data_offsets": [8, 12]}}, b"\0" * 12), "b follows a gap"),
    "size": (raw({"a": {**F4, "shape": [7]}}, b"\0" * 4), r"says F32 \(7,\) but holds 4 bytes"),
    "dtype": (raw({"a": {**F4, "dtype": "F31"}}, b"\0" * 4), "a is F31"),
    "entry": (raw({"a": {"dtype": "F32"}}), "malformed header entry for a"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_weight_file_is_named_with_its_cause(tmp_path, case):
    content, cause = BAD[case]
    file = tmp_path / "model.safetensors"
    file.write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"model\.safetensors.*{cause}"):
        read_header(file)


def test_what_is_no_checkpoint_folder(tmp_path):
    with pytest.raises(CheckpointError, match="no such folder"):
        open_checkpoint(tmp_path / "nope")
    with pytest.raises(CheckpointError, match=r"no config\.json"):
        open_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(CheckpointError, match="expected an object"):
        open_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(CheckpointError, match="Pickled weights .* are not read"):
        open_checkpoint(tmp_path)


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
    with pytest.raises(CheckpointError, match="holds both"):
        open_checkpoint(sharded)


@pytest.mark.parametrize("shard", ["../outside.safetensors", "/etc/passwd", "sub/x.safetensors"])
def test_an_index_that_points_elsewhere_is_refused(tmp_path, shard):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": shard}}))
    with pytest.raises(CheckpointError, match="not a bare file name"):
        open_checkpoint(tmp_path)


def test_wrappers_are_stripped_and_a_changed_byte_changes_the_digest(tmp_path):
    assert strip_wrappers("_orig_mod.module.model.shared.weight") == "model.shared.weight"
    plain = open_checkpoint(folder_with(tmp_path / "a", {"w": torch.ones(3)}))
    wrapped = open_checkpoint(folder_with(tmp_path / "b", {"module.w": torch.ones(3)}))
    other = open_checkpoint(folder_with(tmp_path / "c", {"w": torch.tensor([1.0, 1.0, 1.5])}))
    assert plain.digest() == wrapped.digest() != other.digest()


def test_values_that_are_no_weights_are_refused(tmp_path):
    bad = open_checkpoint(folder_with(tmp_path / "nan", {"w": torch.tensor([1.0, float("nan")])}))
    with pytest.raises(CheckpointError, match="w holds NaN or infinity"):
        bad.read("w")
    integers = open_checkpoint(folder_with(tmp_path / "int", {"w": torch.tensor([1, 2])}))
    with pytest.raises(CheckpointError, match="w is I64"):
        integers.read("w")


def test_only_numbered_checkpoints_count_and_by_number(tmp_path):
    for name in ("checkpoint-1000", "checkpoint-200", "checkpoint-step-30", "checkpoint-best",
                 "checkpoint-final", "checkpoint-averaged", "other"):  # fmt: skip
        (tmp_path / name).mkdir()
    names = [path.name for path in list_checkpoints(tmp_path)]
    assert names == ["checkpoint-step-30", "checkpoint-200", "checkpoint-1000"]
    with pytest.raises(CheckpointError, match="holds no checkpoint-N folder"):
        list_checkpoints(tmp_path / "other")


def test_the_metric_is_that_of_the_step(tmp_path):
    log = [{"step": 10, "eval_loss": 1.0}, {"step": 20, "loss": 3.0}]
    state = {"global_step": 20, "log_history": log}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    with pytest.raises(CheckpointError, match="no eval_loss at step 20; it logs: eval_loss, loss"):
        metric_of(tmp_path)
    state["log_history"].append({"step": 20, "eval_loss": 2.5})
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    assert metric_of(tmp_path) == 2.5


def test_the_writer_writes_what_the_library_reads(tmp_path):
    tensors = {"b": torch.ones(2, 3), "a": torch.tensor([0.5]).bfloat16(), "c": torch.zeros(0)}
    shapes = {"b": ("F32", (2, 3)), "a": ("BF16", (1,)), "c": ("F32", (0,))}
    file = tmp_path / "x.safetensors"
    with TensorWriter(file, shapes) as writer:
        for name in writer.order:
            writer.write(tensors[name])
    read = load_file(file)
    assert all(torch.equal(read[name], tensors[name]) for name in tensors)
    assert set(read_header(file)) == {"a", "b", "c"}
    with (
        pytest.raises(ValueError, match="1 tensors were never written"),
        TensorWriter(tmp_path / "y", {"a": ("F32", (1,))}),
    ):
        pass
    with (
        pytest.raises(ValueError, match=r"a: expected F32 \(1,\)"),
        TensorWriter(tmp_path / "z", {"a": ("F32", (1,))}) as writer,
    ):
        writer.write(torch.ones(2))


@pytest.fixture
def run(tmp_path, make_checkpoint):
    for step, loss in ((10, 3.0), (20, 1.0), (30, 2.0)):
        make_checkpoint(tmp_path / "run" / f"checkpoint-{step}", seed=step, eval_loss=loss)
    return tmp_path / "run"


def test_last_and_best_choose_what_they_say(run):
    names = lambda selection: [path.name for path in selection.folders]  # noqa: E731
    assert names(select_checkpoints(run, last=2)) == ["checkpoint-20", "checkpoint-30"]
    best = select_checkpoints(run, best=2)
    assert set(names(best)) == {"checkpoint-20", "checkpoint-30"}
    assert best.metrics == {"checkpoint-10": 3.0, "checkpoint-20": 1.0, "checkpoint-30": 2.0}
    worst = select_checkpoints(run, best=1, lower_is_better=False)
    assert names(worst) == ["checkpoint-10"]
    everything = select_checkpoints(run, last=9)
    assert len(everything.folders) == 3
    assert "has 3: all were taken" in everything.note
    with pytest.raises(ValueError, match="expected one of last=N or best=N"):
        select_checkpoints(run)


def test_the_mean_by_hand(run, tmp_path):
    output = average_checkpoints(select_checkpoints(run, last=3), tmp_path / "mean")
    sources = [load_file(run / f"checkpoint-{step}" / "model.safetensors") for step in (10, 20, 30)]
    mean = load_file(output / "model.safetensors")
    assert mean.keys() == sources[0].keys()
    for name, tensor in mean.items():
        expected = torch.stack([source[name].double() for source in sources]).mean(0)
        torch.testing.assert_close(tensor.double(), expected, atol=1e-7, rtol=0)
    metadata = json.loads((output / "averaging_metadata.json").read_text())
    assert metadata["averaged_from"] == ["checkpoint-10", "checkpoint-20", "checkpoint-30"]
    assert metadata["num_checkpoints"] == 3
    assert metadata["digests"]["checkpoint-10"] == open_checkpoint(run / "checkpoint-10").digest()
    assert (output / "tokenizer.json").is_file()


def test_bfloat16_is_summed_in_float32(tmp_path):
    folders, values = [], []
    for index in range(10):
        values.append(torch.randn(200, generator=torch.Generator().manual_seed(index)).bfloat16())
        folders.append(folder_with(tmp_path / str(index), {"w": values[-1]}))
    output = average_checkpoints(folders, tmp_path / "mean")
    mean = load_file(output / "model.safetensors")["w"]
    assert mean.dtype == torch.bfloat16
    exact = torch.stack([value.double() for value in values]).mean(0)
    assert torch.equal(mean, exact.float().bfloat16())


@pytest.mark.parametrize(
    ("other", "cause"),
    [
        ({"v": torch.ones(2)}, "is in only one of them"),
        ({"w": torch.ones(3)}, r"w is F32 \(3,\), not F32 \(2,\)"),
        ({"w": torch.ones(2).half()}, r"w is F16 \(2,\), not F32"),
        ({"w": torch.tensor([1.0, float("inf")])}, "NaN or infinity"),
    ],
)
def test_unlike_checkpoints_are_refused_and_nothing_is_left(tmp_path, other, cause):
    first = folder_with(tmp_path / "a", {"w": torch.ones(2)})
    second = folder_with(tmp_path / "b", other)
    with pytest.raises(CheckpointError, match=cause):
        average_checkpoints([first, second], tmp_path / "mean")
    assert not (tmp_path / "mean").exists()


def test_another_rope_is_another_model(tmp_path):
    first = folder_with(tmp_path / "a", {"w": torch.ones(2)})
    second = folder_with(tmp_path / "b", {"w": torch.ones(2)})
    (second / "config.json").write_text('{"model_type": "qwen3_encdec", "rope_theta": 1e6}')
    with pytest.raises(CheckpointError, match="config 'rope_theta' is 1000000.0, not None"):
        average_checkpoints([first, second], tmp_path / "mean")


def test_averages_of_a_real_training(fixtures, tmp_path):
    """The averages that the training's own code made, of the last two and the best two."""
    folder = fixtures / "checkpoints"
    for name, choice in (("last2", {"last": 2}), ("best2", {"best": 2})):
        output = average_checkpoints(select_checkpoints(folder, **choice), tmp_path / name)
        ours = load_file(output / "model.safetensors")
        theirs = load_file(folder / "expected" / f"averaged-{name}" / "model.safetensors")
        assert ours.keys() == theirs.keys()
        for tensor in theirs:
            torch.testing.assert_close(ours[tensor], theirs[tensor], atol=1e-6, rtol=0)
