"""Find and evaluate the LoRA adapters of a training.

    outputs/<configuration>/seed_<n>/checkpoints/final   the adapter
    outputs/<configuration>/seed_<n>/config.yaml         its training configuration

Every adapter reranks; those trained to embed (`emb_only` and joint ones) also embed.
Records carry configuration and seed to identify the run, and ``results/<data set>.json``
next to the adapter has the same scores in the format of the training code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qwen3nb.datasets.rows import DataError
from qwen3nb.models.rerankers.prompt_template import INSTRUCTION
from qwen3nb.models.types import SpecError
from qwen3nb.records.record import Result
from qwen3nb.utils.atomic_files import write_json

if TYPE_CHECKING:
    from qwen3nb.models.rerankers.yes_no import Reranker

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
    def seed_folder(self) -> Path:
        """The folder of this seed."""
        return self.folder.parent.parent


def find_trained(outputs: Path | str) -> list[TrainedAdapter]:
    """Find every adapter under ``outputs``, which may also be one configuration or one seed.

    Seeds without a finished adapter are ignored.

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
    if not finals:
        raise SpecError(
            f"{base}: no adapter found; expected <configuration>/seed_<n>/checkpoints/final with "
            "adapter_config.json in it"
        )
    return [_trained(final) for final in finals]


def _trained(final: Path) -> TrainedAdapter:
    folder = final.resolve().parent.parent
    match = _SEED.fullmatch(folder.name)
    if match is None:
        raise DataError(f"{folder}: expected a folder seed_<n>")
    settings = _settings(folder / "config.yaml")
    named = str((settings.get("training") or {}).get("mode") or folder.parent.name)
    mode = next((each for each in MODES if named.startswith(each)), None)
    if mode is None:
        raise DataError(f"{folder}: mode {named!r}; expected one of {', '.join(MODES)}")
    return TrainedAdapter(folder.parent.name, int(match[1]), mode, final, settings)


def _settings(file: Path) -> dict[str, Any]:
    import yaml

    if not file.is_file():
        raise DataError(f"{file}: file not found; expected the adapter's training configuration")
    try:
        value = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DataError(f"{file}: cannot be read ({error})") from None
    if not isinstance(value, dict):
        raise DataError(f"{file}: expected a mapping; got {type(value).__name__}")
    return value


def evaluate_trained(
    outputs: Path | str,
    data: Iterable[Any],
    *,
    base: str | Path | None = None,
    embedding_tasks: Iterable[Any] = (),
    depth: int = 100,
    max_length: int = 512,
    device: str = "auto",
    dtype: str = "float32",
    output: Path | str | None = None,
    write_back: bool = True,
    show_progress: bool = True,
) -> list[Result]:
    """Evaluate every adapter on reranking, and those that embed on embedding tasks.

    Args:
        outputs: see `find_trained`.
        data: data sets to rerank; see `rerank`.
        base: base model of the adapters; None for the one named in each adapter.
        embedding_tasks: MTEB tasks for the adapters that embed.
        depth: candidates per query.
        max_length: maximum number of tokens per pair.
        device: device to run on.
        dtype: data type of the weights.
        output: folder for records; by default `paths.results`.
        write_back: whether to also write the scores to each adapter's ``results/``.
        show_progress: whether to show progress bars.

    Raises:
        SpecError: no adapter, no base model, or an adapter that does not fit its base.
        EvaluationError: a data set or task failed.
    """
    collections, tasks, records = list(data), list(embedding_tasks), []
    where: dict[str, Any] = {"device": device, "dtype": dtype}
    for each in find_trained(outputs):
        common: dict[str, Any] = {
            "output": output, "seed": each.seed, "show_progress": show_progress,
        }  # fmt: skip
        reranker = _reranker(each, base, max_length=max_length, **where)
        results = _rerankings(each, reranker, collections, depth=depth, **common)
        if each.embeds and tasks:
            results = results + _embeddings(each, base, tasks, where, **common)
        if write_back:
            _write_back(each, results)
        records += results
    return records


def _reranker(each: TrainedAdapter, base: str | Path | None, **options: Any) -> Reranker:
    from qwen3nb.models.rerankers.load import load_reranker

    spec, adapter = (each.folder, None) if base is None else (base, each.folder)
    return load_reranker(
        spec, adapter=adapter, instruction=each.instruction, template="double-newline", **options
    )


def _rerankings(
    each: TrainedAdapter, reranker: Reranker, data: list[Any], **options: Any
) -> list[Result]:
    from qwen3nb.evaluation.retrieval.rerank import rerank

    config = {"training": _snapshot(each, "reranking")}
    return list(rerank(reranker, data, config=config, **options).results)


def _embeddings(
    each: TrainedAdapter,
    base: str | Path | None,
    tasks: list[Any],
    where: dict[str, Any],
    **options: Any,
) -> list[Result]:
    from qwen3nb.evaluation.evaluate import evaluate
    from qwen3nb.models.load import load_encoder

    encoder = load_encoder(
        each.folder, base=base, instruction=each.instruction,
        show_progress=options["show_progress"], **where,
    )  # fmt: skip
    config = {"training": _snapshot(each, "embedding")}
    return list(evaluate(encoder, tasks=tasks, config=config, **options).results)


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
    """Number of optimisation steps, from the training log; None if it does not say."""
    steps = []
    for line in log.read_bytes().splitlines() if log.is_file() else ():
        try:
            entry = json.loads(line)
        except ValueError:  # line truncated when the process was killed
            continue
        step = entry.get("global_step", entry.get("step")) if isinstance(entry, dict) else None
        steps += [step] if isinstance(step, int) else []
    return max(steps, default=None)


def _write_back(each: TrainedAdapter, results: Iterable[Result]) -> None:
    """Write one file per data set, in the format that the training's analysis reads."""
    for result in results:
        main = result.task.main_metric
        name = main.lower()
        value = {
            "dataset": result.config.get("collection", result.task.key),
            "per_query": result.per_query.get(main, {}),
            "aggregate": {name: result.main.value},
            "config": each.settings,
            "model": result.model.identity,
        }
        write_json(each.seed_folder / "results" / f"{result.task.key}.json", value)
