"""The report of interference as files: Markdown, JSON, figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from qwen3nb.analysis.text import json_text
from qwen3nb.files import write_text
from qwen3nb.report.interference import InterferenceReport, interference_figure
from qwen3nb.report.training import read_trainings
from qwen3nb.report.training_figures import conflict_figure, loss_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["write_interference"]


def write_interference(report: InterferenceReport, folder: Path, *, outputs: Path) -> list[Path]:
    """Write ``interference.md``, ``.json`` and the figures there are into ``folder``.

    Args:
        report: from `interference_report`.
        folder: is made if need be.
        outputs: folder of the trainings, for their losses and conflicts of gradients.

    Returns:
        The files.
    """
    trainings = read_trainings([], tier="smoke", outputs=outputs, adapters_only=True)
    figures: dict[str, Figure | None] = {
        "interference": interference_figure(report),
        "losses": loss_figure(trainings),
        "conflicts": conflict_figure(trainings),
    }
    drawn = {name: figure for name, figure in figures.items() if figure is not None}
    folder.mkdir(parents=True, exist_ok=True)
    text = report.to_markdown()
    for name in drawn:
        text += f"\n![{name}]({name}.svg)\n"
    files = [
        write_text(folder / "interference.md", text),
        write_text(folder / "interference.json", _json(report)),
    ]
    for name, figure in drawn.items():
        for ending in ("svg", "png"):
            figure.savefig(folder / f"{name}.{ending}", facecolor="white", bbox_inches="tight")
            files.append(folder / f"{name}.{ending}")
    return files


def _json(report: InterferenceReport) -> str:
    found = report.found
    return json_text(
        {
            "verdict": {"by_point": found.verdict(), "by_evidence": found.verdict(by="evidence")},
            "rule": found.gate.text,
            "interference": found,
            "folders": list(report.folders),
            "adapters": report.runs,
            "flags": list(report.flags),
            "hint": report.hint,
        }
    )
