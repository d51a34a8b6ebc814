"""Write the interference report as Markdown, JSON, LaTeX tables and figures."""

from __future__ import annotations

from pathlib import Path

from qwen3nb.report.training.configurations import (
    configuration_differences_table,
    configurations_figure,
    configurations_table,
)
from qwen3nb.report.training.figures import conflict_figure, loss_figure
from qwen3nb.report.training.interference import (
    InterferenceReport,
    interference_figure,
    interference_table,
)
from qwen3nb.report.training.tables import read_trainings
from qwen3nb.utils.format import json_text
from qwen3nb.utils.markdown import escaped
from qwen3nb.utils.secrets import write_public

__all__ = ["write_interference"]


def write_interference(report: InterferenceReport, folder: Path, *, outputs: Path) -> list[Path]:
    """Write ``interference.md``, ``interference.json``, figures and LaTeX tables.

    Args:
        report: from `interference_report`.
        folder: where to write; created if it does not exist.
        outputs: folder of the trainings, for their losses and gradient conflicts.

    Returns:
        The files written.
    """
    trainings = read_trainings([], outputs=outputs, adapters_only=True)
    given = (
        configurations_figure(report.scores),
        interference_figure(report),
        loss_figure(trainings),
        conflict_figure(trainings),
    )
    figures = [figure for figure in given if figure is not None]
    folder.mkdir(parents=True, exist_ok=True)
    text = report.to_markdown()
    for each in figures:
        text += f"\n![{each.name}]({each.name}.svg)\n\n{escaped(each.caption)}\n"
    files = [
        write_public(folder / "interference.md", text),
        write_public(folder / "interference.json", _json(report)),
    ]
    tables = (
        interference_table(report),
        configurations_table(report.scores),
        configuration_differences_table(report.differences),
    )
    files += [
        write_public(folder / f"{each.name}.tex", each.to_latex()) for each in tables if each.rows
    ]
    for each in figures:
        files += [each.save(folder / f"{each.name}.{ending}") for ending in ("svg", "pdf")]
    return files


def _json(report: InterferenceReport) -> str:
    interference = report.interference
    return json_text(
        {
            "verdict": {
                "by_evidence": interference.verdict(),
                "by_point": interference.verdict(by="point"),
            },
            "rule": interference.gate.text,
            "interference": interference,
            "differences": report.differences,
            "folders": list(report.folders),
            "adapters": report.runs,
            "flags": list(report.flags),
            "hint": report.hint,
        }
    )
