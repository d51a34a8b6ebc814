"""Encode a file of texts into vectors in parts, on the nodes of a cluster.

A worker is a Ray actor that loads the model once and encodes parts: one per GPU if the cluster has
any, otherwise one per group of cores. The driver assigns parts one by one: a part of a worker that
died is given to another, and Ray restarts the worker where there is room. A worker on a node that
differs from this machine is refused by name, and the others go on.

The input and the folder of the vectors are on a disk shared by all nodes. Vectors do not pass
through Ray's object store: a worker writes its part atomically to its final path, where the first
writer wins. A worker considered dead that finishes its part does no harm.
"""

from __future__ import annotations

import os
import platform
import sys
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

from qwen3nb.cluster.nodes import (
    LOCAL,
    Cluster,
    ClusterError,
    KnownNodes,
    Node,
    Reference,
    connected,
    difference,
    model_facts,
    node_environment,
    nodes_of,
    sent_environment,
    software_facts,
)
from qwen3nb.models.load import load_encoder
from qwen3nb.models.options import OptionArguments
from qwen3nb.vectors.block_file import Shard, ShardedVectors, ShardModel
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

if TYPE_CHECKING:
    from tqdm import tqdm

Worker: TypeAlias = Any  # Ray's handle of a `ShardWorker`

_MOST_CORES = 4  # cores of a worker without a GPU; more gain little
_PARTS_PER_WORKER = 4  # at least, to finish at about the same time
_RETRIES = 3  # per part, and per worker
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
    bytes: int
    folder: Path
    threads: int
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
    with connected(address) as cluster:
        device = options.get("device", "auto")
        if device.startswith("cuda:"):
            raise ClusterError(f"--device {device}: Ray gives each worker a GPU; expected cuda")
        size = worker_size(nodes_of(cluster.ray), device=device, threads=threads)
        # More parts than workers, so that all finish at about the same time.
        cuts = cut_texts(source, folder, shards=shards, at_least=_PARTS_PER_WORKER * size.count)
        # The file of the texts, and its parts.
        source_of_texts, _ = cuts
        # A folder gets its whole path, as workers have another working directory.
        if Path(model).exists():
            model = str(Path(model).resolve())
        job = _EncodeJob(
            model=model,
            # The folder keeps the vectors, and only this process shows progress.
            options={**options, "cache": False, "show_progress": False},
            role=role,
            source=source,
            bytes=source_of_texts.bytes,
            folder=folder,
            threads=size.cores,
            environment=sent_environment(),
        )
        show_progress = options.get("show_progress", True)
        return _Encoding(cluster, job, cuts).run(size, show_progress=show_progress)


def worker_size(nodes: Sequence[Node], *, device: str, threads: int | None) -> WorkerSize:
    """Return how the nodes are divided among workers.

    ``threads`` are the cores of a worker without a GPU; the device ``cpu`` leaves GPUs unused.
    """
    gpus = sum(int(node.gpus) for node in nodes)
    if gpus and device != "cpu":
        # One worker per GPU, however many cores there are.
        return WorkerSize(count=gpus, cores=1, gpus=1)
    cores = _MOST_CORES
    if threads:
        cores = threads
    elif nodes:
        smallest = min(node.cpus for node in nodes)
        cores = min(_MOST_CORES, smallest)
    count = sum(node.cpus // cores for node in nodes)  # some nodes may leave a few cores unused
    if not count:
        largest = max((node.cpus for node in nodes), default=0)
        raise ClusterError(f"no node has {cores} cores for a worker; the largest has {largest}")
    return WorkerSize(count=count, cores=cores, gpus=0)


@dataclass(frozen=True)
class LoadedWorker:
    """What a worker reports once it has loaded the model."""

    node: str
    facts: dict[str, str]  # those that affect the vectors
    model: ShardModel


class ShardWorker:
    """An actor: a model, loaded once, that encodes parts."""

    def load(self, job: _EncodeJob) -> LoadedWorker:
        """Load the model.

        Raises ClusterError if this node does not see the files of the driver.
        """
        os.environ.update(node_environment(job.environment))
        # Numerical libraries read these when they are loaded, so before torch.
        for name in _THREADS:
            os.environ[name] = str(job.threads)
        import torch

        torch.set_num_threads(job.threads)
        self._job = job
        # The size tells a file of the same path on another disk apart.
        has_same_source = job.source.is_file() and job.source.stat().st_size == job.bytes
        if not has_same_source:
            raise _not_seen_error(job.source)
        if not job.folder.is_dir():
            raise _not_seen_error(job.folder)
        self._encoder = load_encoder(job.model, **job.options)
        model = model_of(self._encoder, job.role)
        return LoadedWorker(platform.node(), _facts(job.model), model)

    def encode(self, shard: Shard, vectors: ShardedVectors) -> tuple[str, bool]:
        """Encode a part unless it exists; return its SHA-256 and whether it existed."""
        return encode_shard(
            self._encoder,
            shard,
            source=self._job.source,
            folder=self._job.folder,
            vectors=vectors,
            advance=lambda _: None,  # the driver shows the progress
        )


def _not_seen_error(path: Path) -> ClusterError:
    return ClusterError(
        f"{platform.node()} does not see the {path} of the driver; the input and the "
        "folder of the vectors must be on a disk that all nodes share"
    )


def _facts(model: str) -> dict[str, str]:
    return software_facts() | model_facts([model])


class _Encoding:
    """The driver's assignment of parts to workers."""

    def __init__(self, cluster: Cluster, job: _EncodeJob, cuts: Cuts) -> None:
        self._ray = cluster.ray
        self._cluster = cluster
        self._job = job
        self._cuts = cuts
        self._source, parts = cuts  # the file of the texts, and its parts
        # Each part and each worker is in one of these; those that work, by what they will return.
        self._waiting_parts = deque(parts)
        self._idle_workers: list[Worker] = []
        self._loading: dict[Reference, Worker] = {}
        self._encoding: dict[Reference, tuple[Worker, Shard]] = {}
        self._facts = _facts(job.model)  # of this machine; every worker must have the same
        self._identity = ""  # of the model, as the first worker has loaded it
        self._refusals: list[Exception] = []  # why workers are not used; not yet printed
        self._deaths: Counter[str] = Counter()  # of workers, by the file of their part
        self._vectors: ShardedVectors | None = None  # the plan; None until a worker is loaded
        self._digests: dict[str, str] = {}  # SHA-256 of the finished parts, by file
        self._existing_parts = 0  # parts that an earlier run had finished

    def run(self, size: WorkerSize, *, show_progress: bool) -> EncodedShards:
        """Start workers, assign parts until all are done, and write the manifest."""
        actor = self._ray.remote(ShardWorker).options(
            num_cpus=size.cores, num_gpus=size.gpus, max_restarts=_RETRIES
        )
        count = min(size.count, len(self._waiting_parts))
        workers = [actor.remote() for _ in range(count)]
        label = Path(self._job.model).name
        try:
            for worker in workers:
                self._load(worker)
            with text_bar(label, self._source.texts, show=show_progress) as bar:
                self._encode_all(size, bar)
        finally:
            for worker in workers:
                self._ray.kill(worker)
        assert self._vectors is not None  # noqa: S101 - a part was encoded
        vectors = finish_shards(self._job.folder, self._vectors, self._digests)
        return EncodedShards(self._job.folder, vectors, self._existing_parts)

    def _encode_all(self, size: WorkerSize, bar: tqdm) -> None:
        """Assign parts until all are done."""
        nodes = KnownNodes(self._cluster)
        while self._waiting_parts or self._encoding:
            self._assign()
            nodes.check_presence(cpus=size.cores, gpus=size.gpus)
            bar.update(self._collect())
            # Before that, the refusals are kept: if nobody is left, `_assign` raises the last one.
            a_worker_is_loaded = self._vectors is not None
            while a_worker_is_loaded and self._refusals:
                bar.write(f"a worker is refused: {self._refusals.pop()}", file=sys.stderr)

    def _assign(self) -> None:
        """Give each idle worker a part; raise if no worker is left."""
        is_a_worker_left = self._loading or self._idle_workers or self._encoding
        if not is_a_worker_left:
            if self._refusals:
                # Such as a model that no node can load.
                raise self._refusals[-1]
            raise ClusterError("every worker died; finished parts are kept, so run it again")
        while self._idle_workers and self._waiting_parts:
            worker = self._idle_workers.pop()
            part = self._waiting_parts.popleft()
            reference = worker.encode.remote(part, self._vectors)
            self._encoding[reference] = worker, part

    def _collect(self) -> int:
        """Wait a moment for the next worker that is done; return how many texts it encoded."""
        texts = 0
        references = [*self._loading, *self._encoding]
        finished, _ = self._ray.wait(references, timeout=_SECONDS_TO_WAIT)
        for reference in finished:
            if reference in self._loading:
                self._admit_worker(reference)
            else:
                texts += self._collect_part(reference)
        return texts

    def _load(self, worker: Worker) -> None:
        # Ray repeats this on a restarted worker.
        reference = worker.load.options(max_task_retries=_RETRIES).remote(self._job)
        self._loading[reference] = worker

    def _admit_worker(self, reference: Reference) -> None:
        """Make a worker idle, or refuse it if it failed to load or differs from this machine."""
        worker = self._loading.pop(reference)
        try:
            loaded: LoadedWorker | None = self._result_unless_dead(reference)
        except Exception as error:  # noqa: BLE001 - another worker may be able to load it
            self._refusals.append(error)
            return
        if loaded is None:  # it died more often than Ray restarts it
            return
        # The first worker decides which model it is; the others must have loaded the same.
        if not self._identity:
            self._identity = loaded.model.identity
        expected = {**self._facts, "identity": self._identity}
        differing = difference(expected, {**loaded.facts, "identity": loaded.model.identity})
        if differing:
            self._refusals.append(ClusterError(f"node {loaded.node}: {differing}"))
            return
        # The first call writes the plan of the folder; later ones only check it.
        self._vectors = start_shards(self._job.folder, self._cuts, loaded.model)
        self._idle_workers.append(worker)

    def _collect_part(self, reference: Reference) -> int:
        """Return the number of texts of a finished part; reassign the part of a dead worker."""
        worker, part = self._encoding.pop(reference)
        result = self._result_unless_dead(reference)
        if result is None:
            self._repeat(part, worker)
            return 0
        digest, existed = result
        self._digests[part.file] = digest
        if existed:  # from an earlier run
            self._existing_parts += 1
        self._idle_workers.append(worker)
        return part.texts

    def _repeat(self, part: Shard, worker: Worker) -> None:
        """Put the part of a dead worker in front, and let Ray restart the worker."""
        self._deaths[part.file] += 1
        if self._deaths[part.file] > _RETRIES:
            raise ClusterError(
                f"{part.file}: the worker died {_RETRIES + 1} times; is there enough memory? "
                "Finished parts are kept; --batch-size or --max-length need less"
            )
        self._waiting_parts.appendleft(part)
        # Ray restarts a dead worker by itself, but without the model.
        self._load(worker)

    def _result_unless_dead(self, reference: Reference) -> Any | None:
        """Return a worker's result, or None if it died; raise its error."""
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            # An error of the worker's own code, such as an EncoderError.
            raise error.cause from None
        except self._ray.exceptions.RayError:
            return None
