"""Tables and figures of extraction, checkpoint averaging and ablation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from qwen3nb.checkpoints.checkpoint import metric_of, open_checkpoint, step_of
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.metrics.intervals import interval_words
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.figure import COLORS, Figure, grid, plain
from qwen3nb.report.render.forest_plot import ForestRow, forest_figure
from qwen3nb.report.render.format import number
from qwen3nb.report.render.table import Table
from qwen3nb.utils.format import interval_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MplFigure

    from qwen3nb.analysis.comparison.ablation_effects import Effect
    from qwen3nb.checkpoints.drift import TensorDrift
    from qwen3nb.evaluation.studies.ablation import VariantResult
    from qwen3nb.extraction.extract import Extraction

__all__ = [
    "ablation_table",
    "averaging_table",
    "checkpoints_table",
    "drift_figure",
    "effects_figure",
    "effects_table",
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
    return Table(columns, tuple(rows), note)


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
    )


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
                  label=plain(f"{earlier} → {later}"))  # fmt: skip
    left.set(xlabel="layer", title="by layer, mean over its tensors")
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


def averaging_table(
    distances: dict[str, float], agreement: dict[str, tuple[float, float]]
) -> Table:
    """Distance of each checkpoint from the average, in weights and in vectors."""
    rows = [
        (
            Cell(name),
            Cell(f"{distance:.4f}"),
            Cell(f"{agreement[name][0]:.4f}", f"lowest {agreement[name][1]:.4f}"),
        )
        for name, distance in distances.items()
    ]
    return Table(
        ("checkpoint", "weights\n‖w − mean‖ / ‖mean‖", "vectors\ncosine with the mean's"),
        tuple(rows),
        "Cosine: mean over the sentences of AuthorSTS, and the lowest of them. Distant weights "
        "with similar vectors differ in directions that do not affect the output.",
    )


def ablation_table(outcomes: Sequence[VariantResult]) -> Table:
    """All variants with their scores, best first."""
    ordered = sorted(outcomes, key=lambda each: -(each.result.main.value or 0.0))
    rows = [
        (
            Cell(each.variant.pooling),
            Cell(each.variant.weights),
            Cell(each.variant.around),
            Cell("length 1, cosine" if each.variant.length == "unit" else "kept, dot product"),
            number(each.result.main, strong=each is ordered[0]),
        )
        for each in ordered
    ]
    first = ordered[0].result
    return Table(
        ("pooling", "weights", "around a text", "vectors", f"{first.task.main_metric}"),
        tuple(rows),
        f"{first.task.key}, n = {first.main.n} {first.task.unit}. Intervals: 95 %, "
        f"{interval_words(each.result.main.interval for each in ordered)}. "
        "The best value is biased upwards by the selection among variants.",
    )


def effects_table(effects: Sequence[Effect]) -> Table:
    """The effect of each option, with interval and corrected p-value."""
    rows = [
        (
            Cell(each.factor),
            Cell(each.level, f"instead of {each.reference}"),
            Cell(
                f"{each.estimate.difference:+.4f}",
                interval_text(each.estimate.interval, digits=4, absent="no interval"),
            ),
            Cell(f"{each.p_value:.4f}", strong=each.p_value < 0.05),
            Cell(str(each.settings)),
        )
        for each in effects
    ]  # fmt: skip
    return Table(
        ("option", "setting", "difference", "p\nHolm", "averaged over"),
        tuple(rows),
        f"Paired over {effects[0].estimate.n if effects else 0} queries, each averaged over the "
        f"combinations of the other options; 95 % interval ({interval_words(['paired'])}), "
        f"two-sided paired permutation test, Holm over these {len(rows)}.",
    )


def effects_figure(effects: Sequence[Effect]) -> Figure:
    """A forest plot of the effects: difference and interval of each setting."""
    factors = list(dict.fromkeys(each.factor for each in effects))
    rows = [
        ForestRow(
            f"{each.factor}: {each.level}, not {each.reference}",
            each.estimate.difference,
            each.estimate.interval[0] if each.estimate.interval else None,
            each.estimate.interval[1] if each.estimate.interval else None,
            color=COLORS[factors.index(each.factor) % len(COLORS)],
            clear=each.p_value < 0.05,
        )
        for each in effects
    ]
    n = effects[0].estimate.n if effects else 0
    return forest_figure(
        rows,
        xlabel="mean paired difference over queries, with 95 % interval",
        name="effects",
        caption=f"Effect of each option: paired over n = {n} queries, each averaged over the "
        "combinations of the other options, with 95 % intervals "
        f"({interval_words(['paired'])}). Filled marks: significant, two-sided paired permutation "
        f"test, p < 0.05 after Holm over these {len(rows)}.",
    )
