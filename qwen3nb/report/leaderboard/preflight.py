"""Tables of what a run will do and what it needs, before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.sections import MANY, Sections
from qwen3nb.report.render.table import Table

if TYPE_CHECKING:
    from qwen3nb.evaluation.mteb.plan import Planned
    from qwen3nb.evaluation.mteb.preflight import Preflight

__all__ = ["plan_by_type_table", "plan_table", "plan_tables", "preflight_table"]


def preflight_table(preflight: Preflight) -> Table:
    """Return the needs of a run beside what the machine has, and the time it will take."""
    rows = [
        (
            Cell(check.name),
            Cell(check.needed),
            Cell(check.available),
            Cell("FAILED" if check.problem else "PASSED", check.problem),
        )
        for check in preflight.checks
    ]
    heads = ("what", "needed", "there", "verdict")
    return Table(heads, tuple(rows), _time(preflight), name="preflight",
                 caption="What the run needed, beside what the machine had.")  # fmt: skip


def _time(preflight: Preflight) -> str:
    left = [each for each in preflight.planned if each.status == "to run"]
    text = f"{len(left)} of {len(preflight.planned)} tasks are to run. "
    if preflight.minutes is None:
        return f"{text}Their time is unknown." if left else text.strip()
    hours = "" if preflight.gpu_hours is None else f" ({preflight.gpu_hours.text(2)} GPU-hours)"
    return (
        f"{text}Encoding takes {preflight.minutes.text()} minutes here{hours}: published sizes at "
        "the speed of short, medium and the longest texts. It is less where vectors are stored."
    )


def plan_tables(planned: Sequence[Planned]) -> Table | Sections:
    """Return the plan of a run: its tasks, or of many the sums by type and the tasks folded."""
    if len(planned) <= MANY:
        return plan_table(planned)
    sums, every = plan_by_type_table(planned), plan_table(planned)
    return Sections((("By type", sums), (f"All {len(planned)} tasks", every)), unfolded=1)


def plan_by_type_table(planned: Sequence[Planned]) -> Table:
    """Return the plan of a run by type of task, with its totals."""
    types = sorted({each.type for each in planned})
    rows = [_summary(name, [each for each in planned if each.type == name]) for name in types]
    rows.append(_summary("all", planned))
    heads = ("MTEB type", "tasks", "to run", "distinct texts", "minutes")
    return Table(heads, tuple(rows), name="plan-types",
                 caption="The plan of the run by type of task.")  # fmt: skip


def _summary(name: str, planned: Sequence[Planned]) -> tuple[Cell, ...]:
    texts = [each.texts for each in planned]
    unknown = sum(each is None for each in texts)
    count = f"{sum(each or 0 for each in texts):,}"
    return (
        Cell(name, strong=name == "all"),
        Cell(str(len(planned))),
        Cell(str(sum(each.status == "to run" for each in planned))),
        Cell("unknown" if unknown == len(texts) else count, f"{unknown} unknown" * bool(unknown)),
        Cell(_minutes(planned)),
    )


def _minutes(planned: Sequence[Planned]) -> str:
    known = [each.minutes for each in planned if each.minutes is not None]
    return known[0].total(known).text(1) if known else "–"


def plan_table(planned: Sequence[Planned]) -> Table:
    """Return the plan of a run: tasks, data, texts and the expected minutes."""
    rows = tuple(
        (
            Cell(each.task),
            Cell(each.type),
            Cell(each.dataset, f"@ {each.revision}"),
            Cell("unknown" if each.texts is None else f"{each.texts:,}"),
            Cell(_minutes([each])),
            Cell("record found" if each.status == "there" else each.status),
        )
        for each in planned
    )
    columns = ("task", "MTEB type", "data", "distinct texts", "minutes", "status")
    caption = "The tasks of the run, as planned before the first."
    return Table(columns, rows, kind="words", name="plan", caption=caption)
