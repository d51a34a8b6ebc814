"""Boost scores by stars and lower them by age, as `gh star-search` does, on a given date.

    factor = (1 + a · log10(stars + 1) / 6) · (1 - b · min(1, days / d))

with a = 0.1, b = 0.2, d = 365 unless the query file sets others. Days are whole days from
the last change to the given date, never to today, so that scores are reproducible.

A cosine of 0 or more is multiplied by the factor; a negative one is divided by it. The
factor is positive, so more stars or a later change never lower a score, and the score is
continuous at 0. (The original tool multiplies negative scores too, which reverses the
effect of every boost.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date

from qwen3nb.datasets.custom.documents import Documents
from qwen3nb.datasets.custom.queries import ScoringSettings
from qwen3nb.datasets.rows import DataError

__all__ = ["Factors", "document_factors"]


@dataclass(frozen=True)
class Factors:
    """The factor of each document's score.

    Attributes:
        values: factor per document id, above 0.
        recipe: the parameters of the factors, as JSON; ``{}`` without boosts.
        notes: values missing in the data, and what was used instead.
    """

    values: dict[str, float]
    recipe: dict[str, object]
    notes: tuple[str, ...] = ()


def document_factors(
    documents: Documents, settings: ScoringSettings, *, on: date | None
) -> Factors:
    """Return the factor of each document; 1 if the data has neither stars nor dates.

    A document without a star count has 0 stars, one without a date counts as oldest, and
    one changed after ``on`` counts as changed on that day.

    Raises:
        DataError: the data has dates, but ``on`` is None.
    """
    values = dict.fromkeys(documents.texts, 1.0)
    recipe: dict[str, object] = {}
    if documents.stars and settings.star_boost_coefficient:
        recipe["star_boost_coefficient"] = settings.star_boost_coefficient
        for name, count in documents.stars.items():
            values[name] *= _star_boost(count or 0, settings.star_boost_coefficient)
    if documents.updated and settings.recency_coefficient:
        if on is None:
            known = [day for day in documents.updated.values() if day is not None]
            last = f"; the last change in the data is of {max(known)}" if known else ""
            raise DataError(
                "recency needs a reference date, so that results stay reproducible: "
                f"give one (--date YYYY-MM-DD), or disable the boosts (--no-boost){last}"
            )
        recipe |= {
            "recency_coefficient": settings.recency_coefficient,
            "recency_days": settings.recency_days,
            "date": on.isoformat(),
        }
        for name, day in documents.updated.items():
            values[name] *= _recency(day, on, settings)
    return Factors(values, recipe, _notes(documents, recipe, on))


def _star_boost(stars: int, coefficient: float) -> float:
    return 1.0 + coefficient * math.log10(stars + 1) / 6.0


def _recency(day: date | None, on: date, settings: ScoringSettings) -> float:
    days = settings.recency_days if day is None else max(0, (on - day).days)
    return 1.0 - settings.recency_coefficient * min(1.0, days / settings.recency_days)


def _notes(documents: Documents, recipe: dict[str, object], on: date | None) -> tuple[str, ...]:
    notes = []
    if "star_boost_coefficient" in recipe:
        missing = sum(count is None for count in documents.stars.values())
        notes += [f"{missing} documents have no star count: counted as 0"] * bool(missing)
    if on is not None and "date" in recipe:
        undated = sum(day is None for day in documents.updated.values())
        later = sum(day is not None and day > on for day in documents.updated.values())
        notes += [f"{undated} documents have no date: counted as oldest"] * bool(undated)
        notes += [f"{later} documents changed after {on}: counted as of that day"] * bool(later)
    return tuple(notes)
