"""A model's folder is opened once, and nothing outside of it is read or copied."""

import json
import os
import shutil
import time

import pytest
import torch
from helpers import malformed_files as malformed
from helpers.checkpoints import folder_with
from helpers.file_touches import TOUCHES, overwrite_with_its_times
from safetensors.torch import save_file

from qwen3nb.checkpoints.averaging import average_checkpoints
from qwen3nb.checkpoints.folder import (
    ModelFolder,
    copy_present,
    open_checkpoint,
    strip_wrappers,
)
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.models.kinds.resolve import find_source


def refusal(call, *arguments):
    """The message of a refusal, which is one line."""
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the callers match the message
        call(*arguments)
    assert "\n" not in str(raised.value)
    return str(raised.value)


JSON = {
    "twice": (b'{"a": {"b": 1, "b": 1}}', "the key 'b' occurs twice"),
    "NaN": (b'{"a": NaN}', "NaN is not JSON"),
    "UTF-16": ("{}".encode("utf-16"), "invalid JSON"),
    "deep": (b"[" * 100_000 + b"]" * 100_000, "invalid JSON"),
    "empty": (b"", "invalid JSON"),
    "a list": (b"[1]", "expected an object"),
}


@pytest.mark.parametrize("case", JSON)
def test_ambiguous_json_is_refused_with_the_file(tmp_path, case):
    raw, message = JSON[case]
    (tmp_path / "config.json").write_bytes(raw)
    for reader in (open_checkpoint, find_source, lambda folder: ModelFolder(folder).config):
        assert message in (text := refusal(reader, tmp_path))
        assert str(tmp_path / "config.json") in text


def test_a_folder_that_changed_is_noticed_and_opened_again(tmp_path):
    folder = ModelFolder(folder_with(tmp_path / "model", {"w": torch.ones(2)}))
    before = folder.weights.digest
    assert folder.current() is folder
    save_file({"w": torch.zeros(2)}, folder.path / "model.safetensors")
    assert folder.touched_file() == folder.path / "model.safetensors"
    assert folder.current().weights.digest != before
    with pytest.raises(CheckpointError, match="changed while it was being read"):
        folder.check_unchanged()


@pytest.mark.parametrize("touch", TOUCHES, ids=lambda touch: touch.__name__)
def test_a_folder_of_which_only_ctimes_changed_is_unchanged(tmp_path, touch):
    folder = ModelFolder(folder_with(tmp_path / "model", {"w": torch.ones(2)}))
    read = (folder.config, folder.weights.digest)
    time.sleep(0.02)  # more than a tick of the file system's clock
    for name in ("config.json", "model.safetensors"):
        touch(folder.path / name)
        folder.path.joinpath("linked").unlink(missing_ok=True)
    assert folder.touched_file() is not None
    assert folder.rewritten_file() is None
    folder.check_unchanged()
    assert (folder.current().config, folder.current().weights.digest) == read


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_change_of_the_content_is_noticed_although_its_time_was_set_back(tmp_path, name):
    folder = ModelFolder(folder_with(tmp_path / "model", {"w": torch.ones(2)}))
    assert folder.config is not None
    assert folder.weights.digest
    time.sleep(0.02)
    overwrite_with_its_times(folder.path / name)
    assert folder.rewritten_file() is None
    with pytest.raises(CheckpointError, match=rf"{name}: changed while it was being read"):
        folder.check_unchanged()


@pytest.mark.parametrize("case", malformed.LINKS)
def test_a_link_out_or_no_regular_file_is_refused_by_all_who_read_or_copy(
    checkpoint, tmp_path, case
):
    folder = shutil.copytree(checkpoint, tmp_path / "model")
    malformed.LINKS[case](folder)
    for reader in (open_checkpoint, find_source):
        message = refusal(reader, folder)
        assert str(folder) in message
        assert malformed.SECRET not in message
    assert refusal(average_checkpoints, [checkpoint, folder], tmp_path / "mean")
    assert {each.name for each in tmp_path.iterdir()} <= {"home", "model", "outside"}


@pytest.mark.parametrize("case", malformed.MODULES)
def test_modules_of_sentence_transformers_lie_inside(tmp_path, case):
    folder = tmp_path / "model"
    (folder / "1_Pooling").mkdir(parents=True)
    (folder / "1_Pooling" / "config.json").write_text('{"a": 1}')
    (folder / "config_sentence_transformers.json").write_text("{}")
    types = [f"sentence_transformers.models.{each}" for each in ("Transformer", "Pooling")]
    listed = [
        {"name": "0", "path": "", "type": types[0]},
        {"name": "1", "path": "1_Pooling", "type": types[1]},
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    opened = ModelFolder(folder)
    assert [(each.name, each.fields) for each in opened.modules] == [
        ("Transformer", {}),
        ("Pooling", {"a": 1}),
    ]
    assert opened.modules[0].folder is opened
    opened.check_files()
    malformed.MODULES[case](folder)
    opened = ModelFolder(folder)
    assert str(folder) in refusal(lambda: (opened.check_files(), opened.modules))


def test_a_snapshot_links_to_the_blobs_of_its_own_cache_only(tmp_path):
    cache = tmp_path / "models--a--b"
    folder = cache / "snapshots" / "0123"
    (folder / "1_Pooling").mkdir(parents=True)
    stored = folder_with(tmp_path / "stored", {"w": torch.ones(2)})

    def linked(blobs):
        shutil.copytree(stored, blobs)
        for name, blob in (
            ("config.json", "config.json"),
            ("1_Pooling/config.json", "config.json"),
            ("model.safetensors", "model.safetensors"),
        ):
            (folder / name).unlink(missing_ok=True)
            link = os.path.relpath(blobs / blob, (folder / name).parent)
            (folder / name).symlink_to(link)

    linked(tmp_path / "models--a--b-blobs")
    assert "links out of its folder" in refusal(open_checkpoint, folder)
    linked(cache / "blobs")
    opened = open_checkpoint(folder)
    assert torch.equal(opened.weights.read("w"), torch.ones(2))
    copy_present(("config.json", "absent.json"), opened, tmp_path)
    assert not (tmp_path / "config.json").is_symlink()
    (folder / "config.json").unlink()
    (cache / "blobs" / "beef").symlink_to(stored / "config.json")
    (folder / "config.json").symlink_to("../../blobs/beef")
    assert "links out of its folder" in refusal(open_checkpoint, folder)


def test_other_folders_are_no_checkpoints(tmp_path):
    assert "no such folder" in refusal(open_checkpoint, tmp_path / "nope")
    assert "no config.json" in refusal(open_checkpoint, tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert "no weights; expected model.safetensors" in refusal(open_checkpoint, tmp_path)
    (tmp_path / "adapter_config.json").write_text("{}")
    assert "contains adapter_config.json" in refusal(open_checkpoint, tmp_path)
    (tmp_path / "adapter_config.json").unlink()
    os.mkfifo(tmp_path / "model.safetensors")
    assert "not a regular file" in refusal(open_checkpoint, tmp_path)


@pytest.mark.parametrize("case", malformed.INDEXES)
def test_an_index_of_shards_names_files_of_its_folder(checkpoint, tmp_path, case):
    folder = shutil.copytree(checkpoint, tmp_path / "model")
    malformed.INDEXES[case](folder)
    assert str(folder) in refusal(open_checkpoint, folder)


def test_safetensors_are_preferred_and_shards_must_belong_together(tmp_path):
    names = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    folder = folder_with(tmp_path / "shards", {"a": torch.ones(3)}, names[0])
    save_file({"b": torch.ones(4)}, folder / names[1])
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": dict(zip("ab", names, strict=True))})
    )
    (folder / "pytorch_model.bin").write_bytes(b"never looked at")
    weights = open_checkpoint(folder).weights
    assert [weights.read(name).sum() for name in "ab"] == [3, 4]
    shutil.copyfile(folder / names[0], folder / "model.safetensors")
    assert "both model.safetensors and" in refusal(open_checkpoint, folder)
    (folder / "model.safetensors").unlink()
    save_file({"c": torch.ones(4)}, folder / names[1])
    assert "b is not in both this shard and the index" in refusal(open_checkpoint, folder)


def test_wrappers_are_stripped_and_a_changed_byte_changes_the_digest(tmp_path):
    for wrapped in (
        "_orig_mod.module.model",
        "model._orig_mod",
        "module._fsdp_wrapped_module.model",
    ):
        assert strip_wrappers(f"{wrapped}.shared.weight") == "model.shared.weight"
    assert strip_wrappers("model.module.weight") == "model.module.weight"
    states = {"a": {"w": 1.0}, "b": {"module.w": 1.0}, "c": {"w": 1.5}}
    plain, wrapped, other = (
        open_checkpoint(
            folder_with(tmp_path / name, {k: torch.full((3,), v) for k, v in state.items()})
        ).weights.digest
        for name, state in states.items()
    )
    assert plain == wrapped != other


@pytest.mark.parametrize(
    ("value", "refused"),
    [(float("nan"), "w contains NaN"), (float("inf"), "w contains NaN"), (1, "w has dtype I64")],
)
def test_values_that_are_not_weights_are_refused(tmp_path, value, refused):
    opened = open_checkpoint(folder_with(tmp_path / "model", {"w": torch.tensor([1, value])}))
    assert refused in refusal(opened.weights.read, "w")
