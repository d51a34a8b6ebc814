"""How sure is this? Interval, difference and test in five steps, with the two best models' scores.

For readers who have never had statistics. Every number is also on another page: scores, intervals
and p-values are those of the leaderboard's comparison.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from qwen3nb.analysis.comparison.differences import PairedDifference, TaskComparison
from qwen3nb.analysis.comparison.plan import Plan, query_deviation
from qwen3nb.analysis.stats.resampling import FlippedDifferences, draw_seed, resampled_means
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix
from qwen3nb.answers.answer import Answer
from qwen3nb.answers.board.lead import Lead, find_lead
from qwen3nb.answers.comparison import Comparison
from qwen3nb.answers.explored_task import query_text
from qwen3nb.answers.leaderboard import Leaderboard, leaderboard
from qwen3nb.evaluation.mteb.per_query import SearchTexts
from qwen3nb.metrics.intervals import Array, Interval
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.report.render.figure import (
    GREY,
    QUIET,
    Axes,
    Figure,
    MplFigure,
    draw_estimate,
    grid,
    is_wide,
    name_rows,
    panels,
    plain,
)
from qwen3nb.report.render.model_styles import Style, model_styles
from qwen3nb.report.render.table import Cell, Conclusion, Table, cut, number, score_text, short_task
from qwen3nb.utils.format import interval_text, number_text, p_value_text
from qwen3nb.utils.imports import DataFrame

RESAMPLES = 200  # means shown as dots
_LONGEST = 60  # characters of a query
_DOT_COLUMNS = 48  # places for dots side by side; half as many in a narrow figure
_BARS = 41  # of the histogram; an odd number has one around 0
_POINTS = 72  # per inch


@dataclass(frozen=True, eq=False, repr=False)
class HowSure(Answer):
    """How sure the lead of the best model is, step by step."""

    comparison: Comparison  # all models of the tier
    task: str  # the task on which the two best models are looked at
    tier: str
    texts: SearchTexts | None = None  # of the queries; without them, ids are shown
    is_part_of_mean: bool = False  # whether the book decides by a mean over several tasks

    @cached_property
    def lead(self) -> Lead | None:
        """The best model and its leads; None if no other can be compared with it."""
        lead = find_lead(self.comparison, task=self.task)
        # Other scores, such as correlations, are no means over queries.
        if lead is None or not lead.leads or lead.record.main.how != "mean":
            return None
        return lead

    @property
    def pair(self) -> PairedDifference | None:
        """The lead over the second-best model."""
        if self.lead is None:
            return None
        return self.lead.leads[0]

    @property
    def conclusion(self) -> Conclusion:
        """The lead, what it could be on other queries, and whether it is shown."""
        pair = self.pair
        if pair is None:
            return Conclusion(self._why_empty)
        first_mean, second_mean = pair.means
        sentences = [
            f"On {short_task(self.task)}, {pair.first} scores {first_mean:.3f} and {pair.second} "
            f"{second_mean:.3f}, over the same {self._queries(pair)}.",
            self._range_sentence(pair),
        ]
        if self.is_part_of_mean:
            sentences.append("The book's verdict is a mean over several tasks; this is one.")
        return Conclusion(" ".join(sentences), data=self._data)

    def _range_sentence(self, pair: PairedDifference) -> str:
        """Say what the difference could be, and whether it is shown."""
        if pair.identical:
            return "Both have the same score on every query, so there is no lead to be sure of."
        if pair.interval is None:
            return "A single query says nothing about others."
        verdict = "do not show which model is better"
        if pair.significant(self.comparison.procedure.alpha):
            verdict = f"show that {pair.first} is better"
        low, high = [number_text(end, sign=True) for end in pair.interval]
        return (
            f"The difference is {number_text(pair.difference, sign=True)}; over all "
            f"{self._record.task.unit} like these, it is likely between {low} and {high}. "
            f"These {self._queries(pair)} {verdict}."
        )

    @property
    def _why_empty(self) -> str:
        return (
            "This page needs two models with scores of the same queries: "
            f"`qwen3nb eval --tier {self.tier} --model` and a name evaluates one more."
        )

    def table(self) -> Table:
        """The p-value, its correction, and how many queries would be enough; see step 5."""
        return self.decision_table()

    def figure(self) -> Figure | None:
        """The intervals of both scores and of their difference; see step 3."""
        return self.intervals_figure()

    def to_frame(self) -> DataFrame:
        """The scores of both models and their difference, a row per query."""
        import pandas as pd

        if self.pair is None:
            return pd.DataFrame({"difference": []})
        return self._matrix.to_frame()

    def queries_table(self) -> Table:
        """Step 1: a few queries with the scores of both models, and their means."""
        pair = self.pair
        if pair is None:
            return Table((), (), self._why_empty)
        rows = [self._query_row(kind, row) for kind, row in self._chosen_queries(pair).items()]
        first_mean, second_mean = pair.means
        all_queries = Cell(f"mean over all {self._queries(pair)}", strong=True)
        rows.append(
            [all_queries, number(first_mean, strong=True), number(second_mean, strong=True)]
        )
        return Table.of(
            rows,
            ("query", pair.first, pair.second),
            name="sure-queries",
            caption=f"{pair.metric} of a few queries, and the mean over all of them: the score.",
            data=self._data,
        )

    def _chosen_queries(self, pair: PairedDifference) -> dict[str, int]:
        """Return rows of the scores, by what the query is an example of; each query once."""
        first, second = self._matrix.scores
        from_hardest = np.argsort(first + second, kind="stable")
        from_worst = np.argsort(first - second, kind="stable")
        examples = {
            "easy for both": from_hardest[-1],
            "in between": from_hardest[len(from_hardest) // 2],
            "hard for both": from_hardest[0],
            f"best for {pair.first}": from_worst[-1],
            f"best for {pair.second}": from_worst[0],
        }
        rows: dict[str, int] = {}
        for kind, row in examples.items():
            if row not in rows.values():
                rows[kind] = int(row)
        return rows

    def _query_row(self, kind: str, row: int) -> list[Cell]:
        query = self._matrix.queries[row]
        text = cut(query_text(self._record, query, self.texts), _LONGEST)
        first, second = self._matrix.scores[:, row]
        return [Cell(text, kind), number(float(first)), number(float(second))]

    def resamples_figure(self) -> Figure | None:
        """Step 2: the means of queries drawn anew, a dot each, and the interval of the score."""
        pair = self.pair
        if pair is None:
            return None
        means = self.resampled_means()
        score = self._record.main.value or 0.0
        interval = number(self._record.main).interval
        ends = interval_text(interval, sign=False, absent="none, of a single query")
        inside = "."
        if interval is not None:
            inside = f"; {_count_inside(means, interval)} of {len(means)} dots lie inside."
        return Figure(
            name="sure-resamples",
            draw=partial(
                _draw_resamples,
                means,
                score,
                interval,
                pair.metric,
                self._styles[pair.first],
            ),
            caption=f"Each dot is a mean of {pair.first} over {self._queries(pair)} drawn anew "
            f"from these. Below: its score {number_text(score)} with the 95 % interval {ends}"
            f"{inside}",
            alt=f"{len(means)} dots between {means.min():.3f} and {means.max():.3f}. "
            f"Below them the score {number_text(score)} with its interval {ends}.",
            data=self._data,
        )

    def resampled_means(self) -> Array:
        """Means (200,) of the best model over as many queries, drawn from its own with repeats."""
        scores = self._matrix.scores[:1].T
        seed = draw_seed(self.comparison.procedure.seed, self._matrix.queries)
        _, means = resampled_means(scores, n_resamples=RESAMPLES, seed=seed)
        return np.asarray(means[:, 0])

    def wins_table(self) -> Table:
        """Step 3: how many queries each model wins, and what they add to the difference."""
        pair = self.pair
        if pair is None:
            return Table((), (), self._why_empty)
        first, second = self._matrix.scores
        differences = first - second
        gained = float(differences[differences > 0].sum()) / pair.n
        lost = float(differences[differences < 0].sum()) / pair.n
        rows = [
            [f"{pair.first} is better", pair.won, number(gained, "+.3f")],
            ["both are equal", pair.tied, number(0.0, "+.3f")],
            [f"{pair.second} is better", pair.lost, number(lost, "+.3f")],
            [Cell("all", strong=True), pair.n, number(pair.difference, "+.3f", strong=True)],
        ]
        return Table.of(
            rows,
            ("queries on which", "number", "adds to the difference"),
            name="sure-wins",
            caption=f"{pair.first} minus {pair.second}, query by query.",
            data=self._data,
        )

    def intervals_figure(self) -> Figure | None:
        """Step 3: both scores with their intervals, and the difference with its own."""
        pair = self.pair
        if pair is None or self.lead is None:
            return None
        records = [self._record, self._second_record(pair)]
        ends = interval_text(pair.interval, absent="none, of a single query")
        size = number_text(pair.difference, sign=True)
        scores = ", ".join(
            f"{name} {score_text(record.main)}"
            for name, record in zip((pair.first, pair.second), records, strict=True)
        )
        return Figure(
            name="sure-intervals",
            draw=partial(_draw_intervals, pair, records, self._styles),
            caption="95 % intervals of both scores, and of their difference, on one scale: "
            f"{size} {ends}. {self._interval_sentence(pair)}",
            alt=f"Scores with intervals: {scores}. Difference: {size} {ends}.",
            data=self._data,
        )

    def _interval_sentence(self, pair: PairedDifference) -> str:
        """Say how the intervals of scores and difference go together."""
        if pair.units:
            return (
                f"In the difference, {self._queries(pair)} count as {pair.units:,} groups, because "
                "those of one group are alike: its interval may be the longest."
            )
        return "Those of the scores may overlap although the difference is shown."

    def flipped_differences(self) -> FlippedDifferences | None:
        """The differences if a coin decided, query by query, whose score is whose."""
        pair = self.pair
        compared = self._compared
        if pair is None or compared is None:
            return None
        return compared.flipped_differences(pair.first, pair.second)

    def test_figure(self) -> Figure | None:
        """Step 4: differences by chance alone, with the observed one, and the share beyond it."""
        pair, flipped = self.pair, self.flipped_differences()
        if pair is None or flipped is None:
            return None
        extreme = int(flipped.is_extreme.sum())
        p_value = p_value_text(pair.p_value, relation=True)
        size = number_text(abs(pair.difference))
        counts = f"{extreme:,} of {len(flipped.means):,}"
        return Figure(
            name="sure-test",
            draw=partial(_draw_flips, flipped, pair.difference, pair.metric),
            caption=f"Differences that coins make where the models are alike. Dark: {counts} "
            f"at least as far from 0 as the observed {size} (lines), hence p {p_value}.",
            alt=f"Histogram of differences by chance around 0. {counts} are at least {size}.",
            data=self._data,
        )

    def decision_table(self) -> Table:
        """Step 5: p alone and corrected, and how many queries would be enough."""
        pair = self.pair
        if pair is None:
            return Table((), (), self._why_empty)
        procedure = self.comparison.procedure
        size = number_text(abs(pair.difference))
        rows: list[list[object]] = [
            ["p of this pair alone", p_value_text(pair.p_value)],
            ["pairs of models that are compared", f"{pair.family:,}"],
            ["p corrected for so many", p_value_text(pair.corrected)],
            [
                f"queries that would show a difference of {size}",
                number(self.queries_to_show(), ",d", absent="no number would"),
            ],
            [
                f"queries that would show a difference below {procedure.margin:g}",
                number(self.comparison.queries_needed(pair), ",d", absent="no number would"),
            ],
            ["queries there are", f"{pair.n:,}"],
        ]
        return Table.of(
            rows,
            ("", f"{pair.first} minus {pair.second}"),
            note="Enough queries: in four of five such measurements, if the difference is what it "
            "seems to be. The second kind shows that a difference is too small to matter.",
            name="sure-decision",
            caption=f"Is {pair.first} better? Shown if p, corrected, is below "
            f"{procedure.alpha:g}, and the interval leaves out 0.",
            data=self._data,
        )

    def queries_to_show(self) -> int | None:
        """Number of queries like these that show the difference, as `qwen3nb plan` counts them.

        None if no number does, such as for a difference of 0.
        """
        pair, compared = self.pair, self._compared
        if pair is None or compared is None or not pair.difference or pair.n < 2:
            return None
        others = tuple(name for name in compared.columns if name != pair.second)
        procedure = self.comparison.procedure
        plan = Plan(
            baseline=pair.second,
            models=others,
            tasks=(self.task,),
            margin=abs(pair.difference),
            alpha=procedure.alpha,
            correction=procedure.correction,
        )
        return plan.needed(query_deviation(self._matrix, pair.first, pair.second))

    @property
    def _compared(self) -> TaskComparison | None:
        return self.comparison.on(self.task)

    @cached_property
    def _matrix(self) -> ScoreMatrix:
        """The scores of both models; only where there is a pair."""
        if self.pair is None:
            raise ValueError(self._why_empty)
        return self.comparison.matrix(self.pair)

    @property
    def _record(self) -> Result:
        """The record of the best model; only where there is a pair."""
        if self.lead is None:
            raise ValueError(self._why_empty)
        return self.lead.record

    def _second_record(self, pair: PairedDifference) -> Result:
        return self.comparison.records[self.task, pair.second]

    @property
    def _styles(self) -> dict[str, Style]:
        if self.pair is None:
            return {}
        return model_styles([self.pair.first, self.pair.second])

    @property
    def _data(self) -> DataUsed:
        return self.comparison.data_used(self.task)

    def _queries(self, pair: PairedDifference) -> str:
        return f"{pair.n:,} {self._record.task.unit}"


def how_sure(results: Iterable[Result], *, tier: str = "smoke", seed: int = 0) -> HowSure:
    """Return how sure the leaderboard's lead is, step by step.

    Args:
        results: any records; those on other tiers' tasks are ignored.
        tier: the tier whose best models are looked at.
        seed: seed of the paired tests, and of the queries drawn anew.
    """
    board = leaderboard(results, tier=tier, seed=seed)
    task = _deciding_task(board)
    answer = HowSure(board.comparison, task, tier, is_part_of_mean=task != board.task)
    if answer.lead is None or answer.lead.record.data.queries:
        return answer
    try:
        texts = SearchTexts.of_task(answer.lead.record.task)
    except (ValueError, OSError):  # the page then shows ids
        return answer
    return replace(answer, texts=texts)


def _deciding_task(board: Leaderboard) -> str:
    """Return the task of the leaderboard's lead; for a mean, the first task with most models."""
    is_mean = any(mean.task == board.task for mean in board.comparison.means)
    if not is_mean:
        return board.task
    return max(board.comparison.tasks, key=lambda compared: len(compared.columns)).task


def _count_inside(values: Array, interval: Interval) -> int:
    low, high = interval
    return int(np.count_nonzero((values >= low) & (values <= high)))


def _draw_resamples(
    means: Array,
    score: float,
    interval: Interval | None,
    metric: str,
    style: Style,
    width: float,
) -> MplFigure:
    """Draw stacked dots, and below them the score with its interval."""
    height = 1.9  # inches
    figure, (axis,), _ = panels(1, width, height=height)
    columns = _DOT_COLUMNS
    if not is_wide(width):
        columns //= 2
    x_values, levels = stacked_dots(means, columns)
    highest = int(levels.max())
    dot_size = min(4.0, 0.6 * height * _POINTS / (highest + 1))
    axis.plot(x_values, levels, "o", color=GREY, alpha=0.7, markersize=dot_size, mew=0)
    below = -0.25 * (highest + 1)
    draw_estimate(axis, below, score, interval, **style, size=6)
    axis.set_ylim(2 * below, highest + 1)
    axis.set_xlabel(plain(metric))
    _hide_heights(axis)
    grid(axis)
    return figure


def stacked_dots(values: Array, columns: int) -> tuple[Array, Array]:
    """Return where dots of values are drawn: the middle of their column, and a level from 0 up."""
    counts, edges = np.histogram(values, bins=columns)
    middles = (edges[:-1] + edges[1:]) / 2
    x_values = np.repeat(middles, counts)
    levels = np.concatenate([np.arange(count, dtype=np.float64) for count in counts])
    return x_values, levels


def _draw_intervals(
    pair: PairedDifference, records: list[Result], styles: dict[str, Style], width: float
) -> MplFigure:
    """Draw two panels: the scores with their intervals, and the difference with its own."""
    figure, (scores, difference), _ = panels(2, width, height=1.3)
    names = [pair.second, pair.first]  # the last row is drawn on top
    for row, (name, record) in enumerate(zip(names, reversed(records), strict=True)):
        draw_estimate(
            scores, row, record.main.value or 0.0, number(record.main).interval, **styles[name]
        )
    name_rows(scores, names)
    scores.set_title("Each score")
    scores.set_xlabel(plain(pair.metric))
    difference.axvline(0, color=GREY, linewidth=1)
    draw_estimate(difference, 0.5, pair.difference, pair.interval, color=QUIET)
    difference.set_title("Their difference")
    difference.set_xlabel(plain(f"{pair.first} minus {pair.second}", longest=44))
    _hide_heights(difference)
    for axis in (scores, difference):
        axis.set_ylim(-0.6, 1.6)
        axis.tick_params(axis="y", length=0)
        axis.spines["left"].set_visible(False)
        axis.locator_params(axis="x", nbins=4)
        grid(axis)
    _share_scale(scores, difference)
    return figure


def _share_scale(*axes: Axes) -> None:
    """Give panels the same scale around their own middles, so that lengths can be compared."""
    limits = [axis.get_xlim() for axis in axes]
    widest = max(high - low for low, high in limits)
    for axis, (low, high) in zip(axes, limits, strict=True):
        middle = (low + high) / 2
        axis.set_xlim(middle - widest / 2, middle + widest / 2)


def _draw_flips(
    flipped: FlippedDifferences, difference: float, metric: str, width: float
) -> MplFigure:
    """Draw a histogram of differences by chance, those as large as the observed one dark."""
    figure, (axis,), _ = panels(1, width, height=1.9)
    # The same distance on both sides, so that the observed difference is inside on either.
    reach = max(float(np.abs(flipped.means).max()), abs(difference)) or 1.0
    edges = np.linspace(-1.05 * reach, 1.05 * reach, _BARS + 1)
    others, _ = np.histogram(flipped.means[~flipped.is_extreme], bins=edges)
    extreme, _ = np.histogram(flipped.means[flipped.is_extreme], bins=edges)
    left, widths = edges[:-1], np.diff(edges)
    axis.bar(left, others, widths, align="edge", color=QUIET, alpha=0.5)
    axis.bar(left, extreme, widths, bottom=others, align="edge", color=GREY)
    for line in (difference, -difference):
        axis.axvline(line, color=GREY, linewidth=1.5, linestyle="--")
    axis.set_xlabel(plain(f"difference in {metric}, by chance"))
    axis.locator_params(axis="x", nbins=5)
    _hide_heights(axis)
    return figure


def _hide_heights(axis: Axes) -> None:
    """Leave out the vertical axis, whose numbers say nothing."""
    axis.set_yticks([])
    axis.spines["left"].set_visible(False)
