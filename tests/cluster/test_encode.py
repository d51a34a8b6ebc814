"""Vectors in parts, made by workers of a pretended cluster; test_two_nodes.py has a real one."""

import os
import re
import shutil
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from qwen3nb.cluster import encode as cluster_encode
from qwen3nb.cluster import nodes as cluster_nodes
from qwen3nb.cluster.encode import WorkerSize, worker_size
from qwen3nb.cluster.nodes import Cluster, ClusterError, Node
from qwen3nb.models.load import load_encoder
from qwen3nb.vectors import encode_file
from qwen3nb.vectors.block_file import shard_blocks


def node(name, cpus, gpus=0.0):
    return Node(id=name, name=name, cpus=cpus, gpus=gpus, memory=0)


@pytest.mark.parametrize(
    ("nodes", "options", "size"),
    [
        ([node("a", 16), node("b", 6)], {}, WorkerSize(5, 4, 0)),
        ([node("a", 16), node("b", 1)], {}, WorkerSize(17, 1, 0)),
        ([node("a", 16), node("b", 6)], {"threads": 8}, WorkerSize(2, 8, 0)),
        ([node("a", 16, 8.0), node("b", 6)], {}, WorkerSize(8, 1, 1)),
        ([node("a", 16, 8.0)], {"device": "cpu"}, WorkerSize(4, 4, 0)),
    ],
)
def test_a_worker_per_gpu_or_per_group_of_cores(nodes, options, size):
    assert worker_size(nodes, **{"device": "auto", "threads": None, **options}) == size


def test_a_worker_that_fits_on_no_node_is_refused():
    with pytest.raises(ClusterError, match="no node has 8 cores for a worker; the largest has 4"):
        worker_size([node("a", 4)], device="auto", threads=8)


@pytest.fixture
def encode_by(tmp_path, monkeypatch):
    """Encode 23 texts in parts of two by three workers of a pretended cluster."""
    actor_pool = pytest.importorskip("ray.util.actor_pool", reason="extra ray is not installed")
    monkeypatch.setattr(encode_file, "AT_ONCE", 2)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    few = tmp_path / "few.jsonl"
    few.write_text("".join(f'{{"text": "{number}"}}\n' for number in range(23)))

    def run(ray, model="random:8", **options):
        monkeypatch.setattr(cluster_encode, "connected", lambda _: nullcontext(Cluster(ray)))
        monkeypatch.setattr(actor_pool, "ray", ray)
        monkeypatch.setattr("ray.get_runtime_context", lambda: ray)
        return cluster_encode.encode_on_cluster(str(model), few, tmp_path / "v", **options)

    return run


def test_a_part_whose_worker_dies_is_made_by_another(encode_by):
    deaths = ["part-000002.npy", "part-000002.npy", "part-000005.npy"]

    def dies(shard):
        return shard.file in deaths and not deaths.remove(shard.file)

    done = encode_by(OneProcessRay(dies=dies))
    assert (deaths, done.kept, len(done.vectors.shards)) == ([], 0, 12)
    encoder = load_encoder("random:8", cache=False)
    expected = encoder.encode([str(number) for number in range(23)])
    np.testing.assert_array_equal(np.concatenate(list(shard_blocks(done.folder, 9))), expected)
    assert encode_by(OneProcessRay()).kept == 12


def test_a_part_that_kills_every_worker_is_named(encode_by):
    with pytest.raises(ClusterError, match=r"^part-000003\.npy, or one .* it died\. Fin"):
        encode_by(OneProcessRay(dies=lambda shard: shard.first == 6))
    assert len(encode_by(OneProcessRay()).vectors.shards) == 12


def test_a_worker_without_a_part_makes_room(encode_by):
    ray = OneProcessRay()
    encode_by(ray)
    first_killed = ray.killed[0]
    assert first_killed not in ray.used_last  # while the others still encoded
    assert {*ray.killed} == {*ray.actors}


def test_a_worker_that_differs_is_refused_by_name_and_the_others_go_on(
    encode_by, capsys, monkeypatch
):
    here, differing = cluster_encode.encoding_facts("random:8"), ["a"]
    ray = OneProcessRay()

    def facts(_):
        return here | ({"mteb": "9.9"} if ray.node in differing else {})

    monkeypatch.setattr(cluster_encode, "encoding_facts", facts)
    done = encode_by(ray)
    assert len(done.vectors.shards) == 12
    assert capsys.readouterr().err.count("node a is refused: mteb: 9.9 there, ") == 1
    assert {actor.node for actor in ray.actors} == {"a", "b"}
    assert {actor.node for actor in ray.actors[3:]} == {"b"}
    differing.append("b")
    with pytest.raises(ClusterError, match="^mteb: 9.9 there, "):
        encode_by(ray)


def test_a_worker_that_finds_another_model_is_refused(encode_by, make_checkpoint, home, tmp_path):
    model, another = (make_checkpoint(home / f"m{seed}", seed=seed) for seed in (1, 2))

    def replaced(_):
        shutil.rmtree(model)
        shutil.copytree(another, model)

    with pytest.raises(ClusterError, match=rf"^model {model}: \w+ there, \w+ here"):
        encode_by(OneProcessRay(dies=replaced), model, threads=1)
    assert not list((tmp_path / "v").glob("part-*"))


def test_a_cluster_whose_nodes_are_all_lost_is_not_waited_for_forever(encode_by, monkeypatch):
    monkeypatch.setattr(cluster_nodes, "_SECONDS_BETWEEN_CHECKS", 0.0)
    monkeypatch.setattr(cluster_nodes, "_SECONDS_WITHOUT_NODES", 0.0)
    ray = OneProcessRay()

    def wait(references, num_returns, timeout):
        ray.nodes = lambda: []
        return [], references

    ray.wait = wait
    with pytest.raises(ClusterError, match="no node for runs"):
        encode_by(ray)


def test_an_error_of_a_worker_is_shown_as_it_is(encode_by, capsys):
    with pytest.raises(ValueError, match="unknown role 'document'"):
        encode_by(OneProcessRay(), role="document")
    assert "node a is refused: unknown role 'document'" in capsys.readouterr().err  # b was left
    with pytest.raises(ClusterError, match="--device cuda:1: Ray gives each worker a GPU"):
        encode_by(OneProcessRay(), device="cuda:1")


class Reference:
    """What a call returned, or raised."""

    def __init__(self, value=None, error=None):
        self.value, self.error = value, error


class Actor:
    """A worker on a node; Ray starts it again up to three times if it dies."""

    def __init__(self, ray, kind, node, arguments):
        self.ray, self.kind, self.node, self.arguments = ray, kind, node, arguments
        self.real = kind(*arguments)
        self.encode = SimpleNamespace(remote=self.called)
        ray.actors.append(self)

    def called(self, shard):
        self.ray.used_last = [*self.ray.used_last[-1:], self]
        for _ in range(4):
            if not self.ray.dies(shard):
                return self.result(shard)
            self.real = self.kind(*self.arguments)
        return Reference(error=exceptions.ActorDiedError("it died"))

    def result(self, shard):
        self.ray.node = self.node
        try:
            return Reference(self.real.encode(shard))
        except Exception as error:  # noqa: BLE001 - Ray wraps all
            return Reference(error=exceptions.RayTaskError(error))
        finally:
            self.ray.node = "driver"


class exceptions:  # noqa: N801 - as a module
    class RayError(Exception): ...

    class ActorDiedError(RayError): ...

    class RayTaskError(RayError):
        def __init__(self, cause):
            self.cause = cause


class OneProcessRay:
    """Stands in for the module, with nodes of two cores and of one.

    ``dies(shard)`` says whether an actor dies when it is to encode that.
    """

    exceptions = exceptions

    def __init__(self, *, dies=lambda _: False):
        self.dies, self.node, self.actors, self.killed, self.used_last = dies, "driver", [], [], []

    def get_node_id(self):
        return self.node

    def nodes(self):
        cores = {"a": 2, "b": 1}
        return [
            {"NodeID": name, "NodeName": name, "Alive": True, "Resources": {"CPU": cores[name]}}
            for name in cores
        ]

    def remote(self, kind):
        def options(label_selector, **_):
            refused = label_selector.get("ray.io/node-id", "")
            left = [name for name in ("a", "b") if name not in re.findall(r"\w+", refused[4:])]

            def remote(*arguments):
                return Actor(self, kind, left[len(self.actors) % len(left)], arguments)

            return SimpleNamespace(remote=remote)

        return SimpleNamespace(options=options)

    def get(self, reference):
        if reference.error is not None:
            raise reference.error
        return reference.value

    def wait(self, references, num_returns, timeout):
        return references[:num_returns], references[num_returns:]

    def kill(self, actor):
        self.killed.append(actor)
