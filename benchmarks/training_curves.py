"""How often the interval of a forecast covers what more steps bring, by the true shape of a curve.

Worlds of trainings whose true curve is known. Queries differ in hardness, and in how much the
training helps them; each score has luck. Checkpoints scatter around the curve, and neighbours
scatter alike. Printed for each shape and size, over all worlds:

    stated     share of worlds in which a gain is forecast
    covers     share of those in which the 95 % interval has the true gain of the curve
    score      share of those in which a checkpoint there scores within its interval
    width      median width of the gain's interval
    refused    why nothing was said in the other worlds

    python -m benchmarks.training_curves --runs 200
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tqdm import tqdm

from benchmarks.options import command
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix
from qwen3nb.analysis.training.forecast import forecast

SIZES = ((8, 100), (12, 300), (24, 300), (50, 1000))  # checkpoints, queries
_HARDNESS = 0.25  # standard deviation of a query's own score
_LUCK = 0.1  # of a checkpoint's score of a query
_SPREAD = 0.7  # of how much a query gains, as a share of the mean gain
_STEP = 100  # between checkpoints


def _exponential(share: np.ndarray) -> np.ndarray:
    return 0.3 + 0.2 * (1 - np.exp(-share / 0.3))


def _soon_flat(share: np.ndarray) -> np.ndarray:
    return 0.3 + 0.2 * (1 - np.exp(-share / 0.05))


def _hyperbolic(share: np.ndarray) -> np.ndarray:
    return 0.3 + 0.25 * share / (share + 0.2)


def _power(share: np.ndarray) -> np.ndarray:
    return 0.3 + 0.3 * (1 - (1 + share / 0.1) ** -0.3)


def _logarithmic(share: np.ndarray) -> np.ndarray:
    return 0.3 + 0.06 * np.log1p(share / 0.05)


def _two_speeds(share: np.ndarray) -> np.ndarray:
    return 0.3 + 0.1 * (1 - np.exp(-share / 0.05)) + 0.15 * (1 - np.exp(-share / 0.8))


def _late(share: np.ndarray) -> np.ndarray:
    return 0.2 + 0.2 / (1 + np.exp(-(share - 0.6) / 0.1))


def _flat(share: np.ndarray) -> np.ndarray:
    return 0.4 + 0.0 * share


def _forgetting(share: np.ndarray) -> np.ndarray:
    return 0.5 - 0.1 * (1 - np.exp(-share / 0.5))


def _straight(share: np.ndarray) -> np.ndarray:
    return 0.3 + 0.1 * share


def _knee(share: np.ndarray) -> np.ndarray:
    return 0.3 + 0.3 * np.minimum(share, 0.5)


def _turning(share: np.ndarray) -> np.ndarray:
    return 0.3 + 0.2 * (1 - np.exp(-share / 0.2)) - 0.1 * share**2


def _late_turn(share: np.ndarray) -> np.ndarray:
    return 0.3 + 0.3 * share - 0.6 * np.maximum(share - 0.8, 0)


def _jump(share: np.ndarray) -> np.ndarray:
    return 0.3 + 0.1 * (1 - np.exp(-share / 0.2)) + 0.05 / (1 + np.exp(-(share - 0.8) / 0.02))


SATURATING: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exponential": _exponential,
    "soon flat": _soon_flat,
    "hyperbolic": _hyperbolic,
    "power": _power,
    "logarithmic": _logarithmic,
    "two speeds": _two_speeds,
    "late rise": _late,
    "flat": _flat,
    "forgetting": _forgetting,
}
OTHERS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "straight": _straight,
    "knee": _knee,
    "turning": _turning,
    "late turn": _late_turn,
    "jump": _jump,
}
SHAPES = SATURATING | OTHERS


@dataclass(frozen=True)
class Coverage:
    """What forecasts covered, for one true shape and size."""

    shape: str
    checkpoints: int
    queries: int
    gain: float  # the true one
    stated: float  # share of worlds
    covers: float | None  # share of those stated; None if none was
    covers_score: float | None
    width: float | None  # median
    refused: dict[str, int]  # worlds by reason


@dataclass(frozen=True)
class World:
    """A training whose curve is known, and one more checkpoint."""

    matrix: ScoreMatrix
    places: list[float]
    more: float
    gain: float  # of the curve
    next_score: float  # of a checkpoint there, on the same queries


def world(
    generator: np.random.Generator,
    shape: str,
    checkpoints: int,
    queries: int,
    *,
    scatter: float,
    correlation: float,
) -> World:
    """Draw scores of a training, and of the checkpoint that would follow."""
    places = _STEP * np.arange(checkpoints, dtype=float)
    more = max(places[-1] / 10, _STEP)
    curve = SHAPES[shape](np.append(places, places[-1] + more) / places[-1])
    scattered = generator.normal(0, scatter, checkpoints + 1)
    for later in range(1, checkpoints + 1):
        fresh = np.sqrt(1 - correlation**2) * scattered[later]
        scattered[later] = correlation * scattered[later - 1] + fresh
    shares = 1 + generator.normal(0, _SPREAD, queries)
    scores = curve[0] + np.outer(curve - curve[0], shares) + scattered[:, None]
    scores += generator.normal(0, _HARDNESS, queries)
    scores += generator.normal(0, _LUCK, scores.shape)
    names = tuple(f"q{place:04}" for place in range(queries))
    steps = tuple(f"step {place:.0f}" for place in places)
    matrix = ScoreMatrix("world", "ndcg@10", steps, names, scores[:-1], {})
    gain = float(curve[-1] - curve[-2])
    return World(matrix, places.tolist(), more, gain, float(scores[-1].mean()))


def coverage(
    shape: str,
    checkpoints: int,
    queries: int,
    *,
    runs: int,
    scatter: float,
    correlation: float,
) -> Coverage:
    """Forecast in many worlds, and count the intervals that cover the truth."""
    covers, covers_score, widths = [], [], []
    refused: Counter[str] = Counter()
    gain = 0.0
    bar = tqdm(range(runs), desc=f"{shape}, {checkpoints}", unit="world", leave=False)
    for seed in bar:
        generator = np.random.default_rng([seed, checkpoints, queries])
        drawn = world(
            generator, shape, checkpoints, queries, scatter=scatter, correlation=correlation
        )
        gain = drawn.gain
        found = forecast([drawn.matrix], drawn.places, more=drawn.more)
        if found.refusal is not None:
            refused[found.refusal.value] += 1
            continue
        low, high = found.interval or (0.0, 0.0)
        covers.append(low <= drawn.gain <= high)
        widths.append(high - low)
        low, high = found.score_interval or (0.0, 0.0)
        covers_score.append(low <= drawn.next_score <= high)
    return Coverage(
        shape,
        checkpoints,
        queries,
        gain,
        stated=len(covers) / runs,
        covers=float(np.mean(covers)) if covers else None,
        covers_score=float(np.mean(covers_score)) if covers else None,
        width=float(np.median(widths)) if covers else None,
        refused=dict(refused),
    )


def bench(*, runs: int = 200, scatter: float = 0.008, correlation: float = 0.5) -> list[Coverage]:
    """Measure what forecasts cover, for each true shape and size.

    Scatter is the standard deviation of a checkpoint around the curve; correlation is that of two
    neighbours.
    """
    rows = []
    for shape in SHAPES:
        for checkpoints, queries in SIZES:
            row = coverage(
                shape,
                checkpoints,
                queries,
                runs=runs,
                scatter=scatter,
                correlation=correlation,
            )
            rows.append(row)
    return rows


def shown(rows: list[Coverage]) -> str:
    """Return a line per shape and size."""
    lines = [
        "shape         checkpoints  queries  true gain  stated  covers  score   width  refused"
    ]
    for row in rows:
        words = ", ".join(f"{count} {reason}" for reason, count in sorted(row.refused.items()))
        lines.append(
            f"{row.shape:12s}  {row.checkpoints:11d}  {row.queries:7d}  {row.gain:+9.4f}  "
            f"{row.stated:6.2f}  {_text(row.covers, 6)}  {_text(row.covers_score, 5)}  "
            f"{_text(row.width, 6)}  {words}"
        )
    return "\n".join(lines)


def _text(value: float | None, width: int) -> str:
    return f"{value:{width}.3f}" if value is not None else "–".rjust(width)


if __name__ == "__main__":
    command(bench, shown)
