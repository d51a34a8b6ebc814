"""Error rates of tests and intervals, simulated where the truth is known.

Scores of two systems are drawn from `PAIRS`, without a true difference and with one, those of one
system from `SCORES`, which are like those of tasks, and those of eight systems from `FAMILIES`. To
pairs and families come populations fitted to recorded scores: nDCG@10 of bm25, all-MiniLM-L6-v2 and
wordllama on 200 queries (PyDocs).
"""

from __future__ import annotations

import runpy
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple
from warnings import catch_warnings

import numpy as np
from scipy import stats

from qwen3nb.analysis.calibration import Share
from qwen3nb.analysis.comparison.alignment import pair_results
from qwen3nb.analysis.stats import resampling
from qwen3nb.analysis.stats.interference_ratio import DataSetScores, Gate, QueryScores, estimate
from qwen3nb.analysis.stats.multiple_testing import benjamini_hochberg, holm
from qwen3nb.analysis.stats.paired_tests import minimum_detectable_effect
from qwen3nb.analysis.stats.resampling import LEVEL
from qwen3nb.bench.conditions import COVERAGE, ERRORS, POWER, conditions
from qwen3nb.metrics import intervals
from qwen3nb.metrics.aggregate import AGGREGATES
from qwen3nb.metrics.intervals import INTERVALS, Array, Interval
from qwen3nb.records.store import load_results
from qwen3nb.utils.atomic_files import read_json
from qwen3nb.utils.progress import tqdm

SIZES = (10, 20, 50, 200, 1000)
FEW_SIZES = (3, 5, 10, 20, 50, 200)  # of equivalence
SCORE_SIZES = (10, 20, 50, 200)
FAMILY_SIZES = (20, 50, 200)
SEEDS = (1, 2, 3, 5, 9)
QUERIES = 300  # of each seed
ALPHA = 0.05  # 1 - LEVEL
SYSTEMS = 8  # of a family
TRUE_TIR = 0.03
FITTED = Path(__file__).with_name("pydocs_scores.json")
_BATCH = 100  # simulations that share one set of draws
_DRAWS = 2000  # of a permutation test, a bootstrap
_LARGE = 1_000_000  # draws by which the true value is computed
_GAINS = np.array([0.0, *(1 / np.log2(np.arange(11, 1, -1)))])
_TIED = 0.4
_MDE = "minimum detectable effect"
# Nominal shares, by kind or method.
_NOMINAL = {"coverage": LEVEL, "score coverage": LEVEL, _MDE: 0.8}
_NOMINAL |= {COVERAGE: LEVEL, ERRORS: ALPHA, POWER: 0.8}
_NOMINAL |= dict.fromkeys(("false positives", "false equivalence", "family-wise error"), ALPHA)

Generator = np.random.Generator
Shape = tuple[int, ...]
Pair = tuple[Array, Array, "Array | float"]  # scores of two systems, and their true difference
# Scores of pairs, in the shape (queries, simulations), given whether there is a difference.
Draw = Callable[[Generator, Shape, bool], Pair]
Scores = Callable[[Generator, Shape], Array]
# P-values (count,) or ends of intervals (count, 2) of such scores, given the seed of its draws.
Method = Callable[..., Array]
# Outcomes of simulations, by method, kind and process.
Outcomes = dict[tuple[str, str, str], Any]


class _Question(NamedTuple):
    """What is simulated, the true value of a population, and which draws are its own."""

    measure: Callable[[_Cell, Generator, Sequence[int]], Outcomes]
    truth: Callable[[Any, Generator], Any] = lambda *_: 0.0  # its mean is the true value
    salt: int = 0
    first: int = 0


class _Cell(NamedTuple):
    """A population, and how many queries are drawn of it."""

    process: str
    draw: Any
    truth: float
    n: int


def calibrate(
    function: str = "",
    *,
    sizes: Sequence[int] = (),
    simulations: int = 1000,
    records: Path | None = None,
    seed: int = 0,
) -> list[Share]:
    """Simulate how often tests and intervals err, and how often tests find a difference.

    Args:
        function: ``module:name`` or ``file.py:name`` of a function of two arrays of paired scores
            (n,) that returns a p-value, or an object with ``pvalue``, or the ends of an interval of
            the mean difference at level 0.95. By default all that pages use, which takes twenty
            minutes with the 10,000 simulations of the calibration page.
        sizes: numbers of queries; by default those of the page.
        simulations: number of samples per population and size, in batches of 100; two fifths of it
            for scores, a fifth for families and seeds, a tenth for correlations, and for most of
            what `qwen3nb.bench.conditions` simulates.
        records: folder of records; each task with two or more systems is a further population.
        seed: of the samples.

    Raises:
        ValueError: a function that is not found or fails, or a result of another kind.
    """
    matrices = {"PyDocs": np.array(read_json(FITTED)["scores"])}
    if records:
        paired, _ = pair_results(load_results(records))
        matrices |= {f"{each.task} {each.metric}": each.scores for each in paired}
    pairs = PAIRS | {name: partial(fitted, scores) for name, scores in matrices.items()}
    families = FAMILIES | {name: partial(_exchanged, scores) for name, scores in matrices.items()}
    tested = partial(_tested, {function: _of_function(function)} if function else METHODS)
    run, most = partial(_simulate, seed=seed), simulations
    differences = _Question(tested, lambda draw, by: draw(by, (1, _LARGE // 10), True)[2])
    shares = run(differences, pairs, sizes or SIZES, -(-most // _BATCH))
    if function:
        return shares
    fewer, fewest = (-(-round(most * share) // _BATCH) or 1 for share in (0.4, 0.2))
    margin = _Question(partial(_equivalent, most), salt=1)
    shares += run(margin, PAIRS, sizes or FEW_SIZES, 1)
    means = _Question(_covered, lambda draw, by: draw(by, (_LARGE,)))
    shares += run(means, SCORES, sizes or SCORE_SIZES, fewer)
    rated, samples = {"Spearman": _ratings}, fewer * _BATCH // 4
    true = lambda draw, by: stats.spearmanr(*draw(by, _LARGE)).statistic  # noqa: E731
    correlations = _Question(_correlated, true, first=99)
    shares += run(correlations, rated, sizes or SCORE_SIZES, samples)
    for noise in (0.1, 0.01):
        shares += run(_Question(_trained), {f"noise {noise:g}": noise}, SEEDS, fewest)
    of_pairs = _Question(_family, _three_errors, salt=2)
    shares += run(of_pairs, families, sizes or FAMILY_SIZES, round(most * 0.2) or 1)
    for outcome in conditions(most, seed):
        if len(outcome.held):
            named = (outcome.method, outcome.kind, outcome.process)
            shares.append(_share(*named, str(outcome.n), outcome.held))
    return shares


def _simulate(
    question: _Question,
    populations: Mapping[str, Any],
    sizes: Sequence[int],
    batches: int,
    *,
    seed: int,
) -> list[Share]:
    """Return the share, or mean, of each outcome over all simulations, per population and size."""
    measure, truth, salt, first = question
    shares = []
    bar = tqdm(populations.items(), desc="simulations", unit="population")
    for index, (process, draw) in enumerate(bar, first):
        known = float(np.mean(truth(draw, np.random.default_rng((seed, index)))))
        for n in sizes:
            key = (seed, n) if measure is _trained else (seed, index, n)
            generator = np.random.default_rng((*key, salt) if salt else key)
            cell, outcomes = _Cell(process, draw, known, n), defaultdict(list)
            # Of tied samples, a method may divide by 0; what it returns counts as it is.
            with (
                np.errstate(all="ignore"),
                catch_warnings(action="ignore", category=RuntimeWarning),
            ):
                for batch in range(batches):
                    for named, each in measure(cell, generator, (*key, batch)).items():
                        outcomes[named].append(each)
            label = f"{n} x {QUERIES}" if measure is _trained else str(n)
            shares += [_share(*named, label, np.hstack(each)) for named, each in outcomes.items()]
    return shares


def _share(method: str, kind: str, process: str, n: str, outcomes: Array) -> Share:
    nominal, count = _NOMINAL.get(kind, _NOMINAL.get(method)), len(outcomes)
    share, low, high = float(outcomes.sum() / count), None, None
    if nominal:
        low, high = (float(end / count) for end in stats.binom.interval(0.99, count, nominal))
    return Share(method, kind, process, n, count, share, nominal, low, high)


def _three_errors(draw: Scores, generator: Generator) -> float:
    """Three standard errors of the difference of two systems, on a single query."""
    large = draw(generator, (_LARGE // 10, SYSTEMS))
    return 3.0 * float((large[:, 0] - large[:, -1]).std())


# Outcomes of a batch of simulations.


def _tested(
    methods: Mapping[str, Method], cell: _Cell, generator: Generator, drawn_by: Sequence[int]
) -> Outcomes:
    """False positives and power of tests, coverage of intervals."""
    process, draw, difference, n = cell
    (*null, _), (*shifted, truth) = (draw(generator, (n, _BATCH), shift) for shift in (False, True))
    outcomes: Outcomes = {}
    for name, method in methods.items():
        result = method(*shifted, drawn_by)
        if result.ndim == 2:
            outcomes[name, "coverage", process] = _hold(result, truth)
        else:
            outcomes[name, "false positives", process] = method(*null, drawn_by) < ALPHA
            outcomes[name, "power", f"{process}, {difference:.3f}"] = result < ALPHA
    if process == "normal" and methods is METHODS:
        unit = stats.zscore(np.arange(n), ddof=1)
        effect = minimum_detectable_effect(unit, np.zeros(n)) or 0.0
        found = stats.ttest_1samp(generator.normal(effect, 1.0, size=(n, _BATCH)), 0.0)
        outcomes[_MDE, "power", process] = found.pvalue < ALPHA
    return outcomes


def _equivalent(count: int, cell: _Cell, generator: Generator, _: Sequence[int]) -> Outcomes:
    """Whether two systems are called equivalent whose true difference is the margin."""
    a, b, truth = cell.draw(generator, (cell.n, count), True)
    sample, margin = a - b, float(truth) * (1 - 1e-9)
    half = stats.t.ppf(1 - ALPHA, cell.n - 1) * stats.sem(sample)
    ends = intervals.difference_intervals(sample.T, level=LEVEL)
    shown, kind = [intervals.within(each, margin) for each in ends], "false equivalence"
    return {
        (INTERVALS["widened"], kind, cell.process): shown,
        ("two one-sided t-tests", kind, cell.process): half < margin - abs(sample.mean(axis=0)),
    }


def _covered(cell: _Cell, generator: Generator, drawn_by: Sequence[int]) -> Outcomes:
    """Coverage of the intervals of scores."""
    values, zero = cell.draw(generator, (cell.n, _BATCH)), np.zeros((1, 1))
    by = {
        "widened": _ends(intervals.mean_interval(each, level=LEVEL)[1] for each in values.T),
        "student": _student(values, zero),
        "percentile": _percentile(values, zero, drawn_by),
    }
    if cell.process == "V-measure":  # whose draws lack no rare queries
        del by["widened"]
    return _coverage(cell, by)


def _correlated(cell: _Cell, generator: Generator, _: Sequence[int]) -> Outcomes:
    """Coverage of the intervals of Spearman's correlation, of one sample."""
    first, second = cell.draw(generator, cell.n)
    picks = generator.integers(0, cell.n, size=(_DRAWS // 4, cell.n))
    drawn = AGGREGATES["spearman"](np.stack([first[picks], second[picks]], axis=-1))
    fisher = intervals.correlation_interval(first, second, how="spearman", level=LEVEL)
    fine = resampling.percentile_interval(drawn[np.isfinite(drawn)], level=LEVEL)
    return _coverage(cell, {"fisher": _ends([fisher]), "percentile": _ends([fine])})


def _coverage(cell: _Cell, by: Mapping[str, Array]) -> Outcomes:
    return {
        (INTERVALS[name], "score coverage", cell.process): _hold(ends, cell.truth)
        for name, ends in by.items()
    }


def _trained(cell: _Cell, generator: Generator, _: Sequence[int]) -> Outcomes:
    """Coverage of the TIR's interval over seeds and queries.

    A score is the sum of the query's difficulty, the seed's effect on the system (standard
    deviation 0.01) and noise. With little noise, most of the variance is between seeds, and a few
    seeds estimate it poorly.
    """
    shape = (2, cell.n, _BATCH)  # of specialist and joint runs
    level = np.array([0.5, 0.5 * (1 - TRUE_TIR)])[:, None, None]
    difficulty = generator.normal(0, 0.3, size=(QUERIES, 1, 1, _BATCH))
    effect = generator.normal(0, 0.01, size=shape)
    every = level + effect + difficulty + generator.normal(0, cell.draw, size=(QUERIES, *shape))
    names, ends = tuple(map(str, range(QUERIES))), []
    for scores in np.moveaxis(every, -1, 0):
        data = DataSetScores(scores.mean(axis=0), QueryScores(names, scores))
        measured = estimate("simulated", range(cell.n), [data], gate=Gate())
        ends.append(measured.estimate.interval)
    return {("TIR over seeds and queries", "coverage", cell.process): _hold(_ends(ends), TRUE_TIR)}


_PAIRS = [*combinations(range(SYSTEMS), 2)]
_FIRST, _SECOND = np.array(_PAIRS).T
_DIFFER = (_FIRST < SYSTEMS // 2) & (_SECOND >= SYSTEMS // 2)


def _family(cell: _Cell, generator: Generator, drawn_by: Sequence[int]) -> Outcomes:
    """Errors and power of tests of all pairs of eight systems, by correction, of one sample.

    Under the complete null hypothesis no two systems differ; under the partial one, each of the
    second four is better than each of the first by three standard errors of the difference.
    """
    outcomes: Outcomes = {}
    scores = cell.draw(generator, (cell.n, SYSTEMS))
    for null, differ in (("complete", np.zeros_like(_DIFFER)), ("partial", _DIFFER)):
        if null == "partial":
            scores[:, SYSTEMS // 2 :] += cell.truth / np.sqrt(cell.n)
        raw, max_t = resampling.max_t_p_values(scores, _PAIRS, n_resamples=_DRAWS, seed=drawn_by)
        ranks = _wilcoxon(scores[:, _FIRST], scores[:, _SECOND])
        by = {"MaxT": max_t, "Holm": holm(raw), "Wilcoxon, BH": benjamini_hochberg(ranks.tolist())}
        for method, p_values in by.items():
            rejected, name = np.array(p_values) < ALPHA, f"{cell.process}, {null}"
            errors = rejected & ~differ
            outcomes[method, "family-wise error", name] = errors.any()
            if null == "partial":
                outcomes[method, "family power", name] = rejected[differ].mean()
                false = errors.sum() / max(1, rejected.sum())
                outcomes[method, "false discoveries", name] = false
    return outcomes


def _ends(several: Iterable[Interval | None]) -> Array:
    return np.array([ends or (np.nan, np.nan) for ends in several])


def _hold(ends: Array, truth: Array | float) -> Any:
    """Whether intervals (count, 2) contain the true value, to rounding."""
    return (ends[:, 0] - 1e-9 <= truth) & (truth <= ends[:, 1] + 1e-9)


# Tests and intervals of paired scores.


def _permutation(a: Array, b: Array, seed: Sequence[int]) -> Array:
    columns = np.column_stack([a - b, np.zeros(len(a))])
    pairs = [(i, a.shape[1]) for i in range(a.shape[1])]
    return np.array(resampling.max_t_p_values(columns, pairs, n_resamples=_DRAWS, seed=seed)[0])


def _wilcoxon(a: Array, b: Array, *_: Any) -> Array:
    """By the normal approximation, with zeros left out: scipy's way with ties."""
    p_values = stats.wilcoxon(a, b, method="asymptotic").pvalue
    return np.where((a != b).any(axis=0), p_values, 1.0)


def _student(a: Array, b: Array, *_: Any) -> Array:
    return _ends(intervals.student_interval(each, level=LEVEL) for each in (a - b).T)


def _percentile(a: Array, b: Array, seed: Sequence[int]) -> Array:
    means = resampling.resampled_means(a - b, n_resamples=_DRAWS, seed=seed)[1]
    return _ends(resampling.percentile_interval(each, level=LEVEL) for each in means.T)


METHODS: dict[str, Method] = {
    "permutation test": _permutation,
    # Differences that are all the same have no t-test.
    "t-test": lambda a, b, _: np.where(
        np.ptp(a - b, axis=0) > 0, stats.ttest_rel(a, b).pvalue, 1.0
    ),
    "Wilcoxon": _wilcoxon,
    INTERVALS["widened"]: lambda a, b, _: _ends(
        intervals.difference_intervals((a - b).T, level=LEVEL)
    ),
    INTERVALS["student"]: _student,
    INTERVALS["percentile"]: _percentile,
}


def _of_function(spec: str) -> Method:
    """Import ``module:name`` or ``file.py:name``; of an array per system, it makes a method."""
    home, _, name = spec.rpartition(":")
    try:
        module = runpy.run_path(home) if home.endswith(".py") else vars(import_module(home))
        function: Callable[[Array, Array], Any] = module[name]
    except (ImportError, OSError, KeyError, ValueError, SyntaxError) as error:
        raise ValueError(
            f"no function {spec!r}; expected module:name or file.py:name ({error})"
        ) from error

    def outcome(a: Array, b: Array) -> Array:
        try:
            result = function(a.copy(), b.copy())
        except Exception as error:
            raise ValueError(f"{spec} failed on {len(a)} queries: {error!r}") from error
        value = np.asarray(getattr(result, "pvalue", result))
        fits = value.dtype.kind in "fiu" and value.shape in {(), (2,)}
        if not fits or (value.shape == () and (value < 0 or value > 1)):
            shown = " ".join(repr(result).split())
            raise ValueError(
                f"expected a p-value from 0 to 1, or two ends, of {spec}; got {shown:.80}"
            )
        return value

    def method(a: Array, b: Array, _: Sequence[int]) -> Array:
        outcomes = [outcome(*pair) for pair in zip(a.T, b.T, strict=True)]
        if len({each.shape for each in outcomes}) > 1:
            raise ValueError(f"{spec} returns now a p-value, now two ends; expected one of the two")
        return np.array(outcomes)

    return method


# Populations.


def _ratings(generator: Generator, n: int) -> tuple[Array, Array]:
    """Similarities (n,), with noise that depends on the rating, and ratings in halves."""
    rating = generator.beta(1.2, 1, n)
    similarity = 0.4 + 0.5 * rating**1.5 + generator.normal(0, 0.12, n) * (1.3 - rating)
    return similarity, np.round(10 * rating) / 2


def _mixture(
    generator: Generator, shape: Shape, chances: Mapping[float, float], *rest: Any
) -> Array:
    """Values drawn with their chances, and else from a distribution: its name and parameters."""
    drawn, ends = generator.random(shape), np.cumsum([*chances.values()])
    values: Array = np.array([*chances])[np.searchsorted(ends[:-1], drawn, side="right")]
    if rest:
        others = getattr(generator, rest[0])(*rest[1:], shape)
        values = np.where(drawn < ends[-1], values, others)
    return values


def _ranks(none: float) -> dict[float, float]:
    """Chances of the gains of no hit, in proportion to ``none``, and of ranks 10 to 1."""
    weights = np.append(none, np.geomspace(0.05, 0.3, 10))
    return dict(zip(_GAINS.tolist(), weights / weights.sum(), strict=True))


def _search(generator: Generator, shape: Shape, shift: bool) -> Pair:
    better, other = _ranks(0.3 if shift else 0.5), _ranks(0.5)
    a, b = (_mixture(generator, shape, chances) for chances in (better, other))
    truth = (1 - _TIED) * sum(gain * (better[gain] - other[gain]) for gain in other)
    return np.where(generator.random(shape) < _TIED, b, a), b, truth


def _differ(values: Array, truth: float) -> Pair:
    """Scores with these differences, exactly; the lower of two is 0."""
    return np.maximum(values, 0.0), np.maximum(-values, 0.0), truth


def _rare(generator: Generator, shape: Shape, shift: bool) -> Pair:
    sizes = np.where(generator.random(shape) < 1 / 8, generator.beta(1, 2, shape), 0.0)
    signs = 1.0 if shift else np.where(generator.random(shape) < 0.5, 1.0, -1.0)
    return _differ(signs * sizes, shift / 24)


def _accuracy(generator: Generator, shape: Shape, shift: bool) -> Pair:
    won = 0.15 if shift else 0.1
    values = _mixture(generator, shape, {1.0: won, -1.0: 0.2 - won, 0.0: 0.8})
    return _differ(values, 2 * won - 0.2)


def _large_wins(generator: Generator, shape: Shape, shift: bool, *, noise: float = 0.0) -> Pair:
    truth = 0.05 if shift else 0.0
    wins = _mixture(generator, shape, {0.95: 0.05, -0.05: 0.95})
    return _differ(wins + truth + (generator.normal(0, noise, shape) if noise else 0.0), truth)


PAIRS: dict[str, Draw] = {
    "search": _search,  # nDCG-like: the rank of one relevant document, many queries tied
    "normal": lambda draw, shape, shift: _differ(draw.normal(0.1 * shift, 0.3, shape), 0.1 * shift),
    # nDCG-like: one of eight queries is won, by a third on average, and none is lost
    "rare wins": _rare,
    "accuracy": _accuracy,  # 15 % of the queries are won and 5 % lost, by 1 each
    # Under the null hypothesis, 5 % of the queries are won by .95 and the others lost by .05; else
    # all of these differences are .05 larger.
    "large wins": _large_wins,
    "noisy wins": partial(_large_wins, noise=0.01),
}


def fitted(scores: Array, generator: Generator, shape: Shape, shift: bool) -> Pair:
    """Draw from the population of a score matrix (S systems, N queries): a bootstrap of queries.

    Each simulation compares two systems at random, the better one first, so that the true
    difference is that of their means. Under the null hypothesis, each query's two scores are
    exchanged with probability 1/2, which makes the differences symmetric about 0 and keeps
    their sizes and ties, and how hard the queries are.
    """
    ordered = scores[np.argsort(-scores.mean(axis=1))]
    pairs = np.array([*combinations(range(len(ordered)), 2)])
    better, worse = pairs[generator.integers(len(pairs), size=shape[1])].T
    queries = generator.integers(ordered.shape[1], size=shape)
    a, b = ordered[better, queries], ordered[worse, queries]
    if shift:
        return a, b, ordered[better].mean(axis=1) - ordered[worse].mean(axis=1)
    swapped = generator.random(shape) < 0.5
    return np.where(swapped, b, a), np.where(swapped, a, b), 0.0


def _mrr(generator: Generator, shape: Shape) -> Array:
    rank = generator.geometric(0.25, shape)
    return np.where((rank > 10) | (generator.random(shape) < 0.4), 0, 1 / rank)


SCORES: dict[str, Scores] = {
    "nDCG@10": lambda by, shape: _mixture(by, shape, {0.0: 0.25, 1.0: 0.25}, "beta", 1.2, 1.2),
    "hard nDCG@10": lambda by, shape: _mixture(by, shape, {0.0: 0.75, 1.0: 0.05}, "beta", 1, 2),
    "MRR@10": _mrr,  # nearly half of the queries without a hit
    "accuracy .9": lambda by, shape: _mixture(by, shape, {1.0: 0.9, 0.0: 0.1}),
    "tied": lambda by, shape: _mixture(by, shape, {1.0: 0.05, 0.5: 0.95}),
    "nearly equal": lambda by, shape: _mixture(by, shape, {1.0: 0.05}, "normal", 0.5, 0.01),
    "two kinds": lambda by, shape: _mixture(by, shape, {0.1: 0.1, 0.9: 0.9}),
    "skewed": lambda by, shape: by.beta(0.5, 5, shape),
    "AP": lambda by, shape: _mixture(by, shape, {0.0: 0.1}, "beta", 0.6, 1.5),
    "V-measure": lambda by, shape: np.clip(by.normal(0.45, 0.02, shape), 0, 1),
}


def _groups(generator: Generator, shape: Shape, *, each: int, noise: float) -> Array:
    """Groups of systems that differ by noise of this standard deviation."""
    groups = generator.normal(size=(shape[0], shape[1] // each)).repeat(each, axis=1)
    return groups + generator.normal(0, noise, shape)


def _tied(generator: Generator, scores: Array, share: float) -> Array:
    """Give all systems the score of the first on a share of the queries."""
    return np.where(generator.random((len(scores), 1)) < share, scores[:, :1], scores)


def _exchanged(matrix: Array, generator: Generator, shape: Shape) -> Array:
    """Each system answers each query as one of a score matrix (S, N), drawn at random."""
    systems = generator.integers(len(matrix), size=shape)
    scores: Array = matrix[systems, generator.integers(matrix.shape[1], size=(shape[0], 1))]
    return scores


# Scores (rows, SYSTEMS) of systems without a true difference, whose differences are symmetric about
# 0, per pair; jointly, but for search and those fitted to records.
FAMILIES: dict[str, Scores] = {
    "search": lambda draw, shape: _tied(draw, _mixture(draw, shape, _ranks(0.5)), _TIED),
    "normal": lambda draw, shape: draw.normal(size=shape),
    "rare wins": lambda draw, shape: (
        np.where(draw.random(shape) < 1 / 16, draw.beta(1, 2, shape), 0.0)
        * draw.choice((-1, 1), size=shape)
    ),
    "accuracy": lambda draw, shape: _tied(draw, np.rint(draw.random(shape)), 0.6),
    "correlated": partial(_groups, each=SYSTEMS // 2, noise=0.3),  # between two groups, alike
    "twins": partial(_groups, each=2, noise=0.05),  # four pairs of systems that hardly differ
}
