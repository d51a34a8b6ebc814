"""Find and evaluate the LoRA adapters of a training.

    outputs/<configuration>/seed_<n>/checkpoints/final   the adapter
    outputs/<configuration>/seed_<n>/config.yaml         its training configuration

Every adapter reranks; those trained to embed (`emb_only` and joint ones) also embed.
Records contain configuration and seed, and ``results/<data set>.json`` next to the adapter has the
same scores in the format of the training code.
"""

import itertools
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qwen3nb.datasets.rows import DataError, json_lines, read_settings
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.retrieval.rerank import rerank
from qwen3nb.evaluation.run import EvaluationRun, Run
from qwen3nb.models.kinds.lora import adapter_change
from qwen3nb.models.kinds.lora_change import are_equal
from qwen3nb.models.load import load_encoder
from qwen3nb.models.rerankers import load_reranker
from qwen3nb.models.types import INSTRUCTION, SpecError
from qwen3nb.records.record import Result
from qwen3nb.records.results import Results
from qwen3nb.tiers import TIERS
from qwen3nb.utils.atomic_files import write_json

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
    finals = sorted(
        final
        for pattern in ("", "seed_*/", "*/seed_*/")
        for final in base.glob(f"{pattern}checkpoints/final")
        if (final / "adapter_config.json").is_file()
    )
    if (base / "adapter_config.json").is_file():
        finals = [base]
    if not finals:
        raise SpecError(
            f"{base}: no adapter found; expected <configuration>/seed_<n>/checkpoints/final with "
            "adapter_config.json in it"
        )
    if training is not None and len(finals) > 1:
        raise DataError(
            f"{base}: {len(finals)} adapters, each with its own configuration; expected one for "
            f"{training}"
        )
    return [_trained_adapter(final, training) for final in finals]


def _trained_adapter(final: Path, training: Path | str | None) -> TrainedAdapter:
    """Return the adapter in a folder, with its training configuration.

    Raises:
        DataError: the folder is not as a training leaves it, or the configuration is no mapping.
    """
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
    name = str((settings.get("training") or {}).get("mode") or folder.parent.name)
    for mode in MODES:
        if name.startswith(mode):
            return TrainedAdapter(folder.parent.name, int(seed[1]), mode, final, settings)
    raise DataError(f"{folder}: mode {name!r}; expected one of {', '.join(MODES)}")


def evaluate_trained(
    outputs: Path | str,
    data: Iterable[Any] = (),
    *,
    tier: str = "",
    training: Path | str | None = None,
    base: str | Path | None = None,
    embedding_tasks: Iterable[Any] = (),
    **options: Any,
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
    data_sets, tasks = list(data), list(embedding_tasks)
    pair_options = _taken(options, "max_length", "budget")
    device_options = _taken(options, "device", "dtype")
    search_options = _taken(options, "msmarco", "depth")
    adapters = find_trained(outputs, training=training)
    changes = {adapter.folder: adapter_change(adapter.folder) for adapter in adapters}
    _warn_of_equals(adapters, changes)
    runs: list[tuple[str, EvaluationRun]] = []
    for adapter in adapters:
        name = f"{adapter.configuration}/seed_{adapter.seed}: "
        own_tier = tier
        if not tier and not data_sets:
            own_tier = str(adapter.setting("eval", "eval_tier") or "")
        run = {**options, "seed": adapter.seed, "strict": False, "tier": own_tier}
        instruction = str(adapter.setting("data", "instruction_prefix") or INSTRUCTION)
        model_options = {"instruction": instruction, **device_options}
        reranker = load_reranker(
            adapter.folder if base is None else base,
            adapter=None if base is None else adapter.folder,
            template="double-newline",
            **model_options,
            **pair_options,
        )
        run["config"] = {"training": _snapshot(adapter, "reranking", changes[adapter.folder])}
        reranking = rerank(reranker, data_sets or None, **search_options, **run)
        runs.append((name, reranking))
        results = list(reranking)
        if adapter.embeds and (tasks or own_tier):
            show_progress = options.get("show_progress", True)
            encoder = load_encoder(
                adapter.folder, base=base, show_progress=show_progress, **model_options
            )
            run["config"] = {"training": _snapshot(adapter, "embedding", changes[adapter.folder])}
            tier_tasks = list(TIERS["fast"].reranking) if own_tier == "fast" else None
            embedding = evaluate(encoder, tasks=tasks or tier_tasks, **run)
            runs.append((name, embedding))
            results += embedding
        _write_back(adapter, results)
    outcome = _joined(runs, label=str(outputs), folder=Run(output=options.get("output")).folder)
    outcome.raise_failures()
    return outcome


def _taken(options: dict[str, Any], *names: str) -> dict[str, Any]:
    """Remove options of these names from ``options``, and return them."""
    return {name: options.pop(name) for name in names if name in options}


def _joined(
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
    for first, second in itertools.combinations(trained, 2):
        if are_equal(changes[first.folder], changes[second.folder]):
            log.warning(
                "%s and %s are the same adapter after merging (same weights, or both without "
                "effect): a comparison of them says nothing",
                first.folder,
                second.folder,
            )


def _snapshot(adapter: TrainedAdapter, kind: str, change: tuple[float, ...]) -> dict[str, Any]:
    """Return training settings and kind of evaluation, which must match in comparisons.

    ``change`` is that of `adapter_change`.

    Raises:
        DataError: a damaged log; see `json_lines`.
    """
    log = adapter.seed_folder / "train_log.jsonl"
    entries = json_lines(log)[0] if log.exists() else ()
    steps = [entry.get("global_step", entry.get("step")) for entry in entries]
    numbers = [step for step in steps if type(step) is int]  # may be missing in a log
    return {
        "kind": kind,
        "configuration": adapter.configuration,
        "seed": adapter.seed,
        "mode": adapter.mode,
        "rank": adapter.setting("lora", "rank"),
        "base": adapter.setting("model", "base_model_name"),
        "data_seed": adapter.setting("data", "seed", adapter.seed),
        "steps": max(numbers, default=None),
        "change": list(change),
        "settings": adapter.settings,
    }


def _write_back(adapter: TrainedAdapter, results: Iterable[Result]) -> None:
    """Write one file per data set, in the format of the training's analysis."""
    for result in results:
        main = result.task.main_metric
        value = {
            "dataset": result.data.collection or result.task.key,
            "per_query": dict(result.per_query.get(main, {})),
            "aggregate": {main.lower(): result.main.value},
            "config": adapter.settings,
            "model": result.model.identity,
            "revision": result.task.substitute or result.task.revision,
        }
        write_json(adapter.seed_folder / "results" / f"{result.task.key}.json", value)
