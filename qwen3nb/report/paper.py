"""Write all figures and tables of the results as files for a paper."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from qwen3nb.analysis.comparison.alignment import model_names, newest_records
from qwen3nb.analysis.comparison.compare import Comparison, compare
from qwen3nb.records.record import Result
from qwen3nb.records.richest_tier import richest_tier
from qwen3nb.records.store import latest
from qwen3nb.report.comparison.by_type import overview_table, tasks_by_type
from qwen3nb.report.comparison.figures import differences_figure, pairs_figure
from qwen3nb.report.comparison.tables import differences_table
from qwen3nb.report.comparison.task_figures import task_differences_figure, wins_figure
from qwen3nb.report.leaderboard.benchmark_tables import task_tables
from qwen3nb.report.leaderboard.figures import (
    bars_figure,
    comparison_figure,
    per_query_figure,
    similarity_figure,
)
from qwen3nb.report.leaderboard.ranking import rank_figure, standings
from qwen3nb.report.leaderboard.score_table import leaderboard
from qwen3nb.report.leaderboard.tables import cost_table, headline_table
from qwen3nb.report.render.figure import Figure
from qwen3nb.report.render.table import TABLE_FORMATS, Table, transposed
from qwen3nb.report.studies.reranking_figures import gain_figure
from qwen3nb.report.training.configurations import (
    configuration_differences_table,
    configurations_figure,
    configurations_table,
)
from qwen3nb.report.training.figures import conflict_figure, loss_figure, trajectory_figure
from qwen3nb.report.training.interference import (
    interference_figure,
    interference_report,
    interference_table,
)
from qwen3nb.report.training.tables import read_trainings
from qwen3nb.tiers import TIERS
from qwen3nb.utils.atomic_files import write_text
from qwen3nb.utils.markdown import escaped

__all__ = ["paper_figures", "paper_tables", "write_figures", "write_tables"]

METRIC = "nDCG@10"


def paper_figures(
    results: Sequence[Result], *, tier: str = "", seed: int = 0
) -> list[tuple[str, Figure]]:
    """Return every figure that a tier's records allow, each with the name of its file.

    Includes the figures of trainings and adapters, from all records and the logs below
    `paths.runs`. Figures that need a model (spectra, indexes, ablations) are only on their pages.

    Args:
        results: any records.
        tier: by default the richest with results; where none has, only trainings are shown.
        seed: of the draws.

    Raises:
        ValueError: the tier has no records; none has, and there are no trainings.
    """
    trained = [(each.name, each) for each in _of_trainings(results, tier=tier, seed=seed) if each]
    tier, on_tier = _of_tier(results, tier, others=trained)
    if not on_tier:
        return trained
    figures = [
        comparison_figure(on_tier, tier=tier),
        bars_figure(on_tier, tier=tier),
        rank_figure(standings(on_tier, tier=tier, seed=seed)),
    ]
    comparison = compare(on_tier, tier=tier, seed=seed)
    for task in _compared_tasks(comparison) if not TIERS[tier].benchmarks else ():
        figures.append(task_differences_figure(comparison, task=task))
        figures.append(wins_figure(comparison, task=task))
    figures += [differences_figure(comparison), pairs_figure(comparison)]
    named = [(figure.name, figure) for figure in figures if figure is not None]
    return named + trained + list(_per_model(on_tier))


def _of_trainings(results: Sequence[Result], *, tier: str, seed: int) -> Iterator[Figure | None]:
    trainings = read_trainings(results, tier=tier, seed=seed)
    yield from (trajectory_figure(trainings), loss_figure(trainings), conflict_figure(trainings))
    report = interference_report(seed=seed)
    yield interference_figure(report)
    yield configurations_figure(report.scores)
    reranked = [result for result in results if f"gain {METRIC}" in result.per_query]
    if reranked:
        yield gain_figure(reranked)


def _per_model(results: Sequence[Result]) -> Iterator[tuple[str, Figure]]:
    for identity, name in model_names(results).items():
        own, _ = newest_records(each for each in results if each.model.identity == identity)
        for figure in (per_query_figure(own, metric=METRIC), similarity_figure(own)):
            if figure is not None:
                yield f"{figure.name}-{name}", figure


def paper_tables(results: Sequence[Result], *, tier: str = "", seed: int = 0) -> list[Table]:
    """Return every table of a tier and of trainings, each with a name and a caption.

    Args:
        results: any records.
        tier: as for `paper_figures`.
        seed: of the draws.

    Raises:
        ValueError: as for `paper_figures`.
    """
    trained = _trained_tables(seed)
    tier, on_tier = _of_tier(results, tier, others=trained)
    if not on_tier:
        return trained
    comparison = compare(on_tier, tier=tier, seed=seed)
    board = leaderboard(on_tier, tier=tier, comparison=comparison)
    headline = headline_table(on_tier, tier=tier)
    if TIERS[tier].benchmarks:
        board, headline = (transposed(each, first="mean") for each in (board, headline))
    tables = [
        board,
        replace(
            headline,
            name=f"headline-{tier}",
            caption=f"The scores in front on the tier {tier}.",
        ),
        replace(cost_table(on_tier), name="cost", caption="Cost of the results."),
    ]
    if TIERS[tier].benchmarks:
        tables += _of_benchmarks(on_tier, comparison, tier=tier)
    else:
        tables += [differences_table(comparison, task=each) for each in _compared_tasks(comparison)]
    return tables + trained


def _trained_tables(seed: int) -> list[Table]:
    """Return the tables of trained adapters that have rows."""
    report = interference_report(seed=seed)
    tables = (
        configurations_table(report.scores),
        configuration_differences_table(report.differences),
        interference_table(report),
    )
    return [each for each in tables if each.rows]


def _of_benchmarks(
    results: Sequence[Result], comparison: Comparison, *, tier: str
) -> Iterator[Table]:
    """Yield the tables of all tasks by benchmark and type, and the differences by type."""
    tables = task_tables(results, tier=tier)
    *sections, (title, missing) = tables.tables if tables else ()
    for name, table in sections:
        yield replace(transposed(table, first="task"), caption=f"{name}.")
    yield replace(missing, name="missing", caption=f"{title}.")
    yield replace(overview_table(comparison), caption="Tasks won and lost, by type.")
    for kind, tasks in tasks_by_type(comparison).items():
        if keys := [each.task for each in tasks if each.with_baseline]:
            table = differences_table(comparison, tasks=keys)
            caption = f"{kind}: paired differences from {comparison.baseline}."
            yield replace(table, name=f"differences-{kind}", caption=caption)


def _of_tier(
    results: Sequence[Result], tier: str, *, others: Sequence[object]
) -> tuple[str, list[Result]]:
    """Name and records of a tier; no records only if none is named and there are ``others``."""
    shown = tier or richest_tier(results)
    on_tier = [r for r in latest(results) if r.task.key in TIERS[shown].task_keys]
    if not on_tier and (tier or not others):
        raise ValueError(
            f"no results on the tier {shown!r}; run `qwen3nb eval --tier {shown}` first"
        )
    return shown, on_tier


def _compared_tasks(comparison: Comparison) -> list[str]:
    """Return the tasks on which models are compared query by query."""
    return list(dict.fromkeys(each.task for each in comparison.differences))


def write_figures(
    results: Sequence[Result], folder: Path, *, tier: str = "", format: str, columns: int = 0
) -> list[Path]:
    """Write `paper_figures` and their captions (``captions.md``) into a folder.

    Raises:
        ValueError: as for `paper_figures`, or the format is unknown.
    """
    written: list[Path] = []
    captions = []
    for name, figure in paper_figures(results, tier=tier):
        file = _free(folder / f"{_file_name(name)}.{format}", written)
        written.append(figure.save(file, format=format, columns=columns))
        captions.append(f"**{escaped(file.name)}**: {escaped(figure.caption)}\n")
    return [*written, write_text(folder / "captions.md", "\n".join(captions))]


def write_tables(
    results: Sequence[Result], folder: Path, *, tier: str = "", format: str, seed: int = 0
) -> list[Path]:
    """Write `paper_tables` into a folder.

    Raises:
        ValueError: as for `paper_figures`, or the format is unknown.
    """
    return [
        write_text(
            folder / f"{_file_name(table.name)}{TABLE_FORMATS[format]}", table.to_text(format)
        )
        for table in paper_tables(results, tier=tier, seed=seed)
    ]


def _file_name(name: str) -> str:
    """Return ``name`` with only the characters that are safe in a file name."""
    return re.sub(r"[^A-Za-z0-9.@+]+", "-", name).strip("-.")[:120] or "unnamed"


def _free(file: Path, taken: Sequence[Path]) -> Path:
    """Return ``file``, with a number appended if the name is taken."""
    count, free = 2, file
    while free in taken:
        free = file.with_stem(f"{file.stem}-{count}")
        count += 1
    return free
