"""Encode a file of texts into vectors in parts, on the nodes of a cluster.

A worker is a Ray actor that loads the model once and encodes parts: one per GPU if the cluster has
any, otherwise one per group of cores. Ray's ActorPool gives a part to each worker that is free. Ray
restarts a worker that died, on another node if its own is gone, and repeats its part. A node that
differs from this machine is refused by name, and the others go on.

The input and the folder of the vectors are on a disk shared by all nodes. Vectors do not pass
through Ray's object store: a worker writes its part atomically to its final path, where the first
writer wins. A worker considered dead that finishes its part does no harm.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, Unpack

from qwen3nb.cluster.nodes import (
    LOCAL,
    ClusterError,
    KnownNodes,
    Node,
    Ray,
    Reference,
    cause,
    connected,
    difference,
    model_facts,
    node_environment,
    sent_environment,
    software_facts,
)
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.load import load_encoder
from qwen3nb.models.options import OptionArguments
from qwen3nb.vectors.block_file import PLAN, Shard, ShardedVectors, read_shards
from qwen3nb.vectors.encode_file import text_bar
from qwen3nb.vectors.encode_shards import (
    Cuts,
    EncodedShards,
    check_folder,
    cut_texts,
    encode_shard,
    finish_shards,
    model_of,
    start_shards,
)

Worker: TypeAlias = Any  # Ray's handle of a `ShardWorker`

_MOST_CORES = 4  # cores of a worker without a GPU; more gain little
_PARTS_PER_WORKER = 4  # at least, to finish at about the same time
_RESTARTS = 3  # of a worker, by Ray
_SECONDS_TO_WAIT = 0.5  # seconds between checks of the workers
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class WorkerSize:
    """The number of workers, the cores of each (its threads on a CPU), and its GPUs, 0 or 1."""

    count: int
    cores: int
    gpus: int


@dataclass(frozen=True)
class _EncodeJob:
    """The arguments of every worker."""

    model: str
    options: OptionArguments
    role: str | None
    source: Path
    folder: Path
    cuts: Cuts
    size: WorkerSize
    facts: Mapping[str, str]  # of the driver, which those of a worker must equal
    environment: Mapping[str, str] = field(repr=False)


def encode_on_cluster(
    model: str,
    source: Path,
    folder: Path,
    *,
    address: str = LOCAL,
    shards: int | None = None,
    role: str | None = None,
    threads: int | None = None,
    **options: Unpack[OptionArguments],
) -> EncodedShards:
    """Write the vectors of a file of texts to a folder, as `encode_shards` does, on a cluster.

    Args:
        model: see `load_encoder`.
        source: a file with one ``{"text": ...}`` per line, visible to all nodes.
        folder: the folder to write or to complete, visible to all nodes.
        address: see `connected`.
        shards: number of parts; None for the number in the folder's plan, else one per 65,536 texts
            and at least four per worker.
        role: ``query`` or ``passage``; selects the prompt.
        threads: threads of a worker without a GPU; None for four, or all cores of a smaller node.
        options: see `load_encoder`.

    Raises:
        ClusterError: no cluster, no node that equals this machine and sees the folder, or workers
            that die repeatedly.
        EncoderError: a text that cannot be encoded.
        ValueError: see `encode_shards`.
    """
    check_folder(folder)
    source, folder = source.resolve(), folder.resolve()
    # A folder gets its whole path, as workers have another working directory.
    if Path(model).exists():
        model = str(Path(model).resolve())
    device = options.get("device", "auto")
    if device.startswith("cuda:"):
        raise ClusterError(f"--device {device}: Ray gives each worker a GPU; expected cuda")
    with connected(address) as cluster:
        facts = partial(encoding_facts, model)
        nodes = KnownNodes(cluster, facts, [str(folder), str(source.parent)])
        nodes.wait_for_one()
        if address != LOCAL:
            nodes.examine()  # refuses those that differ from this machine
        size = worker_size(nodes.usable(), device=device, threads=threads)
        # More parts than workers, so that all finish at about the same time.
        cuts = cut_texts(source, folder, shards=shards, at_least=_PARTS_PER_WORKER * size.count)
        job = _EncodeJob(
            model=model,
            # The folder keeps the vectors, and only this process shows progress.
            options={**options, "cache": False, "show_progress": False},
            role=role,
            source=source,
            folder=folder,
            cuts=cuts,
            size=size,
            facts=nodes.expected,
            environment=sent_environment(),
        )
        show_progress = options.get("show_progress", True)
        return _encode(cluster.ray, nodes, job, show_progress=show_progress)


def worker_size(nodes: Sequence[Node], *, device: str, threads: int | None) -> WorkerSize:
    """Return how the nodes are divided among workers.

    ``threads`` are the cores of a worker without a GPU; the device ``cpu`` leaves GPUs unused.
    """
    gpus = sum(int(node.gpus) for node in nodes)
    if gpus and device != "cpu":
        # One worker per GPU, however many cores there are.
        return WorkerSize(count=gpus, cores=1, gpus=1)
    cores = threads or min(_MOST_CORES, *(node.cpus for node in nodes))
    count = sum(node.cpus // cores for node in nodes)  # some nodes may leave a few cores unused
    if not count:
        largest = max(node.cpus for node in nodes)
        raise ClusterError(f"no node has {cores} cores for a worker; the largest has {largest}")
    return WorkerSize(count=count, cores=cores, gpus=0)


def encoding_facts(model: str) -> dict[str, str]:
    """Return the facts that vectors of a model depend on, by name."""
    return software_facts() | model_facts([model])


class EncodedPart(NamedTuple):
    """A part that a worker has encoded, or found."""

    shard: Shard
    sha256: str
    existed: bool  # from an earlier run


class LoadError(Exception):
    """A worker cannot load the model, or a different one: Ray's id of its node, and the error."""


class ShardWorker:
    """An actor: a model, loaded once, that encodes parts."""

    def __init__(self, job: _EncodeJob) -> None:
        """Load nothing yet."""
        self._job = job

    def encode(self, shard: Shard) -> EncodedPart:
        """Encode a part unless it exists; raise LoadError if that is impossible on this node."""
        import ray

        try:
            encoder, vectors = self._loaded
        except Exception as error:  # noqa: BLE001 - another node may be able to load it
            raise LoadError(ray.get_runtime_context().get_node_id(), error) from None
        digest, existed = encode_shard(
            encoder,
            shard,
            source=self._job.source,
            folder=self._job.folder,
            vectors=vectors,
            advance=lambda _: None,  # the driver shows the progress
        )
        return EncodedPart(shard, digest, existed)

    @cached_property
    def _loaded(self) -> tuple[Encoder, ShardedVectors]:
        """The model, and the plan of the folder, which the first worker writes.

        Raises ClusterError if this node does not have the driver's versions, model and input.
        """
        job = self._job
        os.environ.update(node_environment(job.environment))
        # Numerical libraries read these when they are loaded, so before torch.
        for name in _THREADS:
            os.environ[name] = str(job.size.cores)
        import torch

        torch.set_num_threads(job.size.cores)
        # The size tells a file of the same path on another disk apart.
        if job.source.stat().st_size != job.cuts.source.bytes:
            raise ClusterError(f"its {job.source} is not that of the driver; share the disk")
        encoder = load_encoder(job.model, **job.options)
        # Also of a node that joined late, where Ray has restarted the worker.
        differing = difference(job.facts, encoding_facts(job.model))
        if differing:
            raise ClusterError(differing)
        return encoder, start_shards(job.folder, job.cuts, model_of(encoder, job.role))


def _encode(ray: Ray, nodes: KnownNodes, job: _EncodeJob, *, show_progress: bool) -> EncodedShards:
    """Encode all parts, and write the manifest."""
    parts = []
    label = Path(job.model).name
    with text_bar(label, job.cuts.source.texts, show=show_progress) as bar:
        for part in _encoded_parts(ray, nodes, job):
            parts.append(part)
            bar.update(part.shard.texts)
    digests = {part.shard.file: part.sha256 for part in parts}
    vectors = finish_shards(job.folder, read_shards(job.folder / PLAN), digests)
    return EncodedShards(job.folder, vectors, kept=sum(part.existed for part in parts))


def _encoded_parts(ray: Ray, nodes: KnownNodes, job: _EncodeJob) -> Iterator[EncodedPart]:
    """Yield each part once a worker has encoded it, or found it.

    A node whose worker cannot load the model is refused, and what is left goes to the others.
    """
    left = {shard.file: shard for shard in job.cuts.shards}
    while left:
        try:
            for part in _parts_of_pool(ray, nodes, job, shards=[*left.values()]):
                del left[part.shard.file]
                yield part
        except ray.exceptions.RayTaskError as error:
            _refuse_node(nodes, error.cause)
        except ray.exceptions.RayError as error:
            first = next(iter(left))  # parts begin in their order
            raise ClusterError(
                f"{first}, or one soon after it: its worker died, and Ray has not started it "
                f"again: {cause(error)}. Finished parts are kept. If there is not enough memory, "
                "--batch-size or --max-length need less"
            ) from None


def _parts_of_pool(
    ray: Ray, nodes: KnownNodes, job: _EncodeJob, *, shards: Sequence[Shard]
) -> Iterator[EncodedPart]:
    """Yield each of these parts, encoded by new workers, which end afterwards."""
    from ray.util.actor_pool import ActorPool

    size = job.size
    actor = ray.remote(ShardWorker).options(
        num_cpus=size.cores,
        num_gpus=size.gpus,
        max_restarts=_RESTARTS,
        max_task_retries=-1,  # as often as its worker is restarted
        label_selector=nodes.selector,
    )
    workers = [actor.remote(job) for _ in range(min(size.count, len(shards)))]
    pool = ActorPool(workers)
    try:
        for shard in shards:
            pool.submit(_encode_with, shard)
        while pool.has_next():
            try:
                yield pool.get_next_unordered(timeout=_SECONDS_TO_WAIT)
            except TimeoutError:
                nodes.check_presence(cpus=size.cores, gpus=size.gpus)
            # Without a part, a worker makes room for one whose node is gone.
            while pool.has_free():
                ray.kill(pool.pop_idle())
    finally:
        for worker in workers:
            ray.kill(worker)


def _encode_with(worker: Worker, shard: Shard) -> Reference:
    return worker.encode.remote(shard)


def _refuse_node(nodes: KnownNodes, error: Exception) -> None:
    """Refuse the node of a worker that could not load; raise any other error of a worker."""
    if not isinstance(error, LoadError):
        raise error
    node, problem = error.args
    try:
        nodes.refuse({node: str(problem)})
    except ClusterError:  # no other node is left
        raise problem from None
