import json
import os
import shutil
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import datasets
import huggingface_hub
import numpy as np
import pytest

from qwen3nb.datasets.mirror import (
    NOTE,
    Need,
    current_revision,
    data_revision,
    hub_access,
    local_data,
    mirrored,
    missing,
    missing_error,
    needs,
)
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.mteb.evaluate import evaluate_task
from qwen3nb.evaluation.mteb.select import select_tasks
from qwen3nb.evaluation.run import EvaluationError
from qwen3nb.hub.session import hub_problem, hub_reachable
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.load import load_encoder
from qwen3nb.utils.atomic_files import sha256_file


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


@pytest.mark.integration
def test_what_a_choice_of_tasks_needs():
    tasks = select_tasks(names=["STSBenchmark", "SciFact", "AuthorSTS"])
    by_id = {need.id: need for need in needs(tasks, [find_source("e5-base-v2")])}
    assert set(by_id) == {"mteb/stsbenchmark-sts", "mteb/scifact", "intfloat/e5-base-v2"}
    assert by_id["mteb/scifact"].used_by == ("SciFact",)
    assert len(by_id["mteb/scifact"].revision) == 40
    assert by_id["intfloat/e5-base-v2"].kind == "model"


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

    need = Need("dataset", "mteb/stsbenchmark-sts", "1" * 40, ("STSBenchmark",))
    with hub_access([need], lambda: False):
        assert states() == (True, True)
    assert states() == (False, False)
    with hub_access([need], lambda: True):
        assert states() == (False, False)
    sts_folder(mirror)
    with hub_access([need], lambda: pytest.fail("was asked")):
        assert states() == (False, False)


def test_a_download_that_was_cut_off_is_missing(mirror):
    folder = sts_folder(mirror)
    need = Need("dataset", "mteb/stsbenchmark-sts", "1" * 40, ("STSBenchmark",))
    assert missing([need], reachable=lambda: False) == []
    (folder / ".cache").mkdir()
    (folder / ".cache" / "test.incomplete").write_text("")
    assert missing([need], reachable=lambda: False) == [need]


def test_a_silent_hub_is_given_up(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", endpoint)
        monkeypatch.setenv("QWEN3NB_HUB_TIMEOUT", "0.3")
        started = time.monotonic()
        assert "sent nothing" in hub_problem()
        assert not hub_reachable()
        assert time.monotonic() - started < 2


def test_a_task_runs_on_the_mirror_and_the_record_says_which_data(mirror, encoder_folder):
    folder = sts_folder(mirror)
    task = select_tasks(names=["STSBenchmark"])[0]
    pinned = task.metadata.dataset["revision"]
    local = data_revision(task)
    assert local.startswith("local-")
    encoder = load_encoder(encoder_folder, cache=False, show_progress=False)
    result = evaluate(encoder, tasks="STSBenchmark", show_progress=False).results[0]
    assert (result.task.dataset, result.task.revision) == ("mteb/stsbenchmark-sts", local)
    assert result.main.n == 3
    assert select_tasks(names=["STSBenchmark"])[0].metadata.dataset["path"] == (
        "mteb/stsbenchmark-sts"
    )
    # Other data give another revision; fetched data keep the pinned one while unchanged.
    sts_folder(mirror, scores=(5.0, 0.0, 1.0))
    again = evaluate(encoder, tasks="STSBenchmark", show_progress=False)
    assert again.reused == ()
    note = {"revision": pinned, "files": {"test.jsonl": sha256_file(folder / "test.jsonl")}}
    (folder / ".qwen3nb-fetched.json").write_text(json.dumps(note))
    assert data_revision(task) == pinned
    sts_folder(mirror, scores=(1.0, 1.0, 1.5))
    assert data_revision(task) != pinned


def test_data_that_are_nowhere_are_one_error_and_the_other_tasks_run(mirror, encoder_folder):
    sts_folder(mirror)
    encoder = load_encoder(encoder_folder, cache=False, show_progress=False)
    with pytest.raises(EvaluationError, match="1 of 2 tasks failed") as error:
        evaluate(encoder, tasks=["SciFact", "STSBenchmark"], show_progress=False)
    text = str(error.value)
    assert "mteb/scifact are not available: not in the mirror" in text
    assert "`qwen3nb fetch --tasks SciFact --mirror DIR`" in text
    records = list((mirror.parent / "home" / "results").glob("tiny-*/seed_0/STSBenchmark.json"))
    assert len(records) == 1


def test_a_model_from_the_mirror(mirror, encoder_folder):
    shutil.copytree(encoder_folder, mirror / "intfloat" / "e5-base-v2")
    encoder = load_encoder("e5-base-v2", cache=False)
    assert encoder.label == "e5-base-v2"
    assert encoder.prompts["query"] == "query: "
    np.testing.assert_array_equal(
        encoder.encode("x", role="passage"), load_encoder(encoder_folder).encode("passage: x")
    )


def test_the_path_is_put_back_when_loading_fails(mirror):
    (mirror / "mteb" / "stsbenchmark-sts").mkdir(parents=True)
    task = select_tasks(names=["STSBenchmark"])[0]

    def fail():
        with local_data(task):
            assert task.metadata.dataset["path"].startswith(str(mirror))
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        fail()
    assert task.metadata.dataset["path"] == "mteb/stsbenchmark-sts"


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
        task = select_tasks(names=["STSBenchmark"])[0]
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


def test_a_reranking_task_without_candidates_is_refused():
    from qwen3nb.evaluation.mteb.evaluate import _load

    task = SimpleNamespace(
        metadata=SimpleNamespace(name="R", type="Reranking", dataset={"path": "a/b"}),
        data_loaded=True,
        dataset={"default": {"test": {"top_ranked": None}}},
        convert_v1_dataset_format_to_v2=lambda num_proc: None,
    )
    with pytest.raises(EvaluationError, match="candidates of this reranking task did not load"):
        _load(task)


@pytest.fixture
def hub(fixtures):
    """A simulated hub on this machine, with real data."""
    program = fixtures / "tools" / "hubmirror.py"
    if not program.is_file():
        pytest.skip("the fixtures bring no look-alike of the hub (tools/hubmirror.py)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, program, str(port), fixtures / "data"])
    try:
        for _ in range(100):
            with socket.socket() as attempt:
                if attempt.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.mark.integration
def test_a_mirror_filled_from_a_hub_serves_a_node_without_one(hub, tmp_path):
    """The user's workflow: fetch on a connected machine, then list and load on another."""
    environment = {
        **os.environ,
        "HF_ENDPOINT": hub,
        "HF_HUB_OFFLINE": "0",
        "HF_HOME": str(tmp_path / "hf"),
        "QWEN3NB_MIRROR": str(tmp_path / "mirror"),
    }

    def run(*command, **changes):
        command = [sys.executable, *command]
        own = environment | changes
        return subprocess.run(command, env=own, capture_output=True, text=True, check=True).stdout

    fetch_ = ("-m", "qwen3nb.cli.main", "fetch", "--tasks", "STSBenchmark")
    listed = run(*fetch_, "--list")
    assert "mteb/stsbenchmark-sts" in listed
    assert "0.4 MB" in listed
    assert "1 of 1 are in" in run(*fetch_)
    code = (
        "from qwen3nb.evaluation.embeddings.sts import sts_pairs;"
        "from qwen3nb.datasets.mirror import data_revision;"
        "from qwen3nb.evaluation.mteb.select import select_tasks as select;"
        "print(len(sts_pairs('STS-B').gold), data_revision(select(names=['STSBenchmark'])[0]))"
    )
    done = run("-c", code, HF_HUB_OFFLINE="1", HF_ENDPOINT="http://127.0.0.1:9")
    count, revision = done.split()
    assert count == "1379"
    assert len(revision) == 40


def test_a_copy_that_cannot_be_loaded_is_named(mirror, encoder_folder):
    folder = mirror / "mteb" / "stsbenchmark-sts"
    folder.mkdir(parents=True)
    (folder / "test.jsonl").write_text("{broken")
    encoder = load_encoder(encoder_folder, cache=False, show_progress=False)
    with pytest.raises(EvaluationError, match="stsbenchmark-sts cannot be loaded"):
        evaluate(encoder, tasks="STSBenchmark", show_progress=False)


def _fetched(mirror):
    """A copy as `fetch` leaves it, with its note."""
    folder = sts_folder(mirror)
    files = {"test.jsonl": sha256_file(folder / "test.jsonl")}
    note = {"id": "x", "kind": "dataset", "revision": "a" * 40, "files": files}
    (folder / NOTE).write_text(json.dumps(note))
    return folder


ROW = json.dumps({"sentence1": "one", "sentence2": "more", "score": 1.0}) + "\n"
CHANGES = {
    "a file beside": lambda folder: (folder / "test-2.jsonl").write_text(ROW),
    "a linked folder": lambda folder: (
        (folder.parent / "b").mkdir(),
        (folder.parent / "b" / "test.jsonl").write_text(ROW),
        (folder / "data").symlink_to(folder.parent / "b"),
    ),
    "in a cache that is not the hub's": lambda folder: (
        (folder / "data" / ".cache").mkdir(parents=True),
        (folder / "data" / ".cache" / "test.jsonl").write_text(ROW),
    ),
    "a file less": lambda folder: (folder / "test.jsonl").unlink(),
    "a changed file": lambda folder: (folder / "test.jsonl").write_text(ROW),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_copy_has_its_revision_only_with_the_files_that_were_fetched(mirror, change):
    folder = _fetched(mirror)
    name = str(folder.relative_to(mirror))
    (folder / ".cache").mkdir()
    (folder / ".cache" / "x.lock").write_text("")  # the hub library's own
    assert current_revision(name, pinned="b" * 40) == "a" * 40
    CHANGES[change](folder)
    first = current_revision(name, pinned="b" * 40)
    assert first.startswith("local-")
    assert current_revision(name, pinned="b" * 40) == first


def test_a_task_whose_data_are_loaded_gets_those_of_its_revision(mirror, monkeypatch):
    folder = _fetched(mirror)
    encoder = load_encoder("random", cache=False, show_progress=False)
    task = select_tasks(names=["STSBenchmark"])[0]
    assert evaluate_task(encoder, task).main.n == 3
    (folder / "test-2.jsonl").write_text(ROW)
    result = evaluate_task(encoder, task)
    assert (result.main.n, result.task.revision) == (4, data_revision(task))

    def load(task):
        task.load_data()
        (folder / "test-3.jsonl").write_text(ROW)

    monkeypatch.setattr("qwen3nb.evaluation.mteb.evaluate.load_data", load)
    task = select_tasks(names=["STSBenchmark"])[0]
    with pytest.raises(EvaluationError, match="changed while they were loaded, from local"):
        evaluate_task(encoder, task)
