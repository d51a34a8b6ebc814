"""What is looked at before a run: data, weights, memory, disk."""

import time
from types import SimpleNamespace

import pytest

from qwen3nb.datasets.mirror import MirrorError
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.mteb import plan as looks
from qwen3nb.evaluation.mteb.plan import Planned, PreflightError, load_checked, weight_bytes
from qwen3nb.evaluation.mteb.select import select_tasks, suite_tasks, tier_tasks
from qwen3nb.evaluation.run import Run
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.load import load_encoder, load_model
from qwen3nb.tables import preflight_table
from qwen3nb.vectors.cache import bytes_per_vector
from qwen3nb.vectors.encode_file import block_size

GB = 10**9


def preflight(model, *, tasks=(), output=None):
    selected = suite_tasks(tier="", tasks=tasks)
    return looks.preflight(model, selected, Run(output=output))


@pytest.fixture
def big(monkeypatch):
    """Three retrieval tasks of a million texts; the data of one are part of another's."""
    sizes = {"FEVER": "x/a", "FEVERHardNegatives": "x/b", "NQ": "x/c"}
    planned = [
        Planned(name, "Retrieval", data, "1", 10**6, None, "to run", documents=10**6, queries=100)
        for name, data in sizes.items()
    ]
    monkeypatch.setattr(looks, "plan", lambda *_, **__: planned)
    monkeypatch.setattr(looks, "task_statuses", lambda *_, **__: [])
    return planned


def verdicts(ready):
    return {row[0].text: row[3].text for row in preflight_table(ready).rows}


def test_missing_data_are_one_list_with_one_command(tmp_path, monkeypatch):
    monkeypatch.setenv("QWEN3NB_MIRROR", str(tmp_path))
    started = time.perf_counter()
    with pytest.raises(MirrorError) as caught:
        load_checked("bm25", tier_tasks("fast"), Run(), tier="fast")
    message = str(caught.value)
    assert [name in message for name in ("SciFact", "NFCorpus", "FiQA2018")] == [True] * 3
    assert "STSBenchmark" not in message  # BM25 has no vectors to compare sentences with
    assert f"`qwen3nb fetch --tier fast --mirror {tmp_path}`" in message
    assert time.perf_counter() - started < 10


def test_missing_weights_are_in_the_same_list_and_nothing_is_loaded(tmp_path, monkeypatch):
    monkeypatch.setenv("QWEN3NB_MIRROR", str(tmp_path))
    monkeypatch.setattr(looks, "load_model", None)
    with pytest.raises(MirrorError) as caught:
        load_checked("e5-base-v2", select_tasks(names=["SciFact"]), Run())
    assert "intfloat/e5-base-v2" in str(caught.value)
    assert "--tasks SciFact --model e5-base-v2" in str(caught.value)
    with pytest.raises(MirrorError, match="--tier fast --model e5-base-v2"):
        load_checked("e5-base-v2", tier_tasks("fast"), Run(), tier="fast")


def test_a_task_whose_record_is_there_needs_no_data(tmp_path, monkeypatch):
    tasks = select_tasks(names=["SciFact"])
    monkeypatch.setattr(looks, "task_statuses", lambda *_, **__: ["there"])
    assert load_checked("bm25", tasks, Run()).label == "bm25"


def test_weights_that_memory_cannot_hold_are_not_loaded(encoder_folder, monkeypatch):
    weights = weight_bytes(find_source(str(encoder_folder)))
    assert weights == (encoder_folder / "model.safetensors").stat().st_size
    monkeypatch.setattr(looks, "available_memory", lambda: weights - 1)
    with pytest.raises(PreflightError, match="the weights are"):
        load_checked(str(encoder_folder), [], Run())
    assert weight_bytes(find_source("bm25")) == 0


@pytest.mark.integration
def test_a_run_that_fits(encoder_folder, tmp_path):
    encoder = load_encoder(encoder_folder, show_progress=False)
    ready = preflight(encoder, tasks="AuthorSTS", output=tmp_path)
    ready.require()
    assert verdicts(ready) == {"memory": "PASSED", "disk": "PASSED", "device": "PASSED"}
    assert 0 < ready.minutes.low <= ready.minutes.high
    assert ready.gpu_hours is None
    evaluate(encoder, tasks="AuthorSTS", output=tmp_path, show_progress=False)
    again = preflight(encoder, tasks="AuthorSTS", output=tmp_path)
    assert again.minutes is None  # nothing is to run


def test_vectors_that_do_not_fit_are_refused_with_the_way_out(encoder_folder, monkeypatch, big):
    encoder = load_encoder(encoder_folder, show_progress=False)
    size = bytes_per_vector(encoder.dimension)
    monkeypatch.setattr(looks, "available_memory", lambda: 100 * GB)
    monkeypatch.setattr(looks, "free_disk", lambda folder: int(1.9e6 * size))
    ready = preflight(encoder)
    assert verdicts(ready)["disk"] == "FAILED"
    with pytest.raises(PreflightError, match="--no-cache, or set QWEN3NB_CACHE"):
        ready.require()
    # FEVERHardNegatives is part of FEVER: two millions are the least, three the most.
    monkeypatch.setattr(looks, "free_disk", lambda folder: int(2.1e6 * size))
    preflight(encoder).require()
    monkeypatch.setattr(looks, "free_disk", lambda folder: GB // 4)
    monkeypatch.setenv("QWEN3NB_CACHE_LIMIT", "200MB")
    limited = preflight(load_encoder(encoder_folder, show_progress=False))
    limited.require()
    assert {each.name: each.needed for each in limited.checks}["disk"] == "0.2 GB of vectors"
    monkeypatch.setattr(looks, "free_disk", lambda folder: 0)
    preflight(load_encoder(encoder_folder, cache=False, show_progress=False)).require()


def test_vectors_stored_before_need_no_room(encoder_folder, monkeypatch, big):
    encoder = load_encoder(encoder_folder, show_progress=False)
    monkeypatch.setattr(type(encoder.cache), "__len__", lambda cache: 2 * 10**6)
    monkeypatch.setattr(looks, "available_memory", lambda: 100 * GB)
    monkeypatch.setattr(looks, "free_disk", lambda folder: 0)
    preflight(encoder).require()


def test_a_search_that_memory_cannot_hold_is_refused(encoder_folder, monkeypatch, big):
    encoder = load_encoder(encoder_folder, cache=False, show_progress=False)
    # A block of vectors in four copies, those of 100 queries, and a thousand hits of each.
    needed = 4 * encoder.dimension * (4 * block_size(encoder.dimension) + 100) + 256 * 100 * 1000
    monkeypatch.setattr(looks, "available_memory", lambda: needed - 1)
    with pytest.raises(PreflightError, match="GB of memory"):
        preflight(encoder).require()
    monkeypatch.setattr(looks, "available_memory", lambda: needed)
    preflight(encoder).require()


def test_a_fusion_needs_what_its_encoder_needs(monkeypatch, big, encoder_folder):
    fusion = SimpleNamespace(
        parts=[load_model("bm25"), load_encoder(encoder_folder, show_progress=False)], device="cpu"
    )
    monkeypatch.setattr(looks, "free_disk", lambda folder: 0)
    with pytest.raises(PreflightError, match="--no-cache"):
        preflight(fusion).require()
    preflight(load_model("bm25")).require()


@pytest.mark.integration
def test_the_dry_run_prints_and_exits(cli, checkout, tmp_path, monkeypatch):
    done = cli("eval", "--checkpoint", "random", "--tasks", "AuthorSTS", "--dry-run")
    assert done.exit_code == 0, done.output
    assert "1 of 1 tasks are to run" in done.output
    assert not list(checkout.glob("results/*/seed_*"))
    monkeypatch.setenv("QWEN3NB_MIRROR", str(tmp_path))
    done = cli("eval", "--checkpoint", "bm25", "--tier", "fast", "--dry-run")
    assert done.exit_code == 1
    assert "qwen3nb fetch --tier fast" in done.output
    monkeypatch.setattr(looks, "free_disk", lambda folder: 0)
    # A model of its own: what another test has cached needs no space.
    big = ("eval", "--checkpoint", "random:61", "--tasks", "AuthorSTS", "--dry-run")
    assert cli(*big).exit_code == 1
    assert cli(*big, "--no-cache").exit_code == 0
