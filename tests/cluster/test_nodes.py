"""A cluster and its nodes: how it is joined, what they say of themselves, what is refused."""

import os
import re
import shutil
import socket
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from qwen3nb.cluster import nodes
from qwen3nb.cluster.nodes import (
    ClusterError,
    KnownNodes,
    connected,
    difference,
    model_facts,
    node_environment,
    nodes_of,
    sent_environment,
    software_facts,
)
from qwen3nb.cluster.runs import Request, other_model, run_on_node
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.models.load import load_model


@pytest.fixture
def _ray():
    pytest.importorskip("ray", reason="extra ray is not installed")


def node(name, number, *, alive=True, **resources):
    return {
        "NodeID": f"{number:056x}",
        "NodeName": name,
        "NodeManagerAddress": "10.0.0.1",
        "Alive": alive,
        "Resources": {"CPU": 4.0, "memory": 8e9, **resources},
    }


def test_nodes_that_live_and_have_cores_are_listed_under_names_that_differ():
    ray = SimpleNamespace(
        nodes=lambda: [
            node("b", 1, GPU=2.0),
            node("a", 2),
            node("dead", 3, alive=False),
            node("head", 4, CPU=0.0),
            node("twin", 16),
            node("twin", 1 << 220),
        ]
    )
    listed = nodes_of(ray)
    assert [each.name for each in listed] == ["a", "b", "twin (000000)", "twin (100000)"]
    assert (listed[1].cpus, listed[1].gpus, listed[1].memory) == (4, 2.0, 8_000_000_000)


@pytest.mark.usefixtures("_ray")
def test_a_node_with_other_code_is_refused_by_name(checkout, capsys):
    here = software_facts()
    other = {"left": here, "stale": here | {"code": "b35f"}}
    task = lambda on: SimpleNamespace(remote=lambda *_: int(on.node_id, 16))  # noqa: E731
    ray = SimpleNamespace(
        remote=lambda **_: (
            lambda _: SimpleNamespace(
                options=lambda scheduling_strategy, **_: task(scheduling_strategy)
            )
        ),
        get=lambda number: list(other.values())[number - 1],
        exceptions=SimpleNamespace(RayError=OSError, TaskUnschedulableError=(), NodeDiedError=()),
    )
    listed = [node(name, number) for number, name in enumerate(other, start=1)]
    ray.nodes = lambda: listed
    known = KnownNodes(ray)
    assert known.examine(here)
    assert [each.name for each in known.fit()] == ["left"]
    assert known.selector == {"ray.io/node-id": f"!in({2:056x})"}
    differ = rf"node stale is refused: code: b35f there, {here['code']} here"
    assert capsys.readouterr().err.splitlines()[-1].strip() == differ
    assert not known.examine(here)  # again
    listed.pop(0)
    with pytest.raises(ClusterError, match=f"no node equals this machine:\n{differ}"):
        known.fit()
    assert difference({"mteb": "2.26"}, {"mteb": ""}) == "mteb: none there, 2.26 here"
    assert difference({}, {"mteb": "2.26"}) == "mteb: 2.26 there, none here"
    assert "reports neither versions nor code" in difference({"mteb": "2.26"}, {})


def test_a_node_that_cannot_write_differs(checkout, tmp_path, monkeypatch):
    here, full = software_facts(), tmp_path / "full"
    full.touch()
    monkeypatch.setenv("QWEN3NB_CACHE", str(full))
    where = rf"cache: none \(FileExistsError: .*{full}.*\) there, writable here"
    assert re.fullmatch(where, difference(here, software_facts()))
    # A disk that is full in the middle: nothing of the run is left to deliver.
    monkeypatch.setattr(tempfile, "tempdir", str(full))
    context = SimpleNamespace(get_node_id=lambda: "id")
    ray = SimpleNamespace(get_runtime_context=lambda: context, put=None)
    monkeypatch.setitem(sys.modules, "ray", ray)
    delivery = run_on_node(Request((), "", {}, "", "", "", "", facts=here))
    assert (delivery.node, delivery.parts) == ("id", ())
    where = rf"temporary folder: none \(.*{full}.*\) there, writable here"
    assert re.fullmatch(where, difference(here, delivery.facts))


def test_facts_follow_the_content_of_a_model_not_its_path(checkout, make_checkpoint):
    first, second, other = (make_checkpoint(checkout / f"m{i}", seed=i // 2) for i in range(3))
    models = model_facts((str(first), str(second), str(other), "bm25", "no-model"))
    assert models[f"model {first}"] == models[f"model {second}"] != models[f"model {other}"]
    assert models["model no-model"].startswith("none (SpecError: ")
    known = software_facts()
    assert {"python", "torch", "mteb", "code", "notebooks", "linear layers"} <= known.keys()
    (checkout / "notebooks" / "eval.ipynb").write_text("{}")
    assert software_facts()["notebooks"] != known["notebooks"]


def test_a_node_gets_what_concerns_a_run_and_keeps_its_own_cache(checkout, monkeypatch):
    for name in ("HF_TOKEN", "QWEN3NB_CACHE", "QWEN3NB_RESULTS", "PATH", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, "of the driver")
    for name, value in (("GH_PAT", "p"), ("DB_PASS", "q"), ("QWEN3NB_PASS_ENV", "GH_PAT")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("QWEN3NB_LINEAR", "mkl")
    sent = sent_environment()
    assert (sent["GH_PAT"], sent["QWEN3NB_PASS_ENV"]) == ("p", "GH_PAT")  # admitted by name
    assert "DB_PASS" not in sent
    kept = {name: sent[name] for name in ("HF_TOKEN", "QWEN3NB_LINEAR", "QWEN3NB_HOME")}
    assert list(kept.values()) == ["of the driver", "mkl", str(checkout)]
    assert not {"QWEN3NB_CACHE", "QWEN3NB_RESULTS", "PATH", "CUDA_VISIBLE_DEVICES"} & sent.keys()
    monkeypatch.setenv("QWEN3NB_CACHE", "of the node")
    assert node_environment(sent)["QWEN3NB_CACHE"] == "of the node"
    monkeypatch.delenv("QWEN3NB_CACHE")
    assert "qwen3nb-cache-" in node_environment(sent)["QWEN3NB_CACHE"]
    assert node_environment(sent)["PATH"] == os.environ["PATH"]


@pytest.mark.parametrize("spec", ["{}", "bm25+{}", "random:8", "bm25"])
def test_a_delivered_record_of_another_model_is_named(home, make_checkpoint, tmp_path, spec):
    model = make_checkpoint(home / "m", seed=1)
    loaded = load_model(spec.format(model), cache=False)
    evaluate(loaded, tasks="PyDocsSampleRetrieval", output=tmp_path, show_progress=False)
    assert other_model(tmp_path, [str(model), spec.format(model)]) == ""
    assert other_model(tmp_path, ["no-model"]) == ""  # the run reports it
    another = make_checkpoint(home / "another", seed=2)
    shutil.rmtree(model)
    shutil.copytree(another, model)
    wanted = spec.format(model) if "{" in spec else "random:16"
    line = f"the record of PyDocsSampleRetrieval is of another {loaded.label} than here"
    assert other_model(tmp_path, [wanted]).startswith(line)


def refusal(address):
    with pytest.raises(ClusterError) as error, connected(address):
        raise AssertionError("connected")
    return error.value.message


def test_without_ray_the_message_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "pip install 'qwen3nb[ray]'" in refusal("local")


@pytest.mark.usefixtures("_ray")
@pytest.mark.parametrize("address", ["sweep.toml", "http://head:8265", "head", ":6379", "head:"])
def test_what_is_no_address_is_refused_with_what_is(address):
    message = refusal(address)
    assert repr(address) in message
    assert "expected auto, host:port or ray://host:port" in message


@pytest.mark.usefixtures("_ray")
@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_nobody_at_the_address_is_said_at_once(scheme):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"{scheme}127.0.0.1:{server.getsockname()[1]}"
    message = refusal(address)
    assert f"no Ray cluster answers at {address}: " in message
    assert "ray start --head" in message


@pytest.mark.usefixtures("_ray")
@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_what_listens_there_but_is_not_ray_is_refused(monkeypatch, answer):
    """Ray itself would wait for minutes."""
    monkeypatch.setattr(nodes, "_PATIENCE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        client = pool.submit(lambda: (taken := server.accept()[0], taken.sendall(answer)))
        message = refusal(f"127.0.0.1:{server.getsockname()[1]}")
        client.result()[0].close()
    assert message.startswith("no Ray cluster answers at 127.0.0.1:")
    assert ("not Ray" if answer else "timed out") in message


@pytest.mark.usefixtures("_ray")
def test_a_machine_without_a_cluster_says_so(monkeypatch):
    from ray._private import services

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(services, "find_bootstrap_address", lambda folder: None)
    assert "belongs to no Ray cluster, and RAY_ADDRESS is not set" in refusal("auto")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    assert "no Ray cluster answers at 127.0.0.1:9" in refusal("auto")
