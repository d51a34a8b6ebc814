"""A node that has another model under the same path: refused by name, and nothing is kept."""

import io
import json
import os
import shutil
import tarfile
import threading
import time
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.beir import write_words
from helpers.notebooks import notebook_of, save
from helpers.one_process_ray import OneProcessRay
from helpers.records import make
from helpers.two_nodes import two_nodes

from qwen3nb import paths
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.cluster import encode as cluster_encode
from qwen3nb.cluster.connect import ClusterError
from qwen3nb.cluster.nodes import Node
from qwen3nb.cluster.runs import Delivery, Expected, foreign_records
from qwen3nb.cluster.search import search_shard
from qwen3nb.execution.executors import Command, NodeShare, RayExecutor
from qwen3nb.execution.sweep import Job, sweep
from qwen3nb.models.kinds.source import EXPECTED
from qwen3nb.models.load import load_encoder, load_model
from qwen3nb.records.store import load_results, verify
from qwen3nb.utils.atomic_files import sha256_json
from qwen3nb.vectors.encode_file import encode_shards
from qwen3nb.vectors.shards import read_manifest


@pytest.fixture
def model(home, make_checkpoint):
    return make_checkpoint(home / "m", seed=1)


@pytest.fixture
def another(home, make_checkpoint):
    return make_checkpoint(home / "another", seed=2)


def replace(model, another):
    shutil.rmtree(model)
    shutil.copytree(another, model)


@pytest.mark.parametrize("spec", ["{}", "bm25+{}"])
def test_a_run_refuses_other_content_than_it_was_started_for(model, another, monkeypatch, spec):
    spec = spec.format(model)
    expected = Expected.of([spec])
    assert expected.complete
    monkeypatch.setenv(EXPECTED, json.dumps(expected.folders))
    load_model(spec, cache=False)
    load_model(str(another), cache=False)  # nothing is said of it
    replace(model, another)
    with pytest.raises(CheckpointError) as error:
        load_model(spec, cache=False)
    digests = [Expected.of([spec]).folders[str(model)], expected.folders[str(model)]]
    for word in (f"node {os.uname().nodename}", str(model), *(each[:12] for each in digests)):
        assert word in str(error.value)


def record_of(spec, folder):
    encoder = load_model(spec, cache=False, show_progress=False)
    result = make(encoder.label, settings=encoder.settings)
    object.__setattr__(result.model, "spec", encoder.source.spec)
    result.save(folder / "results")
    return result


@pytest.mark.parametrize("specs", [["{model}"], ["bm25+{model}"], ["bm25", "{model}"]])
def test_what_a_node_delivers_is_compared_with_what_was_asked_for(model, another, tmp_path, specs):
    specs = [each.format(model=model) for each in specs]
    expected = Expected.of(specs)
    for number, spec in enumerate(specs):
        record_of(spec, tmp_path / f"here-{number}")
        assert foreign_records(tmp_path / f"here-{number}", expected, node="left") == []
    replace(model, another)
    record_of(specs[-1], tmp_path / "there")
    (line,) = foreign_records(tmp_path / "there", expected, node="right")
    assert line.startswith("node right: PyDocsSampleRetrieval: ")
    assert expected.folders[str(model)][:12] in line
    assert Expected.of(specs).folders[str(model)][:12] in line


def test_a_model_that_was_not_asked_for_is_foreign_unless_one_is_on_the_hub(
    model, another, tmp_path
):
    """As of a path below a home folder, which is another on each node."""
    record_of(another, tmp_path)
    assert len(foreign_records(tmp_path, Expected.of([str(model)]), node="right")) == 1
    assert foreign_records(tmp_path, Expected.of([str(model), "lab/model"]), node="right") == []
    assert foreign_records(tmp_path, Expected.of([]), node="right") == []
    assert foreign_records(tmp_path, Expected.of([str(another)]), node="right") == []


class _DeliveringRay:
    """Runs nothing: every task delivers what ``make`` writes to a folder."""

    exceptions = SimpleNamespace(
        RayError=KeyError, ObjectLostError=KeyError, OwnerDiedError=KeyError
    )

    def __init__(self, deliver):
        self.deliver, self.requests = deliver, []

    def remote(self, function):
        return self

    def options(self, **_):
        return SimpleNamespace(remote=self._task)

    def _task(self, request):
        self.requests.append(request)
        return self.deliver

    def get(self, reference):
        return reference() if callable(reference) else reference


def delivery_of(folder, status=0):
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for file in folder.rglob("*"):
            tar.add(file, arcname=str(file.relative_to(folder)), recursive=False)
    return Delivery(status, "n2", 1.0, (archive.getvalue(),))


@pytest.mark.parametrize("same", [True, False])
def test_nothing_of_a_node_with_another_model_is_published(model, another, tmp_path, home, same):
    delivered = tmp_path / "files"

    def deliver():
        if not same:
            replace(model, another)
        record_of(str(model), delivered)
        (delivered / "log").write_text("what it printed\n")
        (delivered / "book" / "runs").mkdir(parents=True)
        (delivered / "book" / "runs" / "eval-m.ipynb").write_text("a page")
        return delivery_of(delivered)

    ray = _DeliveringRay(deliver)
    node = Node("n2", "late", 1, 0.0, 1)
    executor = RayExecutor(ray, [node], NodeShare(1, 0.0, 1), {}, "mark", at_once=1)
    page, log = paths.book_runs() / "eval-m.ipynb", paths.results() / "logs" / "eval-m.log"
    log.parent.mkdir(parents=True)
    expected = Expected.of([str(model)])
    ended = executor.run(Command("eval-m", ("run",), page, models=(str(model),)), log=log)
    (request,) = ray.requests
    assert json.loads(request.environment[EXPECTED]) == expected.folders
    assert (ended.exit_status, ended.node) == (int(not same), "late")
    assert page.is_file() is same
    assert len(list(paths.results().glob("*/seed_*/*"))) == (2 if same else 0)
    if not same:
        assert log.read_text().startswith("node late: PyDocsSampleRetrieval: ")


@pytest.fixture
def encode(model, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(cluster_encode, "nodes_of", lambda _: [Node("a", "a", 1, 0.0, 0)])
    texts = tmp_path / "texts.jsonl"
    texts.write_text('{"text": "one"}\n{"text": "two"}\n')

    def run(ray):
        monkeypatch.setattr(cluster_encode, "connected", lambda _: nullcontext(ray))
        return cluster_encode.encode_on_cluster(
            str(model), texts, tmp_path / "v", show_progress=False, threads=1
        )

    return run


def test_a_worker_with_another_model_is_refused_before_it_encodes(encode, model, another, tmp_path):
    def replaced(name, _):
        if name == "load":
            replace(model, another)
        return False

    with pytest.raises(CheckpointError, match=rf"node .*{model}: expected the model of identity"):
        encode(OneProcessRay(dies=replaced))
    assert not list((tmp_path / "v").iterdir())


def test_what_a_worker_says_of_its_model_is_compared(encode, model, another, tmp_path):
    other = load_encoder(another, cache=False).settings

    def answered(name, value):
        return (*value[:3], other) if name == "load" else value

    with pytest.raises(ClusterError) as error:
        encode(OneProcessRay(answered=answered))
    expected = Expected.of([str(model)]).folders[str(model)][:12]
    for word in (f"node {os.uname().nodename}: ", expected, sha256_json(other["model"])[:12]):
        assert word in error.value.message
    assert not list((tmp_path / "v").iterdir())
    assert len(encode(OneProcessRay()).vectors.shards) == 1


def test_other_vectors_under_the_same_path_are_refused_by_the_node(tmp_path):
    texts = tmp_path / "texts.jsonl"
    texts.write_text('{"text": "one"}\n{"text": "two"}\n')
    encode_shards(load_encoder("random:8", cache=False, show_progress=False), texts, tmp_path / "v")
    vectors = read_manifest(tmp_path / "v")
    queries, shard = np.ones((1, 8), np.float32), vectors.shards[0]
    search_shard(queries, shard, tmp_path / "v", vectors, 1, {})
    np.save(tmp_path / "v" / shard.file, np.ones((2, 8), np.float32))
    with pytest.raises(ValueError, match=rf"node {os.uname().nodename}: .*expected SHA-256"):
        search_shard(queries, shard, tmp_path / "v", vectors, 1, {})


PARAMETERS = """\
checkpoint: str = "bm25"  # a model
data: str = ""  # a folder"""
# A run says that it has begun, and evaluates when it may.
WAITING = """\
import time, uuid
from pathlib import Path
gate = Path(data).parent
(gate / f"begun-{uuid.uuid4().hex}").touch()
while not (gate / "go").exists():
    time.sleep(0.1)
from qwen3nb.evaluation.evaluate import evaluate
evaluate(checkpoint, data=Path(data), show_progress=False)"""


@pytest.mark.integration
def test_a_node_that_joins_later_with_another_model_is_refused(
    checkout, make_checkpoint, tmp_path, monkeypatch
):
    """Three runs; two nodes were checked, the third joins while they run, with another disk."""
    names = ("one", "two", "three")
    for home, seed in (("here", 1), ("there", 9)):
        for number, name in enumerate(names):
            make_checkpoint(tmp_path / home / name, seed=seed + number)
    monkeypatch.setenv("HOME", str(tmp_path / "here"))
    gate = checkout / "gate"
    write_words(gate / "words")
    save(notebook_of(WAITING, parameters=PARAMETERS), "waiting")
    data = str(gate / "words")
    jobs = [Job("waiting", {"checkpoint": f"~/{name}", "data": data}) for name in names]
    with two_nodes() as cluster:

        def begun(count):
            while len(list(gate.glob("begun-*"))) < count:
                time.sleep(0.05)

        def join():
            begun(2)
            cluster.add("late", environment={"HOME": str(tmp_path / "there")})
            begun(3)
            (gate / "go").touch()

        joining = threading.Thread(target=join, daemon=True)
        joining.start()
        outcomes = sweep(jobs, ray=cluster.address, show_progress=False)
        joining.join(60)
    late = [each for each in outcomes if each.node == "late"]
    assert [each.status for each in outcomes if each not in late] == ["done", "done"], outcomes
    (refused,) = late
    assert refused.status == "failed"
    assert "node late: words: " in refused.reason
    assert "expected the model of identity" in refused.reason
    records = load_results()
    assert {each.model.spec for each in records} == {
        str(tmp_path / "here" / name)
        for name, each in zip(names, outcomes, strict=True)
        if each not in late
    }
    assert not jobs[outcomes.index(refused)].finished()
    assert verify() == []
