"""A cluster and its nodes: how it is joined, what they say of themselves, what is refused."""

import os
import re
import shutil
import socket
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers.beir import write_words

from qwen3nb.cluster import nodes, runs
from qwen3nb.cluster.nodes import (
    Cluster,
    ClusterError,
    Head,
    KnownNodes,
    NodeReport,
    cause,
    connected,
    difference,
    model_facts,
    node_environment,
    nodes_of,
    run_facts,
    sent_environment,
    software_facts,
)
from qwen3nb.cluster.runs import Request, other_model, run_on_node
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.models.load import load_model
from qwen3nb.utils.children import run_program


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


class SilentError(OSError):
    """In place of Ray's error of a node that does not answer."""


SilentError.__name__ = "GetTimeoutError"


def ray_of(answers):
    """Stand in for Ray with a node of each name, which answers so, or raises that."""
    ray = SimpleNamespace(nodes=lambda: [node(each, i) for i, each in enumerate(answers, start=1)])

    def wait(numbers, num_returns, timeout):
        assert (len(numbers), timeout) == (num_returns, 300)

    def get(number, timeout):
        answer = list(answers.values())[number - 1]
        assert timeout == 0  # it was waited for
        if isinstance(answer, Exception):
            raise answer
        return answer

    task = lambda on: SimpleNamespace(remote=lambda *_: int(on.node_id, 16))  # noqa: E731
    options = SimpleNamespace(options=lambda scheduling_strategy, **_: task(scheduling_strategy))
    ray.remote, ray.wait, ray.get = lambda **_: lambda _: options, wait, get
    gone = dict.fromkeys(("TaskUnschedulableError", "NodeDiedError"), LookupError)
    ray.exceptions = SimpleNamespace(RayError=OSError, **gone)
    return ray


@pytest.mark.usefixtures("_ray")
def test_a_node_with_other_code_is_refused_by_name(checkout, capsys):
    here = run_facts()
    other = {"ahead": NodeReport(here, [], time.time() + 500), "silent": SilentError()}
    other["stale"] = NodeReport(here | {"code": "b35f"}, [], 0.0)
    other["left"] = NodeReport(here, [], time.time())
    known = KnownNodes(Cluster(ray_of(other)), lambda: here)
    assert known.examine()
    assert [each.name for each in known.usable()] == ["left"]
    assert known.selector == {"ray.io/node-id": f"!in({1:056x},{2:056x},{3:056x})"}
    reasons = {
        "ahead": r"its clock differs by \+[45]\d\d s",
        "silent": r"it reports no version of qwen3nb \(no answer within 300 s\)"
        r"; is this one installed there\?",
        "stale": f"code: b35f there, {here['code']} here",
    }
    lines = [f"node {name} is refused: {reason}" for name, reason in reasons.items()]
    assert re.fullmatch("\n".join([*lines, ""]), capsys.readouterr().err)
    assert not known.examine()  # again
    del other["left"]
    lines = [rf"{reason} \({name}\)" for name, reason in reasons.items()]
    with pytest.raises(ClusterError, match="^every node is refused: " + "\n".join(lines)):
        known.usable()
    assert difference({"mteb": "2.26"}, {"mteb": ""}) == "mteb: none there, 2.26 here"
    assert difference({}, {"mteb": "2.26"}) == "mteb: 2.26 there, none here"
    assert "reports neither versions nor code" in difference({"mteb": "2.26"}, {})


@pytest.mark.usefixtures("_ray")
def test_a_folder_that_no_node_sees_is_named_once(checkout, capsys, monkeypatch):
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.chdir(checkout)
    (checkout / "m").mkdir()
    here = {"python": "3.12"}
    other = dict.fromkeys(("a", "b"), NodeReport(here, ["~/m"], time.time()))
    with pytest.raises(ClusterError) as error:
        KnownNodes(Cluster(ray_of(other)), lambda: here, ["~/m"]).examine()
    why = "it does not see ~/m; models and data must be under the same path on all, as on a shared"
    why += " disk (a, b)"
    assert error.value.message == f"every node is refused: {why}"
    assert not capsys.readouterr().err
    environment = {"QWEN3NB_HOME": str(checkout)}
    report = nodes.report_of_node(run_facts, environment, str(checkout), ["m", "n"])
    assert (report.facts, report.unseen) == (run_facts(), ["n"])


def test_a_cluster_without_nodes_is_waited_for_ten_minutes(monkeypatch, capsys):
    answers, clock = {"a": None}, SimpleNamespace(monotonic=lambda: clock.now, now=0)
    monkeypatch.setattr(nodes, "time", clock)
    known = KnownNodes(Cluster(ray_of(answers)))
    for clock.now in range(1000, 2650, 50):  # the node is gone from 1100 to 1600, and from 2000 on
        answers.clear() if 1100 <= clock.now < 1600 or clock.now >= 2000 else answers.update(a=None)
        known.check_presence()
    waits = "no node for runs is there; waiting up to 10 min for one to join"
    assert capsys.readouterr().err.count(waits) == 2
    clock.now += 50
    with pytest.raises(ClusterError, match=r"no node for runs for 10 min\. What has finished"):
        known.check_presence()
    answers["a"] = None
    clock.now += 50
    known.check_presence()
    clock.now += 50
    known.check_presence(gpus=1)  # the node has none
    assert waits in capsys.readouterr().err


def test_lack_of_memory_is_one_line():
    """As Ray 2.60 writes it."""
    text = "1 worker(s) were killed due to the node running low on memory. Memory on the node (IP: "
    text += "10.0.0.2, ID: 96079b97) was 10.2GB used / 23.5GB limit (0.43)\nOOM kill reason: Memory"
    line = "Ray ended it: Memory on the node (IP: 10.0.0.2) was 10.2GB used / 23.5GB limit (0.43). "
    line += "Use fewer runs at once (--at-once) or nodes with more memory"
    assert cause(type("OutOfMemoryError", (Exception,), {})(text)) == line
    assert cause(OSError("Traceback\n  File\nOSError: x\n")) == "OSError: OSError: x"


def test_a_node_that_cannot_write_differs(checkout, tmp_path, monkeypatch):
    here, full = run_facts(), tmp_path / "full"
    full.touch()
    monkeypatch.setenv("QWEN3NB_CACHE", str(full))
    where = rf"cache: none \(FileExistsError: .*{full}.*\) there, writable here"
    assert re.fullmatch(where, difference(here, run_facts()))
    assert software_facts().items() <= here.items()  # vectors depend on no cache
    # A disk that is full in the middle: nothing of the run is left to deliver.
    monkeypatch.setattr(tempfile, "tempdir", str(full))
    context = SimpleNamespace(get_node_id=lambda: "id")
    ray = SimpleNamespace(get_runtime_context=lambda: context, put=None)
    monkeypatch.setitem(sys.modules, "ray", ray)
    request = Request((), "", {}, "", "", "", "", facts=here)
    delivery = run_on_node(request)
    assert (delivery.node, delivery.parts) == ("id", ())
    where = rf"temporary folder: none \(.*{full}.*\) there, writable here"
    assert re.fullmatch(where, difference(here, delivery.facts))
    with pytest.raises(OSError, match=str(full)):  # of a Ray on this machine, the run fails
        run_on_node(replace(request, facts={}))


def test_a_part_gets_the_records_of_its_tasks(tmp_path, monkeypatch):
    names = ["m/seed_0/A.json", "m/seed_0/A.1f.scores.parquet", "m/seed_0/.A.json.writes.lock"]
    names += ["n/seed_1/B.json", "n/seed_1/B.2e.trec", "first_stages/A-3d.trec", "failed/B.json"]
    for name in ["sweep/x", *names, "logs/A.log"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    seen = []

    def ran(command, *, scratch, log, **_):
        log.touch()
        linked = (each for each in scratch.rglob("*") if each.is_symlink())
        seen.append({each.relative_to(scratch / "results").as_posix() for each in linked})
        return 1

    context = SimpleNamespace(get_node_id=lambda: "id")
    ray = SimpleNamespace(get_runtime_context=lambda: context, put=lambda part: part)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(runs, "run_guarded", ran)
    request = Request((), "page", {}, "", str(tmp_path), str(tmp_path / "book"), "sweep")
    assert run_on_node(request).sees_records
    assert run_on_node(replace(request, part={"only": ["A"]})).sees_records
    names.remove("m/seed_0/.A.json.writes.lock")
    assert seen == [set(names), {name for name in names if "/A" in name}]


def test_facts_follow_the_content_of_a_model_not_its_path(checkout, make_checkpoint):
    first, second, other = (make_checkpoint(checkout / f"m{i}", seed=i // 2) for i in range(3))
    models = model_facts((str(first), str(second), str(other), "bm25", "no-model"))
    assert models[f"model {first}"] == models[f"model {second}"] != models[f"model {other}"]
    assert models["model no-model"].startswith("none (SpecError: ")
    known = run_facts()
    assert {"python", "torch", "mteb", "code", "notebooks", "linear layers"} <= known.keys()
    (checkout / "notebooks" / "eval.ipynb").write_text("{}")
    assert run_facts()["notebooks"] != known["notebooks"]


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
    words = write_words(tmp_path / "words")
    evaluate(loaded, data=words, output=tmp_path / "results", show_progress=False)
    assert other_model(tmp_path / "results", [str(model), spec.format(model)]) == ""
    assert other_model(tmp_path / "results", ["no-model"]) == ""  # the run reports it
    another = make_checkpoint(home / "another", seed=2)
    shutil.rmtree(model)
    shutil.copytree(another, model)
    wanted = spec.format(model) if "{" in spec else "random:16"
    line = f"the record of words is of another {loaded.label} than here"
    assert other_model(tmp_path / "results", [wanted]).startswith(line)


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
def test_nobody_at_the_address_is_stated_at_once(scheme):
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


def test_the_head_is_looked_at_also_behind_a_client(monkeypatch):
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(nodes, "_answering_address", lambda address: address)
    ray = SimpleNamespace(is_initialized=lambda: False, init=lambda **_: None)
    ray.shutdown = lambda: None
    ray.get_runtime_context = lambda: SimpleNamespace(gcs_address="10.0.0.1:6379")
    monkeypatch.setitem(sys.modules, "ray", ray)
    for address, head in (("ray://laptop:10001", "laptop:10001"), ("auto", "10.0.0.1:6379")):
        with connected(address) as cluster:
            assert cluster.head.address == head
    lost = pytest.raises(ClusterError, match="the connection to Ray is lost: gone. What has fin")
    with lost, connected(address):
        raise ConnectionError("gone")


# Join no cluster; then print as Ray does when it learns that a node has died.
DUMP = """
from contextlib import suppress
from qwen3nb.cluster.nodes import ClusterError, connected
with suppress(ClusterError), connected("no address"):
    pass
from ray._private.worker import print_to_stdstream
print("ours")
text = "The node has been marked dead.\\n\\nIts log was:"
print_to_stdstream({"lines": [text, ""], "pid": "raylet", "is_err": False}, ignore_prefix=False)
"""


@pytest.mark.usefixtures("_ray")
def test_what_ray_prints_of_a_dead_node_is_left_out():
    variables = {name: os.environ[name] for name in os.environ if not name.startswith("RAY_")}
    done = run_program([sys.executable, "-c", DUMP], environment=variables)
    assert (done.returncode, done.stdout) == (0, "ours\n"), done.stderr


@pytest.mark.parametrize(("scheme", "patience"), [("", 40), ("ray://", 20)])
def test_a_head_that_restarts_is_waited_for_within_rays_limits(
    monkeypatch, capsys, scheme, patience
):
    """The process goes on; Ray itself would end it after a minute, or half of one as a client."""
    clock = SimpleNamespace(monotonic=lambda: clock.now, now=1000.0)
    monkeypatch.setattr(nodes, "time", clock)
    ray = ray_of({"a": None})
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        head = Head(f"{scheme}127.0.0.1:{address[1]}")
        known = KnownNodes(Cluster(ray, head))
        known.check_presence()
    ray.nodes = lambda: pytest.fail("it would wait for the head")
    for seconds in (6, patience - 6, 6):  # the last time, it answers again
        clock.now += seconds
        if clock.now > 1000 + patience:
            with socket.create_server(address):
                assert head.answers()
        known.check_presence()
    waits = f"waiting up to {patience} s for its restart"
    assert capsys.readouterr().err.count(waits) == 2
    clock.now += patience + 1
    with pytest.raises(ClusterError, match=r"does not answer \(.*\)\. What has finished is kept"):
        known.check_presence()


def test_a_cluster_without_cores_is_asked_for_one(monkeypatch):
    """As of an autoscaler that starts with no node but the head: it adds one for a task."""
    cluster, tasks = [node("head", 1, CPU=0.0)], []

    def wait(references, timeout):
        assert timeout <= 1
        if len(tasks) == 3:
            cluster.append(node("a", 2))
        tasks.append(references)

    started = SimpleNamespace(remote=lambda: "a task for a core")
    ray = SimpleNamespace(nodes=lambda: cluster, remote=lambda _: started, wait=wait)
    known = KnownNodes(Cluster(ray))
    known.wait_for_one()
    assert tasks == [["a task for a core"]] * 4
    known.wait_for_one()  # there is one
    assert len(tasks) == 4
    monkeypatch.setattr(nodes, "_SECONDS_WITHOUT_NODES", -1.0)
    monkeypatch.setattr(nodes, "_SECONDS_BETWEEN_CHECKS", 0.0)
    cluster.pop()
    ray.wait = lambda references, timeout: None
    with pytest.raises(ClusterError, match="no node for runs"):
        known.wait_for_one()


@pytest.mark.usefixtures("_ray")
def test_a_machine_without_a_cluster_says_so(monkeypatch, tmp_path):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    assert "belongs to no Ray cluster, and RAY_ADDRESS is not set" in refusal("auto")
    # What `ray start` leaves; the cluster has died without `ray stop`.
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text("127.0.0.1:8\n")
    assert "no Ray cluster answers at 127.0.0.1:8" in refusal("auto")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    assert "no Ray cluster answers at 127.0.0.1:9" in refusal("auto")


def test_neither_private_parts_of_ray_nor_the_end_of_a_users_process():
    package = Path(nodes.__file__).parents[1]
    texts = {file.name: file.read_text() for file in package.rglob("*.py")}
    assert [name for name, text in texts.items() if "ray._private" in text] == []
    assert [name for name, text in texts.items() if "os._exit(" in text] == ["processes.py"]
