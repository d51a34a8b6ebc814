"""The differences of all models from a baseline, and the queries that each wins or loses."""

from collections.abc import Sequence
from dataclasses import replace

from qwen3nb.analysis.comparison.alignment import in_words
from qwen3nb.analysis.comparison.differences import PairedDifference
from qwen3nb.answers.comparison import Comparison
from qwen3nb.report.render.table import Table, TableChoice, number, short_task

_MOST_ROWS = 700  # in the tables of all baselines, to limit the size of a page


def difference_tables(comparison: Comparison, *, task: str) -> Table | TableChoice:
    """Return the differences from each baseline; the queries won are in `won_tables`."""
    tables = comparison.baseline_tables(task=task)
    if isinstance(tables, Table):
        return _without_won(tables)
    variants = {name: _without_won(table) for name, table in tables.variants.items()}
    return TableChoice(variants, tables.label)


def _without_won(table: Table) -> Table:
    kept = [index for index, head in enumerate(table.columns) if not head.startswith("won")]
    columns = tuple(table.columns[index] for index in kept)
    rows = tuple(tuple(row[index] for index in kept) for row in table.rows)
    return replace(table, columns=columns, rows=rows)


def won_tables(comparison: Comparison, *, task: str) -> Table | TableChoice:
    """Return the queries that models win, a table per baseline, that of the comparison first."""
    compared = comparison.on(task)
    if compared is None:
        return _won_table((), comparison.baseline, task)
    names = list(compared.columns)
    names.sort(key=lambda name: name != compared.baseline)
    most_tables = max(1, _MOST_ROWS // len(names))
    tables = {}
    for name in names[:most_tables]:
        table = _won_table(compared.against(name), name, task)
        tables[name] = replace(table, data=comparison.data_used(task))
    return TableChoice(tables, "Baseline")


def _won_table(differences: Sequence[PairedDifference], baseline: str, task: str) -> Table:
    rows = []
    for difference in differences:
        rows.append(
            {
                f"model\nagainst {in_words(baseline)}": difference.first,
                "won": number(float(difference.won), ",.0f"),
                "tied": number(float(difference.tied), ",.0f"),
                "lost": number(float(difference.lost), ",.0f"),
                "queries": number(float(difference.n), ",.0f"),
            }
        )
    return Table.of(
        rows,
        note=f"On {short_task(task)}.",
        empty="No two models have per-query scores on the same task.",
        name="won",
        caption="Queries on which each model scores higher than the baseline, as high, or lower.",
    )
