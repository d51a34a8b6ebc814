"""How many queries show a difference worth having? A plan, made before the measurement."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from qwen3nb.analysis.comparison.plan import Plan, PlannedTask, make_plan, plan_notes, write_plan
from qwen3nb.answers.answer import Answer
from qwen3nb.records.record import Result
from qwen3nb.report.render.table import Conclusion, Table, number, plural
from qwen3nb.utils.imports import DataFrame

_MOST_NAMES = 8  # of tasks, in the conclusion


@dataclass(frozen=True, repr=False)
class PlannedComparison(Answer):
    """A plan with what it needs on each task."""

    plan: Plan
    tasks: tuple[PlannedTask, ...]

    @property
    def is_enough(self) -> bool:
        """Whether the queries there are show the difference on every task."""
        return all(task.enough for task in self.tasks)

    @property
    def conclusion(self) -> Conclusion:
        """How many queries each task needs, and where there are fewer."""
        needed_queries = [task.needed for task in self.tasks if task.needed is not None]
        margin = f"{self.plan.margin:g}"
        if not needed_queries:
            return Conclusion(
                f"How many queries show a difference of {margin} is not known: no records give "
                "the spread of the difference."
            )
        text = (
            f"A difference of {margin} is shown by {max(needed_queries):,} queries on every task, "
            f"with a power of {self.plan.power:g}"
        )
        small_tasks = [task.task for task in self.tasks if not task.enough]
        if small_tasks:
            names = small_tasks[:_MOST_NAMES]
            if len(small_tasks) > len(names):
                names.append("…")
            text += f". Too few on {plural(len(small_tasks), 'task')}: {', '.join(names)}"
        return Conclusion(f"{text}.")

    def table(self) -> Table:
        """A row per task: the spread, the queries there are, and those that are needed."""
        rows = []
        for task in self.tasks:
            row = {
                "task": task.task,
                "deviation": task.deviation or "not known: give --deviation",
                # Without earlier records, a dash.
                "queries there": task.there or None,
                f"needed for {self.plan.margin:g}": task.needed,
                "shown by those there": number(task.detectable, ".3f"),
            }
            rows.append(row)
        procedure = (
            f"Pairs on a task: {self.plan.family}, tested together at {self.plan.alpha:g}; "
            f"power {self.plan.power:g}."
        )
        return Table.of(rows, note=" ".join([procedure, *plan_notes(self.tasks)]))

    def to_frame(self) -> DataFrame:
        """A row per task: queries there are and needed, the spread, the detectable difference."""
        import pandas as pd

        columns = ["task", "there", "deviation", "needed", "detectable", "source"]
        rows = [[getattr(task, column) for column in columns] for task in self.tasks]
        return pd.DataFrame(rows, columns=columns)

    def write(self, file: Path | None = None) -> Path:
        """Write the plan to a new file, by default the next of the study; return it.

        Raises:
            DataError: the file exists. Plans are never replaced.
        """
        return write_plan(self.plan, file)


def plan_comparison(results: Iterable[Result], plan: Plan) -> PlannedComparison:
    """Return a plan with the queries that each task needs, from the spread in earlier records.

    Raises:
        ValueError: a model that is neither in the records nor a known spec, a task that is neither
            in the records nor one of MTEB, or a model that is its own baseline.
    """
    completed, tasks = make_plan(results, plan)
    return PlannedComparison(completed, tuple(tasks))
