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
    adapters = []
    for final in finals:
        folder = final.resolve().parent.parent
        match = _SEED.fullmatch(folder.name)
        if match is None:
            raise DataError(f"{folder}: expected a folder seed_<n>, with checkpoints/{final.name}")
        file = folder / "config.yaml" if training is None else Path(training)
        if not file.is_file():
            raise DataError(f"{file}: file not found; expected the training configuration")
        settings = read_settings(file)
        if not isinstance(settings, dict):
            raise DataError(f"{file}: expected a mapping; got {type(settings).__name__}")
        named = str((settings.get("training") or {}).get("mode") or folder.parent.name)
        mode = next((each for each in MODES if named.startswith(each)), None)
        if mode is None:
            raise DataError(f"{folder}: mode {named!r}; expected one of {', '.join(MODES)}")
        adapters.append(TrainedAdapter(folder.parent.name, int(match[1]), mode, final, settings))
    return adapters


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
    listed, tasks = list(data), list(embedding_tasks)
    groups: tuple[tuple[str, ...], ...] = (
        ("max_length", "budget"),
        ("device", "dtype"),
        ("msmarco", "depth"),
    )
    of_pairs, placed, of_search = (
        {name: options.pop(name) for name in names if name in options} for names in groups
    )
    runs: list[tuple[str, EvaluationRun]] = []
    trained = find_trained(outputs, training=training)
    changes = {adapter.folder: adapter_change(adapter.folder) for adapter in trained}
    _warn_of_equals(trained, changes)
    for each in trained:
        own = tier or ("" if listed else str(each.setting("eval", "eval_tier") or ""))
        run: dict[str, Any] = {**options, "seed": each.seed, "strict": False}
        spec, adapter = (each.folder, None) if base is None else (base, each.folder)
        instruction = str(each.setting("data", "instruction_prefix") or INSTRUCTION)
        how = {"instruction": instruction, **placed}
        reranker = load_reranker(
            spec, adapter=adapter, template="double-newline", **how, **of_pairs
        )
        snapshot = _snapshot(each, "reranking", changes[each.folder])
        run |= {"tier": own, "config": {"training": snapshot}}
        done = [rerank(reranker, listed or None, **of_search, **run)]
        if each.embeds and (tasks or own):
            shown = options.get("show_progress", True)
            encoder = load_encoder(each.folder, base=base, show_progress=shown, **how)
            run["config"] = {"training": _snapshot(each, "embedding", changes[each.folder])}
            of_tier = [*TIERS["fast"].reranking] if own == "fast" else None
            done.append(evaluate(encoder, tasks=tasks or of_tier, **run))
        _write_back(each, [result for one in done for result in one])
        runs += [(f"{each.configuration}/seed_{each.seed}: ", one) for one in done]
    joined = EvaluationRun(
        Results([result for _, one in runs for result in one]),
        tuple(f"{name}{item}" for name, one in runs for item in one.reused),
        {f"{name}{item}": why for name, one in runs for item, why in one.skipped.items()},
        {f"{name}{item}": trace for name, one in runs for item, trace in one.failures.items()},
        label=str(outputs),
        kind="evaluations",
        folder=str(Run(output=options.get("output")).folder),
    )
    joined.raise_failures()
    return joined


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


def _snapshot(each: TrainedAdapter, kind: str, change: tuple[float, ...]) -> dict[str, Any]:
    """Return training settings and kind of evaluation, which must match in comparisons.

    ``change`` is that of `adapter_change`.

    Raises:
        DataError: a damaged log; see `json_lines`.
    """
    log = each.seed_folder / "train_log.jsonl"
    entries = json_lines(log)[0] if log.exists() else ()
    steps = (entry.get("global_step", entry.get("step")) for entry in entries)
    return {
        "kind": kind,
        "configuration": each.configuration,
        "seed": each.seed,
        "mode": each.mode,
        "rank": each.setting("lora", "rank"),
        "base": each.setting("model", "base_model_name"),
        "data_seed": each.setting("data", "seed", each.seed),
        "steps": max((n for n in steps if type(n) is int), default=None),  # may be missing in a log
        "change": list(change),
        "settings": each.settings,
    }


def _write_back(each: TrainedAdapter, results: Iterable[Result]) -> None:
    """Write one file per data set, in the format of the training's analysis."""
    for result in results:
        main = result.task.main_metric
        value = {
            "dataset": result.data.collection or result.task.key,
            "per_query": dict(result.per_query.get(main, {})),
            "aggregate": {main.lower(): result.main.value},
            "config": each.settings,
            "model": result.model.identity,
            "revision": result.task.substitute or result.task.revision,
        }
        write_json(each.seed_folder / "results" / f"{result.task.key}.json", value)
