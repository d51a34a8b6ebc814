"""Names of earlier versions, and what to write instead.

A line per name: the old one without ``q.``, and the code that does the same.
"""

from typing import Any, NoReturn

NEW_OF_OLD = {
    "conclusions.candidates_conclusion": "results.candidates(current=current).conclusion",
    "conclusions.checks_conclusion": "run.checks().conclusion",
    "conclusions.comparison_conclusion": "comparison.conclusion",
    "conclusions.evaluation_conclusion": "run.conclusion",
    "conclusions.explorer_conclusion": "explorer.conclusion",
    "conclusions.leaderboard_conclusion": "results.leaderboard().conclusion",
    "conclusions.prompts_conclusion": "q.compare_prompts().conclusion",
    "conclusions.reproduction_conclusion": "q.reproduce().conclusion",
    "conclusions.status_conclusion": "q.status().conclusion",
    "figures.baseline_figure": "run.figure()",
    "figures.comparison_figure": "results.leaderboard().figure()",
    "figures.differences_figure": "comparison.figure()",
    "figures.pairs_figure": "comparison.pairs_figure()",
    "figures.per_query_figure": "run.per_query_figure()",
    "figures.prompts_figure": "q.compare_prompts().figure()",
    "studies.explore": "results.explore(task=task)",
    "studies.headline_findings": "results.landing_page(results.leaderboard())",
    "studies.headline_lead": "results.landing_page(results.leaderboard())",
    "studies.headline_task": "results.leaderboard().task",
    "studies.page_links": "results.page_links()",
    "studies.prompt_pairs": "q.compare_prompts().pairs",
    "studies.published_scores": "q.reproduce(models=models, tasks=tasks)",
    "studies.read_prompt_scores": "q.compare_prompts().scores",
    "studies.reproduce": "q.reproduce(models=models, tasks=tasks)",
    "studies.standings": "results.leaderboard().rank_table()",
    "tables.baseline_tables": "comparison.baseline_tables(task=task)",
    "tables.checks_table": "run.checks().table()",
    "tables.compared_tables": "comparison.table()",
    "tables.cost_table": "results.leaderboard().cost_table()",
    "tables.differences_table": "comparison.differences_table()",
    "tables.expected_table": "results.leaderboard().expected_table()",
    "tables.failed_runs_table": "q.status().failures_table()",
    "tables.failures_table": "run.failures_table()",
    "tables.headline_table": "results.leaderboard().headline_table()",
    "tables.model_and_run_table": "results.model_and_run_table()",
    "tables.parts_table": "run.parts_table()",
    "tables.power_table": "comparison.power_table()",
    "tables.prompt_pairs_table": "q.compare_prompts().pairs_table()",
    "tables.prompt_place_table": "q.compare_prompts().table()",
    "tables.prompt_variance_table": "q.compare_prompts().variance_table()",
    "tables.provenance_table": "results.provenance_table()",
    "tables.query_table": "run.query_table()",
    "tables.rank_table": "results.leaderboard().rank_table()",
    "tables.reproduction_table": "q.reproduce().table()",
    "tables.runs_table": "q.status().table()",
    "tables.scores_table": "run.table()",
    "tables.sts_and_msmarco_table": "results.leaderboard().sts_table()",
    "tables.suite_table": "run.means_table()",
    "tables.task_tables": "results.leaderboard().task_tables()",
    "tables.verification_table": "q.status().verification_table()",
}


def refuse_old_name(name: str) -> None:
    """Raise an AttributeError that says what to write, if ``name`` is an old one.

    >>> refuse_old_name("tables.power_table")
    Traceback (most recent call last):
    AttributeError: q.tables.power_table is now comparison.power_table()
    """
    if name in NEW_OF_OLD:
        raise AttributeError(f"q.{name} is now {NEW_OF_OLD[name]}")


class OldNamespace:
    """A namespace of earlier versions, such as ``q.tables``; its names say what to write."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> NoReturn:
        refuse_old_name(f"{self._name}.{name}")
        raise AttributeError(f"q.{self._name} is gone, with {name!r}; dir(q) lists what there is")


def namespace_of_old_names(name: str) -> Any:
    """Return the namespace of earlier versions with this name; None if there was none."""
    if any(old.startswith(f"{name}.") for old in NEW_OF_OLD):
        return OldNamespace(name)
    return None
