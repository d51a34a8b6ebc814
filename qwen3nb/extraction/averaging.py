"""The mean of several checkpoints, one tensor at a time.

Sums are kept in float32 whatever the stored dtype (ten bf16 checkpoints summed in
bf16 are off by 9e-3, in float32 by 1e-7); the mean is stored in the dtype it came
in. No more than one tensor per checkpoint is in memory.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qwen3nb.extraction.checkpoint import (
    SINGLE,
    Checkpoint,
    CheckpointError,
    list_checkpoints,
    metric_of,
    open_checkpoint,
)
from qwen3nb.extraction.tensorfile import TensorWriter
from qwen3nb.files import new_folder, write_json

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Selection", "average_checkpoints", "select_checkpoints"]

# Copied beside the mean as they are; everything else in the folder belongs to one step.
_KEPT = (
    "added_tokens.json",
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
    "merges.txt",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
)


@dataclass(frozen=True)
class Selection:
    """Which checkpoints to average, and why.

    Attributes:
        folders: the chosen checkpoints.
        rule: in words, e.g. ``best 2 by eval_loss (lower is better)``.
        metrics: the metric of each folder name, for a best-N choice.
        note: what was not as asked (fewer checkpoints than N), or empty.
    """

    folders: tuple[Path, ...]
    rule: str
    metrics: dict[str, float]
    note: str = ""


def select_checkpoints(
    folder: Path | str,
    *,
    last: int | None = None,
    best: int | None = None,
    metric: str = "eval_loss",
    lower_is_better: bool = True,
) -> Selection:
    """The ``last`` N checkpoints by step, or the ``best`` N by a metric.

    Fewer than N is no error: `Selection.note` says so and all are taken.

    Raises:
        ValueError: not exactly one of ``last`` and ``best``, or it is not positive.
        CheckpointError: no checkpoints, or a metric is missing (best-N).
    """
    count = last if best is None else best
    if (last is None) == (best is None) or count is None or count < 1:
        raise ValueError(f"expected one of last=N or best=N, N > 0; got {last=}, {best=}")
    found = list_checkpoints(folder)
    metrics: dict[str, float] = {}
    rule = f"last {count}"
    if best is not None:
        metrics = {path.name: metric_of(path, metric) for path in found}
        found.sort(key=lambda path: metrics[path.name], reverse=lower_is_better)
        direction = "lower" if lower_is_better else "higher"
        rule = f"best {count} by {metric} ({direction} is better)"
    note = ""
    if len(found) < count:
        note = f"asked for {count} checkpoints, {folder} has {len(found)}: all were taken"
    return Selection(tuple(found[-count:]), rule, metrics, note)


def average_checkpoints(selection: Selection | Sequence[Path], output: Path | str) -> Path:
    """Write the mean of the checkpoints to the folder ``output`` and return it.

    Beside ``model.safetensors`` lie the configuration and tokenizer of the last
    checkpoint and ``averaging_metadata.json``: sources with their digests, the rule,
    the metrics. ``output`` appears when everything is written, or not at all.

    Raises:
        CheckpointError: sources whose configuration, tensor names, shapes or dtypes
            differ, or a value that is not finite; the message names the first difference.
    """
    if not isinstance(selection, Selection):
        selection = Selection(tuple(map(Path, selection)), "as given", {})
    sources = [open_checkpoint(folder) for folder in selection.folders]
    _check_alike(sources)
    output = Path(output)
    with new_folder(output) as work:
        entries = sources[0].tensors
        shapes = {name: (entry.dtype, entry.shape) for name, entry in entries.items()}
        with TensorWriter(work / SINGLE, shapes) as writer:
            for name in writer.order:
                writer.write(_mean([source.read(name) for source in sources]))
        for name in _KEPT:
            if (file := sources[-1].folder / name).is_file():
                shutil.copyfile(file, work / name)
        write_json(
            work / "averaging_metadata.json",
            {
                "averaged_from": [source.folder.name for source in sources],
                "num_checkpoints": len(sources),
                "rule": selection.rule,
                "note": selection.note,
                "metrics": selection.metrics,
                "digests": {source.folder.name: source.digest() for source in sources},
            },
        )
    return output


def _mean(tensors: Sequence[Tensor]) -> Tensor:
    total = tensors[0].float()
    if total is tensors[0]:
        total = total.clone()
    for tensor in tensors[1:]:
        total += tensor.float()
    return (total / len(tensors)).to(tensors[0].dtype)


def _check_alike(sources: Sequence[Checkpoint]) -> None:
    if not sources:
        raise CheckpointError("nothing to average")
    first = sources[0]
    for other in sources[1:]:
        where = f"{other.folder} against {first.folder}"
        ours, theirs = _comparable(first.config), _comparable(other.config)
        for key in sorted(ours.keys() | theirs.keys()):
            if ours.get(key) != theirs.get(key):
                raise CheckpointError(
                    f"{where}: config {key!r} is {theirs.get(key)!r}, not {ours.get(key)!r}"
                )
        if odd := sorted(first.tensors.keys() ^ other.tensors.keys()):
            raise CheckpointError(f"{where}: {odd[0]} is in only one of them ({len(odd)} such)")
        for name, entry in first.tensors.items():
            theirs_entry = other.tensors[name]
            if (entry.dtype, entry.shape) != (theirs_entry.dtype, theirs_entry.shape):
                raise CheckpointError(
                    f"{where}: {name} is {theirs_entry.dtype} {theirs_entry.shape}, "
                    f"not {entry.dtype} {entry.shape}"
                )


def _comparable(config: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in config.items() if key != "transformers_version"}
