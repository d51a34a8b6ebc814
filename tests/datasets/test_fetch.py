"""Mirrors and data from a hub that misbehaves: whole copies only, refused in one line."""

import hashlib
import json
import shutil

import pytest
from helpers.hub import hub_runner, write_repositories
from helpers.hub_faults import FAULTS, PASSING, TOKEN, flip, limit

from qwen3nb.datasets.mirror import (
    MirrorError,
    Need,
    fetch,
    fetch_all,
    load_data,
    local_data,
    sizes,
)
from qwen3nb.evaluation.mteb.select import select_tasks

DATA, REVISION = "mteb/stsbenchmark-sts", "b0fddb56ed78048fa8b90373c8a3cfc37b684831"
NEED = Need("dataset", DATA, REVISION, ("STSBenchmark",))
MODEL = Need("model", "org/model", None, ("org/model",))
NAMES = ("silent", "404 no repository", "cut", "page for files", "flipped", "name above", "moved")
LOADED = ("403 gated", "429", "number", "flipped small file", "truncated")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub")
    write_repositories(folder)
    return folder


@pytest.fixture
def on_hub(root, monkeypatch, tmp_path):
    """Run something while a hub with a fault is there."""
    return hub_runner(root, monkeypatch, tmp_path)


@pytest.fixture
def mirror(tmp_path):
    return tmp_path / "mirror"


def quiet(_):
    """Say nothing."""


def files(folder):
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }


def checked(root, mirror, need):
    """The copy has what the hub has, and a note with its digests."""
    copy = files(mirror / need.id)
    note = json.loads(copy.pop(".qwen3nb-fetched.json"))
    assert copy == files(root / need.id)
    assert note["revision"] == need.revision
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in copy.items()}
    assert note["files"] == digests


def refused(action, word):
    """In one line that has the word, and no token."""
    with pytest.raises(MirrorError) as error:
        action()
    text = str(error.value)
    assert word in text
    assert "\n" not in text
    assert TOKEN not in text


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_is_whole_or_not_there(name, on_hub, root, mirror):
    fault, word = FAULTS[name]

    def fetched():
        fetch(NEED, mirror, say=quiet)

    on_hub(lambda: refused(fetched, word), fault, seconds=limit(name))
    assert not (mirror / DATA).exists()
    on_hub(lambda: fetch(NEED, mirror, say=quiet))
    checked(root, mirror, NEED)
    assert [file.name for file in mirror.iterdir()] == ["mteb"]


@pytest.mark.parametrize("name", ["503 once", "cut once"])
def test_a_fault_that_passes_does_no_harm(name, on_hub, root, mirror):
    needs = [NEED, MODEL]
    on_hub(
        lambda: fetch_all(needs, mirror, say=quiet) == {} or pytest.fail("a failure"), PASSING[name]
    )
    for need in needs:
        checked(root, mirror, need)


def test_a_hub_that_cannot_be_used_is_asked_for_the_first_need_only(on_hub, mirror):
    needs = [Need("dataset", f"org/data{i}", REVISION, ("T",)) for i in range(20)]
    seen = []
    requests = on_hub(lambda: seen.append(fetch_all(needs, mirror, say=quiet)), FAULTS["503"][0])
    assert len(requests) <= 5
    (failures,) = seen
    assert [bool(reason) for reason in failures.values()] == [True] + [False] * 19


def test_fetching_goes_on_and_stops_when_all_is_there(on_hub, root, mirror):
    """The files that came before the hub failed are not sent again."""

    def failing(hub, file):
        return file == "test.jsonl.gz" and FAULTS["503"][0](hub, file)

    on_hub(lambda: refused(lambda: fetch(NEED, mirror, say=quiet), "503"), failing)
    requests = on_hub(lambda: fetch(NEED, mirror, say=quiet))
    sent = [path for method, path, _ in requests if method == "GET" and "/resolve/" in path]
    assert [path.rpartition("/")[2] for path in sent] == ["test.jsonl.gz"]
    checked(root, mirror, NEED)
    assert on_hub(lambda: fetch(NEED, mirror, say=quiet)) == []
    changed = mirror / DATA / "train.jsonl"
    changed.write_bytes(flip(changed.read_bytes()))
    assert on_hub(lambda: fetch(NEED, mirror, say=quiet))
    checked(root, mirror, NEED)


def test_a_damaged_part_is_fetched_anew(on_hub, root, mirror):
    on_hub(lambda: fetch(NEED, mirror, say=quiet))
    partial = mirror / ".partial" / f"datasets--{DATA.replace('/', '--')}"
    shutil.copytree(root / DATA, partial)
    shutil.rmtree(mirror / DATA)
    for file in partial.iterdir():
        file.write_bytes(flip(file.read_bytes()))
    on_hub(lambda: fetch(NEED, mirror, say=quiet))
    checked(root, mirror, NEED)


def test_files_that_are_not_the_hubs_are_not_replaced(on_hub, root, mirror):
    own = mirror / DATA / "own.jsonl"
    own.parent.mkdir(parents=True)
    own.write_text("{}")

    word = "own.jsonl; move the folder away"
    on_hub(lambda: refused(lambda: fetch(NEED, mirror, say=quiet), word))
    assert own.read_text() == "{}"
    own.unlink()
    on_hub(lambda: fetch(NEED, mirror, say=quiet))
    checked(root, mirror, NEED)


def test_sizes_say_why_they_are_unknown_once(on_hub, root):
    lines, seen = [], []

    def ask():
        seen.append(dict(sizes([NEED, MODEL], say=lines.append)))

    on_hub(ask)
    total = sum(len(data) for data in files(root / DATA).values())
    assert seen.pop()[NEED] == f"{total / 1e6:,.1f} MB"
    assert lines == []
    on_hub(ask, FAULTS["503"][0])
    assert seen.pop() == {NEED: "unknown", MODEL: "unknown"}
    assert len(lines) == 1


def loaded():
    task = select_tasks(names=["STSBenchmark"])[0]
    try:
        with local_data(task):
            load_data(task)
            data = task.dataset.get("default", task.dataset)
            return len(data["test"])
    finally:
        task.unload_data()


@pytest.mark.parametrize("name", LOADED)
def test_data_are_refused_in_one_line_and_whole_the_next_time(name, on_hub):
    fault, word = FAULTS[name]

    on_hub(lambda: refused(loaded, word), fault, seconds=limit(name))
    on_hub(lambda: loaded() == 3000 or pytest.fail("other data"))


def test_a_damaged_download_of_data_is_fetched_anew(on_hub, tmp_path):
    on_hub(loaded)
    for file in (tmp_path / "hub").rglob("*.gz"):
        file.resolve().write_bytes(file.read_bytes()[:-9])
    shutil.rmtree(tmp_path / "datasets")
    on_hub(lambda: loaded() == 3000 or pytest.fail("other data"))


def test_data_of_another_revision_do_not_stand_in(on_hub, tmp_path):
    """The library falls back on whatever it has prepared of a name."""
    on_hub(loaded)
    (prepared,) = (tmp_path / "datasets").glob(f"*/*/*/{REVISION}")
    prepared.rename(prepared.with_name("c" * 40))
    shutil.rmtree(tmp_path / "hub")
    with pytest.raises(MirrorError, match="another revision|503"):
        on_hub(loaded, FAULTS["503"][0])
