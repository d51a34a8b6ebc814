"""The scores of one model compared with a baseline: table, forest plot and conclusion."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from qwen3nb.analysis.comparison.against_baseline import NO_REFERENCE, AgainstBaseline
from qwen3nb.analysis.comparison.benchmark_means import MEAN
from qwen3nb.analysis.comparison.differences import ALPHA, TEST
from qwen3nb.analysis.stats.multiple_testing import NAMES
from qwen3nb.metrics.intervals import interval_words
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.report.render import table
from qwen3nb.report.render.figure import Figure, ForestRow, forest_figure
from qwen3nb.report.render.home import formula_link, record_link, task_anchor
from qwen3nb.report.render.table import MANY, Cell, Conclusion, Sections, Table
from qwen3nb.utils.format import interval_text, number_text, p_value_text


def scores_table(
    scores: Sequence[AgainstBaseline],
    *,
    results: Sequence[Result] = (),
    skipped: Mapping[str, str] | None = None,
) -> Table | Sections:
    """Return a row per task of one model: the main score, and its difference from the baseline.

    Links to a score lead to its row, which links to the file of its record. Many tasks are in a
    folded table per type, after the means. Skipped tasks are listed below, with the reason.
    """
    files = {result.task.key: record_link(result) for result in results}
    about = _left_out(skipped)
    if len(scores) <= MANY:
        return _table(scores, files, about=about)
    kinds = sorted({each.type for each in scores}, key=lambda kind: (kind != MEAN, kind))
    tables = []
    for kind in kinds:
        own = [each for each in scores if each.type == kind]
        title = "Means" if kind == MEAN else kind
        tables.append((f"{title} ({len(own)})", _table(own, files, kind=kind)))
    return Sections(tuple(tables), about)


def data_of(scores: Sequence[AgainstBaseline]) -> DataUsed:
    """Return the data of scores; a mean over tasks has none of its own."""
    return DataUsed.of_revisions((each.task, each.revision) for each in scores if each.revision)


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


def _left_out(skipped: Mapping[str, str] | None) -> str:
    """Name the tasks left out, or state their number, and why."""
    tasks: dict[str, list[str]] = {}
    for task, why in (skipped or {}).items():
        tasks.setdefault(why, []).append(task)
    few = {why: ", ".join(own) if len(own) < 4 else "" for why, own in tasks.items()}
    return " ".join(
        f"Left out: {few[why] or table.plural(len(own), 'task')} ({why})."
        for why, own in tasks.items()
    )


def _table(
    scores: Sequence[AgainstBaseline], files: Mapping[str, str], *, kind: str = "", about: str = ""
) -> Table:
    compared = any(each.difference is not None for each in scores)
    rows: list[dict[str, Any]] = []
    for each in scores:
        metric, _, tasks = each.metric.partition(" of ")  # of a mean over tasks
        row: dict[str, Any] = {
            "task": Cell(table.short_task(each.task), id=task_anchor(each.task)),
            "metric": Cell(metric, tasks and f"of {tasks}", link=formula_link(each.metric)),
            "score\n95 % interval": table.number(each.score, link=files.get(each.task, "")),
        }
        if compared:
            row |= {
                "Δ\n95 % interval": _difference(each),
                "baseline": table.number(each.other, detail=each.reference),
                "p\ncorrected": Cell(
                    p_value_text(each.p_value),
                    f"{each.family} pairs" if each.family else "",
                    value=each.p_value,
                ),
            }
        row["n"] = Cell(f"{each.score.n} {each.unit}", value=each.score.n)
        rows.append(row)
    methods = [each.score.interval for each in scores if each.score.low is not None]
    made = [f"{interval_words(methods)}, over n"] if any(methods) else []
    if not all(methods):
        made.append("of means combined from those of the tasks, which are given")
    note = f"Intervals: 95 %, {'; '.join(made)}." if made else "These scores have no intervals."
    if compared:
        note += (
            " In bold: differences Δ from the baseline that are significant (corrected p < "
            f"{ALPHA:g}, and the interval excludes 0). p: {_method(scores)}."
        )
    return Table.of(
        rows,
        note=f"{note} {about}".strip(),
        empty=about,
        name=f"scores-{kind}" if kind else "scores",
        caption=f"Scores of {scores[0].model if scores else 'the model'}{kind and f': {kind}'}.",
        data=data_of(scores),
    )


def _difference(score: AgainstBaseline) -> Cell:
    """Return the cell of a difference, with its interval or why there is none."""
    why = score.why or "no interval"
    cell = table.number(
        score.difference, "+.3f", interval=score.interval, detail=why, strong=score.significant
    )
    return replace(cell, detail="identical scores") if score.identical else cell


def _method(scores: Sequence[AgainstBaseline]) -> str:
    """Name the test of differences and its correction, which may depend on the task."""
    used = dict.fromkeys(
        NAMES[each.correction]
        for each in scores
        if each.difference is not None and each.family > 1 and each.correction != "none"
    )
    if not used:
        return TEST
    return (
        f"{TEST}, corrected by {' or '.join(used)} over all pairs of the models with scores on the "
        "task, whose number is below p"
    )


def terminal_table(
    scores: Sequence[AgainstBaseline],
    *,
    reused: Sequence[str] = (),
    skipped: Mapping[str, str] | None = None,
) -> Table:
    """Return the scores with a line per task, for a terminal, and which records were reused."""
    return Table.of(
        (
            {
                "task": table.short_task(each.task),
                "metric": each.metric,
                "score": number_text(each.score.value),
                "95 % interval": interval_text(table.number(each.score).interval, sign=False),
                "Δ": Cell(number_text(each.difference, sign=True), strong=each.significant),
                "to": each.reference or each.why,
                "n": f"{each.score.n} {each.unit}",
                "record": "reused" if each.task in reused else "new",
            }
            for each in scores
        ),
        note=_left_out(skipped),
        data=data_of(scores),
    )


def baseline_figure(scores: Sequence[AgainstBaseline]) -> Figure | None:
    """Draw the paired difference from the baseline on every task; None without a baseline."""
    rows = [
        ForestRow(
            table.short_task(each.task),
            each.difference,
            each.interval,
            note=f"to {each.reference}",
            clear=each.significant,
        )
        for each in (sorted(scores, key=lambda s: s.type) if len(scores) > MANY else scores)
        if each.difference is not None
    ]
    if not rows:
        return None
    return forest_figure(
        rows,
        xlabel="difference from the baseline, main metric",
        name="against-baseline",
        caption=f"Paired difference of {scores[0].model} from its baseline on each task, with its "
        "95 % interval over queries, pairs or texts. Right of the line: better than the baseline. "
        "Filled: significant; open: no difference is shown.",
        data=data_of(scores),
    )


def evaluation_conclusion(scores: Sequence[AgainstBaseline], *, caution: str = "") -> Conclusion:
    """State whether a model is better than its baselines, on the mean and by number of tasks.

    ``caution``, a caveat on the scores, comes last.
    """
    if not scores:
        return Conclusion("No task was finished, so there is no score to speak of.")
    means = [score for score in scores if score.type == MEAN]
    tasks = [score for score in scores if score.type != MEAN]
    sentences = [_of_mean(score) for score in means]
    by_baseline: dict[str, list[AgainstBaseline]] = {}
    for score in tasks:
        if score.difference is not None:
            by_baseline.setdefault(score.reference, []).append(score)
    sentences += [_counted(compared) for compared in by_baseline.values()]
    alone = [score for score in tasks if score.difference is None]
    if alone:
        sentences.append(_alone(alone, summed_up=bool(means or by_baseline)))
    if caution:
        sentences.append(f"{caution}.")
    return Conclusion(" ".join(sentences), data=data_of(scores))


def _of_mean(score: AgainstBaseline) -> str:
    """Sum up a mean over tasks, with its difference from the baseline if there is one."""
    if score.difference is not None:
        return _one_task(score)
    metric, _, tasks = score.metric.partition(" of ")
    over = f", over {tasks}" if tasks else ""
    return f"{score.model} has a {metric} of {table.score_text(score.score)} on {score.task}{over}."


def _counted(scores: Sequence[AgainstBaseline]) -> str:
    """Count the significant differences from one baseline, and name the largest of them."""
    first, *others = scores
    if not others:
        return _one_task(first)
    clear = [score for score in scores if score.significant]
    largest = max(clear or scores, key=lambda score: abs(score.difference or 0.0))
    effect = f"(the largest, on {table.short_task(largest.task)}: {_effect(largest)})"
    compared = f"Of {len(scores)} tasks compared with {first.reference}, "
    if not clear:
        return f"{compared}{first.model} has no significant difference on any {effect}."
    better = sum(score.verdict == "better" for score in clear)
    return (
        f"{compared}{first.model} is better on {better} and worse on {len(clear) - better} by a "
        f"significant paired difference {effect}."
    )


def _alone(scores: Sequence[AgainstBaseline], *, summed_up: bool) -> str:
    """State what a model scores on tasks without a difference, and which baseline is missing."""
    first = scores[0]
    sentences = []
    if not summed_up and len(scores) <= MANY:
        sentences.append(
            f"{first.model} scores {first.metric} {table.score_text(first.score)} on "
            f"{table.short_task(first.task)}, n = {first.score.n}."
        )
    elif not summed_up:
        sentences.append(
            f"{first.model} has scores on {len(scores)} tasks, and no mean over a whole benchmark."
        )
    reasons = Counter(score.why for score in scores)
    words = "; ".join(
        why if len(reasons) == 1 else f"{count}: {why}" for why, count in reasons.items()
    )
    untested = f"Tasks without a difference to test: {len(scores)} ({words})"
    baseline = _advised([score for score in scores if score.why == NO_REFERENCE])
    if baseline:
        untested += f"; run `qwen3nb eval --model {baseline}` on the same tasks for a baseline"
    return " ".join([*sentences, f"{untested}."])


def _advised(scores: Sequence[AgainstBaseline]) -> str:
    """Return a reference model that has run on none of the tasks, or an empty string."""
    searched = any(score.type in ("Retrieval", "Reranking") for score in scores)
    for name in scores[0].missing if scores else ():
        ran = any(name not in score.missing for score in scores)
        suited = searched or not find_source(name).kind.searches
        if suited and not ran and name != scores[0].model:
            return name
    return ""


def _one_task(each: AgainstBaseline) -> str:
    words = {
        "better": f"{each.model} is better than {each.reference}",
        "worse": f"{each.model} is worse than {each.reference}",
        "not shown": f"no difference between {each.model} and {each.reference} is shown",
    }[each.verdict]
    means = f"{each.metric} {number_text(each.score.value)} against {number_text(each.other)}"
    task = table.short_task(each.task)
    return f"On {task}, {words}: {means}, a paired difference of {_effect(each)}."


def _effect(each: AgainstBaseline) -> str:
    change = each.difference or 0.0
    if each.identical:
        return f"{number_text(change, sign=True)}, identical scores on all {each.score.n}"
    effect = table.effect_text(change, each.interval, each.p_value, absent="(no interval)")
    family = f" over {each.family} pairs" if each.family > 1 else ""
    return f"{effect}{family}, n = {each.score.n}"
