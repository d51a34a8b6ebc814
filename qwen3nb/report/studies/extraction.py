"""Tables, figures and conclusions of extraction and checkpoint averaging."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from qwen3nb.checkpoints.checkpoint import metric_of, open_checkpoint, step_of
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.conclusion import Conclusion
from qwen3nb.report.render.figure import COLORS, Figure, grid, plain
from qwen3nb.report.render.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MplFigure

    from qwen3nb.checkpoints.drift import TensorDrift
    from qwen3nb.extraction.extract import Extraction

__all__ = [
    "averaging_table",
    "checkpoints_table",
    "drift_figure",
    "extraction_conclusion",
    "extraction_table",
]


def checkpoints_table(
    folders: Sequence[Path], *, selected: Sequence[Path] = (), metric: str = "eval_loss"
) -> Table:
    """The checkpoints of a training, the selected ones in bold."""
    rows = []
    for folder in folders:
        checkpoint = open_checkpoint(folder)
        entries = checkpoint.tensors.values()
        try:
            value = f"{metric_of(folder, metric):.4f}"
        except CheckpointError:
            value = "unknown"
        rows.append(
            (
                Cell(folder.name, strong=folder in selected),
                Cell(str(step_of(folder))),
                Cell(value),
                Cell(f"{sum(entry.count for entry in entries):,}"),
                Cell(", ".join(sorted({entry.dtype for entry in entries}))),
                Cell(checkpoint.digest()[:12]),
            )
        )
    columns = ("checkpoint", "step", metric, "parameters", "stored as", "digest")
    note = f"In bold: the {len(selected)} selected checkpoints." if selected else ""
    return Table(
        columns,
        tuple(rows),
        note,
        name="checkpoints",
        caption=f"The {len(rows)} checkpoints of the training, and those that were selected.",
    )


def extraction_table(done: Extraction) -> Table:
    """The checks made after writing, each with its bound."""
    from qwen3nb.extraction.verify import MAX_DIFFERENCE

    verification, bound = done.verification, f"≤\u00a0{MAX_DIFFERENCE:g}"
    sizes = verification.lengths
    lengths = f"{len(sizes)} inputs of {min(sizes)} to {max(sizes)} tokens"
    rows = [
        ("states, export against source", f"{verification.max_difference:.1e}", bound,
         f"{lengths}, padded left and right; the export loaded from disk by the stock class"),
        ("vectors, sentence-transformers against source",
         f"{verification.sentence_transformers_difference:.1e}", bound,
         "pooled as configured in the export"),
        ("first state, when the last token changes", f"{verification.leak:.1e}", "> 0",
         "0 would mean that the encoder is causal"),
        ("rounding by the stored precision", f"{verification.rounding:.1e}", "none",
         "largest change of a state"),
    ]  # fmt: skip
    rows += [("warning", "–", "–", text) for text in done.warnings]
    return Table(
        ("verified", "largest difference", "bound", "how"),
        tuple(tuple(map(Cell, row)) for row in rows),
        f"{done.label}: {done.parameters:,} parameters, in {done.folder.name}.",
        kind="words",
        name="extraction",
        caption="What was verified on the written export, with the largest difference allowed.",
    )


def extraction_conclusion(done: Extraction) -> Conclusion:
    """Say whether the export computes what its source computes, and in which direction."""
    from qwen3nb.extraction.verify import MAX_DIFFERENCE

    check = done.verification
    apart = f"at most {_small(check.max_difference)} apart on {len(check.lengths)} inputs"
    if check.max_difference <= MAX_DIFFERENCE:
        first = f"The export computes the same as its source: its states are {apart}"
    else:
        first = (
            f"The export does not compute the same as its source: its states are {apart}, and "
            f"{MAX_DIFFERENCE:g} is allowed"
        )
    if check.leak > 0:
        direction = (
            f"it runs bidirectionally: the last token moves the first state by {check.leak:.2g}"
        )
    else:
        direction = "it runs causally: the last token does not move the first state"
    stored = f" Storing it in 16 bits moves states by at most {_small(check.rounding)}."
    count = len(done.warnings)
    warned = f" {count} warning{'s' if count > 1 else ''}: see the table."
    return Conclusion(
        f"{first}, and {direction}.{stored if check.rounding else ''}{warned if count else ''}"
    )


def _small(value: float) -> str:
    return f"{value:.1e}" if value else "0.0"


def drift_figure(changes: Sequence[TensorDrift]) -> Figure:
    """Relative change of each layer between consecutive checkpoints, one line per pair."""
    pairs = list(dict.fromkeys((change.earlier, change.later) for change in changes))
    summary = "; ".join(
        f"{earlier} to {later}: mean "
        f"{np.mean([c.relative for c in changes if (c.earlier, c.later) == (earlier, later)]):.3f}"
        for earlier, later in pairs
    )
    return Figure(
        name="drift",
        draw=lambda width: _drift(changes, pairs, width),
        caption="Relative change of the weights between checkpoints: "
        f"‖later − earlier‖ / ‖earlier‖ of each tensor, n = {len(changes)} in all. Layers that "
        "still change had not finished learning.",
        alt=f"Relative change of weights by layer and by module. {summary}.",
    )


def _drift(
    changes: Sequence[TensorDrift], pairs: Sequence[tuple[str, str]], width: float
) -> MplFigure:
    import matplotlib.pyplot as plt

    layers = sorted({c.layer for c in changes if c.layer is not None})
    wide = width > 5
    figure, axes = plt.subplots(1 if wide else 2, 2 if wide else 1,
                                figsize=(width, 2.4 if wide else 4.4))  # fmt: skip
    left, right = axes
    for index, (earlier, later) in enumerate(pairs):
        own = [c for c in changes if (c.earlier, c.later) == (earlier, later)]
        means = [float(np.mean([c.relative for c in own if c.layer == n])) for n in layers]
        left.plot(layers, means, "o-", color=COLORS[index % len(COLORS)], markersize=3.5,
                  label=plain(" → ".join(map(_step_name, (earlier, later)))))  # fmt: skip
    left.set(xlabel="layer", title="by layer, from step to step")
    left.set_xticks(layers if len(layers) < 12 else layers[::4])
    left.set_ylabel("relative change of weights")
    left.set_ylim(bottom=0)
    if pairs:
        left.legend()
    grid(left, which="y")
    modules = sorted({c.module for c in changes}, reverse=True)
    means = [float(np.mean([c.relative for c in changes if c.module == m])) for m in modules]
    right.barh([plain(module) for module in modules], means, color=COLORS[0], height=0.65)
    right.set(xlabel="relative change of weights", title="by module, mean over all")
    right.tick_params(axis="y", length=0)
    grid(right)
    return figure


def _step_name(checkpoint: str) -> str:
    """Return the step of a checkpoint's folder, short enough for a legend, or its name."""
    return checkpoint.removeprefix("checkpoint-")


def averaging_table(
    distances: dict[str, float], agreement: dict[str, tuple[float, float]]
) -> Table:
    """Distance of each checkpoint from the average, in weights and in vectors."""
    rows = [
        (
            Cell(name),
            Cell(f"{distance:.4f}", value=distance),
            Cell(
                f"{agreement[name][0]:.4f}",
                f"lowest {agreement[name][1]:.4f}",
                value=agreement[name][0],
            ),
        )
        for name, distance in distances.items()
    ]
    return Table(
        ("checkpoint", "weights\n‖w − mean‖ / ‖mean‖", "vectors\ncosine with the mean's"),
        tuple(rows),
        "Cosine: mean over the sentences of AuthorSTS, and the lowest of them. Distant weights "
        "with similar vectors differ in directions that do not affect the output.",
        name="averaging",
        caption="Distance of each selected checkpoint from their mean, in weights and in vectors.",
    )
