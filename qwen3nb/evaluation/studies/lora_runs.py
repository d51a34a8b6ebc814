"""Find and evaluate the LoRA adapters of a training.

    outputs/<configuration>/seed_<n>/checkpoints/final   the adapter
    outputs/<configuration>/seed_<n>/config.yaml         what it was trained with

Every adapter reranks, those that were trained to embed also embed: `emb_only` and the
joint ones. Records carry configuration and seed to identify the run, and
``results/<data set>.json`` beside the adapter says the same in that training's format.
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

# What a configuration's mode says an adapter can do besides reranking.
MODES = {"rank_only": False, "emb_only": True, "joint": True}
_SEED = re.compile(r"seed_(\d{1,9})")


@dataclass(frozen=True)
class TrainedAdapter:
    """One adapter of one configuration and seed.

    Attributes:
        configuration: the folder's name, such as ``rank_only_r8``.
        seed: the training's.
        mode: ``rank_only``, ``emb_only`` or ``joint``.
        folder: the adapter.
        settings: its ``config.yaml``.
    """

    configuration: str
    seed: int
    mode: str
    folder: Path
    settings: dict[str, Any]

    @property
    def embeds(self) -> bool:
        """Whether it was trained to embed."""
        return MODES[self.mode]

    @property
    def instruction(self) -> str:
        """The instruction it was trained with."""
        return str((self.settings.get("data") or {}).get("instruction_prefix") or INSTRUCTION)

    @property
    def seed_folder(self) -> Path:
        """The folder of this seed."""
        return self.folder.parent.parent


def find_trained(outputs: Path | str) -> list[TrainedAdapter]:
    """Every adapter under ``outputs``, which may be one configuration or one seed as well.

    Seeds without a finished adapter are left out.

    Raises:
        SpecError: there is none; says what was looked for.
        DataError: a ``config.yaml`` that cannot be read, or of an unknown mode.
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
            f"{base}: no adapter; expected <configuration>/seed_<n>/checkpoints/final with "
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
        raise DataError(f"{file}: not there; it says what the adapter was trained with")
    try:
        value = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DataError(f"{file}: cannot be read ({error})") from None
    if not isinstance(value, dict):
        raise DataError(f"{file}: {type(value).__name__}, expected a mapping")
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
    """Rerank with every adapter, embed with those that can, and save the records.

    Args:
        outputs: see `find_trained`.
        data: what to rerank; see `rerank`.
        base: the model the adapters belong to; None for the one they name.
        embedding_tasks: MTEB task objects for the adapters that embed.
        depth: documents per query that are reranked.
        max_length: tokens of a pair.
        device: where to run.
        dtype: of the weights.
        output: folder for records; by default `paths.results`.
        write_back: whether each adapter's ``results/`` gets its scores, too.
        show_progress: whether to show bars.

    Raises:
        SpecError: no adapter, no base, or an adapter that does not fit.
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
    """How it was trained, and as what it is measured: what must agree to compare two runs."""
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
    """How many optimisation steps a training took, by its log; None if that does not say."""
    steps = []
    for line in log.read_bytes().splitlines() if log.is_file() else ():
        try:
            entry = json.loads(line)
        except ValueError:  # cut off by a kill
            continue
        step = entry.get("global_step", entry.get("step")) if isinstance(entry, dict) else None
        steps += [step] if isinstance(step, int) else []
    return max(steps, default=None)


def _write_back(each: TrainedAdapter, results: Iterable[Result]) -> None:
    """A file per data set in the format that training's analysis reads."""
    for result in results:
        main = result.task.main_metric
        name = main.lower()
        value = {
            "dataset": result.config.get("collection", result.task.name),
            "per_query": result.per_query.get(main, {}),
            "aggregate": {name: result.main.value},
            "config": each.settings,
            "model": result.model.identity,
        }
        write_json(each.seed_folder / "results" / f"{result.task.name}.json", value)
