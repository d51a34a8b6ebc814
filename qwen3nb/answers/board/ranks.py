"""Rankings of the models of a tier, on each task and on means, with intervals of the ranks."""

import string
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from qwen3nb.analysis.comparison import benchmark_means
from qwen3nb.analysis.comparison.alignment import pair_results
from qwen3nb.analysis.comparison.differences import ALPHA, TEST
from qwen3nb.analysis.comparison.ranking import FEWEST_TASKS, Ranking, Standing, rank_systems
from qwen3nb.analysis.stats.multiple_testing import NAMES
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix
from qwen3nb.answers.comparison import Comparison, compare
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.records.store import latest
from qwen3nb.report.render.table import Cell, Table, number, plural, short_task
from qwen3nb.tiers import TIERS

_NOTE = (
    "Small: the interval of the rank, without the ranks of models shown to be better or worse. "
    "Among the scores, a model shares the rank of the best one not shown to differ from it."
)
ALL_TASKS = "all tasks"  # title of the ranking on the mean over a tier's tasks


def standings(
    results: Iterable[Result], *, tier: str, seed: int = 0, comparison: Comparison | None = None
) -> dict[str, Ranking]:
    """Rank the models on each of a tier's tasks with per-query scores, and on their mean.

    The mean is over the tasks that most models have, by metric if they have several: models that
    lack one of them are not ranked but listed with the reason. A tier with benchmarks has a ranking
    per benchmark and type instead. Tasks with fewer than two models are left out.
    """
    if TIERS[tier].benchmarks:
        if comparison is None:
            comparison = compare(results, tier=tier, seed=seed)
        return _rankings_by_means(comparison, seed)
    tasks = TIERS[tier].task_keys
    records = [result for result in latest(results) if result.task.key in tasks]
    matrices, _ = pair_results(records)
    in_order_of_tier = sorted(matrices, key=lambda matrix: _position(matrix.task, tasks))
    rankings = _rankings_by_task(in_order_of_tier, records, seed)
    return rankings | _rankings_over_tasks(matrices, records, seed)


def _position(task: str, tier_tasks: Sequence[str]) -> int:
    """Return the position of a task, or a part of it, in a tier."""
    for index, key in enumerate(tier_tasks):
        if task.startswith(key):
            return index
    return len(tier_tasks)


def _rankings_by_task(
    matrices: Iterable[ScoreMatrix], records: Sequence[Result], seed: int
) -> dict[str, Ranking]:
    rankings = {}
    for matrix in matrices:
        if len(matrix.systems) > 1:
            data = _data_of([matrix], records)
            rankings[matrix.task] = rank_systems([matrix], seed=seed, data=data)
    return rankings


def _rankings_over_tasks(
    matrices: Iterable[ScoreMatrix], records: Sequence[Result], seed: int
) -> dict[str, Ranking]:
    """Rank the models on the mean over tasks, one for each metric."""
    by_metric = defaultdict(list)
    for matrix in matrices:
        by_metric[matrix.metric].append(matrix)
    rankings = {}
    for metric, matrices_of_metric in by_metric.items():
        # The tasks that most models have: a mean needs all of them.
        shared_tasks = benchmark_means.rankable(matrices_of_metric)
        if len(shared_tasks) < 2:
            continue
        title = ALL_TASKS
        if len(by_metric) > 1:
            title = f"{ALL_TASKS} by {metric}"
        data = _data_of(shared_tasks, records)
        rankings[title] = rank_systems(shared_tasks, seed=seed, data=data)
    return rankings


def _rankings_by_means(comparison: Comparison, seed: int) -> dict[str, Ranking]:
    """Rank the models on each mean of a tier with benchmarks."""
    rankings = {}
    for mean in comparison.means:
        tasks = [part.task for part in mean.parts]
        # The shares are the weights of the tasks; a group of tasks counts as one unit.
        rankings[mean.task] = rank_systems(
            mean.parts,
            seed=seed,
            weights=mean.shares,
            name=mean.task,
            units=benchmark_means.units_of(tasks, mean.task),
            p_values=mean.p_values,
            correction=mean.correction,
            differ=mean.differ if comparison.procedure.alpha == ALPHA else None,
            data=comparison.data_used(mean.task),
        )
    return rankings


def _data_of(matrices: Sequence[ScoreMatrix], results: Iterable[Result]) -> DataUsed:
    """Return the data of tasks, or of parts of them."""
    # With a hyphen, the task "A" has the part "A-test", but "AB" is another task.
    tasks = tuple(f"{matrix.task}-" for matrix in matrices)
    records = []
    for result in results:
        key = f"{result.task.key}-"
        if any(task.startswith(key) for task in tasks):
            records.append(result)
    return DataUsed.of(records)


def rank_table(rankings: Mapping[str, Ranking]) -> Table | None:
    """Return a row per model and a column per ranking, best on the first of them first.

    A cell has the rank, its interval and the tie groups. Then follow the Borda rank in the ranking
    over most tasks, and statistics for other tasks like these. Models that are not ranked have a
    row with the reason. None without rankings, which need two models with scores per query on the
    same tasks.
    """
    if not rankings:
        return None
    # Keys of a dict are unique, and keep their order.
    systems: dict[str, None] = {}
    for ranking in rankings.values():
        systems |= dict.fromkeys(standing.system for standing in ranking.standings)
    rows: dict[str, dict[str, Cell | str]] = {}
    for system in systems:
        rows[system] = {"model": system}
    data = DataUsed()
    # The ranking over most tasks also says something about other tasks like these.
    widest = max(rankings.values(), key=lambda ranking: ranking.units)
    for title, ranking in rankings.items():
        data |= ranking.data
        head = _ranking_head(title, ranking)
        standing_by_system = {standing.system: standing for standing in ranking.standings}
        for system, row in rows.items():
            standing_of_system = standing_by_system.get(system)
            row[head] = _rank_cell(standing_of_system, system, ranking)
            if ranking is widest:
                row.update(_cells_over_tasks(standing_of_system, title, ranking))
    return Table.of(
        rows.values(),
        note=_NOTE,
        method=_method_of_ranks(rankings, widest),
        name="ranks",
        caption="Rank of each model with its interval, on each task or type of task. Models that "
        "share a letter in a column are not significantly different.",
        data=data,
    )


def _method_of_ranks(rankings: Mapping[str, Ranking], widest: Ranking) -> str:
    """Say how ranks, letters and intervals follow from the tests."""
    method = (
        "Only models with a score on every task are ranked. In a mean over tasks, each task has "
        "the same weight, and a group that of one task. Letters and intervals follow from a "
        f"{_tests(rankings)}, alpha {ALPHA:g}, and the interval of the difference."
        f"{_sentences_on_means(rankings)}"
    )
    if widest.units > 1:
        method += " Borda: as on MTEB's leaderboard."
    if widest.units >= FEWEST_TASKS:
        method += (
            " Tasks like these: the tasks as a sample, with Student's interval over their means. "
            "First in draws: the share of bootstrap draws of tasks in which a model is best."
        )
    return method


def _ranking_head(title: str, ranking: Ranking) -> str:
    benchmark, _, kind = title.rpartition(": ")
    if not ranking.name and len(ranking.tasks) == 1:
        return f"{short_task(kind)}\nn = {ranking.queries[0]}"
    count = benchmark_means.counted_tasks(ranking.tasks, ranking.name)
    size = f"{benchmark}, {count}" if benchmark else f"mean of {count}"
    return f"{short_task(kind)}\n{size}"


def _cells_over_tasks(standing: Standing | None, title: str, ranking: Ranking) -> dict[str, Cell]:
    """Return the Borda rank and what the tasks say as a sample, if there are enough of them.

    A model without a standing has dashes.
    """
    borda_head = f"Borda\n{title}"
    mean_head = "mean\non tasks like these"
    # The share of random draws of the tasks in which a model has the best mean.
    share_head = "first\nin draws of tasks"
    shown_heads = []
    if ranking.units > 1:
        shown_heads.append(borda_head)
    if ranking.units >= FEWEST_TASKS:
        shown_heads += [mean_head, share_head]
    if standing is None:
        return {head: number(None) for head in shown_heads}
    cells = {
        borda_head: number(standing.borda, "d"),
        mean_head: number(standing.mean, interval=standing.like_these),
        share_head: number(standing.first, ".0%"),
    }
    return {head: cells[head] for head in shown_heads}


def _tests(rankings: Mapping[str, Ranking]) -> str:
    """Name the test behind rankings, and the pairs of each over which it is corrected."""
    corrections = dict.fromkeys(NAMES[ranking.correction] for ranking in rankings.values())
    sizes = dict.fromkeys(plural(ranking.family, "pair") for ranking in rankings.values())
    return (
        f"{TEST}, {' or '.join(corrections)} over all pairs of models of a column "
        f"({' or '.join(sizes)})"
    )


def _sentences_on_means(rankings: Mapping[str, Ranking]) -> str:
    """Name the tasks of each mean over tasks, and those that the other columns show besides."""
    sentences = []
    for title, ranking in rankings.items():
        missing_tasks = benchmark_means.missing_tasks(ranking.tasks, ranking.name)
        if missing_tasks:
            names = _short_names(missing_tasks)
            sentences.append(f" {ranking.name} without {names}: too few models have them.")
        # Titles such as "all tasks", or "all tasks by nDCG@10" if there are several metrics.
        if title.startswith(ALL_TASKS):
            sentences.append(_sentence_on_all_tasks(title, ranking, list(rankings)))
    return "".join(sentences)


def _sentence_on_all_tasks(title: str, ranking: Ranking, titles: Sequence[str]) -> str:
    """Name the tasks of the mean over a tier's tasks, and those of other columns."""
    title_of_sentence = title.replace(ALL_TASKS, "All tasks")
    sentence = f" {title_of_sentence}: the mean of {_short_names(ranking.tasks)}"
    # The other titles are those of single tasks, which are not part of this mean.
    further_tasks = [name for name in titles if name not in (*ranking.tasks, ALL_TASKS)]
    # A mean of one of several metrics also leaves out tasks with the other metrics.
    if title == ALL_TASKS and further_tasks:
        sentence += f"; without {_short_names(further_tasks)}, which fewer models have"
    return f"{sentence}."


def _short_names(tasks: Iterable[str]) -> str:
    return ", ".join(short_task(task) for task in tasks)


def _rank_cell(standing: Standing | None, system: str, ranking: Ranking) -> Cell:
    """Return a rank with its interval, or the reason why there is none."""
    if standing is None:
        tasks = ranking.unranked.get(system, ())
        reason = "no score"
        if tasks:
            reason += f" on {_short_names(tasks)}"
        return Cell("not ranked", reason)
    low, high = standing.rank_interval
    return Cell(
        str(standing.rank),
        f"{low} to {high}",
        value=standing.rank,
        interval=standing.rank_interval,
        # Models with a letter in common are not significantly different.
        mark=" ".join(_group_mark(group) for group in standing.groups),
    )


def _group_mark(group: int) -> str:
    """Return the letter of a tie group, or its number after the last letter."""
    letters = string.ascii_lowercase
    if group > len(letters):
        return str(group)
    return letters[group - 1]
