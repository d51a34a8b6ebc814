"""Vectors in parts, made and searched on a cluster of two nodes, of which one dies."""

import json
import os
import threading
import time
from contextlib import nullcontext

import numpy as np
import pytest
from click.testing import CliRunner
from helpers.one_process_ray import OneProcessRay
from helpers.two_nodes import two_nodes

from qwen3nb.cli.main import main
from qwen3nb.cluster import encode as cluster_encode
from qwen3nb.cluster.connect import ClusterError
from qwen3nb.cluster.encode import WorkerSize, worker_size
from qwen3nb.cluster.nodes import Node
from qwen3nb.cluster.search import search_on_cluster
from qwen3nb.models.encoders import encode_file
from qwen3nb.models.encoders import encode_shards as encode_shards_module
from qwen3nb.models.encoders.encode_file import encode_to_file, read_texts
from qwen3nb.models.load import load_encoder
from qwen3nb.models.search.exact import search
from qwen3nb.models.search.shards import damaged_shards, read_manifest, shard_blocks

MODEL = "random:64"
PARTS = 12


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
    for module in (encode_file, encode_shards_module):
        monkeypatch.setattr(module, "AT_ONCE", 2)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(cluster_encode, "nodes_of", lambda _: [node("a", 2), node("b", 1)])
    few = tmp_path / "few.jsonl"
    few.write_text("".join(f'{{"text": "{number}"}}\n' for number in range(23)))

    def run(ray, **options):
        monkeypatch.setattr(cluster_encode, "connected", lambda _: nullcontext(ray))
        return cluster_encode.encode_on_cluster("random:8", few, tmp_path / "v", **options)

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


def test_workers_with_different_models_are_refused_by_name(encode_by, tmp_path):
    identities = ["one", "two", "two"]

    def answered(name, value):
        if name != "load":
            return value
        machine, facts, model = value
        return machine, facts | {"model": identities.pop()}, model

    with pytest.raises(ClusterError, match=r"(?s)would not compute the same.*model: .*worker 3"):
        encode_by(OneProcessRay(answered=answered))
    assert not list((tmp_path / "v").glob("part-*"))


def test_an_error_of_a_worker_is_shown_as_it_is(encode_by):
    with pytest.raises(ValueError, match="unknown role 'document'"):
        encode_by(OneProcessRay(), role="document")
    with pytest.raises(ClusterError, match="--device cuda:1: Ray gives each worker a GPU"):
        encode_by(OneProcessRay(), device="cuda:1")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    file = tmp_path_factory.mktemp("input") / "texts.jsonl"
    with file.open("w") as handle:
        for number in range(PARTS * 4096 - 100):
            handle.write(json.dumps({"text": f"text {number}"}) + "\n")
    return file


@pytest.fixture(scope="module")
def cluster():
    with two_nodes() as cluster:
        yield cluster


def encode(source, folder, address, *options):
    arguments = ("encode", "--model", MODEL, "--input", source, "--output", folder)
    return CliRunner().invoke(
        main, [str(each) for each in (*arguments, "--ray", address, *options)]
    )


def kill_in_the_middle(cluster, folder, parts):
    """Kill a node while both have parts to encode; note how many there were."""
    while len(list(folder.glob("part-*.npy"))) < 3:
        time.sleep(0.01)
    assert len(workers(cluster)) == 2
    cluster.kill(cluster.right)
    parts.append(len(list(folder.glob("part-*.npy"))))


def workers(cluster):
    return [each for each in cluster.alive() if "ShardWorker" in " ".join(each.cmdline())]


def gone(processes, *, within):
    deadline = time.monotonic() + within
    while processes() and time.monotonic() < deadline:
        time.sleep(0.05)
    return not processes()


@pytest.mark.integration
def test_a_node_dies_and_all_parts_are_there_once(cluster, source, tmp_path):
    """Parts, ids and scores are those of one file on one machine, and no process is left."""
    folder, file, parts = tmp_path / "v", tmp_path / "v.npy", []
    arguments = (cluster, folder, parts)
    threading.Thread(target=kill_in_the_middle, args=arguments, daemon=True).start()
    done = encode(source, folder, cluster.address, "--shards", PARTS)
    assert done.exit_code == 0, done.output
    assert parts[0] < PARTS
    assert gone(lambda: workers(cluster), within=5)
    encoder = load_encoder(MODEL, cache=False, show_progress=False)
    encode_to_file(encoder, read_texts(source), file)
    vectors = np.load(file)
    manifest = read_manifest(folder)
    assert np.array_equal(
        np.concatenate([np.load(folder / part.file) for part in manifest.shards]), vectors
    )
    assert damaged_shards(folder) == []
    assert sorted(each.name for each in folder.iterdir()) == sorted(
        ["manifest.json", "plan.json", *(part.file for part in manifest.shards)]
    )
    hits = search_on_cluster(vectors[:5], folder, k=7, address=cluster.address)
    for expected in (search(vectors[:5], folder, k=7), search(vectors[:5], vectors, k=7)):
        np.testing.assert_array_equal(hits.ids, expected.ids)
        np.testing.assert_array_equal(hits.scores, expected.scores)
