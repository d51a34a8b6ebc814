"""The scores of one model beside a baseline: table, forest plot, and what they say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from qwen3nb.analysis.comparison.against_baseline import AgainstBaseline
from qwen3nb.analysis.comparison.baseline import reference_models
from qwen3nb.analysis.comparison.benchmark_means import MEAN
from qwen3nb.analysis.comparison.differences import ALPHA
from qwen3nb.analysis.stats.multiple_testing import too_few_draws
from qwen3nb.analysis.stats.resampling import DRAWS
from qwen3nb.metrics.intervals import interval_words
from qwen3nb.records.record import Result
from qwen3nb.report.render.cell import Cell, number
from qwen3nb.report.render.conclusion import Conclusion
from qwen3nb.report.render.figure import Figure
from qwen3nb.report.render.forest_plot import ForestRow, forest_figure
from qwen3nb.report.render.format import effect_text, plural, short_task
from qwen3nb.report.render.home import formula_link, record_link, task_anchor
from qwen3nb.report.render.model_styles import model_styles
from qwen3nb.report.render.sections import MANY, Sections
from qwen3nb.report.render.table import Table
from qwen3nb.utils.format import interval_text, number_text, p_value_text


def scores_table(
    scores: Sequence[AgainstBaseline],
    *,
    results: Sequence[Result] = (),
    skipped: Mapping[str, str] | None = None,
) -> Table | Sections:
    """Return a row per task: the main score, and its paired difference from the baseline.

    Links to a score lead to its row. Many tasks are in a folded table per type, after that of the
    means. Tasks that are skipped show the reason.

    Args:
        scores: of one model.
        results: its records: a score links to the file of its record.
        skipped: the reasons by task.
    """
    files = {result.task.key: record_link(result) for result in results}
    if len(scores) <= MANY:
        return _table(scores, files, about=_not_applicable(skipped))
    kinds = sorted({each.type for each in scores}, key=lambda kind: (kind != MEAN, kind))
    tables = []
    for kind in kinds:
        own = [each for each in scores if each.type == kind]
        title = (
            "Means, with their differences"
            if kind == MEAN
            else f"{kind} ({plural(len(own), 'task')})"
        )
        tables.append((title, _table(own, files, kind=kind)))
    return Sections(tuple(tables), _not_applicable(skipped))


def failures_table(failures: Mapping[str, str]) -> Table:
    """Return the tasks that failed and why; empty if none did."""
    return Table.of(
        sorted(failures.items()),
        ("run", "why"),
        empty="No task failed.",
        kind="words",
        name="failures",
        caption="Runs that failed, and why.",
    )


def _not_applicable(skipped: Mapping[str, str] | None) -> str:
    """Say which tasks a model cannot do, each reason once; of many, their number."""
    by_reason: dict[str, list[str]] = {}
    for task, reason in (skipped or {}).items():
        by_reason.setdefault(reason, []).append(short_task(task))
    return " ".join(
        f"Not applicable: {', '.join(tasks) if len(tasks) <= MANY else f'{len(tasks)} tasks'} "
        f"({reason})."
        for reason, tasks in by_reason.items()
    )


def _table(
    scores: Sequence[AgainstBaseline],
    files: Mapping[str, str],
    *,
    kind: str = "",
    about: str = "",
) -> Table:
    """What is equal in all rows is said once, in the caption or the note."""
    model = scores[0].model if scores else "the model"
    metrics = {each.metric for each in scores}
    compared = [each for each in scores if each.difference is not None]
    baselines = {each.reference for each in compared}
    families = {each.family for each in compared}
    used = interval_words(each.score.interval for each in scores)
    note = f"Intervals: 95 %, {used}, over n."
    if compared:
        few = too_few_draws(max(families), draws=DRAWS, alpha=ALPHA).removesuffix(".")
        pairs = f" ({families.pop()} on each)" if len(families) == 1 else ""
        note += (
            " In bold: differences that are significant (two-sided paired permutation test, "
            f"p < {ALPHA:g} corrected by Holm over all pairs{pairs} of the models with scores on "
            f"the task; and the interval leaves out 0){';' if few else ''}{few}."
        )
    rows: list[dict[str, Any]] = []
    for each in scores:
        row: dict[str, Any] = {"task": Cell(short_task(each.task), id=task_anchor(each.task))}
        if len(metrics) > 1:
            row["metric"] = Cell(each.metric, link=formula_link(each.metric))
        row["score\n95 % interval"] = number(each.score, link=files.get(each.task, ""))
        if compared:
            row |= _against(each, one=len(baselines) == 1, family=not pairs)
        row["n"] = Cell(f"{each.score.n} {each.unit}", value=each.score.n)
        rows.append(row)
    caption = f"Scores of {model}"
    caption += f" on {kind or 'every task'}" if kind != MEAN else ", means over tasks"
    if len(metrics) == 1:
        caption += f", {min(metrics)}"
    if len(baselines) == 1:
        caption += f", each with its paired difference Δ from {min(baselines)}"
    elif baselines:
        caption += ", each with its paired difference Δ from a baseline"
    name = f"scores-{kind}" if kind else "scores"
    note = f"{note} {about}".strip()
    return Table.of(rows, note=note, empty=about, name=name, caption=f"{caption}.")


def _against(each: AgainstBaseline, *, one: bool, family: bool) -> dict[str, Any]:
    """Cells of a difference, with the baseline's name and the number of pairs where they differ."""
    if each.difference is None:
        cells: tuple[Any, ...] = ((None, each.why), None, None)
    else:
        ends: dict[str, Any] = {"interval": each.interval, "detail": "(no interval)"}
        pairs = f"{each.family} pairs" if family else ""
        cells = (
            number(each.difference, "+.3f", strong=each.significant, **ends),
            number(each.other, detail="" if one else each.reference),
            Cell(p_value_text(each.p_value), pairs, value=each.p_value),
        )
    return dict(zip(("Δ\n95 % interval", "baseline", "p\ncorrected"), cells, strict=True))


def terminal_table(
    scores: Sequence[AgainstBaseline],
    *,
    reused: Sequence[str] = (),
    skipped: Mapping[str, str] | None = None,
) -> Table:
    """Return the scores with a line per task, for a terminal; which records are reused."""
    model = scores[0].model if scores else "the model"
    return Table.of(
        (
            {
                "task": short_task(each.task),
                "metric": each.metric,
                "score": number_text(each.score.value),
                "95 % interval": interval_text(number(each.score).interval, sign=False),
                "Δ": Cell(number_text(each.difference, sign=True), strong=each.significant),
                "to": each.reference or each.why,
                "n": f"{each.score.n} {each.unit}",
                "record": "reused" if each.task in reused else "new",
            }
            for each in scores
        ),
        note=_not_applicable(skipped),
        name="terminal",
        caption=f"Scores of {model}.",
    )


def forest_rows(scores: Sequence[AgainstBaseline]) -> list[ForestRow]:
    """Return a row of a forest plot per task with a difference; significant ones are filled."""
    compared = [each for each in scores if each.difference is not None]
    one = len({each.baseline for each in compared}) == 1
    return [
        ForestRow(
            short_task(each.task),
            each.difference,
            each.interval,
            note="" if one else f"to {each.reference}",
            clear=each.significant,
        )
        for each in compared
    ]


def baseline_figure(scores: Sequence[AgainstBaseline]) -> Figure | None:
    """Draw the paired difference from the baseline on every task; None without a baseline."""
    rows = forest_rows(sorted(scores, key=lambda each: each.type) if len(scores) > MANY else scores)
    if not rows:
        return None
    model = scores[0].model
    names = " or ".join(dict.fromkeys(each.reference for each in scores if each.baseline))
    style = model_styles([model])[model]
    return forest_figure(
        [replace(row, **asdict(style)) for row in rows],
        xlabel=f"difference from {names}, main metric",
        name="against-baseline",
        caption=f"Paired difference of {model} from {names} on each task, with its 95 % interval "
        "over queries, pairs or texts. Right of the line: better than the baseline. Filled: "
        "significant; open: no difference is shown.",
    )


def evaluation_conclusion(scores: Sequence[AgainstBaseline], *, caution: str = "") -> Conclusion:
    """Say whether a model is better than its baselines: on the mean, and on how many tasks.

    ``caution`` comes last: what else a reader must know of the scores.
    """
    if not scores:
        return Conclusion("No task was finished, so there is no score to speak of.")
    model = scores[0].model
    by_baseline: dict[str, list[AgainstBaseline]] = {}
    of_means = [each for each in scores if each.type == MEAN]
    for each in scores:
        if each.difference is not None and each not in of_means:
            by_baseline.setdefault(each.reference, []).append(each)
    sentences = [_one_task(each) for each in of_means if each.difference is not None]
    sentences += [
        _one_task(own[0]) if len(own) == 1 else _tasks(model, name, own)
        for name, own in by_baseline.items()
    ]
    if alone := [each for each in scores if each.difference is None and each not in of_means]:
        sentences.append(_alone(model, alone, bool(by_baseline)))
    return Conclusion(" ".join(filter(None, [*sentences, caution and f"{caution}."])))


def _one_task(each: AgainstBaseline) -> str:
    words = {
        "better": f"{each.model} is better than {each.reference}",
        "worse": f"{each.model} is worse than {each.reference}",
        "not shown": f"no difference between {each.model} and {each.reference} is shown",
    }[each.verdict]
    means = f"{each.metric} {number_text(each.score.value)} against {number_text(each.other)}"
    return f"On {short_task(each.task)}, {words}: {means}, a paired difference of {_effect(each)}."


def _effect(each: AgainstBaseline) -> str:
    change = each.difference or 0.0
    effect = effect_text(change, each.interval, each.p_value, absent="(no interval)")
    return f"{effect}, n = {each.score.n}"


def _tasks(model: str, baseline: str, own: Sequence[AgainstBaseline]) -> str:
    n, counts = len(own), Counter(each.verdict for each in own)
    open_ones = counts["not shown"]
    first, second = sorted(("better", "worse"), key=lambda verdict: -counts[verdict])
    sides = [each for each in own if each.verdict == first] or own
    largest = max(sides, key=lambda each: abs(each.difference or 0.0))
    which = f"(the largest, on {short_task(largest.task)}: {_effect(largest)})."
    if open_ones == n:
        tasks = "either of the two" if n == 2 else f"any of the {n}"
        words = f"No difference between {model} and {baseline} is shown on {tasks} tasks compared"
        return f"{words} with it {which}"
    count = counts[first]
    tasks = f"{count} of {n}" if count < n else "both" if n == 2 else f"all {n}"
    text = f"{model} is {first} than {baseline} on {tasks} tasks compared with it"
    text += f" by a significant paired difference, {second} on {counts[second] or 'none'}"
    if open_ones:
        text += f"; on {'one' if open_ones == 1 else open_ones} no difference is shown"
    return f"{text} {which}"


def _alone(model: str, alone: Sequence[AgainstBaseline], others: bool) -> str:
    """Say what cannot be compared, and what would change that."""
    best = alone[0]
    if others:
        names = " and ".join(short_task(each.task) for each in alone[:2])
        more = f", and {len(alone) - 2} more," if len(alone) > 2 else ""
        plural = "have" if len(alone) > 1 else "has"
        return f"{names}{more} {plural} no difference to test ({best.why})."
    ends = interval_text(number(best.score).interval, sign=False, absent="")
    one = f"{best.metric} {number_text(best.score.value)} {ends}".strip()
    searched = any(each.type in ("Retrieval", "Reranking") for each in alone)
    known = (name for name in reference_models() if name != model)
    baseline = next(name for name in known if searched or name != "bm25")
    return (
        f"{model} scores {one} on {short_task(best.task)}, n = {best.score.n}. There is no "
        f"baseline yet ({best.why}); `qwen3nb eval --model {baseline}` on the same tasks makes one."
    )
