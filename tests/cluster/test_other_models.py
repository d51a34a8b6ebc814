"""A node that has another model under the same path: refused by name, and nothing is kept."""

import io
import json
import os
import shutil
import tarfile
from types import SimpleNamespace

import pytest
from helpers.records import make

from qwen3nb import paths
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.cluster.nodes import Node
from qwen3nb.cluster.runs import Delivery, Expected, foreign_records
from qwen3nb.execution.executors import Command, NodeShare, RayExecutor
from qwen3nb.models.kinds.source import EXPECTED
from qwen3nb.models.load import load_model


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
