"""Tables, figures and conclusions of extraction and checkpoint averaging."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qwen3nb.checkpoints.checkpoint import metric_of, step_of
from qwen3nb.checkpoints.folder import open_checkpoint
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.report.render.cell import Cell, number
from qwen3nb.report.render.conclusion import Conclusion
from qwen3nb.report.render.figure import COLORS, Figure, MplFigure, grid, plain
from qwen3nb.report.render.format import plural, without_constants
from qwen3nb.report.render.table import Table

if TYPE_CHECKING:
    from qwen3nb.checkpoints.drift import TensorDrift
    from qwen3nb.extraction.extract import Extraction


def checkpoints_table(
    folders: Sequence[Path], *, selected: Sequence[Path] = (), metric: str = "eval_loss"
) -> Table:
    """The checkpoints of a training, the selected ones in bold.

    What is the same of all is said below them.
    """
    rows = []
    for folder in folders:
        weights = open_checkpoint(folder).weights
        entries = weights.tensors.values()
        try:
            value = f"{metric_of(folder, metric):.4f}"
        except CheckpointError:
            value = "unknown"
        rows.append(
            {
                "checkpoint": Cell(folder.name, strong=folder in selected),
                "step": str(step_of(folder)),
                metric: value,
                "parameters": f"{sum(entry.count for entry in entries):,}",
                "stored as": ", ".join(sorted({entry.dtype for entry in entries})),
                "digest": weights.digest[:12],
            }
        )
    shown, same = without_constants(
        rows, {"parameters": "Each has {} parameters.", "stored as": "All are stored as {}."}
    )
    note = f"In bold: the {len(selected)} selected checkpoints. " if selected else ""
    return Table.of(
        shown,
        note=(note + same).strip(),
        name="checkpoints",
        caption=f"The {len(folders)} checkpoints of the training, and those that were selected.",
    )


def extraction_table(done: Extraction) -> Table:
    """The checks made after writing, each with its bound."""
    from qwen3nb.extraction.verify import MAX_DIFFERENCE

    check, bound = done.verification, f"≤\u00a0{MAX_DIFFERENCE:g}".replace("-", "\u2011")
    sizes = f"{len(check.lengths)} inputs of {min(check.lengths)} to {max(check.lengths)} tokens"
    rows = (
        (
            "states, export against source",
            check.max_difference,
            bound,
            f"{sizes}, padded left and right; the export loaded from disk by the stock class",
        ),
        (
            "vectors, sentence-transformers against source",
            check.sentence_transformers_difference,
            bound,
            "pooled as configured in the export",
        ),
        (
            "first state, when the last token changes",
            check.leak,
            "> 0",
            "0 would mean that the encoder is causal",
        ),
        ("rounding by the stored precision", check.rounding, "none", "largest change of a state"),
    )
    return Table.of(
        [
            *((what, f"{value:.1e}", most, how) for what, value, most, how in rows),
            *(("warning", None, None, text) for text in done.warnings),
        ],
        ("verified", "largest difference", "bound", "how"),
        note=f"{done.label}: {done.parameters:,} parameters, in {done.folder.name}.",
        kind="words",
        name="extraction",
        caption="What was verified on the written export, with the largest difference allowed.",
    )


def extraction_conclusion(done: Extraction) -> Conclusion:
    """Say whether the export computes what its source computes, and in which direction."""
    from qwen3nb.extraction.verify import MAX_DIFFERENCE

    check = done.verification
    apart = f"{check.max_difference:.1e}" if check.max_difference else "0.0"
    apart = f"at most {apart} apart on {len(check.lengths)} inputs"
    same = "computes"
    if check.max_difference > MAX_DIFFERENCE:
        same, apart = "does not compute", f"{apart}, and {MAX_DIFFERENCE:g} is allowed"
    runs = "causally: the last token does not move the first state"
    if check.leak > 0:
        runs = f"bidirectionally: the last token moves the first state by {check.leak:.2g}"
    text = f"The export {same} the same as its source: its states are {apart}, and it runs {runs}."
    if check.rounding:
        text += f" Storing it in 16 bits moves states by at most {check.rounding:.1e}."
    if done.warnings:
        text += f" {plural(len(done.warnings), 'warning')}: see the table."
    return Conclusion(text)


def drift_figure(changes: Sequence[TensorDrift]) -> Figure:
    """Relative change of each layer between consecutive checkpoints, one line per pair."""
    by_pair: dict[tuple[str, str], list[TensorDrift]] = {}
    for change in changes:
        by_pair.setdefault((change.earlier, change.later), []).append(change)

    def mean(own: Sequence[TensorDrift], **where: Any) -> float:
        kept = [c for c in own if all(getattr(c, name) == value for name, value in where.items())]
        return float(np.mean([c.relative for c in kept]))

    def draw(width: float) -> MplFigure:
        import matplotlib.pyplot as plt

        layers = sorted({c.layer for c in changes if c.layer is not None})
        modules = sorted({c.module for c in changes}, reverse=True)
        shape = ((1, 2), (width, 2.4)) if width > 5 else ((2, 1), (width, 4.4))
        figure, (left, right) = plt.subplots(*shape[0], figsize=shape[1])
        for index, (pair, own) in enumerate(by_pair.items()):
            means = [mean(own, layer=layer) for layer in layers]
            name = plain(" → ".join(each.removeprefix("checkpoint-") for each in pair))
            color = COLORS[index % len(COLORS)]
            left.plot(layers, means, "o-", color=color, markersize=3.5, label=name)
        left.set(xlabel="layer", title="by layer, from step to step")
        left.set_xticks(layers if len(layers) < 12 else layers[::4])
        left.set_ylabel("relative change of weights")
        left.set_ylim(bottom=0)
        if by_pair:
            left.legend()
        grid(left, which="y")
        means = [mean(changes, module=module) for module in modules]
        right.barh([plain(module) for module in modules], means, color=COLORS[0], height=0.65)
        right.set(xlabel="relative change of weights", title="by module, mean over all")
        right.tick_params(axis="y", length=0)
        grid(right)
        return figure

    summary = "; ".join(
        f"{earlier} to {later}: mean {mean(own):.3f}" for (earlier, later), own in by_pair.items()
    )
    return Figure(
        name="drift",
        draw=draw,
        caption="Relative change of the weights between checkpoints: "
        f"‖later − earlier‖ / ‖earlier‖ of each tensor, n = {len(changes)} in all. Layers that "
        "still change had not finished learning.",
        alt=f"Relative change of weights by layer and by module. {summary}.",
    )


def averaging_table(
    distances: Mapping[str, float], agreement: Mapping[str, tuple[float, float]]
) -> Table:
    """Distance of each checkpoint from the average, in weights and in vectors."""
    return Table.of(
        (
            {
                "checkpoint": name,
                "weights\n‖w − mean‖ / ‖mean‖": number(distance, ".4f"),
                "vectors\ncosine with the mean's": number(
                    agreement[name][0], ".4f", detail=f"lowest {agreement[name][1]:.4f}"
                ),
            }
            for name, distance in distances.items()
        ),
        note="Cosine: mean over the sentences of AuthorSTS, and the lowest of them. Distant "
        "weights with similar vectors differ in directions that do not affect the output.",
        name="averaging",
        caption="Distance of each selected checkpoint from their mean, in weights and in vectors.",
    )
