"""Means of checkpoints, what is refused, and the writer of their weights."""

import json
import time

import numpy as np
import pytest
import torch
from helpers.checkpoints import folder_with, save_bin
from helpers.fault_injection import tree
from helpers.file_touches import TOUCHES, overwrite_with_its_times
from helpers.flips import flipped
from safetensors.torch import load_file, save_file

from qwen3nb.checkpoints import writer
from qwen3nb.checkpoints.averaging import (
    Selection,
    average_checkpoints,
    averaged,
    select_checkpoints,
)
from qwen3nb.checkpoints.folder import ModelFolder, list_checkpoints, metric_of, open_checkpoint
from qwen3nb.checkpoints.names import encoder_tensors
from qwen3nb.checkpoints.provenance import check_checksums
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.checkpoints.writer import write_pieces


@pytest.fixture
def run(tmp_path, make_checkpoint):
    for step, loss in ((10, 3.0), (20, 1.0), (30, 2.0)):
        make_checkpoint(tmp_path / "run" / f"checkpoint-{step}", seed=step, eval_loss=loss)
    return tmp_path / "run"


def test_last_selects_by_step_and_best_by_metric(run):
    def names(selection):
        return [path.name for path in selection.folders]

    assert names(select_checkpoints(run, last=2)) == ["checkpoint-20", "checkpoint-30"]
    best = select_checkpoints(run, best=2)
    assert set(names(best)) == {"checkpoint-20", "checkpoint-30"}
    assert best.metrics == {"checkpoint-10": 3.0, "checkpoint-20": 1.0, "checkpoint-30": 2.0}
    worst = select_checkpoints(run, best=1, lower_is_better=False)
    assert names(worst) == ["checkpoint-10"]
    everything = select_checkpoints(run, last=9)
    assert len(everything.folders) == 3
    assert "9 checkpoints requested, 3 averaged" in everything.note
    with pytest.raises(ValueError, match="expected one of last=N or best=N"):
        select_checkpoints(run)


def test_the_mean_by_hand(run, tmp_path):
    steps = [run / f"checkpoint-{step}" for step in (10, 20, 30)]
    output = average_checkpoints(select_checkpoints(run, last=3), tmp_path / "mean")
    sources = [load_file(folder / "model.safetensors") for folder in steps]
    mean = load_file(output / "model.safetensors")
    assert mean.keys() == sources[0].keys()
    for name, tensor in mean.items():
        expected = torch.stack([source[name].double() for source in sources]).mean(0)
        torch.testing.assert_close(tensor.double(), expected, atol=1e-7, rtol=0)
    metadata = json.loads((output / "averaging_metadata.json").read_text())
    assert metadata["averaged_from"] == [folder.name for folder in steps]
    assert metadata["num_checkpoints"] == 3
    assert metadata["digests"]["checkpoint-10"] == open_checkpoint(steps[0]).weights.digest
    assert (output / "tokenizer.json").is_file()


def test_bfloat16_is_summed_in_float32(tmp_path):
    values = torch.randn(10, 200, generator=torch.Generator().manual_seed(0)).bfloat16()
    folders = [folder_with(tmp_path / str(n), {"w": each}) for n, each in enumerate(values.clone())]
    output = average_checkpoints(folders, tmp_path / "mean")
    mean = load_file(output / "model.safetensors")["w"]
    assert mean.dtype == torch.bfloat16
    assert torch.equal(mean, values.double().mean(0).float().bfloat16())


ONES = {"w": torch.ones(2)}
ROPE = '{"model_type": "qwen3_encdec", "rope_theta": 1e6}'


@pytest.mark.parametrize(
    ("first", "other", "cause"),
    [
        (ONES, {"v": torch.ones(2)}, "is in only one of them"),
        (ONES, {"w": torch.ones(3)}, r"w is F32 \(3,\), expected F32 \(2,\)"),
        (ONES, {"w": torch.ones(2).half()}, r"w is F16 \(2,\), expected F32"),
        (ONES, {"w": torch.tensor([1.0, float("inf")])}, "NaN or infinity"),
        ({"w": torch.full((8,), 3e38)}, {"w": torch.full((8,), 3e38)}, "too large for float32"),
        (ONES, ("config.json", ROPE), "config 'rope_theta' is 1000000.0, expected None"),
        (ONES, ("tokenizer.json", '{"version": "2"}'), r"tokenizer\.json differs"),
    ],
)
def test_unlike_checkpoints_are_refused_and_nothing_is_left(tmp_path, first, other, cause):
    tensors, file = (first, other) if isinstance(other, tuple) else (other, ())
    folders = [folder_with(tmp_path / "a", first), folder_with(tmp_path / "b", tensors)]
    for folder in folders:
        (folder / "tokenizer.json").write_text('{"version": "1"}')
    if file:
        (folders[1] / file[0]).write_text(file[1])
    with pytest.raises(CheckpointError, match=cause):
        average_checkpoints(folders, tmp_path / "mean")
    assert not (tmp_path / "mean").exists()


@pytest.mark.parametrize("touch", TOUCHES, ids=lambda touch: touch.__name__)
def test_a_source_is_averaged_while_only_its_ctimes_change(tmp_path, monkeypatch, touch):
    values = {"a": torch.zeros(2), "b": torch.ones(2)}
    folders = [folder_with(tmp_path / name, {"w": value}) for name, value in values.items()]
    real = writer._write_tensor

    def meanwhile(*args):
        real(*args)
        time.sleep(0.02)  # more than a tick of the file system's clock
        for folder in folders:
            touch(folder / "model.safetensors")
            folder.joinpath("linked").unlink(missing_ok=True)

    monkeypatch.setattr(writer, "_write_tensor", meanwhile)
    mean = average_checkpoints(folders, tmp_path / "mean")
    assert load_file(mean / "model.safetensors")["w"].tolist() == [0.5, 0.5]


def test_a_source_that_changes_with_its_time_set_back_is_noticed(tmp_path, monkeypatch):
    folders = [folder_with(tmp_path / name, {"w": torch.ones(2)}) for name in "ab"]
    real = writer._write_tensor

    def meanwhile(*args):
        real(*args)
        time.sleep(0.02)
        overwrite_with_its_times(folders[1] / "model.safetensors")

    monkeypatch.setattr(writer, "_write_tensor", meanwhile)
    with pytest.raises(CheckpointError, match="changed while it was being read"):
        average_checkpoints(folders, tmp_path / "mean")


def test_a_source_that_changes_is_noticed(tmp_path, monkeypatch):
    folders = [folder_with(tmp_path / name, {"w": torch.ones(2)}) for name in "ab"]
    real = write_pieces

    def meanwhile(*args, **kwargs):
        result = real(*args, **kwargs)
        save_file({"w": torch.zeros(2)}, folders[1] / "model.safetensors")
        return result

    monkeypatch.setattr("qwen3nb.checkpoints.averaging.write_pieces", meanwhile)
    with pytest.raises(CheckpointError, match="changed while it was being read"):
        average_checkpoints(folders, tmp_path / "mean")
    assert not (tmp_path / "mean").exists()
    cut = open_checkpoint(folders[0]).weights
    (folders[0] / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="shorter than when it was opened"):
        cut.read("w")


def test_no_checkpoint_counts_twice_or_is_overwritten(tmp_path):
    folder = folder_with(tmp_path / "a", {"w": torch.ones(2)})
    with pytest.raises(CheckpointError, match="given twice"):
        average_checkpoints([folder, tmp_path / "a"], tmp_path / "mean")
    with pytest.raises(CheckpointError, match="is or contains"):
        average_checkpoints([folder], tmp_path)
    (tmp_path / "checkpoint-5").mkdir()
    (tmp_path / "checkpoint-step-5").mkdir()
    with pytest.raises(CheckpointError, match="same step"):
        list_checkpoints(tmp_path)


def test_settings_are_those_of_the_last_and_a_mean_that_was_changed_is_made_again(tmp_path):
    folders = [folder_with(tmp_path / name, {"w": torch.ones(2)}) for name in "ab"]
    for folder in folders:
        config = {"model_type": "qwen3_encdec", "transformers_version": folder.name}
        (folder / "config.json").write_text(json.dumps(config))
    selection = Selection(tuple(folders), "last 2", {})
    kept = averaged(selection)
    whole = tree(kept)
    assert json.loads(whole["config.json"])["transformers_version"] == "b"
    for name in ("config.json", "model.safetensors"):
        at = len(whole[name]) - 2
        with flipped(kept / name, at, 1):
            with pytest.raises(ValueError, match=name):
                check_checksums(ModelFolder(kept))
            changed = (kept / name).read_bytes()
        (kept / name).write_bytes(changed)
        assert averaged(selection) == kept
        assert tree(kept) == whole
    assert averaged(Selection(tuple(folders[:1]), "last 1", {})) == folders[0]


@pytest.mark.parametrize("rule", ["last", "best"])
def test_averages_of_a_real_training(fixtures, tmp_path, rule):
    """The averages that the training's own code made, of the last two and the best two."""
    folder = fixtures / "checkpoints"
    output = average_checkpoints(select_checkpoints(folder, **{rule: 2}), tmp_path / "mean")
    ours = load_file(output / "model.safetensors")
    theirs = load_file(folder / "expected" / f"averaged-{rule}2" / "model.safetensors")
    assert ours.keys() == theirs.keys()
    for tensor in theirs:
        torch.testing.assert_close(ours[tensor], theirs[tensor], atol=1e-6, rtol=0)


def test_a_checkpoint_without_a_step_is_left_out_and_named(run):
    (run / "checkpoint-10").rename(run / "checkpoint-best")
    selection = select_checkpoints(run, last=2)
    assert [folder.name for folder in selection.folders] == ["checkpoint-20", "checkpoint-30"]
    assert selection.note == "checkpoint-best: left out, as its name has no step"


def test_checkpoints_without_a_trainers_state_are_left_out_of_the_best(run):
    (run / "checkpoint-20" / "trainer_state.json").unlink()
    best = select_checkpoints(run, best=2)
    assert {folder.name for folder in best.folders} == {"checkpoint-10", "checkpoint-30"}
    assert best.note.startswith("checkpoint-20: left out")
    for name in ("checkpoint-10", "checkpoint-30"):
        (run / name / "trainer_state.json").unlink()
    with pytest.raises(CheckpointError, match="average the last N instead: --last N"):
        select_checkpoints(run, best=2)


def test_blocks_do_not_change_the_mean(tmp_path, monkeypatch):
    tensors = [{"w": torch.randn(7, 33), "v": torch.randn(5).half()} for _ in range(3)]
    folders = [folder_with(tmp_path / str(i), each) for i, each in enumerate(tensors)]
    whole = load_file(average_checkpoints(folders, tmp_path / "whole") / "model.safetensors")
    monkeypatch.setattr("qwen3nb.checkpoints.writer._VALUES_AT_ONCE", 4)
    parts = load_file(average_checkpoints(folders, tmp_path / "parts") / "model.safetensors")
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


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
    with pytest.raises(CheckpointError, match="same embedding, but differ"):
        encoder_tensors(opened)
    assert encoder_tensors(opened, untied=True) == {"embed_tokens.weight": ALIASES[0]}
    with pytest.raises(CheckpointError, match="same embedding, but differ"):
        average_checkpoints([opened.path], tmp_path / "mean")
    tensors = {"model.shared.weight": EMBEDDING, ALIASES[1]: EMBEDDING + 1}
    output = folder_with(tmp_path / "b", tensors)
    (output / "config.json").write_text('{"tie_word_embeddings": false}')
    tensors = encoder_tensors(open_checkpoint(output))
    assert tensors == {"embed_tokens.weight": "model.shared.weight"}
    only = open_checkpoint(folder_with(tmp_path / "c", {ALIASES[1]: EMBEDDING}))
    assert encoder_tensors(only) == {"embed_tokens.weight": ALIASES[1]}


def test_only_numbered_checkpoints_count_and_by_number(tmp_path):
    for name in ("1000", "200", "step-30", "best", "final", "averaged"):
        (tmp_path / f"checkpoint-{name}").mkdir()
    names = [path.name for path in list_checkpoints(tmp_path)]
    assert names == ["checkpoint-step-30", "checkpoint-200", "checkpoint-1000"]
    with pytest.raises(CheckpointError, match="checkpoint-N"):
        list_checkpoints(tmp_path / "checkpoint-best")


def test_the_metric_is_that_of_the_step(tmp_path):
    log = [{"step": 10, "eval_loss": 1.0}, {"step": 20, "loss": 3.0}]

    def metric(history):
        state = {"global_step": 20, "log_history": history}
        (tmp_path / "trainer_state.json").write_text(json.dumps(state))
        return metric_of(tmp_path)

    more = [{"step": 20, "eval_loss": 2.5}, {"step": 19, "grad_norm": float("nan")}]
    assert metric([*log, *more]) == 2.5
    for history, message in (
        (log, "no eval_loss at step 20; it logs: eval_loss, loss"),
        ([*log, {"step": 20, "eval_loss": float("nan")}], "eval_loss at step 20 is nan"),
        ([*log, {"step": 20, "eval_loss": 10**400}], "eval_loss at step 20 is 1000"),
        (3, "not a trainer state"),
    ):
        with pytest.raises(CheckpointError, match=message):
            metric(history)


WITHOUT_MEAN = {
    "I64": torch.arange(700),
    "I32": torch.arange(6, dtype=torch.int32).reshape(2, 3),
    "I8": torch.zeros(2, 3, dtype=torch.int8),
    "U8": torch.tensor(7, dtype=torch.uint8),
    "BOOL": torch.tensor([[True, False], [False, True]]),
    "C64": torch.tensor([1 + 2j, 3 - 1j]),
    "F8_E4M3": torch.tensor([0.5, -2.0]).to(torch.float8_e4m3fn),
    "F8_E5M2": torch.tensor([0.5, -2.0]).to(torch.float8_e5m2),
    "empty": torch.empty(0, dtype=torch.int64),
}


@pytest.mark.parametrize("save", ["safetensors", "bin"])
def test_what_has_no_mean_is_copied_if_it_is_equal(tmp_path, save):
    """Also beside floats of odd lengths: every tensor lies at a multiple of its size."""
    folders = []
    for name, value in (("a", 1.0), ("b", 2.0)):
        tensors = {"w": torch.full((3,), value).bfloat16(), **WITHOUT_MEAN}
        if save == "bin":
            folders.append(save_bin(tmp_path / name, tensors))
        else:
            folders.append(folder_with(tmp_path / name, dict(tensors)))
    output = average_checkpoints(folders, tmp_path / "mean")
    mean = load_file(output / "model.safetensors")
    assert torch.equal(mean["w"], torch.full((3,), 1.5).bfloat16())
    for name, tensor in WITHOUT_MEAN.items():
        assert mean[name].dtype == tensor.dtype
        assert mean[name].shape == tensor.shape
        ours, theirs = (each.reshape(-1).view(torch.uint8) for each in (mean[name], tensor))
        assert torch.equal(ours, theirs)
    metadata = json.loads((output / "averaging_metadata.json").read_text())
    assert metadata["warnings"] == []
    check_checksums(ModelFolder(output))


@pytest.mark.parametrize("name", [name for name in WITHOUT_MEAN if name != "empty"])
def test_what_has_no_mean_and_differs_is_refused_by_its_name(tmp_path, name):
    tensor = WITHOUT_MEAN[name]
    other = tensor.clone()
    other.view(torch.uint8).reshape(-1)[-1] ^= 1
    first = folder_with(tmp_path / "a", {"w": torch.ones(2), "counter.x": tensor})
    second = folder_with(tmp_path / "b", {"w": torch.ones(2), "counter.x": other})
    with pytest.raises(CheckpointError, match=r"counter\.x is .* has no mean, and differs"):
        average_checkpoints([first, second], tmp_path / "mean")
    assert not (tmp_path / "mean").exists()


def test_the_mean_of_doubles_is_a_double(tmp_path):
    values = torch.randn(3, 300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values[:, 0] = torch.tensor([1e300, 3e300, 2e300], dtype=torch.float64)  # beyond float32
    folders = [folder_with(tmp_path / str(n), {"w": each}) for n, each in enumerate(values.clone())]
    output = average_checkpoints(folders, tmp_path / "mean")
    mean = load_file(output / "model.safetensors")["w"]
    assert mean.dtype == torch.float64
    np.testing.assert_allclose(mean.numpy(), values.numpy().mean(axis=0), rtol=1e-15, atol=1e-16)
    other = folder_with(tmp_path / "inf", {"w": torch.full((300,), torch.inf).double()})
    with pytest.raises(CheckpointError, match="NaN or infinity"):
        average_checkpoints([folders[0], other], tmp_path / "x")
