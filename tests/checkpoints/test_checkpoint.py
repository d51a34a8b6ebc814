import json
import os
import struct
import zipfile
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from qwen3nb.checkpoints.averaging import average_checkpoints, select_checkpoints
from qwen3nb.checkpoints.checkpoint import (
    Checkpoint,
    CheckpointError,
    list_checkpoints,
    metric_of,
    open_checkpoint,
    strip_wrappers,
)
from qwen3nb.checkpoints.safetensors_header import read_safetensors, read_torch
from qwen3nb.checkpoints.tied_weights import embedding_name
from qwen3nb.checkpoints.writer import Piece, transfer


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
    "list": (raw([1, 2]), "not an object"),
    "negative": (raw({"a": {**F4, "shape": [-1]}}, b"\0" * 4), "malformed header entry for a"),
    "words": (raw({"a": {**F4, "shape": ["x"]}}, b"\0" * 4), "malformed header entry for a"),
    "nested": (raw(b'{"a":' * 90000), "unreadable safetensors header"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_weight_file_is_named_with_its_cause(tmp_path, case):
    content, cause = BAD[case]
    file = tmp_path / "model.safetensors"
    file.write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"model\.safetensors.*{cause}"):
        read_safetensors(file)


def test_what_is_no_checkpoint_folder(tmp_path):
    with pytest.raises(CheckpointError, match="no such folder"):
        open_checkpoint(tmp_path / "nope")
    with pytest.raises(CheckpointError, match=r"no config\.json"):
        open_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(CheckpointError, match="expected an object"):
        open_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "training_state.pt").write_bytes(b"pickle")
    with pytest.raises(CheckpointError, match=r"no weights: .*training_state\.pt: a pickle"):
        open_checkpoint(tmp_path)
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"adapter_config\.json beside a whole model"):
        open_checkpoint(tmp_path)


def test_a_pipe_is_no_weight_file(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    os.mkfifo(tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="not a regular one"):
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


def save_bin(folder, state, **options):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text('{"model_type": "qwen3_encdec"}')
    torch.save(state, folder / "pytorch_model.bin", **options)
    return folder


def test_a_state_dict_is_read_like_safetensors(tmp_path):
    flat = torch.randn(20)
    state = {"w": torch.randn(3, 4).bfloat16(), "b": flat[5:11].reshape(2, 3), "half": flat.half()}
    opened = open_checkpoint(save_bin(tmp_path / "bin", state))
    for name, tensor in state.items():
        assert torch.equal(opened.read(name), tensor)
    copies = {name: tensor.clone() for name, tensor in state.items()}
    assert opened.digest() == open_checkpoint(folder_with(tmp_path / "st", copies)).digest()
    assert opened.files == [tmp_path / "bin" / "pytorch_model.bin"]


def test_shards_of_a_state_dict(tmp_path):
    folder = save_bin(tmp_path, {"a": torch.ones(2)})
    (folder / "pytorch_model.bin").rename(folder / "pytorch_model-00001-of-00002.bin")
    torch.save({"b": torch.zeros(3)}, folder / "pytorch_model-00002-of-00002.bin")
    index = {"a": "pytorch_model-00001-of-00002.bin", "b": "pytorch_model-00002-of-00002.bin"}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": index}))
    assert set(open_checkpoint(folder).tensors) == {"a", "b"}


class Runs:
    """Unpickling it runs a command."""

    def __reduce__(self):
        return os.system, ("touch hacked",)


BAD_BIN = {
    "code": (lambda: {"w": torch.ones(1), "x": Runs()}, "more than tensors is pickled"),
    "huge": (lambda: {"w": torch.zeros(1).expand(10**6, 10**6)}, "w claims 4,000,000,000,000"),
    "nested": (lambda: {"model": {"w": torch.ones(1)}}, "model is a dict, expected a flat state"),
    "list": (lambda: [torch.ones(1)], "holds a list, expected a state dict"),
    "strides": (lambda: {"w": torch.randn(3, 4).T}, "w is not contiguous"),
}


@pytest.mark.parametrize("case", BAD_BIN)
def test_a_bad_state_dict_is_refused_and_nothing_runs(tmp_path, case, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make, cause = BAD_BIN[case]
    with pytest.raises(CheckpointError, match=rf"pytorch_model\.bin: {cause}"):
        open_checkpoint(save_bin(tmp_path / "bad", make()))
    assert not (tmp_path / "hacked").exists()


def test_other_files_named_bin_are_refused(tmp_path):
    old = save_bin(tmp_path, {"w": torch.ones(1)}, _use_new_zipfile_serialization=False)
    with pytest.raises(CheckpointError, match=r"not a file torch\.save has written since 1\.6"):
        open_checkpoint(old)
    file = old / "pytorch_model.bin"
    file.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(CheckpointError, match="git-LFS pointer"):
        open_checkpoint(old)
    whole = save_bin(tmp_path / "cut", {"w": torch.randn(1000)}) / "pytorch_model.bin"
    whole.write_bytes(whole.read_bytes()[:-2000])
    with pytest.raises(CheckpointError, match="or cut short"):
        read_torch(whole)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"0" * 100)
    with pytest.raises(CheckpointError, match="compressed"):
        read_torch(file)


def test_safetensors_are_taken_before_a_pickle(tmp_path):
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
    with pytest.raises(CheckpointError, match="holds both"):
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
    log += [{"step": 20, "eval_loss": 2.5}, {"step": 19, "grad_norm": float("nan")}]
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    assert metric_of(tmp_path) == 2.5
    log.append({"step": 20, "eval_loss": float("nan")})
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    with pytest.raises(CheckpointError, match="eval_loss at step 20 is nan"):
        metric_of(tmp_path)
    (tmp_path / "trainer_state.json").write_text('{"log_history": 3}')
    with pytest.raises(CheckpointError, match="not a trainer's state"):
        metric_of(tmp_path)


def test_a_transfer_writes_what_the_library_reads(tmp_path):
    tensors = {"b": torch.randn(3, 500), "a": torch.tensor([0.5]), "c": torch.zeros(0)}
    source = open_checkpoint(folder_with(tmp_path / "in", tensors))
    pieces = [Piece("b2", "F32", ("b",)), Piece("a", "BF16", ("a",)), Piece("c", "F32", ("c",))]
    file = tmp_path / "x.safetensors"
    assert transfer([source], pieces, file, label="copy") == []
    read = load_file(file)
    assert torch.equal(read["b2"], tensors["b"])
    assert torch.equal(read["a"], tensors["a"].bfloat16())
    assert read["c"].numel() == 0
    assert set(read_safetensors(file)) == {"a", "b2", "c"}


def test_blocks_do_not_change_the_mean(tmp_path, monkeypatch):
    tensors = [{"w": torch.randn(7, 33), "v": torch.randn(5).half()} for _ in range(3)]
    folders = [folder_with(tmp_path / str(i), each) for i, each in enumerate(tensors)]
    whole = load_file(average_checkpoints(folders, tmp_path / "whole") / "model.safetensors")
    monkeypatch.setattr("qwen3nb.checkpoints.writer._BLOCK", 4)
    parts = load_file(average_checkpoints(folders, tmp_path / "parts") / "model.safetensors")
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_what_looks_cut_is_said(tmp_path):
    half = torch.randn(40, 4)
    half[20:] = 0
    tensors = {"same": torch.full((3, 3), 2.0), "half": half, "norm": torch.ones(9)}
    output = average_checkpoints([folder_with(tmp_path / "in", tensors)], tmp_path / "out")
    warnings = json.loads((output / "averaging_metadata.json").read_text())["warnings"]
    assert sorted(warnings) == [
        "half: 50% of its values are exactly 0",
        "same: every value of it is the same",
    ]


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


def test_a_source_that_changes_is_noticed(tmp_path, monkeypatch):
    folders = [folder_with(tmp_path / name, {"w": torch.ones(2)}) for name in "ab"]
    opened = open_checkpoint(folders[1])
    opened.check_unchanged()
    real = transfer

    def meanwhile(*args, **kwargs):
        found = real(*args, **kwargs)
        save_file({"w": torch.zeros(2)}, folders[1] / "model.safetensors")
        return found

    monkeypatch.setattr("qwen3nb.checkpoints.averaging.transfer", meanwhile)
    with pytest.raises(CheckpointError, match="changed while it was being read"):
        average_checkpoints(folders, tmp_path / "mean")
    assert not (tmp_path / "mean").exists()
    with pytest.raises(CheckpointError, match="changed while it was being read"):
        opened.check_unchanged()
    (folders[0] / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="shorter than when it was opened"):
        Checkpoint(folders[0], {}, opened.tensors | {"w": cut_entry(folders[0], opened)}).read("w")


def cut_entry(folder, opened):
    return replace(opened.tensors["w"], file=folder / "model.safetensors")


def test_no_checkpoint_counts_twice_or_is_overwritten(tmp_path):
    folder = folder_with(tmp_path / "a", {"w": torch.ones(2)})
    with pytest.raises(CheckpointError, match="named twice"):
        average_checkpoints([folder, tmp_path / "a"], tmp_path / "mean")
    with pytest.raises(CheckpointError, match="is, or holds, one of the sources"):
        average_checkpoints([folder], tmp_path)
    (tmp_path / "checkpoint-5").mkdir()
    (tmp_path / "checkpoint-step-5").mkdir()
    with pytest.raises(CheckpointError, match="are of the same step"):
        list_checkpoints(tmp_path)


def test_another_tokenizer_is_another_model(tmp_path):
    folders = [folder_with(tmp_path / name, {"w": torch.ones(2)}) for name in "ab"]
    for index, folder in enumerate(folders):
        (folder / "tokenizer.json").write_text(f'{{"version": "{index}"}}')
    with pytest.raises(CheckpointError, match=r"tokenizer\.json differs"):
        average_checkpoints(folders, tmp_path / "mean")


EMBEDDING = torch.randn(5, 3)
ALIASES = ("model.encoder.embed_tokens.weight", "lm_head.weight")


def test_copies_of_the_embedding_are_written_once(tmp_path):
    """From a pickle, where they are one storage, and from safetensors, where they are copies."""
    copies = {"model.shared.weight": EMBEDDING, **dict.fromkeys(ALIASES, EMBEDDING)}
    pickled = save_bin(tmp_path / "bin", copies)
    stored = folder_with(tmp_path / "st", {name: value.clone() for name, value in copies.items()})
    output = average_checkpoints([pickled, stored], tmp_path / "mean")
    assert set(load_file(output / "model.safetensors")) == {"model.shared.weight"}


def test_copies_that_differ_are_refused_unless_they_may(tmp_path):
    tensors = {"model.shared.weight": EMBEDDING, ALIASES[0]: EMBEDDING + 1}
    opened = open_checkpoint(folder_with(tmp_path / "a", tensors))
    with pytest.raises(CheckpointError, match="should be one embedding, but differ"):
        embedding_name(opened)
    assert embedding_name(opened, allow=["untied"]) == ALIASES[0]
    with pytest.raises(CheckpointError, match="should be one embedding, but differ"):
        average_checkpoints([opened.folder], tmp_path / "mean")
    tensors = {"model.shared.weight": EMBEDDING, ALIASES[1]: EMBEDDING + 1}
    output = folder_with(tmp_path / "b", tensors)
    with pytest.raises(CheckpointError, match=r"lm_head\.weight and model\.shared\.weight"):
        embedding_name(open_checkpoint(output))
    (output / "config.json").write_text('{"tie_word_embeddings": false}')
    assert embedding_name(open_checkpoint(output)) == "model.shared.weight"
    only = open_checkpoint(folder_with(tmp_path / "c", {ALIASES[1]: EMBEDDING}))
    assert embedding_name(only) == ALIASES[1]


def test_an_average_that_fails_leaves_the_earlier_one(tmp_path, monkeypatch):
    folder = folder_with(tmp_path / "a", {"w": torch.ones(2)})
    average_checkpoints([folder], tmp_path / "mean")
    before = {path.name: path.read_bytes() for path in (tmp_path / "mean").iterdir()}

    def full(*args):
        raise OSError(28, "No space left on device")

    for name in ("os.pwrite", "qwen3nb.checkpoints.averaging.write_json", "os.fsync"):
        with monkeypatch.context() as patch:
            patch.setattr(name, full)
            with pytest.raises(OSError, match="No space left"):
                average_checkpoints([folder], tmp_path / "mean")
        assert {path.name for path in tmp_path.iterdir()} <= {"a", "mean", "home"}
        after = {path.name: path.read_bytes() for path in (tmp_path / "mean").iterdir()}
        assert after == before


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
