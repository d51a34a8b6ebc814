import json
import shutil
from types import SimpleNamespace

import pytest

from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.extraction.push_to_hub import plan_push, push

SECRETS = {
    ".env": "A=1",
    "server.pem": "certainly-private",
    "sub/id_rsa": "certainly-private",
    "notes.md": "my token is hf_" + "a1B2" * 9,
    "run.py": "key = 'AKIA" + "ABCD" * 4 + "'",
    "extra.json": '"-----BEGIN RSA PRIVATE KEY-----"',
    "optimizer.pt": "certainly-private",
    "log.txt": "the password is correct-horse-battery",
}


@pytest.fixture
def export(encoder_folder, tmp_path):
    return shutil.copytree(encoder_folder, tmp_path / "export")


class Hub:
    """Replaces the hub's API and records the calls."""

    def __init__(self, error=None):
        self.error, self.calls = error, []

    def __call__(self):
        return self

    def create_repo(self, repository, **options):
        if self.error:
            raise self.error
        self.calls.append(("create", repository, options))

    def create_branch(self, repository, **options):
        self.calls.append(("branch", repository, options))

    def upload_folder(self, **options):
        self.calls.append(("upload", options))
        return SimpleNamespace(commit_url="https://hub/commit/1")


def test_the_plan_lists_every_file(export):
    files = {file.path: file.size for file in plan_push(export)}
    assert files["model.safetensors"] == (export / "model.safetensors").stat().st_size
    assert {"1_Pooling/config.json", "tokenizer.json", "README.md", "qwen3nb.json"} <= set(files)


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_stops_the_upload_and_is_not_repeated(export, name, monkeypatch):
    monkeypatch.setenv("SOME_PASSWORD", "correct-horse-battery")
    file = export / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(SECRETS[name])
    hub = Hub()
    monkeypatch.setattr("huggingface_hub.HfApi", hub)
    with pytest.raises(CheckpointError, match="nothing was uploaded") as error:
        push(export, "lab/model")
    assert name in str(error.value)
    assert SECRETS[name] not in str(error.value)
    assert hub.calls == []


def test_links_and_other_folders_are_refused(export, checkpoint, tmp_path):
    with pytest.raises(CheckpointError, match=r"no qwen3nb\.json, so this is not an export"):
        plan_push(checkpoint)
    (tmp_path / "diary").write_text("private")
    (export / "more.dat").symlink_to(tmp_path / "diary")
    with pytest.raises(CheckpointError, match="a link or a special file"):
        plan_push(export)


def test_the_upload(export, monkeypatch):
    hub = Hub()
    monkeypatch.setattr("huggingface_hub.HfApi", hub)
    assert push(export, "lab/model", private=True, revision="v1") == "https://hub/commit/1"
    digest = json.loads((export / "qwen3nb.json").read_text())["source"]["digest"]
    (_, created, options), (_, _, branch), (_, upload) = hub.calls
    assert (created, options["private"], branch["branch"]) == ("lab/model", True, "v1")
    assert upload["commit_message"] == f"tiny from {digest[:12]}"
    assert "model.safetensors" in upload["allow_patterns"]


def test_a_refusal_by_the_hub_names_the_reason(export, monkeypatch):
    from huggingface_hub.errors import LocalTokenNotFoundError

    with pytest.raises(ValueError, match="expected a repository such as organisation/name"):
        push(export, "model")
    monkeypatch.setattr("huggingface_hub.HfApi", Hub(LocalTokenNotFoundError("no")))
    with pytest.raises(ValueError, match="`hf auth login` first"):
        push(export, "lab/model")
    monkeypatch.setattr("huggingface_hub.HfApi", Hub(OSError("unreachable\nmore")))
    with pytest.raises(ValueError, match="lab/model: unreachable"):
        push(export, "lab/model")


def test_names_that_differ_by_case_only_are_refused(export):
    (export / "Readme.md").write_text("another")
    with pytest.raises(CheckpointError, match=r"readme\.md: names that differ by case only"):
        plan_push(export)
