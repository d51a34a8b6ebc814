"""Find and evaluate the LoRA adapters of a training.

    outputs/<configuration>/seed_<n>/checkpoints/final   the adapter
    outputs/<configuration>/seed_<n>/config.yaml         its training configuration

Every adapter reranks; those trained to embed (`emb_only` and joint ones) also embed.
Records contain configuration and seed, and ``results/<data set>.json`` next to the adapter has the
same scores in the format of the training code.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from qwen3nb.datasets.rows import DataError, json_lines, read_settings
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.retrieval.rerank import rerank
from qwen3nb.evaluation.run import EvaluationRun, Run, RunOptions
from qwen3nb.models.kinds.lora import adapter_change
from qwen3nb.models.kinds.lora_change import are_equal
from qwen3nb.models.load import load_encoder
from qwen3nb.models.rerankers import load_reranker
from qwen3nb.models.types import INSTRUCTION, SpecError
from qwen3nb.records.record import Result
from qwen3nb.records.results import Results
from qwen3nb.tiers import TIERS
from qwen3nb.utils.atomic_files import write_json

if TYPE_CHECKING:
    from mteb import AbsTask

log = logging.getLogger(__name__)
# Training mode -> whether the adapter can also embed.
MODES = {"rank_only": False, "emb_only": True, "joint": True}
_SEED = re.compile(r"seed_(\d{1,9})")


@dataclass(frozen=True)
class TrainedAdapter:
    """The adapter in ``folder``, of one configuration (a folder's name) and training seed."""

    configuration: str
    seed: int
    mode: str  # ``rank_only``, ``emb_only`` or ``joint``
    folder: Path
    settings: dict[str, Any]  # content of its ``config.yaml``

    @property
    def embeds(self) -> bool:
        """Whether the adapter was trained to embed."""
        return MODES[self.mode]

    def setting(self, part: str, name: str, default: Any = None) -> Any:
        """Return a setting of a part of the training's configuration."""
        return (self.settings.get(part) or {}).get(name, default)

    @property
    def instruction(self) -> str:
        """The instruction of queries in its training."""
        return str(self.setting("data", "instruction_prefix") or INSTRUCTION)

    @property
    def seed_folder(self) -> Path:
        """The folder of this seed, with the adapter in ``checkpoints/``."""
        return self.folder.resolve().parent.parent


def find_trained(
    outputs: Path | str, *, training: Path | str | None = None
) -> list[TrainedAdapter]:
    """Find every adapter under ``outputs``: of a training, of one configuration, seed or adapter.

    Seeds without a finished adapter are ignored. For one adapter, a ``training`` configuration may
    replace ``config.yaml``.

    Raises:
        SpecError: no adapter found; states the expected layout.
        DataError: a ``config.yaml`` that cannot be read or has an unknown mode.
    """
    base = Path(outputs).expanduser()
    folders: list[Path] = []
    # The folder of a seed, of a configuration, or of several.
    for pattern in ("", "seed_*/", "*/seed_*/"):
        folders += base.glob(f"{pattern}checkpoints/final")
    adapters = sorted(folder for folder in folders if _is_adapter(folder))
    if _is_adapter(base):
        adapters = [base]
    if not adapters:
        raise SpecError(
            f"{base}: no adapter found; expected <configuration>/seed_<n>/checkpoints/final with "
            "adapter_config.json in it"
        )
    if training is not None and len(adapters) > 1:
        raise DataError(
            f"{base}: {len(adapters)} adapters, each with its own configuration; expected one for "
            f"{training}"
        )
    return [_trained_adapter(folder, training) for folder in adapters]


def _is_adapter(folder: Path) -> bool:
    return (folder / "adapter_config.json").is_file()


def _trained_adapter(final: Path, training: Path | str | None) -> TrainedAdapter:
    """Return the adapter in a folder, with its training configuration.

    Raises:
        DataError: the folder is not as a training leaves it, or the configuration is no mapping.
    """
    # <configuration>/seed_<n>/checkpoints/final
    folder = final.resolve().parent.parent
    seed = _SEED.fullmatch(folder.name)
    if seed is None:
        raise DataError(f"{folder}: expected a folder seed_<n>, with checkpoints/{final.name}")
    file = folder / "config.yaml"
    if training is not None:
        file = Path(training)
    if not file.is_file():
        raise DataError(f"{file}: file not found; expected the training configuration")
    settings = read_settings(file)
    if not isinstance(settings, dict):
        raise DataError(f"{file}: expected a mapping; got {type(settings).__name__}")
    training_settings = settings.get("training") or {}
    name = str(training_settings.get("mode") or folder.parent.name)
    # The mode may be stated, or be the beginning of the folder's name.
    for mode in MODES:
        if name.startswith(mode):
            return TrainedAdapter(
                configuration=folder.parent.name,
                seed=int(seed[1]),
                mode=mode,
                folder=final,
                settings=settings,
            )
    raise DataError(f"{folder}: mode {name!r}; expected one of {', '.join(MODES)}")


class DeviceOptions(TypedDict, total=False):
    """Where a model runs, and how it computes."""

    device: str
    dtype: str


class PairOptions(TypedDict, total=False):
    """How a reranker takes pairs; see `load_reranker`."""

    max_length: int
    budget: int


class SearchOptions(TypedDict, total=False):
    """What is reranked; see `rerank`."""

    msmarco: Path | str | None
    depth: int


class AdapterOptions(DeviceOptions, PairOptions, SearchOptions, RunOptions, total=False):
    """The options of `evaluate_trained`."""

    limit: int


def evaluate_trained(
    outputs: Path | str,
    data: Iterable[Any] = (),
    *,
    tier: str = "",
    training: Path | str | None = None,
    base: str | Path | None = None,
    embedding_tasks: Iterable[AbsTask] = (),
    **options: Unpack[AdapterOptions],
) -> EvaluationRun:
    """Evaluate every adapter on reranking, and those that embed on embedding tasks.

    A data set or task that fails does not stop the others.

    Args:
        outputs: see `find_trained`.
        data: data sets to rerank; see `rerank`.
        tier: name of a tier, instead of ``data``: adapters that embed are also evaluated on all its
            tasks, of ``fast`` on the three retrieval sets that they rerank. If neither is given,
            the tier in the adapter's training configuration.
        training: training configuration of a single adapter; see `find_trained`.
        base: base model of the adapters; None for the one named in each adapter.
        embedding_tasks: MTEB tasks for the adapters that embed, instead of the tier's.
        options: ``device``, ``dtype``, ``budget`` and ``max_length`` (of a pair), as in
            `load_reranker`;
            ``msmarco`` and ``depth``, as in `rerank`; ``limit`` and the others of `evaluate`,
            except the seed, which is that of each training.

    Raises:
        SpecError: no adapter, no base model, or an adapter that does not fit its base.
        ValueError: neither data nor a tier, or both.
        EvaluationError: data sets or tasks failed; the records of the others are saved.
    """
    adapters = find_trained(outputs, training=training)
    changes = {adapter.folder: adapter_change(adapter.folder) for adapter in adapters}
    _warn_of_equals(adapters, changes)
    data_sets, tasks = list(data), list(embedding_tasks)
    runs: list[tuple[str, EvaluationRun]] = []
    for adapter in adapters:
        tier_of_adapter = tier
        if not tier and not data_sets:
            # The training may have named the tier to evaluate.
            tier_of_adapter = str(adapter.setting("eval", "eval_tier") or "")
        evaluation = _AdapterEvaluation(
            adapter,
            change=changes[adapter.folder],
            base=base,
            tier=tier_of_adapter,
            options=options,
        )
        runs_of_adapter = [evaluation.on_reranking(data_sets)]
        if adapter.embeds and (tasks or tier_of_adapter):
            runs_of_adapter.append(evaluation.on_embedding(tasks))
        for run in runs_of_adapter:
            _write_back(adapter, run)
            runs.append((f"{adapter.configuration}/seed_{adapter.seed}: ", run))
    folder = Run(output=options.get("output")).folder
    evaluation_of_all = _join_runs(runs, label=str(outputs), folder=folder)
    evaluation_of_all.raise_failures()
    return evaluation_of_all


@dataclass(frozen=True)
class _AdapterEvaluation:
    """How one adapter is evaluated."""

    adapter: TrainedAdapter
    change: tuple[float, ...]  # see `adapter_change`
    base: str | Path | None
    tier: str
    options: AdapterOptions

    def on_reranking(self, data_sets: list[Any]) -> EvaluationRun:
        """Rerank data sets, or those of the tier."""
        model: str | Path = self.adapter.folder
        adapter_folder = None
        # Otherwise the adapter itself names its base model.
        if self.base is not None:
            model, adapter_folder = self.base, self.adapter.folder
        reranker = load_reranker(
            model,
            adapter=adapter_folder,
            template="double-newline",  # as in training
            instruction=self.adapter.instruction,
            **_selected(self.options, DeviceOptions),
            **_selected(self.options, PairOptions),
        )
        return rerank(
            reranker,
            data_sets or None,
            **_selected(self.options, SearchOptions),
            **self._run_options("reranking"),
        )

    def on_embedding(self, tasks: list[AbsTask]) -> EvaluationRun:
        """Embed for tasks, or for those of the tier."""
        encoder = load_encoder(
            self.adapter.folder,
            base=self.base,
            show_progress=self.options.get("show_progress", True),
            instruction=self.adapter.instruction,
            **_selected(self.options, DeviceOptions),
        )
        # An adapter embeds the data sets of this tier that it also reranks.
        if not tasks and self.tier == "fast":
            tasks = list(TIERS["fast"].reranking)
        return evaluate(encoder, tasks=tasks or None, **self._run_options("embedding"))

    def _run_options(self, kind: str) -> dict[str, Any]:
        """Return the options of `rerank` and `evaluate`."""
        return {
            **_selected(self.options, RunOptions),
            "limit": self.options.get("limit", 0),
            "seed": self.adapter.seed,
            "strict": False,  # failures of all adapters are raised at the end
            "tier": self.tier,
            "config": {"training": _snapshot(self.adapter, kind, self.change)},
        }


def _selected(options: AdapterOptions, kind: type) -> dict[str, Any]:
    """Return those of the options that are of a kind."""
    return {name: value for name, value in options.items() if name in kind.__annotations__}


def _join_runs(
    runs: Iterable[tuple[str, EvaluationRun]], *, label: str, folder: Path
) -> EvaluationRun:
    """Join the evaluations of all adapters; each name of an item begins with the adapter's."""
    results: list[Result] = []
    reused: list[str] = []
    skipped: dict[str, str] = {}
    failures: dict[str, str] = {}
    for name, run in runs:
        results += run
        reused += [name + item for item in run.reused]
        skipped |= {name + item: reason for item, reason in run.skipped.items()}
        failures |= {name + item: trace for item, trace in run.failures.items()}
    return EvaluationRun(
        Results(results),
        tuple(reused),
        skipped,
        failures,
        label=label,
        kind="evaluations",
        folder=str(folder),
    )


def _warn_of_equals(
    trained: Sequence[TrainedAdapter], changes: Mapping[Path, tuple[float, ...]]
) -> None:
    """Warn of adapters that are equal after merging."""
    for first_adapter, second_adapter in itertools.combinations(trained, 2):
        if are_equal(changes[first_adapter.folder], changes[second_adapter.folder]):
            log.warning(
                "%s and %s are the same adapter after merging (same weights, or both without "
                "effect): a comparison of them says nothing",
                first_adapter.folder,
                second_adapter.folder,
            )


def _snapshot(adapter: TrainedAdapter, kind: str, change: tuple[float, ...]) -> dict[str, object]:
    """Return training settings and kind of evaluation, which must match in comparisons.

    ``change`` is that of `adapter_change`.

    Raises:
        DataError: a damaged log; see `json_lines`.
    """
    log_file = adapter.seed_folder / "train_log.jsonl"
    steps = []
    if log_file.exists():
        entries, _ = json_lines(log_file)
        for entry in entries:
            step = entry.get("global_step", entry.get("step"))
            if type(step) is int:  # an entry may have none
                steps.append(step)
    return {
        "kind": kind,
        "configuration": adapter.configuration,
        "seed": adapter.seed,
        "mode": adapter.mode,
        "rank": adapter.setting("lora", "rank"),
        "base": adapter.setting("model", "base_model_name"),
        "data_seed": adapter.setting("data", "seed", adapter.seed),
        "steps": max(steps, default=None),
        "change": list(change),
        "settings": adapter.settings,
    }


def _write_back(adapter: TrainedAdapter, results: Iterable[Result]) -> None:
    """Write one file per data set, in the format of the training's analysis."""
    for result in results:
        main = result.task.main_metric
        # As the training's own analysis reads it.
        value = {
            "dataset": result.data.collection or result.task.key,
            "per_query": dict(result.per_query.get(main, {})),
            "aggregate": {main.lower(): result.main.value},
            "config": adapter.settings,
            "model": result.model.identity,
            "revision": result.task.substitute or result.task.revision,
        }
        write_json(adapter.seed_folder / "results" / f"{result.task.key}.json", value)
