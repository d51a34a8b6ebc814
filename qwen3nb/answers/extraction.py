"""Does an export compute what its checkpoint computes? The checks made after writing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qwen3nb.answers.answer import Answer
from qwen3nb.checkpoints.averaging import Selection, averaged, select_checkpoints
from qwen3nb.checkpoints.direction import logged_name
from qwen3nb.checkpoints.folder import list_checkpoints, metric_of, open_checkpoint, step_of
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.extraction.extract import Extraction
from qwen3nb.extraction.verify import MAX_DIFFERENCE
from qwen3nb.models.kinds.resolve import find_training
from qwen3nb.report.render.table import Cell, Conclusion, Table, plural
from qwen3nb.utils.choices import check_choice
from qwen3nb.utils.imports import DataFrame

if TYPE_CHECKING:
    from qwen3nb.answers.choosing import Choosing


@dataclass(frozen=True, repr=False)
class ExtractedModel(Answer, Extraction):
    """An extracted encoder and its verification."""

    @classmethod
    def of(cls, extraction: Extraction) -> ExtractedModel:
        """Return an extraction that shows itself."""
        return cls(
            extraction.folder,
            extraction.label,
            extraction.parameters,
            extraction.verification,
            extraction.warnings,
        )

    @property
    def conclusion(self) -> Conclusion:
        """Whether the export computes the same as its source, and whether bidirectionally."""
        check = self.verification
        verb = "does not compute"
        if check.max_difference <= MAX_DIFFERENCE:
            verb = "computes"
        direction = "causally: the last token does not move the first state"
        # The leak is how far the first state moves when only the last token changes.
        if check.leak > 0:
            direction = "in both directions"
        sentences = [
            f"The export {verb} the same as its source, and runs {direction}.",
            f"Its states are at most {check.max_difference:.1e} apart on {len(check.lengths)} "
            f"inputs; {MAX_DIFFERENCE:g} is allowed.",
        ]
        if check.rounding:
            sentences.append(f"Storing it in 16 bits moves states by at most {check.rounding:.1e}.")
        if self.warnings:
            sentences.append(f"Warnings: {len(self.warnings)}, see the table.")
        return Conclusion(" ".join(sentences))

    def table(self) -> Table:
        """The checks made after writing, each with its bound."""
        heads = ("verified", "largest difference", "bound", "how")
        rows: list[tuple[object, ...]] = []
        for quantity, difference, bound, method in self._checks():
            rows.append((quantity, f"{difference:.1e}", bound, method))
        for warning in self.warnings:
            rows.append(("warning", None, None, warning))
        return Table.of(
            rows,
            heads,
            note=f"{self.label}: {self.parameters:,} parameters, in {self.folder.name}.",
            kind="words",
            name="extraction",
            caption="Verification of the written export, with the largest difference allowed.",
        )

    def to_frame(self) -> DataFrame:
        """Return a row per check: the largest difference, its bound, and how it was measured."""
        import pandas as pd

        heads = ["verified", "largest difference", "bound", "how"]
        return pd.DataFrame(self._checks(), columns=heads)

    def _checks(self) -> list[tuple[str, float, str, str]]:
        """Return what was verified, the largest difference, its bound, and how."""
        check = self.verification
        bound = f"≤\u00a0{MAX_DIFFERENCE:g}".replace("-", "\u2011")
        inputs = (
            f"{len(check.lengths)} inputs of {min(check.lengths)} to {max(check.lengths)} tokens"
        )
        return [
            (
                "states, export against source",
                check.max_difference,
                bound,
                f"{inputs}, padded left and right; the export loaded from disk by the stock class",
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
            (
                "rounding by the stored precision",
                check.rounding,
                "none",
                "largest change of a state",
            ),
        ]


@dataclass(frozen=True, repr=False)
class Checkpoints(Answer):
    """The checkpoints of a training, and those that are selected."""

    folders: tuple[Path, ...]
    selected: tuple[Path, ...]
    metric: str  # name in the log of the trainer
    selection: Selection | None = None  # how they were selected

    @property
    def folder(self) -> Path:
        """The folder of the training."""
        return self.folders[0].parent

    def average(self) -> Path:
        """Return the folder of the mean of the selected checkpoints, computed once.

        Raises:
            CheckpointError: none is selected, or they cannot be averaged.
        """
        if self.selection is None:
            raise CheckpointError("no checkpoints are selected; give `last` or `best`")
        return averaged(self.selection)

    def choose(self, **options: Any) -> Choosing:
        """Choose among the selected checkpoints, or all, on one half of the queries.

        See `qwen3nb.answers.choosing.choose` for the options, such as ``soup=True``.
        """
        from qwen3nb.answers.choosing import choose

        return choose([str(folder) for folder in self.selected or self.folders], **options)

    @property
    def conclusion(self) -> Conclusion:
        """How many checkpoints there are, and how many of them are selected."""
        steps = [step_of(folder) for folder in self.folders]
        sentence = f"The training has {plural(len(steps), 'checkpoint')}"
        if len(steps) > 1:
            sentence = f"{sentence}, from step {steps[0]} to {steps[-1]}"
        if self.selected:
            sentence = f"{sentence}; {len(self.selected)} selected"
        return Conclusion(f"{sentence}.")

    def table(self) -> Table:
        """A row per checkpoint, the selected ones in bold."""
        note = ""
        if self.selected:
            note = f"In bold: the {len(self.selected)} selected checkpoints."
        rows: list[dict[str, Cell | str]] = []
        for folder, row in zip(self.folders, self._rows(), strict=True):
            is_selected = folder in self.selected
            rows.append({**row, "checkpoint": Cell(folder.name, strong=is_selected)})
        return Table.of(
            rows,
            note=note,
            name="checkpoints",
            caption=f"The {len(self.folders)} checkpoints of the training.",
        )

    def _rows(self) -> list[dict[str, str]]:
        """Return name, step, metric and digest of each checkpoint."""
        rows = []
        for folder in self.folders:
            try:
                value = f"{metric_of(folder, self.metric):.4f}"
            except CheckpointError:
                value = "unknown"
            row = {
                "checkpoint": folder.name,
                "step": str(step_of(folder)),
                self.metric: value,
                "digest": open_checkpoint(folder).weights.digest[:12],
            }
            rows.append(row)
        return rows

    def to_frame(self) -> DataFrame:
        """Return a row per checkpoint: step, the metric as text, and the digest of its weights."""
        import pandas as pd

        return pd.DataFrame(self._rows())


def training_checkpoints(
    training: Path | str,
    *,
    last: int | None = None,
    best: int | None = None,
    metric: str = "eval_loss",
    better: str = "auto",
) -> Checkpoints:
    """Return the checkpoints of a training with a logged metric, some of them selected.

    Args:
        training: a folder with ``checkpoint-N`` folders, or ``demo``.
        last: number of last checkpoints to select.
        best: number of best checkpoints to select, by the metric.
        metric: as logged at the checkpoint's own step.
        better: which values of the metric are better: ``lower``, ``higher`` or ``auto``.

    Raises:
        CheckpointError: no checkpoints, or none with the metric.
    """
    folder = find_training(str(training))
    folders = tuple(list_checkpoints(folder))
    name = logged_name(metric, folders)
    if last is None and best is None:
        return Checkpoints(folders, (), name)
    check_choice("better", better, ("auto", "higher", "lower"))
    lower_is_better = None  # the name of the metric decides
    if better != "auto":
        lower_is_better = better == "lower"
    selection = select_checkpoints(
        folder, last=last, best=best, metric=metric, lower_is_better=lower_is_better
    )
    return Checkpoints(folders, selection.folders, name, selection)
