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
        too_few_seeds = self._too_few_seeds()
        if too_few_seeds:
            return Conclusion(too_few_seeds)
        if not needed_queries:
            return Conclusion(
                f"How many queries show a difference of {margin} is not known: no records give "
                "the spread of the difference."
            )
        text = (
            f"A difference of {margin} is shown by {max(needed_queries):,} queries on every task, "
            f"with a power of {self.plan.power:g}"
        )
        if self.plan.training_seeds:
            text += f" and {plural(len(self.plan.training_seeds), 'seed')} of each training"
        small_tasks = [task.task for task in self.tasks if not task.enough]
        if small_tasks:
            names = small_tasks[:_MOST_NAMES]
            if len(small_tasks) > len(names):
                names.append("…")
            text += f". Too few on {plural(len(small_tasks), 'task')}: {', '.join(names)}"
        return Conclusion(f"{text}.")

    def _too_few_seeds(self) -> str:
        """Say how many seeds are needed, if no number of queries is enough; else an empty text."""
        deviations = [task.deviation for task in self.tasks if task.deviation is not None]
        is_enough = all(task.needed is not None for task in self.tasks if task.deviation)
        if not self.plan.training_seeds or not deviations or is_enough:
            return ""
        text = (
            f"With {plural(len(self.plan.training_seeds), 'seed')} of each training, no number of "
            f"queries shows a difference of {self.plan.margin:g}: seeds vary by "
            f"{self.plan.seed_deviation:.3g}."
        )
        needed = self.plan.seeds_needed(max(deviations))
        if needed is None:
            return f"{text} Nor would many more seeds."
        return f"{text} With {needed} seeds, enough queries would."

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
        return Table.of(rows, note=" ".join([procedure, *self._promise(), *plan_notes(self.tasks)]))

    def _promise(self) -> list[str]:
        """Say which seeds and prompts are promised; nothing for models as they are."""
        plan = self.plan
        if not plan.training_seeds:
            return []
        seeds = ", ".join(map(str, plan.training_seeds))
        sentences = [
            f"Trainings: {', '.join(plan.arms)}, each with the seeds {seeds}, whose mean scores "
            f"vary by {plan.seed_deviation:.3g}.",
            "Before all of them have records, there is no verdict.",
        ]
        if plan.prompt_count:
            role = "a fixed set" if plan.prompts_as == "fixed" else "a sample"
            sentences.append(f"Prompts: {plan.prompt_count}, as {role}.")
        return sentences

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
