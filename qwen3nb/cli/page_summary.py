"""The end of a command that runs a notebook: what came out, what was reused, where the page is."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from qwen3nb import paths

if TYPE_CHECKING:
    from qwen3nb.report.evaluation.run_trace import RunTrace

__all__ = ["print_page"]

_FOREST = 12  # rows of the forest plot, at most


def print_page(page: Path, *, since: datetime) -> None:
    """Print the scores and the conclusions of a page, whether it was reused, and where it is.

    Args:
        page: the page of a run.
        since: when the command started; a page that was finished before is reused.
    """
    from qwen3nb.report.evaluation.run_trace import read_conclusions, read_finished, read_trace

    trace = read_trace(page)
    if trace is not None:
        _print_scores(trace)
    for text in read_conclusions(page):
        click.echo(f"\n{text}" if trace is None else text)
    click.echo()
    finished = read_finished(page)
    if finished and datetime.fromisoformat(finished) < since:
        click.echo(f"reused: nothing has changed since {finished[:16].replace('T', ' ')} UTC")
    elif trace is not None and trace.reused:
        click.echo(f"reused: {len(trace.reused)} of {len(trace.scores)} records were there")
    click.echo(page)
    built = paths.root() / "_build" / "html" / "runs" / f"{page.stem}.html"
    if finished and built.is_file() and built.stat().st_mtime >= page.stat().st_mtime:
        click.echo(f"in the book: {built.as_uri()}")
    elif finished:
        click.echo("`qwen3nb book` shows it as a page of the book")


def _print_scores(trace: RunTrace) -> None:
    from qwen3nb.report.evaluation.scores import forest_rows, terminal_table
    from qwen3nb.report.render.console import print_forest, print_table

    print_table(terminal_table(trace.scores, reused=trace.reused, skipped=trace.skipped))
    rows = forest_rows(trace.scores)
    names = " or ".join(dict.fromkeys(each.baseline for each in trace.scores if each.baseline))
    few = sorted(rows, key=lambda row: -abs(row.value or 0.0))[:_FOREST]
    what = f"the {_FOREST} largest of {len(rows)} differences" if len(rows) > _FOREST else "difference"
    print_forest(
        [row for row in rows if row in few],
        xlabel=f"{what} from {names}, 95 % interval; filled: significant",
    )
