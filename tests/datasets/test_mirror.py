"""The mirror, and what a hub that misbehaves leaves in it: whole copies, or a one-line refusal."""

import errno
import hashlib
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import datasets
import huggingface_hub
import pytest
from helpers.hub import hub_runner, write_repositories
from helpers.hub_faults import FAULTS, TOKEN, changed, flip, limit

from qwen3nb.datasets.data_cards import cards_read_once
from qwen3nb.datasets.mirror import (
    NOTE,
    MirrorError,
    Need,
    current_revision,
    data_revision,
    explain,
    fetch,
    fetch_all,
    hub_access,
    load_data,
    local_data,
    mirrored,
    missing,
    missing_error,
    sizes,
)
from qwen3nb.evaluation.embeddings.sts import local_sts_benchmark, sts_pairs
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.mteb.select import choose_tasks
from qwen3nb.evaluation.run import EvaluationError
from qwen3nb.models.load import load_encoder
from qwen3nb.utils.atomic_files import sha256_file

DATA, REVISION = "mteb/stsbenchmark-sts", "b0fddb56ed78048fa8b90373c8a3cfc37b684831"
NEED = Need("dataset", DATA, REVISION, ("STSBenchmark",))
MODEL = Need("model", "org/model", None, ("org/model",))


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    folder = tmp_path / "mirror"
    folder.mkdir()
    monkeypatch.setenv("QWEN3NB_MIRROR", str(folder))
    return folder


def sts_folder(mirror, scores=(0.0, 2.5, 5.0)):
    folder = mirror / "mteb" / "stsbenchmark-sts"
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {"sentence1": f"text {index}", "sentence2": f"another {index * index}", "score": score}
        for index, score in enumerate(scores)
    ]
    (folder / "test.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    return folder


def test_only_ids_are_looked_for(mirror):
    (mirror / "a" / "b").mkdir(parents=True)
    assert mirrored("a/b") == mirror / "a" / "b"
    for other in ("a/c", "../mirror/a", "a", "a/b/c", "/etc/passwd", "a/.."):
        assert mirrored(other) is None


def test_what_is_missing_is_listed_once_with_the_command(mirror, monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "prepared")
    sts_folder(mirror)
    sts = Need("dataset", "mteb/stsbenchmark-sts", "1" * 40, ("STSBenchmark",))
    other = Need("dataset", "mteb/sickr-sts", "2" * 40, ("SICK-R",))
    model = Need("model", "intfloat/e5-base-v2", "3" * 40, ("e5-base-v2",))
    assert missing([sts, other, model], reachable=lambda: False) == [other, model]
    assert missing([sts, other, model], reachable=lambda: True) == []
    monkeypatch.setattr("qwen3nb.datasets.mirror.hub_reachable", lambda: pytest.fail("was asked"))
    assert missing([sts]) == []
    (mirror / sts.id / "test.incomplete").write_text("")  # a download that was cut off
    assert missing([sts], reachable=lambda: False) == [sts]
    text = str(missing_error([other, model]))
    assert f"`qwen3nb fetch --tasks SICK-R --model e5-base-v2 --mirror {mirror}`" in text
    assert "--tier full --mirror" in str(missing_error([other], command="--tier full"))
    # Prepared data and downloaded weights count only at the pinned revision.
    (tmp_path / "prepared/mteb___sickr-sts/default/0.0.0" / ("9" * 40)).mkdir(parents=True)
    assert missing([other], reachable=lambda: False) == [other]
    (tmp_path / "prepared/mteb___sickr-sts/default/0.0.0" / ("2" * 40)).mkdir(parents=True)
    (tmp_path / "hub/models--intfloat--e5-base-v2/snapshots" / ("3" * 40)).mkdir(parents=True)
    assert missing([other, model], reachable=lambda: False) == []


def test_without_a_hub_its_libraries_keep_to_their_caches(mirror, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", False)

    def states():
        return huggingface_hub.is_offline_mode(), datasets.config.HF_HUB_OFFLINE

    with hub_access([NEED], lambda: False):
        assert states() == (True, True)
    assert states() == (False, False)
    with hub_access([NEED], lambda: True):
        assert states() == (False, False)
    sts_folder(mirror)
    with hub_access([NEED], lambda: pytest.fail("was asked")):
        assert states() == (False, False)


def test_a_task_runs_on_the_mirror_and_the_record_says_which_data(mirror, encoder_folder):
    sts_folder(mirror)
    local = data_revision(choose_tasks(tasks=["STSBenchmark"])[0])
    assert local.startswith("local-")
    encoder = load_encoder(encoder_folder, cache=False, show_progress=False)
    result = evaluate(encoder, tasks="STSBenchmark", show_progress=False).results[0]
    assert (result.task.dataset, result.task.revision) == ("mteb/stsbenchmark-sts", local)
    assert result.main.n == 3
    sts_folder(mirror, scores=(5.0, 0.0, 1.0))
    again = evaluate(encoder, tasks="STSBenchmark", show_progress=False)
    assert again.reused == ()


@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, "No space left on device"), OSError("Not enough disk space. Needed: 1")],
)
def test_a_full_disk_is_no_reason_to_remove_the_mirror(mirror, monkeypatch, error):
    (task,) = choose_tasks(tasks=["STSBenchmark"])
    sts_folder(mirror)

    def full(self):
        raise datasets.exceptions.DatasetGenerationError("while generating") from error

    monkeypatch.setattr(type(task), "load_data", full)
    with local_data(task), pytest.raises(MirrorError, match="No space left .* HF_HOME") as caught:
        load_data(task)
    assert str(datasets.config.HF_DATASETS_CACHE) in str(caught.value)
    assert "remove" not in str(caught.value)


def test_data_that_are_nowhere_or_damaged_are_one_error_and_the_other_tasks_run(
    mirror, encoder_folder
):
    folder = sts_folder(mirror)
    encoder = load_encoder(encoder_folder, cache=False, show_progress=False)
    with pytest.raises(EvaluationError, match="1 of 2 tasks failed") as error:
        evaluate(encoder, tasks=["SciFact", "STSBenchmark"], show_progress=False)
    text = str(error.value)
    assert "mteb/scifact are not available: not in the mirror" in text
    assert "`qwen3nb fetch --tasks SciFact --mirror DIR`" in text
    records = list((mirror.parent / "home" / "results").glob("tiny-*/seed_0/STSBenchmark.json"))
    assert len(records) == 1
    (folder / "test.jsonl").write_text("{broken")
    with pytest.raises(EvaluationError, match="stsbenchmark-sts cannot be loaded"):
        evaluate(encoder, tasks="STSBenchmark", show_progress=False)
    assert choose_tasks(tasks=["STSBenchmark"])[0].metadata.dataset["path"] == (
        "mteb/stsbenchmark-sts"
    )


CARD = """---
configs:
- config_name: default
  data_files: [{split: test, path: test.jsonl}]
---
"""


def test_changed_rows_are_loaded_even_if_name_card_and_time_stay(mirror):
    folder = sts_folder(mirror)
    (folder / "README.md").write_text(CARD)
    file, times = folder / "test.jsonl", (1_700_000_000, 1_700_000_000)
    os.utime(file, times)

    def scores():
        task = choose_tasks(tasks=["STSBenchmark"])[0]
        with local_data(task):
            task.load_data()
            revision = task.metadata.revision
        assert revision == data_revision(task)
        assert task.metadata.revision != revision
        data = task.dataset.get("default", task.dataset)
        return list(data["test"]["score"]), revision

    first, revision = scores()
    assert first == [0.0, 2.5, 5.0]
    changed = file.with_name("changed")
    changed.write_text(file.read_text().replace("2.5", "3.5"))
    os.utime(changed, times)
    changed.replace(file)  # as cp -p and rsync leave it: same size, same time
    second, other = scores()
    assert second == [0.0, 3.5, 5.0]
    assert other != revision


def _fetched(mirror):
    """A copy as `fetch` leaves it, with its note."""
    folder = sts_folder(mirror)
    note = {"revision": "a" * 40, "files": {"test.jsonl": sha256_file(folder / "test.jsonl")}}
    (folder / NOTE).write_text(json.dumps(note))
    return folder


def card(configs):
    return f"---\nconfigs:\n{configs}\n---\n"


def test_a_card_names_files_of_its_copy_only(mirror, tmp_path):
    folder = sts_folder(mirror)
    elsewhere = tmp_path / "elsewhere.jsonl"
    shutil.copy(folder / "test.jsonl", elsewhere)
    (task,) = choose_tasks(tasks=["STSBenchmark"])
    one = "- config_name: default\n  data_files:\n  - split: test\n    path: {}"
    (folder / "README.md").write_text(card(one.format("test.jsonl")))
    with local_data(task):
        load_data(task)
    for name in (elsewhere, "../../../elsewhere.jsonl", "http://127.0.0.1:9/a.jsonl", "zip://a::b"):
        (folder / "README.md").write_text(card(one.format(f"[test.jsonl, '{name}']")))
        with local_data(task), pytest.raises(MirrorError, match="names files outside of it"):
            load_data(task)
    (folder / "README.md").unlink()
    (folder / ".huggingface.yaml").write_text("configs:\n- config_name: a\n  data_dir: /etc\n")
    with local_data(task), pytest.raises(MirrorError, match="/etc"):
        load_data(task)


def test_a_card_is_parsed_once_for_all_subsets(mirror, monkeypatch):
    """With several subsets the library asks for the same card again and again."""
    file = mirror / "README.md"
    file.write_text(CARD)
    parsed = []

    def parse(path):
        parsed.append(path)
        return huggingface_hub.DatasetCard(Path(path).read_text())

    monkeypatch.setattr(huggingface_hub.DatasetCard, "load", parse)
    with cards_read_once():
        first = huggingface_hub.DatasetCard.load(file)
        first.data.configs.clear()
        (config,) = huggingface_hub.DatasetCard.load(file).data.configs
    assert config["config_name"] == "default"  # a copy of its own for each that asks
    assert parsed == [file]
    file.write_text(CARD.replace("default", "later"))
    assert huggingface_hub.DatasetCard.load is parse
    assert huggingface_hub.DatasetCard.load(file).data.configs[0]["config_name"] == "later"


def test_a_link_to_a_folder_that_it_is_in_ends(mirror):
    folder = sts_folder(mirror)
    revision = current_revision(DATA, pinned=REVISION)
    for name in ("a", "b", "c"):
        (folder / name).symlink_to(folder, target_is_directory=True)
    (folder / "d").symlink_to(mirror, target_is_directory=True)
    assert current_revision(DATA, pinned=REVISION) == revision


def test_a_copy_that_was_cut_is_named_when_it_is_loaded(mirror, caplog):
    """A file cut at the end of a line is as good as a whole one for whoever reads it."""
    folder = _fetched(mirror)
    task = choose_tasks(tasks=["STSBenchmark"])[0]
    with local_data(task):
        load_data(task)
    assert not caplog.records
    rows = (folder / "test.jsonl").read_text().splitlines(keepends=True)
    (folder / "test.jsonl").write_text("".join(rows[:-1]))
    (folder / "more.jsonl").write_text(ROW)
    task = choose_tasks(tasks=["STSBenchmark"])[0]
    with local_data(task):
        load_data(task)
    (record,) = caplog.records
    assert "not as it was fetched (more.jsonl, test.jsonl), so scores are not those of STSB" in (
        record.getMessage()
    )


def test_a_copy_with_fewer_rows_than_its_card_states_is_refused(mirror):
    folder = sts_folder(mirror)
    counted = CARD.replace(
        "---\n", "---\ndataset_info: {splits: [{name: test, num_examples: 4}]}\n", 1
    )
    (folder / "README.md").write_text(counted)
    task = choose_tasks(tasks=["STSBenchmark"])[0]
    with local_data(task), pytest.raises(MirrorError, match=r"cannot be loaded \(.*=4.*=3"):
        load_data(task)


ROW = json.dumps({"sentence1": "one", "sentence2": "more", "score": 1.0}) + "\n"


@pytest.mark.parametrize("changed", ["test.jsonl", "one-more.jsonl", "linked"])
def test_a_copy_has_its_revision_only_with_the_files_that_were_fetched(mirror, changed):
    folder = _fetched(mirror)
    name = str(folder.relative_to(mirror))
    (folder / ".cache").mkdir()
    (folder / ".cache" / "x.lock").write_text("")  # the hub library's own
    assert current_revision(name, pinned="b" * 40) == "a" * 40
    if changed == "linked":  # a folder with a file
        (folder / changed).symlink_to(folder.parent / "other")
        (folder.parent / "other").mkdir()
        changed = "linked/test.jsonl"
    (folder / changed).write_text(ROW)
    first = current_revision(name, pinned="b" * 40)
    assert first.startswith("local-")
    assert current_revision(name, pinned="b" * 40) == first


# On a hub with a fault.

NAMES = ("silent", "cut", "flipped", "name above")
LOADED = ("429", "truncated")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub")
    write_repositories(folder)
    return folder


@pytest.fixture
def copies(tmp_path):
    """A mirror that is filled, but not the one that is read from."""
    return tmp_path / "copies"


@pytest.fixture
def on_hub(root, monkeypatch, tmp_path):
    """Run something while a hub with a fault is there."""
    return hub_runner(root, monkeypatch, tmp_path)


def content(folder):
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }


def checked(root, copies):
    """The copy has what the hub has, and a note with its digests."""
    copy = content(copies / DATA)
    note = json.loads(copy.pop(NOTE))
    assert copy == content(root / DATA)
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in copy.items()}
    assert (note["revision"], note["files"]) == (REVISION, digests)


def refused(action, word):
    """In one line that has the word, and no token."""
    with pytest.raises(MirrorError) as error:
        action()
    text = str(error.value)
    assert word in text
    assert "\n" not in text
    assert TOKEN not in text


@pytest.mark.integration
@pytest.mark.parametrize("name", NAMES)
def test_a_copy_is_whole_or_not_there(name, on_hub, root, copies):
    fault, word = FAULTS[name]

    def fetched():
        fetch(NEED, copies, say=str)

    on_hub(lambda: refused(fetched, word), fault, seconds=limit(name))
    assert not (copies / DATA).exists()
    if name == "flipped":  # the other files are not fetched again
        assert len(content(copies / ".partial")) > 2
    on_hub(lambda: fetch(NEED, copies, say=str))
    checked(root, copies)
    assert [file.name for file in copies.iterdir()] == ["mteb"]


def test_a_mirror_filled_from_a_hub_serves_a_node_without_one(on_hub, copies, monkeypatch):
    on_hub(lambda: fetch(NEED, copies, say=str))
    monkeypatch.setenv("QWEN3NB_MIRROR", str(copies))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert len(sts_pairs("STS-B").gold) == 3000
    assert data_revision(choose_tasks(tasks=["STSBenchmark"])[0]) == REVISION


def test_a_small_file_of_the_same_size_is_compared_with_gits_digest(on_hub, copies):
    change = changed(flip, endings="README.md")
    with pytest.raises(MirrorError, match=r"README\.md: not what the hub lists"):
        on_hub(lambda: fetch(NEED, copies, say=lambda _: None), change)
    on_hub(lambda: fetch(NEED, copies, say=lambda _: None))


def test_a_hub_without_gits_digests_is_compared_by_size_if_that_is_said(on_hub, copies):
    change = changed(flip, endings="README.md")
    on_hub(lambda: fetch(NEED, copies, by_size=True, say=lambda _: None), change)
    assert (copies / NEED.id / "README.md").is_file()


def test_a_hub_that_cannot_be_used_is_asked_for_the_first_need_only(on_hub, copies):
    needs = [Need("dataset", f"org/data{i}", REVISION, ("T",)) for i in range(20)]
    seen = []
    requests = on_hub(lambda: seen.append(fetch_all(needs, copies, say=str)), FAULTS["503"][0])
    assert len(requests) <= 5
    (failures,) = seen
    assert [bool(reason) for reason in failures.values()] == [True] + [False] * 19


def test_fetching_is_done_when_all_is_there_and_unchanged(on_hub, root, copies):
    on_hub(lambda: fetch(NEED, copies, say=str))
    checked(root, copies)
    assert on_hub(lambda: fetch(NEED, copies, say=str)) == []
    changed = copies / DATA / "train.jsonl"
    changed.write_bytes(flip(changed.read_bytes()))
    assert on_hub(lambda: fetch(NEED, copies, say=str))
    checked(root, copies)


def test_a_full_disk_is_named_with_the_folder_of_the_mirror(copies, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("huggingface_hub.snapshot_download", full)
    monkeypatch.setattr("qwen3nb.hub.listing", lambda *_, **__: (REVISION, {}))
    refused(lambda: fetch(NEED, copies, say=str), f"into {copies} failed ([Errno 28] No space left")


def test_files_that_are_not_the_hubs_are_not_replaced(on_hub, root, copies):
    own = copies / DATA / "own.jsonl"
    own.parent.mkdir(parents=True)
    own.write_text("{}")

    word = "own.jsonl; move the folder away"
    on_hub(lambda: refused(lambda: fetch(NEED, copies, say=str), word))
    assert own.read_text() == "{}"
    own.unlink()
    on_hub(lambda: fetch(NEED, copies, say=str))
    checked(root, copies)


def test_sizes_say_why_they_are_unknown_once(on_hub, root):
    lines, seen = [], []

    def ask():
        seen.append(list(dict(sizes([NEED, MODEL], say=lines.append)).values()))

    on_hub(ask)
    on_hub(ask, FAULTS["503"][0])
    total = sum(len(data) for data in content(root / DATA).values())
    assert seen[0][0] == f"{total / 1e6:,.1f} MB"
    assert (seen[1], len(lines)) == (["unknown", "unknown"], 1)


def loaded():
    task = choose_tasks(tasks=["STSBenchmark"])[0]
    try:
        with local_data(task):
            load_data(task)
            data = task.dataset.get("default", task.dataset)
            return len(data["test"])
    finally:
        task.unload_data()


@pytest.mark.integration
@pytest.mark.parametrize("name", LOADED)
def test_data_are_refused_in_one_line_and_whole_the_next_time(name, on_hub):
    fault, word = FAULTS[name]

    on_hub(lambda: refused(loaded, word), fault, seconds=limit(name))
    on_hub(lambda: loaded() == 3000 or pytest.fail("other data"))


@pytest.mark.integration
def test_data_of_another_revision_do_not_stand_in(on_hub, tmp_path):
    """The library falls back on whatever it has prepared of a name."""
    on_hub(loaded)
    requests = on_hub(lambda: len(local_sts_benchmark().gold) == 3000 or pytest.fail("other data"))
    assert requests == []
    (prepared,) = (tmp_path / "datasets").glob(f"*/*/*/{REVISION}")
    prepared.rename(prepared.with_name("c" * 40))
    shutil.rmtree(tmp_path / "hub")
    on_hub(lambda: local_sts_benchmark() is None or pytest.fail("another revision"))
    with pytest.raises(MirrorError, match="another revision|503"):
        on_hub(loaded, FAULTS["503"][0])


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RecursionError("maximum recursion depth"), "is nested too deeply"),
        (json.JSONDecodeError("Expecting value", "x", 0), "is not JSON: Expecting value"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), "is not UTF-8: invalid"),
    ],
)
def test_a_damaged_copy_is_not_blamed_on_a_proxy(tmp_path, error, reason):
    metadata = SimpleNamespace(name="A", dataset={"path": str(tmp_path)})
    message = str(explain(SimpleNamespace(metadata=metadata), error))
    assert f"a file of it, such as dataset_infos.json, {reason}" in message
    assert "proxy" not in message
