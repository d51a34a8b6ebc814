import json
import re
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest
from helpers.checkpoints import fill_card

from qwen3nb.checkpoints.provenance import read_provenance
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.extraction.push_to_hub import plan_push, push
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.kinds.source import fingerprint
from qwen3nb.report.card import extract

SECRETS = {
    ".env": "A=1",
    "sub/id_rsa": "certainly-private",
    "notes.md": "my token is hf_" + "a1B2" * 9,
    "optimizer.pt": "certainly-private",
    "log.txt": "the password is correct-horse-battery",
    "tensors.bin2": "\0correct-horse-battery\0",
    "wide.dat": "\0".join("correct-horse-battery"),
}


@pytest.fixture
def export(encoder_folder, tmp_path):
    return fill_card(shutil.copytree(encoder_folder, tmp_path / "export"))


@pytest.fixture
def hub(monkeypatch):
    """Replaces the hub's API and records the calls."""
    hub = Mock()
    hub.return_value = hub
    hub.create_commit.return_value.commit_url = "https://hub/commit/1"
    monkeypatch.setattr("huggingface_hub.HfApi", hub)
    return hub


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_stops_the_upload_and_is_not_repeated(export, name, monkeypatch, hub):
    monkeypatch.setenv("SOME_PASSWORD", "correct-horse-battery")
    file = export / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(SECRETS[name])
    with pytest.raises(CheckpointError, match="nothing was uploaded") as error:
        push(export, "lab/model")
    assert name in str(error.value)
    assert SECRETS[name] not in str(error.value)
    hub.create_commit.assert_not_called()


def test_links_and_other_folders_are_refused(export, checkpoint, tmp_path):
    with pytest.raises(CheckpointError, match=r"no qwen3nb\.json, so this is not an export"):
        plan_push(checkpoint)
    (tmp_path / "diary").write_text("private")
    (export / "more.dat").symlink_to(tmp_path / "diary")
    with pytest.raises(CheckpointError, match="a link or a special file"):
        plan_push(export)


def test_a_card_without_results_is_refused_and_says_what_fills_it(encoder_folder, hub, cli):
    card = encoder_folder / "README.md"
    assert "Pending: no results yet." in card.read_text()  # as `extract` writes it
    message = rf"qwen3nb eval --model {re.escape(str(encoder_folder))}`, then `qwen3nb card "
    for attempt in (plan_push, lambda folder: push(folder, "lab/model")):
        with pytest.raises(CheckpointError, match=message):
            attempt(encoder_folder)
    refused = cli("card", "push", encoder_folder, "lab/model", "--dry-run")
    assert refused.exit_code != 0
    assert "no results yet" in refused.output
    hub.create_commit.assert_not_called()


def test_the_upload(export, hub):
    assert push(export, "lab/model", private=True) == "https://hub/commit/1"
    digest = json.loads((export / "qwen3nb.json").read_text())["source"]["digest"]
    hub.create_repo.assert_called_once_with("lab/model", private=True, exist_ok=True)
    (_, files), upload = hub.create_commit.call_args
    written = {each.relative_to(export) for each in export.rglob("*") if each.is_file()}
    assert {Path(each.path_in_repo) for each in files} == written
    assert upload == {"commit_message": f"tiny from {digest[:12]}"}


@pytest.mark.integration
def test_no_path_of_this_machine_is_uploaded(checkpoint, tmp_path, hub):
    export = fill_card(extract(checkpoint, tmp_path / "export", onnx=True).folder)
    push(export, "lab/model")
    target = tmp_path / "downloaded"
    for each in hub.create_commit.call_args.args[1]:
        file = target / each.path_in_repo
        file.parent.mkdir(parents=True, exist_ok=True)
        with each.as_file() as content:
            file.write_bytes(content.read())
    here = [str(tmp_path), str(checkpoint), str(checkpoint.parent), str(Path.home())]
    for file in target.rglob("*"):
        content = file.read_bytes() if file.is_file() else b""
        assert not any(path.encode() in content for path in here), file
    before, after = (read_provenance(folder) for folder in (export, target))
    assert before["source"]["folder"] == str(checkpoint)  # which the card is written from
    assert after["source"]["folder"] == checkpoint.name
    identities = [fingerprint(find_source(str(folder))) for folder in (export, target)]
    assert identities[0] == identities[1]
    (target / "qwen3nb.json").write_text(json.dumps({**after, "label": "another"}))
    with pytest.raises(CheckpointError, match="changed since it was written"):
        fingerprint(find_source(str(target)))


def test_a_refusal_by_the_hub_names_the_reason(export, hub):
    from huggingface_hub.errors import LocalTokenNotFoundError

    hub.create_repo.side_effect = LocalTokenNotFoundError("no")
    with pytest.raises(ValueError, match="`hf auth login` first"):
        push(export, "lab/model")
    hub.create_repo.side_effect = RuntimeError("a page\nof words")
    with pytest.raises(ValueError, match="the upload failed for lab/model") as error:
        push(export, "lab/model")
    assert "\n" not in str(error.value)
    hub.create_commit.assert_not_called()
