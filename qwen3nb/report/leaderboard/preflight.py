"""Tables of what a run will do and what it needs, before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.table import Table

if TYPE_CHECKING:
    from qwen3nb.evaluation.mteb.plan import Planned, Preflight


def preflight_table(preflight: Preflight) -> Table:
    """Return the needs of a run next to what the machine has, and the time it will take."""
    left = sum(each.status == "to run" for each in preflight.planned)
    note = f"{left} of {len(preflight.planned)} tasks are to run."
    if preflight.minutes is not None:
        note += (
            f" Encoding takes about {preflight.minutes:,.0f} minutes here: published sizes at the "
            "speed of short, medium and the longest texts. It is less where vectors are stored."
        )
    elif left:
        note += " Their time is unknown."
    return Table.of(
        (
            {
                "what": check.name,
                "needed": check.needed,
                "there": check.available,
                "verdict": ("FAILED" if check.problem else "PASSED", check.problem),
            }
            for check in preflight.checks
        ),
        note=note,
        name="preflight",
        caption="What the run needed, next to what the machine had.",
    )


def plan_by_type_table(planned: Sequence[Planned]) -> Table:
    """Return the plan of a run by type of task, with its totals."""
    rows = []
    for name in (*sorted({each.type for each in planned}), "all"):
        own = [each for each in planned if name in (each.type, "all")]
        known = [each.texts for each in own if each.texts is not None]
        unknown = len(own) - len(known)
        minutes = [each.minutes for each in own if each.minutes is not None]
        texts = f"{sum(known):,}" if known else "unknown"
        rows.append(
            {
                "MTEB type": Cell(name, strong=name == "all"),
                "tasks": len(own),
                "to run": sum(each.status == "to run" for each in own),
                "distinct texts": (texts, f"{unknown} unknown" * bool(unknown)),
                "minutes": f"{sum(minutes):,.1f}" if minutes else None,
            }
        )
    return Table.of(rows, name="plan-types", caption="The plan of the run by type of task.")
