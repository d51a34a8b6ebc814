"""Which model is first, by how much, and is that shown? One sentence and one figure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from qwen3nb import paths
from qwen3nb.analysis.comparison.alignment import comparable
from qwen3nb.analysis.comparison.brackets import Ties
from qwen3nb.analysis.comparison.differences import PairedDifference
from qwen3nb.answers.comparison import Comparison
from qwen3nb.answers.unjudged import ADVICE
from qwen3nb.records.record import Result
from qwen3nb.report.render.figure import Figure, ForestRow, forest_figure
from qwen3nb.report.render.model_styles import rank_style
from qwen3nb.report.render.table import Conclusion, not_shown, plural, short_task
from qwen3nb.utils.format import first_names, names_in_words

_MOST_BEHIND = 8  # models in the figure of the landing page, next to the best
_MOST_NAMED = 3  # models that a sentence names
_MOST_TASKS = 4  # tasks that a sentence names
_COUNTS = dict(
    enumerate(["Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten"], start=2)
)
_HOW_SURE = "sure"  # notebook that explains how sure the lead is


@dataclass(frozen=True)
class Lead:
    """The best model on a task or benchmark, and the others that can be paired with it."""

    name: str
    record: Result  # for a benchmark, with the mean as its score
    leads: tuple[PairedDifference, ...]  # differences from the others, the best of them first
    queries: str  # number of paired queries, such as ``200 queries``
    unpaired: int  # number of models whose scores cannot be paired with it


def find_lead(comparison: Comparison, *, task: str) -> Lead | None:
    """Return the best model on a task or on the mean of a benchmark; None without results."""
    records = comparison.scored(task)
    if not records:
        return None
    by_score = sorted(records, key=lambda record: record.main.value or 0.0, reverse=True)
    best = by_score[0]
    name = comparison.name(best)
    on_task = comparison.on(best.task.key)
    lead_over: dict[str, PairedDifference] = {}
    unpaired = 0
    if on_task is not None:
        # Stored as other - best; reversed, it is the lead of the best.
        lead_over = {pair.first: pair.reversed() for pair in on_task.against(name)}
        unpaired = len(on_task.unranked)  # models that lack a task of the mean
    leads = []
    for record in by_score[1:]:
        lead = lead_over.get(comparison.name(record))
        if lead is not None and comparable(best, record):
            leads.append(lead)
        else:
            unpaired += 1
    return Lead(name, best, tuple(leads), f"{best.main.n:,} {best.task.unit}", unpaired)


def how_sure_page(comparison: Comparison) -> str:
    """Return the page that explains how sure a lead is, relative to its own folder.

    Empty if the book has none: for fewer than two models, or in a study without its notebook.
    """
    models = {record.model.identity for record in comparison.records.values()}
    notebook = paths.notebooks() / f"{_HOW_SURE}.ipynb"
    if len(models) < 2 or not notebook.is_file():
        return ""
    return f"{_HOW_SURE}.html"


def first_place(
    comparison: Comparison, ties: Ties, *, task: str, results: Iterable[Result] = ()
) -> Conclusion:
    """Say in a sentence which models are first on a task or mean.

    Models share first place if they are not shown to differ from the best one. Without results on
    the task, the tasks of ``results`` are named.
    """
    lead = find_lead(comparison, task=task)
    if lead is None:
        return Conclusion(_no_results(results))
    best = ties.best or (lead.name,)
    name = best[0]
    data = comparison.data_used(task)
    # In the order of scores: the first lead is the one over the next model.
    found = comparison.turned_by_grades(lead.leads[0]) if lead.leads else None
    if found is not None:
        text = f"{name} scores highest. {found.share_text}, and their grades could turn that: "
        text += f"{ADVICE}."
    elif len(best) > 1:
        count = _COUNTS.get(len(best), str(len(best)))
        names = _all_or_first_names(best)
        text = f"{count} models share first place: {names}."
    elif lead.leads:
        text = f"{name} is first."
    elif lead.unpaired:
        text = f"{name} scores highest, but no other model can be compared with it."
    else:
        text = f"Only {name} was evaluated; a second model would show how good it is."
    if lead.unpaired and lead.leads:
        text += f" Not compared for lack of scores: {plural(lead.unpaired, 'model')}."
    return Conclusion(text, data=data, strong=best[:_MOST_NAMED])


def _all_or_first_names(names: Sequence[str]) -> str:
    """Return up to three names with "and", or the first three and the number of the others.

    >>> _all_or_first_names(["a", "b"]), _all_or_first_names(["a", "b", "c", "d", "e"])
    ('a and b', 'a, b, c and 2 more')
    """
    if len(names) > _MOST_NAMED:
        return first_names(names, most=_MOST_NAMED)
    return names_in_words(names)


def _no_results(results: Iterable[Result]) -> str:
    tasks_with_results = sorted({short_task(result.task.key) for result in results})
    place = "the tasks of this page" if tasks_with_results else "whole tasks"
    text = (
        f"No results yet on {place}: `qwen3nb eval` writes some. A run with `--limit` has a "
        "separate page."
    )
    if tasks_with_results:
        tasks = first_names(tasks_with_results, most=_MOST_TASKS)
        text += (
            f" There are results on {tasks}; the reading guide of the first page links their pages."
        )
    return text


def lead_figure(comparison: Comparison, *, task: str) -> Figure | None:
    """Draw how far each model is behind the best one, the best on top; None for fewer than two.

    For a benchmark as task, its mean is shown.
    """
    lead = find_lead(comparison, task=task)
    if lead is None or not lead.leads:
        return None
    alpha = comparison.procedure.alpha
    deficits = [difference.reversed() for difference in lead.leads[:_MOST_BEHIND]]
    rows = [ForestRow(lead.name, 0.0, **rank_style(is_best=True))]
    for deficit in deficits:
        is_behind = deficit.significant(alpha)
        row = ForestRow(
            deficit.first,
            deficit.difference,
            deficit.interval,
            clear=is_behind,
            **rank_style(is_best=not is_behind),
        )
        rows.append(row)
    key, metric = lead.record.task.key, lead.record.task.main_metric
    score = lead.record.main.value or 0.0
    caption = (
        f"{short_task(key)}: how far each model is from the best, {lead.name} ({metric} "
        f"{score:.3f}), paired over the same {lead.queries}, with the 95 % interval of the "
        f"difference. Filled: different by the test ({comparison.test}, "
        f"{comparison.family(key)}, corrected p < {alpha:g}) and by the interval; open: not."
    )
    return forest_figure(
        rows,
        xlabel=f"{metric} minus the best model's",
        name="lead",
        caption=caption + comparison.mean_note(task) + not_shown(len(lead.leads) - len(deficits)),
        columns=1,
        data=comparison.data_used(task),
    )
