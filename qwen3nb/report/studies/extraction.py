"""Tables and conclusion of an extraction and its checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qwen3nb.checkpoints.direction import logged_name
from qwen3nb.checkpoints.folder import metric_of, open_checkpoint, step_of
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.report.render.table import Cell, Conclusion, Table

if TYPE_CHECKING:
    from qwen3nb.extraction.extract import Extraction


def checkpoints_table(
    folders: Sequence[Path], *, selected: Sequence[Path] = (), metric: str = "eval_loss"
) -> Table:
    """The checkpoints of a training, the selected ones in bold."""
    metric = logged_name(metric, folders)
    rows = []
    for folder in folders:
        try:
            value = f"{metric_of(folder, metric):.4f}"
        except CheckpointError:
            value = "unknown"
        rows.append(
            {
                "checkpoint": Cell(folder.name, strong=folder in selected),
                "step": str(step_of(folder)),
                metric: value,
                "digest": open_checkpoint(folder).weights.digest[:12],
            }
        )
    return Table.of(
        rows,
        note=f"In bold: the {len(selected)} selected checkpoints." if selected else "",
        name="checkpoints",
        caption=f"The {len(folders)} checkpoints of the training.",
    )


def extraction_table(done: Extraction) -> Table:
    """The checks made after writing, each with its bound."""
    from qwen3nb.extraction.verify import MAX_DIFFERENCE

    check, bound = done.verification, f"≤\u00a0{MAX_DIFFERENCE:g}".replace("-", "\u2011")
    sizes = f"{len(check.lengths)} inputs of {min(check.lengths)} to {max(check.lengths)} tokens"
    states = f"{sizes}, padded left and right; the export loaded from disk by the stock class"
    peer, vectors = check.sentence_transformers_difference, "pooled as configured in the export"
    leak = "0 would mean that the encoder is causal"
    rows = (
        ("states, export against source", check.max_difference, bound, states),
        ("vectors, sentence-transformers against source", peer, bound, vectors),
        ("first state, when the last token changes", check.leak, "> 0", leak),
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
        caption="Verification of the written export, with the largest difference allowed.",
    )


def extraction_conclusion(done: Extraction) -> Conclusion:
    """State whether the export computes the same as its source, and whether bidirectionally."""
    from qwen3nb.extraction.verify import MAX_DIFFERENCE

    check = done.verification
    same = "computes" if check.max_difference <= MAX_DIFFERENCE else "does not compute"
    runs = "causally: the last token does not move the first state"
    if check.leak > 0:
        runs = f"bidirectionally: the last token moves the first state by {check.leak:.2g}"
    text = (
        f"The export {same} the same as its source: its states are at most "
        f"{check.max_difference:.1e} apart on {len(check.lengths)} inputs, where "
        f"{MAX_DIFFERENCE:g} is allowed, and it runs {runs}."
    )
    if check.rounding:
        text += f" Storing it in 16 bits moves states by at most {check.rounding:.1e}."
    if done.warnings:
        text += f" Warnings: {len(done.warnings)}, see the table."
    return Conclusion(text)
