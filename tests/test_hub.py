"""Models from a hub that misbehaves: one line, in time, and nothing half is used."""

import dataclasses
import hashlib
import re
import shutil
import threading

import pytest
from helpers.hub import COMMIT, hub_runner, local_hub, use_hub, write_repositories
from helpers.hub_faults import FAULTS, LARGE, PASSING, TOKEN, changed, flip, limit, status

from qwen3nb import hub
from qwen3nb.models.kinds.resolve import fetch_model, find_source
from qwen3nb.models.types import SpecError


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("hub")


@pytest.fixture(scope="module")
def files(root):
    return write_repositories(root)


@pytest.fixture
def on_hub(root, files, monkeypatch, tmp_path):
    """Run something while a hub with a fault is there; return what it was asked for."""
    return hub_runner(root, monkeypatch, tmp_path)


def model(revision=None):
    return fetch_model(dataclasses.replace(find_source("org/model"), revision=revision)).folder.path


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.integration
@pytest.mark.parametrize("name", FAULTS)
def test_a_model_is_refused_in_one_line_and_whole_the_next_time(name, on_hub, files, tmp_path):
    fault, word = FAULTS[name]

    def refused():
        with pytest.raises(SpecError, match=re.escape(word)) as error:
            model("a" * 40)
        text = str(error.value)
        assert "\n" not in text
        assert TOKEN not in text
        assert text.isprintable()

    on_hub(refused, fault, seconds=limit(name))
    left = [file.name for file in tmp_path.rglob("*") if "incomplete" in file.name]
    assert left == []
    blobs = [file for file in tmp_path.rglob("blobs/*") if len(file.name) == 64]
    assert all(hashlib.sha256(file.read_bytes()).hexdigest() == file.name for file in blobs)
    if any(tmp_path.glob("hub/models*")):  # what is there must do no harm
        on_hub(lambda: files == contents(model("a" * 40)) or pytest.fail("other files"))


@pytest.mark.integration
@pytest.mark.parametrize("name", PASSING)
def test_a_fault_that_passes_does_no_harm(name, on_hub, files):
    seen = []
    on_hub(
        lambda: seen.append(contents(model())),
        PASSING[name],
        seconds=1.0 if name == "slow" else 20.0,
    )
    assert seen == [files]


def test_a_listing_that_comes_byte_by_byte_ends(on_hub, monkeypatch):
    monkeypatch.setattr(hub, "_LONGEST_ANSWER", 0.2)
    pause = threading.Event().wait  # sleep takes no time here

    def drip(handler, file):
        handler.close_connection = True
        handler.send_response(200)
        handler.end_headers()
        while not handler.server.closing.is_set():
            handler.wfile.write(b" ")
            pause(0.02)

    def refused():
        with pytest.raises(SpecError, match="the answer takes more than 0 s"):
            model("a" * 40)

    on_hub(refused, drip)


@pytest.mark.parametrize(
    ("endpoint", "word"),
    [
        ("http://user:password1@127.0.0.1:9", "refuses connections"),
        ("http://no-such-hub.invalid", "unknown host name"),
        ("ftp://127.0.0.1", "HF_ENDPOINT"),
        (None, "TLS"),
    ],
)
def test_no_hub(endpoint, word, root, files, monkeypatch, tmp_path):
    with local_hub(root) as address:
        use_hub(monkeypatch, endpoint or address.replace("http:", "https:"), tmp_path)
        with pytest.raises(SpecError, match=word) as error:
            model()
    assert "password1" not in str(error.value)


def test_a_download_that_was_cut_is_continued(on_hub):
    """The table of faults that pass shows that the files are whole."""
    ranges = []

    def noting(hub, file):
        ranges.append(hub.headers.get("Range") or "bytes=0")
        return PASSING["cut once"](hub, file)

    on_hub(model, noting)
    assert sum(not each.startswith("bytes=0") for each in ranges) == 3


def test_a_hub_that_cannot_be_used_is_not_asked_for_every_file(on_hub):
    def refused():
        for revision in ("a" * 40, "b" * 40):
            with pytest.raises(SpecError, match="503"):
                model(revision)

    fault = status(503)
    assert len(on_hub(refused, lambda hub, file: bool(file) and fault(hub, file))) < 40


@pytest.mark.integration
def test_without_a_hub_the_main_branch_is_what_it_was(on_hub, files):
    on_hub(model)
    seen = []
    for name in ("503", "silent"):
        on_hub(lambda: seen.append(contents(model())), FAULTS[name][0], seconds=limit(name))
    assert seen == [files, files]
    with pytest.raises(SpecError, match="login page"):
        on_hub(model, FAULTS["page"][0])


def test_a_model_in_the_mirror_that_was_cut_off_is_refused(root, files, monkeypatch, tmp_path):
    shutil.copytree(root / "org", tmp_path / "org")
    monkeypatch.setenv("QWEN3NB_MIRROR", str(tmp_path))
    assert model() == tmp_path / "org" / "model"
    part = tmp_path / "org/model/.cache/huggingface/download/x.incomplete"
    part.parent.mkdir(parents=True)
    part.write_text("")
    with pytest.raises(SpecError, match="an incomplete download; remove"):
        model()


@pytest.mark.parametrize("damage", [flip, lambda content: content[:-7]])
def test_a_damaged_file_in_the_cache_is_fetched_anew_or_refused(damage, on_hub, files, monkeypatch):
    folders = []
    on_hub(lambda: folders.append(model("a" * 40)))
    assert on_hub(lambda: model("a" * 40), FAULTS["503"][0]) == []  # it is there
    blob = (folders[0] / "model.safetensors").resolve()
    blob.write_bytes(damage(blob.read_bytes()))
    on_hub(lambda: files == contents(model("a" * 40)) or pytest.fail("other files"))
    blob.write_bytes(damage(blob.read_bytes()))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(SpecError, match="HF_HUB_OFFLINE"):
        model("a" * 40)
    assert not blob.exists()


def test_contents_on_another_server_are_checked_and_get_no_token(
    root, files, monkeypatch, tmp_path
):
    def elsewhere(address):
        def fault(hub, file):
            if not file.endswith(LARGE):
                return False
            content = files[file]
            headers = {
                "Location": f"{address}/{hub.path.lstrip('/')}?signature={TOKEN}",
                "X-Linked-Etag": f'"{hashlib.sha256(content).hexdigest()}"',
                "X-Linked-Size": str(len(content)),
                "X-Repo-Commit": COMMIT,
            }
            hub.send(b"", headers, status=302)
            return True

        return fault

    for change, whole in ((None, True), (changed(flip, endings=LARGE), False)):
        folder = tmp_path / str(whole)
        with local_hub(root, change) as store, local_hub(root, elsewhere(store)) as address:
            use_hub(monkeypatch, address, folder)
            monkeypatch.setenv("HF_TOKEN", TOKEN)
            if whole:
                assert contents(model()) == files
            else:
                with pytest.raises(SpecError, match="not what the hub lists") as error:
                    model()
                assert TOKEN not in str(error.value)
        assert any(token == f"Bearer {TOKEN}" for *_, token in address.requests)
        assert store.requests
        assert all(token is None for *_, token in store.requests)
