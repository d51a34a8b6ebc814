"""Every malformed folder is refused in one line that names the file, and nothing is written."""

import json
import os
import shutil

import pytest
from helpers import malformed_files as malformed
from helpers.checkpoints import folder_with
from torch import ones

from qwen3nb.checkpoints.averaging import average_checkpoints
from qwen3nb.checkpoints.checkpoint import open_checkpoint
from qwen3nb.checkpoints.inside import check_all_inside, check_inside, copy_present, module_folders
from qwen3nb.models.sources.resolve import find_source

WHOLE_FOLDER = {
    # Only whoever needs the file misses it.
    "folder config.json", "folder tokenizer.json", "folder model.safetensors",
    "empty tokenizer.json", "empty tokenizer_config.json", "empty model.safetensors",
}  # fmt: skip


def refusal(call, *arguments):
    """The message of a refusal, which is one line."""
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the callers match the message
        call(*arguments)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("case", sorted(malformed.LINKS.keys() - WHOLE_FOLDER))
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
    (folder / "1_Pooling" / "config.json").write_text("{}")
    (folder / "config_sentence_transformers.json").write_text("{}")
    listed = [{"path": ""}, {"path": "1_Pooling"}]
    (folder / "modules.json").write_text(json.dumps(listed))
    assert list(module_folders(folder)) == ["", "1_Pooling"]
    check_all_inside(folder)
    malformed.MODULES[case](folder)
    assert str(folder) in refusal(check_all_inside, folder)


def test_routes_of_modules_lie_inside(tmp_path):
    (tmp_path / "modules.json").write_text('[{"path": "0_Router"}]')
    (tmp_path / "0_Router").mkdir()
    routes = tmp_path / "0_Router" / "router_config.json"
    routes.write_text('{"types": {"query_0_Transformer": "x"}}')
    assert list(module_folders(tmp_path)) == ["0_Router", "0_Router/query_0_Transformer"]
    routes.write_text('{"types": {"../../elsewhere": "x"}}')
    assert "no folder inside" in refusal(check_all_inside, tmp_path)


def snapshot(tmp_path, *, blobs):
    """A snapshot in the hub's cache, whose files link to ``blobs``."""
    cache = tmp_path / "models--a--b"
    folder = cache / "snapshots" / "0123"
    (folder / "1_Pooling").mkdir(parents=True)
    blobs.mkdir()
    for name in ("config.json", "1_Pooling/config.json"):
        (blobs / name.replace("/", "-")).write_text("{}")
        target = blobs / name.replace("/", "-")
        (folder / name).symlink_to(os.path.relpath(target, (folder / name).parent))
    return folder


def test_a_snapshot_links_to_the_blobs_of_its_own_cache_only(tmp_path):
    folder = snapshot(tmp_path, blobs=tmp_path / "models--a--b-blobs")
    assert "links out of its folder" in refusal(check_all_inside, folder)
    shutil.rmtree(tmp_path / "models--a--b")
    folder = snapshot(tmp_path, blobs=tmp_path / "models--a--b" / "blobs")
    check_all_inside(folder)
    check_inside(folder / "1_Pooling" / "config.json")
    secret = tmp_path / "secret.json"
    secret.write_text("{}")
    (folder / "config.json").unlink()
    (tmp_path / "models--a--b" / "blobs" / "beef").symlink_to(secret)
    (folder / "config.json").symlink_to("../../blobs/beef")
    assert "links out of its folder" in refusal(check_all_inside, folder)


def test_links_inside_hard_links_and_a_folder_that_is_a_link_are_fine(tmp_path):
    folder = folder_with(tmp_path / "model", {"w": ones(2)})
    (folder / "config.json").rename(folder / "real.json")
    (folder / "config.json").symlink_to("real.json")
    outside = tmp_path / "merges"
    outside.write_text("a b")
    os.link(outside, folder / "merges.txt")
    (folder / "optimizer.pt").symlink_to(tmp_path / "never-read")
    (tmp_path / "latest").symlink_to(folder)
    assert set(open_checkpoint(tmp_path / "latest").tensors) == {"w"}
    copy_present(("merges.txt", "config.json", "absent.json"), tmp_path / "latest", tmp_path)
    assert (tmp_path / "merges.txt").read_text() == "a b"
    assert not (tmp_path / "config.json").is_symlink()


def test_an_unreadable_file_is_named(tmp_path, monkeypatch):
    file = tmp_path / "config.json"
    file.write_text("{}")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert refusal(check_inside, file) == f"{file}: no permission to read it; `chmod u+r` gives it"


@pytest.mark.parametrize("case", malformed.INDEXES)
def test_an_index_of_shards_names_files_of_its_folder(checkpoint, tmp_path, case):
    folder = shutil.copytree(checkpoint, tmp_path / "model")
    malformed.INDEXES[case](folder)
    assert str(folder) in refusal(open_checkpoint, folder)
