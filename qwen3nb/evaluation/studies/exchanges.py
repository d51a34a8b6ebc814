"""Evaluate joint adapters and their specialists with one part exchanged after the other.

Records go to ``results/exchanges``. An adapter that has a record there for the same data is not
run again, so a study that was stopped continues where it was. Exchanged adapters are written to a
temporary folder, and their vectors are not cached: nothing else asks for them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.mteb.select import choose_tasks
from qwen3nb.evaluation.retrieval.rerank import rerank
from qwen3nb.evaluation.studies.lora_runs import TrainedAdapter, find_trained
from qwen3nb.models.kinds.adapter_exchange import parts_of, read_changes, write_exchanged
from qwen3nb.models.kinds.lora_change import AdapterChanges
from qwen3nb.models.kinds.resolve import adapter_source
from qwen3nb.models.kinds.source import safe_label
from qwen3nb.models.model import Model
from qwen3nb.models.rerankers import load_reranker
from qwen3nb.models.types import INSTRUCTION
from qwen3nb.records.record import Result
from qwen3nb.tiers import TIERS
from qwen3nb.utils.choices import check_choice, split_names
from qwen3nb.utils.progress import tqdm

SPECIALISTS = {"embedding": "emb_only", "reranking": "rank_only"}  # their modes, by task


@dataclass(frozen=True)
class ExchangeSettings:
    """What is exchanged, and on what it is evaluated."""

    by: str = "layer"  # or ``kind`` of module, or single ``module``
    kind: str = ""  # ``embedding`` or ``reranking``; empty for both
    tier: str = "smoke"
    tasks: str = ""  # comma-separated, in place of the tier
    data: Sequence[Path | str] = ()  # own collections, in place of both
    limit: int = 0  # most queries of a task; 0 for all
    depth: int = 20  # candidates per query, of reranking
    base: Path | str | None = None  # of the adapters, if not where they say
    device: str = "auto"
    dtype: str = "float32"
    batch_size: int = 32
    output: Path | None = None  # of the records; by default results/exchanges
    show_progress: bool = True


@dataclass(frozen=True)
class ExchangePair:
    """A joint adapter and a specialist, to be compared on the task of the specialist."""

    task: str  # ``embedding`` or ``reranking``
    configuration: str  # of the joint adapter
    seed: int
    joint: Path
    specialist: Path
    instruction: str = INSTRUCTION
    notes: tuple[str, ...] = ()  # settings in which their trainings differ


@dataclass(frozen=True)
class ExchangeRecords:
    """The records of a pair, and of both with each part exchanged."""

    pair: ExchangePair
    modules: Mapping[str, Sequence[str]]  # of each part in which the two differ
    joint: Sequence[Result]
    specialist: Sequence[Result]
    into_joint: Mapping[str, Sequence[Result]] = field(default_factory=dict)  # by part
    into_specialist: Mapping[str, Sequence[Result]] = field(default_factory=dict)


def find_pairs(
    outputs: Sequence[Path | str], *, kind: str = ""
) -> tuple[list[ExchangePair], list[str]]:
    """Return each joint adapter with the specialists of its seed, and notes on those without.

    Args:
        outputs: folders of ``<configuration>/seed_<n>/checkpoints/final``.
        kind: only ``embedding`` or ``reranking``; empty for both.

    Raises:
        SpecError: a folder without any adapter.
    """
    adapters = [adapter for folder in outputs for adapter in find_trained(folder)]
    joint_adapters = [adapter for adapter in adapters if adapter.mode == "joint"]
    pairs: list[ExchangePair] = []
    notes: list[str] = []
    if not joint_adapters:
        folders = ", ".join(paths.shown(Path(folder)) for folder in outputs) or "runs/"
        notes.append(
            f"{folders}: no joint adapter among {len(adapters)}; expected a configuration whose "
            "mode in config.yaml, or name, begins with 'joint'"
        )
    for joint in joint_adapters:
        for task in _tasks(kind):
            specialists = _specialists(joint, adapters, SPECIALISTS[task])
            if len(specialists) == 1:
                pairs.append(_pair(task, joint, specialists[0]))
                continue
            problem = f"no {SPECIALISTS[task]} run"
            if specialists:
                problem = f"{len(specialists)} {SPECIALISTS[task]} runs, none preferred,"
            notes.append(
                f"{task}: {problem} of seed {joint.seed} for {joint.configuration}; name one as "
                "specialist"
            )
    return pairs, notes


def _tasks(kind: str) -> list[str]:
    if not kind:
        return list(SPECIALISTS)
    return [check_choice("kind", kind, SPECIALISTS)]


def _specialists(
    joint: TrainedAdapter, adapters: Sequence[TrainedAdapter], mode: str
) -> list[TrainedAdapter]:
    """Return the specialists of a joint adapter's seed; of several, those of its rank."""
    of_seed = [
        adapter for adapter in adapters if adapter.mode == mode and adapter.seed == joint.seed
    ]
    rank = joint.setting("lora", "rank")
    of_rank = [adapter for adapter in of_seed if adapter.setting("lora", "rank") == rank]
    if len(of_seed) > 1 and of_rank:
        return of_rank
    return of_seed


def _pair(task: str, joint: TrainedAdapter, specialist: TrainedAdapter) -> ExchangePair:
    """Return a pair, with the settings in which the two trainings differ."""
    notes = []
    for part, name in (("lora", "rank"), ("model", "base_model_name"), ("data", "seed")):
        of_joint, of_specialist = joint.setting(part, name), specialist.setting(part, name)
        if of_joint != of_specialist:
            notes.append(
                f"{task}, seed {joint.seed}: {name} is {of_joint} of {joint.configuration}, "
                f"{of_specialist} of {specialist.configuration}; a part may differ by that"
            )
    return ExchangePair(
        task=task,
        configuration=joint.configuration,
        seed=joint.seed,
        joint=joint.folder,
        specialist=specialist.folder,
        instruction=joint.instruction,
        notes=tuple(notes),
    )


def evaluate_exchanges(
    pairs: Sequence[ExchangePair], settings: ExchangeSettings
) -> list[ExchangeRecords]:
    """Evaluate the adapters of each pair, and both with each part exchanged.

    A part in which the two adapters are equal is not evaluated: it costs nothing.

    Raises:
        SpecError: adapters that cannot be exchanged.
        EvaluationError: a task failed; finished records are saved.
    """
    studies = [_Study.of(pair, settings) for pair in pairs]
    total = sum(2 + 2 * len(study.modules) for study in studies)
    bar = tqdm(total=total, desc="exchange", unit="adapter", disable=not settings.show_progress)
    with bar:
        return [study.run(bar) for study in studies]


@dataclass(frozen=True)
class _Study:
    """A pair whose adapters were read."""

    pair: ExchangePair
    settings: ExchangeSettings
    joint: AdapterChanges
    specialist: AdapterChanges
    modules: Mapping[str, Sequence[str]]
    base: str

    @classmethod
    def of(cls, pair: ExchangePair, settings: ExchangeSettings) -> _Study:
        joint, specialist = read_changes(pair.joint), read_changes(pair.specialist)
        # A temporary folder is not next to the base that an adapter may name.
        base = adapter_source(pair.joint, base=settings.base).base
        return cls(
            pair=pair,
            settings=settings,
            joint=joint,
            specialist=specialist,
            modules=parts_of(joint, specialist, by=settings.by),
            base=str(base.folder or base.spec) if base else "",
        )

    def run(self, bar: Any) -> ExchangeRecords:
        """Return the records of both adapters, then those of each part."""
        joint = self._evaluated(self.pair.joint, bar)
        specialist = self._evaluated(self.pair.specialist, bar)
        into_joint, into_specialist = {}, {}
        for part, modules in self.modules.items():
            with self._exchanged(self.joint, self.specialist, part, modules) as folder:
                into_joint[part] = self._evaluated(folder, bar, cache=False)
            with self._exchanged(self.specialist, self.joint, part, modules) as folder:
                into_specialist[part] = self._evaluated(folder, bar, cache=False)
        return ExchangeRecords(
            self.pair, self.modules, joint, specialist, into_joint, into_specialist
        )

    @contextmanager
    def _exchanged(
        self,
        adapter: AdapterChanges,
        donor: AdapterChanges,
        part: str,
        modules: Sequence[str],
    ) -> Iterator[Path]:
        """Write an adapter with a donor's part for as long as it is used."""
        name = adapter.folder.path.resolve().parent.parent.parent.name or "adapter"
        label = safe_label(f"seed_{self.pair.seed}-{self.settings.by}-{part}")
        with tempfile.TemporaryDirectory() as folder:
            yield write_exchanged(adapter, donor, modules, Path(folder) / name / label)

    def _evaluated(self, folder: Path, bar: Any, *, cache: bool = True) -> list[Result]:
        """Return the records of one adapter on the task."""
        settings = self.settings
        bar.set_postfix_str("" if cache else folder.name)
        options: dict[str, Any] = {
            "output": settings.output or paths.results() / "exchanges",
            "seed": self.pair.seed,
            "batch_size": settings.batch_size,
            "show_progress": False,
        }
        if self.pair.task == "reranking":
            found = self._reranked(folder, options)
        else:
            found = self._embedded(folder, options, cache=cache)
        bar.update()
        return found

    def _embedded(self, folder: Path, options: dict[str, Any], *, cache: bool) -> list[Result]:
        settings = self.settings
        model = Model(
            str(folder),
            base=self.base,
            instruction=self.pair.instruction,
            device=settings.device,
            dtype=settings.dtype,
            batch_size=settings.batch_size,
            cache=cache,
            show_progress=False,
        )
        if settings.data:
            return list(evaluate(model, list(settings.data), **options))
        tasks = choose_tasks(
            tier=settings.tier,
            tasks=settings.tasks,
            types="" if settings.tasks else "Retrieval",
        )
        return list(evaluate(model, tasks=tasks, limit=settings.limit, **options))

    def _reranked(self, folder: Path, options: dict[str, Any]) -> list[Result]:
        settings = self.settings
        data: list[Any] = list(settings.data) or split_names(settings.tasks)
        if not data:
            data = list(TIERS[check_choice("tier", settings.tier, TIERS)].reranking)
        reranker = load_reranker(
            self.base,
            adapter=folder,
            template="double-newline",  # as in training
            instruction=self.pair.instruction,
            device=settings.device,
            dtype=settings.dtype,
        )
        return list(rerank(reranker, data, depth=settings.depth, limit=settings.limit, **options))
