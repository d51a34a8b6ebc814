"""Vectors in parts, made by workers of a pretended cluster; test_two_nodes.py has a real one."""

import os
import shutil
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

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
    monkeypatch.setattr(encode_file, "AT_ONCE", 2)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(cluster_encode, "nodes_of", lambda _: [node("a", 2), node("b", 1)])
    few = tmp_path / "few.jsonl"
    few.write_text("".join(f'{{"text": "{number}"}}\n' for number in range(23)))

    def run(ray, model="random:8", **options):
        monkeypatch.setattr(cluster_encode, "connected", lambda _: nullcontext(Cluster(ray)))
        return cluster_encode.encode_on_cluster(str(model), few, tmp_path / "v", **options)

    return run


def test_a_part_whose_worker_dies_is_made_by_another(encode_by):
    deaths = ["part-000002.npy", "part-000002.npy", "part-000005.npy"]

    def dies(name, arguments):
        dying = name == "encode" and arguments[0].file in deaths
        return dying and not deaths.remove(arguments[0].file)

    done = encode_by(OneProcessRay(dies=dies))
    assert (deaths, done.kept, len(done.vectors.shards)) == ([], 0, 12)
    encoder = load_encoder("random:8", cache=False)
    expected = encoder.encode([str(number) for number in range(23)])
    np.testing.assert_array_equal(np.concatenate(list(shard_blocks(done.folder, 9))), expected)
    assert encode_by(OneProcessRay()).kept == 12


def test_a_part_that_kills_every_worker_is_named(encode_by):
    def dies(name, arguments):
        return name == "encode" and arguments[0].first == 6

    with pytest.raises(ClusterError, match=r"part-000003\.npy: the worker died 4 times"):
        encode_by(OneProcessRay(dies=dies))
    with pytest.raises(ClusterError, match="every worker died"):
        encode_by(OneProcessRay(dies=lambda name, _: name == "load"))
    assert len(encode_by(OneProcessRay()).vectors.shards) == 12


def test_a_worker_that_differs_is_refused_by_name_and_the_others_go_on(encode_by, capsys):
    versions = ["9.9", "2.26"]  # of the first worker, and of all others

    def differing(name, value):
        if name != "load":
            return value
        version = versions.pop(0) if len(versions) > 1 else value.facts["mteb"]
        return replace(value, node=f"n{version}", facts=value.facts | {"mteb": version})

    done = encode_by(OneProcessRay(answered=differing))
    assert len(done.vectors.shards) == 12
    line = "a worker is refused: node n9.9: mteb: 9.9 there, "
    assert capsys.readouterr().err.count(line) == 1
    versions += ["9.9"] * 9
    with pytest.raises(ClusterError, match="node n9.9: mteb: 9.9 there, "):
        encode_by(OneProcessRay(answered=differing))


def test_a_worker_that_finds_another_model_is_refused(encode_by, make_checkpoint, home, tmp_path):
    model, another = (make_checkpoint(home / f"m{seed}", seed=seed) for seed in (1, 2))

    def replaced(name, _):
        if name == "load":
            shutil.rmtree(model)
            shutil.copytree(another, model)
        return False

    with pytest.raises(ClusterError, match=rf"node .*: model {model}: \w+ there, \w+ here"):
        encode_by(OneProcessRay(dies=replaced), model, threads=1)
    assert not list((tmp_path / "v").glob("part-*"))


def test_a_cluster_whose_nodes_are_all_lost_is_not_waited_for_forever(encode_by, monkeypatch):
    monkeypatch.setattr(cluster_nodes, "_SECONDS_BETWEEN_CHECKS", 0.0)
    monkeypatch.setattr(cluster_nodes, "_SECONDS_WITHOUT_NODES", 0.0)
    ray = OneProcessRay()
    ray.wait = lambda references, timeout: ([], references)
    with pytest.raises(ClusterError, match="no node for runs"):
        encode_by(ray)


def test_an_error_of_a_worker_is_shown_as_it_is(encode_by):
    with pytest.raises(ValueError, match="unknown role 'document'"):
        encode_by(OneProcessRay(), role="document")
    with pytest.raises(ClusterError, match="--device cuda:1: Ray gives each worker a GPU"):
        encode_by(OneProcessRay(), device="cuda:1")


class Reference:
    """What a call returned, or raised."""

    def __init__(self, value=None, error=None):
        self.value, self.error = value, error


class Method:
    def __init__(self, ray, name, function):
        self.ray, self.name, self.function = ray, name, function

    def options(self, **_):
        return self

    def remote(self, *arguments):
        return self.ray.called(self.name, self.function, arguments)


class Actor:
    def __init__(self, ray, real):
        for name in dir(real):
            if not name.startswith("_"):
                setattr(self, name, Method(ray, name, getattr(real, name)))


class Kind:
    def __init__(self, ray, kind):
        self.remote = lambda: Actor(ray, kind())

    def options(self, **_):
        return self


class exceptions:  # noqa: N801 - as a module
    class RayError(Exception): ...

    class RayTaskError(RayError):
        def __init__(self, cause):
            self.cause = cause


class OneProcessRay:
    """Stands in for the module.

    ``dies(name, arguments)`` says whether the actor dies during a call; ``answered(name, value)``
    may change what a call returns.
    """

    exceptions = exceptions
    nodes = staticmethod(lambda: [])

    def __init__(self, *, dies=lambda *_: False, answered=lambda _, value: value):
        self.dies, self.answered = dies, answered
        self.remote = partial(Kind, self)

    def called(self, name, function, arguments):
        if self.dies(name, arguments):
            return Reference(error=exceptions.RayError())
        try:
            return Reference(self.answered(name, function(*arguments)))
        except Exception as error:  # noqa: BLE001 - Ray wraps all
            return Reference(error=exceptions.RayTaskError(error))

    def get(self, reference):
        if reference.error is not None:
            raise reference.error
        return reference.value

    def wait(self, references, timeout):
        return references[:1], references[1:]

    def kill(self, actor):
        """It holds nothing."""
