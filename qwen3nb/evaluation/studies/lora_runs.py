"""Find and evaluate the LoRA adapters of a training.

    outputs/<configuration>/seed_<n>/checkpoints/final   the adapter
    outputs/<configuration>/seed_<n>/config.yaml         its training configuration

Every adapter reranks; those trained to embed (`emb_only` and joint ones) also embed.
Records carry configuration and seed to identify the run, and ``results/<data set>.json``
next to the adapter has the same scores in the format of the training code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.datasets.rows import DataError
from qwen3nb.datasets.training_files import json_lines, read_settings
from qwen3nb.evaluation.run import EvaluationRun
from qwen3nb.models.rerankers.prompt_template import INSTRUCTION
from qwen3nb.models.types import SpecError
from qwen3nb.records.record import Result
from qwen3nb.records.results import Results
from qwen3nb.utils.atomic_files import write_json

__all__ = ["MODES", "TrainedAdapter", "evaluate_trained", "find_trained"]

# Training mode -> whether the adapter can embed, besides reranking.
MODES = {"rank_only": False, "emb_only": True, "joint": True}
_SEED = re.compile(r"seed_(\d{1,9})")


@dataclass(frozen=True)
class TrainedAdapter:
    """One adapter of one configuration and seed.

    Attributes:
        configuration: name of the folder, such as ``rank_only_r8``.
        seed: seed of the training.
        mode: ``rank_only``, ``emb_only`` or ``joint``.
        folder: folder of the adapter.
        settings: content of its ``config.yaml``.
    """

    configuration: str
    seed: int
    mode: str
    folder: Path
    settings: dict[str, Any]

    @property
    def embeds(self) -> bool:
        """Whether the adapter was trained to embed."""
        return MODES[self.mode]

    @property
    def instruction(self) -> str:
        """The instruction used in training."""
        return str((self.settings.get("data") or {}).get("instruction_prefix") or INSTRUCTION)

    @property
    def tier(self) -> str:
        """The tier that the training was to be evaluated on, or empty."""
        return str((self.settings.get("eval") or {}).get("eval_tier") or "")

    @property
    def seed_folder(self) -> Path:
        """The folder of this seed."""
        return _seed_folder(self.folder)


def find_trained(
    outputs: Path | str, *, training: Path | str | None = None
) -> list[TrainedAdapter]:
    """Find every adapter under ``outputs``, which may also be one of them.

    Seeds without a finished adapter are ignored.

    Args:
        outputs: folder of a training's outputs, of one configuration, seed or adapter.
        training: training configuration to use instead of ``config.yaml``, for one adapter.

    Raises:
        SpecError: no adapter found; the message gives the expected layout.
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
    return [_trained(final, training) for final in finals]


def _seed_folder(adapter: Path) -> Path:
    """Return the folder that has the adapter in ``checkpoints/``."""
    return adapter.resolve().parent.parent


def _trained(final: Path, training: Path | str | None) -> TrainedAdapter:
    folder = _seed_folder(final)
    match = _SEED.fullmatch(folder.name)
    if match is None:
        raise DataError(f"{folder}: expected a folder seed_<n>, with checkpoints/{final.name}")
    settings = _settings(folder / "config.yaml" if training is None else Path(training))
    named = str((settings.get("training") or {}).get("mode") or folder.parent.name)
    mode = next((each for each in MODES if named.startswith(each)), None)
    if mode is None:
        raise DataError(f"{folder}: mode {named!r}; expected one of {', '.join(MODES)}")
    return TrainedAdapter(folder.parent.name, int(match[1]), mode, final, settings)


def _settings(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise DataError(f"{file}: file not found; expected the adapter's training configuration")
    value = read_settings(file)
    if not isinstance(value, dict):
        raise DataError(f"{file}: expected a mapping; got {type(value).__name__}")
    return value


def evaluate_trained(
    outputs: Path | str,
    data: Iterable[Any] = (),
    *,
    tier: str = "",
    limit: int = 0,
    msmarco: Path | str | None = None,
    training: Path | str | None = None,
    base: str | Path | None = None,
    embedding_tasks: Iterable[Any] = (),
    depth: int = 100,
    max_length: int = 512,
    device: str = "auto",
    dtype: str = "float32",
    output: Path | str | None = None,
    write_back: bool = True,
    show_progress: bool = True,
) -> EvaluationRun:
    """Evaluate every adapter on reranking, and those that embed on embedding tasks.

    All adapters share the first stage of a data set, and its candidates in memory. A data set or
    task that fails stops neither the others nor the other adapters.

    Args:
        outputs: see `find_trained`.
        data: data sets to rerank; see `rerank`.
        tier: name of a tier, instead of ``data``: adapters that embed are also evaluated on
            all its tasks. Without both, the tier in the adapter's training configuration.
        limit: see `rerank` and `evaluate`; 0 for no limit.
        msmarco: folder of the official MS MARCO dev files; see `rerank`.
        training: training configuration of a single adapter; see `find_trained`.
        base: base model of the adapters; None for the one named in each adapter.
        embedding_tasks: MTEB tasks for the adapters that embed, instead of the tier's.
        depth: candidates per query.
        max_length: maximum number of tokens per pair.
        device: device to run on.
        dtype: data type of the weights.
        output: folder for records; by default `paths.results`.
        write_back: whether to also write the scores to each adapter's ``results/``.
        show_progress: whether to show progress bars.

    Raises:
        SpecError: no adapter, no base model, or an adapter that does not fit its base.
        ValueError: neither data nor a tier, or both.
        EvaluationError: data sets or tasks failed; the records of the others are saved.
    """
    from qwen3nb.evaluation.retrieval.candidates import LoadedCandidates, load_candidates

    adapters = find_trained(outputs, training=training)
    plan = _Plan(
        load=LoadedCandidates().load if len(adapters) > 1 else load_candidates,
        data=tuple(data), tier=tier, limit=limit, msmarco=msmarco, base=base,
        tasks=tuple(embedding_tasks), depth=depth, max_length=max_length, output=output,
        where={"device": device, "dtype": dtype}, show_progress=show_progress,
    )  # fmt: skip
    parts = []
    for each in adapters:
        done = _evaluate(each, plan)
        if write_back:
            _write_back(each, done.results)
        parts.append((f"{each.configuration}/seed_{each.seed}", done))
    joined = _joined(parts, label=str(outputs), folder=str(output or paths.results()))
    joined.raise_failures()
    return joined


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """What every adapter is evaluated on, and how; see `evaluate_trained`."""

    load: Callable[..., Any]
    data: tuple[Any, ...]
    tier: str
    limit: int
    msmarco: Path | str | None
    base: str | Path | None
    tasks: tuple[Any, ...]
    depth: int
    max_length: int
    output: Path | str | None
    where: dict[str, Any]
    show_progress: bool

    def tier_of(self, each: TrainedAdapter) -> str:
        """The tier to evaluate on; empty if data sets are given."""
        return self.tier or ("" if self.data else each.tier)


def _evaluate(each: TrainedAdapter, plan: _Plan) -> EvaluationRun:
    """Evaluate one adapter; what fails is in the run."""
    tier = plan.tier_of(each)
    common: dict[str, Any] = {
        "output": plan.output, "seed": each.seed, "show_progress": plan.show_progress,
        "strict": False,
    }  # fmt: skip
    runs = [_rerankings(each, plan, tier, **common)]
    if each.embeds and (plan.tasks or tier):
        runs.append(_embeddings(each, plan, tier, **common))
    return _joined([("", run) for run in runs])


def _joined(
    parts: Iterable[tuple[str, EvaluationRun]], *, label: str = "", folder: str = ""
) -> EvaluationRun:
    """Return the runs as one, the names of their items preceded by those of ``parts``."""
    results: list[Result] = []
    reused: list[str] = []
    skipped: dict[str, str] = {}
    failures: dict[str, str] = {}
    for name, run in parts:
        start = f"{name}: " if name else ""
        results += run.results
        reused += [f"{start}{item}" for item in run.reused]
        skipped |= {f"{start}{item}": reason for item, reason in run.skipped.items()}
        failures |= {f"{start}{item}": trace for item, trace in run.failures.items()}
    return EvaluationRun(
        Results(results), tuple(reused), skipped, failures, label=label, kind="evaluations",
        folder=folder,
    )  # fmt: skip


def _rerankings(each: TrainedAdapter, plan: _Plan, tier: str, **common: Any) -> EvaluationRun:
    from qwen3nb.evaluation.retrieval.rerank import rerank
    from qwen3nb.models.rerankers.load import load_reranker

    spec, adapter = (each.folder, None) if plan.base is None else (plan.base, each.folder)
    reranker = load_reranker(
        spec, adapter=adapter, instruction=each.instruction, template="double-newline",
        max_length=plan.max_length, **plan.where,
    )  # fmt: skip
    return rerank(
        reranker, list(plan.data) or None, tier=tier, msmarco=plan.msmarco, depth=plan.depth,
        limit=plan.limit, load=plan.load, config={"training": _snapshot(each, "reranking")},
        **common,
    )  # fmt: skip


def _embeddings(each: TrainedAdapter, plan: _Plan, tier: str, **common: Any) -> EvaluationRun:
    from qwen3nb.evaluation.evaluate import evaluate
    from qwen3nb.models.load import load_encoder

    encoder = load_encoder(
        each.folder, base=plan.base, instruction=each.instruction,
        show_progress=plan.show_progress, **plan.where,
    )  # fmt: skip
    return evaluate(
        encoder, tier=tier, tasks=plan.tasks or None, limit=plan.limit,
        config={"training": _snapshot(each, "embedding")}, **common,
    )  # fmt: skip


def _snapshot(each: TrainedAdapter, kind: str) -> dict[str, Any]:
    """Training settings and kind of evaluation, which must match to compare two runs."""
    parts = {name: each.settings.get(name) or {} for name in ("model", "lora", "data")}
    return {
        "kind": kind,
        "configuration": each.configuration,
        "seed": each.seed,
        "mode": each.mode,
        "rank": parts["lora"].get("rank"),
        "base": parts["model"].get("base_model_name"),
        "data_seed": parts["data"].get("seed", each.seed),
        "steps": _steps(each.seed_folder / "train_log.jsonl"),
        "settings": each.settings,
    }


def _steps(log: Path) -> int | None:
    """Number of optimisation steps, from the training log; None if it does not say.

    Raises:
        DataError: see `json_lines`.
    """
    entries = json_lines(log)[0] if log.exists() else ()
    given = (entry.get("global_step", entry.get("step")) for entry in entries)
    steps = [each for each in given if isinstance(each, int) and not isinstance(each, bool)]
    return max(steps, default=None)


def _write_back(each: TrainedAdapter, results: Iterable[Result]) -> None:
    """Write one file per data set, in the format that the training's analysis reads."""
    for result in results:
        main = result.task.main_metric
        name = main.lower()
        value = {
            "dataset": result.config.get("collection", result.task.key),
            "per_query": dict(result.per_query.get(main, {})),
            "aggregate": {name: result.main.value},
            "config": each.settings,
            "model": result.model.identity,
        }
        write_json(each.seed_folder / "results" / f"{result.task.key}.json", value)
