"""Which models of a ranking cannot be told apart: brackets that join them, and shared ranks.

A bracket joins models of which no pair is shown to differ. It claims no more: models without a
bracket in common differ by the test, or were not compared. A model shares a rank with the best
model from which it is not shown to differ, in the way of sports: 1, 1, 3.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from qwen3nb.analysis.comparison.differences import ALPHA, PairedDifference

ModelPair = frozenset[str]  # names of two models


@dataclass(frozen=True)
class Bracket:
    """Models of which no pair is shown to differ, as rows of the ranking."""

    rows: tuple[int, ...]  # two or more, from 0, the best first
    goes_on: bool = False  # whether some of its models are below the rows that are shown

    @property
    def first(self) -> int:
        """The row of its best model."""
        return self.rows[0]

    @property
    def last(self) -> int:
        """The row of its last model that is shown."""
        return self.rows[-1]

    @property
    def gaps(self) -> tuple[int, ...]:
        """Rows between its first and its last that do not belong to it."""
        return tuple(row for row in range(self.first, self.last) if row not in self.rows)


@dataclass(frozen=True)
class Ties:
    """A ranking of models with those that cannot be told apart."""

    models: tuple[str, ...]  # names, the best first
    ranks: tuple[int, ...]  # of each model; several may share one
    brackets: tuple[Bracket, ...]  # every pair that is not told apart is in one of them

    @property
    def best(self) -> tuple[str, ...]:
        """The best model, and those that are not told apart from it."""
        if not self.models:
            return ()
        return (self.models[0], *self.not_separated(self.models[0]))

    def rank(self, model: str) -> int:
        """Return the rank of a model, which others may share."""
        return self.ranks[self.models.index(model)]

    def not_separated(self, model: str) -> tuple[str, ...]:
        """Return the models that are not told apart from one of them, the best first."""
        own_row = self.models.index(model)
        rows: set[int] = set()
        for bracket in self.brackets:
            if own_row in bracket.rows:
                rows.update(bracket.rows)
        return tuple(self.models[row] for row in sorted(rows) if row != own_row)

    def among(self, models: Collection[str]) -> "Ties":
        """Return some of the models, with the ranks that they have among all."""
        kept = [row for row, model in enumerate(self.models) if model in models]
        place_of = {row: place for place, row in enumerate(kept)}
        restricted: dict[tuple[int, ...], Bracket] = {}  # by rows, so that none is there twice
        for bracket in self.brackets:
            rows = tuple(place_of[row] for row in bracket.rows if row in place_of)
            restricted[rows] = replace(bracket, rows=rows)
        brackets = []
        for rows, bracket in restricted.items():
            is_within_another = any(set(rows) < set(other) for other in restricted)
            if len(rows) > 1 and not is_within_another:
                brackets.append(bracket)
        names = tuple(self.models[row] for row in kept)
        return Ties(names, tuple(self.ranks[row] for row in kept), tuple(brackets))

    def of_first(self, count: int) -> "Ties":
        """Return the first ``count`` models; a bracket that joins further ones goes on."""
        brackets = []
        for bracket in self.brackets:
            shown_rows = tuple(row for row in bracket.rows if row < count)
            is_cut = len(shown_rows) < len(bracket.rows)
            if len(shown_rows) > 1 or (shown_rows and is_cut):
                brackets.append(replace(bracket, rows=shown_rows, goes_on=is_cut))
        return Ties(self.models[:count], self.ranks[:count], tuple(brackets))


def find_ties(models: Sequence[str], tied_pairs: Collection[ModelPair]) -> Ties:
    """Return the ranks and brackets of models, given the best first.

    Args:
        models: names, without duplicates.
        tied_pairs: pairs that were compared and are not shown to differ. A pair that was not
            compared is none of them, so that no bracket joins it.

    >>> pairs = [frozenset({"fusion", "dense"}), frozenset({"dense", "words"})]
    >>> ties = find_ties(["fusion", "dense", "words", "random"], pairs)
    >>> ties.ranks, [bracket.rows for bracket in ties.brackets]
    ((1, 1, 3, 4), [(0, 1), (1, 2)])
    """
    tied_rows = set()
    for lower in range(len(models)):
        for upper in range(lower):
            if frozenset({models[upper], models[lower]}) in tied_pairs:
                tied_rows.add((upper, lower))
    brackets = tuple(_brackets(len(models), tied_rows))
    return Ties(tuple(models), tuple(_shared_ranks(len(models), tied_rows)), brackets)


def ties_of_differences(
    models: Sequence[str], differences: Iterable[PairedDifference], *, alpha: float = ALPHA
) -> Ties:
    """Return the ranks and brackets of models from the paired differences between them.

    ``models`` are names, the best first. Two models without a difference were not compared.
    """
    tied_pairs = {
        frozenset({difference.first, difference.second})
        for difference in differences
        if not difference.significant(alpha)
    }
    return find_ties(models, tied_pairs)


def _shared_ranks(count: int, tied_rows: Collection[tuple[int, int]]) -> Iterator[int]:
    """Yield the rank of each row: that of the last leader, or a new one if it is separated."""
    leader = 0
    for row in range(count):
        if (leader, row) not in tied_rows:
            leader = row
        yield leader + 1


def _brackets(count: int, tied_rows: Collection[tuple[int, int]]) -> Iterator[Bracket]:
    """Yield brackets such that each tied pair is in one, and each pair in one is tied."""
    joined: set[tuple[int, int]] = set()  # pairs that are in a bracket
    for upper in range(count):
        # Where ties are neighbours, the first bracket of a row joins all rows tied with it.
        for lower in range(upper + 1, count):
            if (upper, lower) in tied_rows and (upper, lower) not in joined:
                rows = _grown((upper, lower), count, tied_rows)
                joined.update(_pairs_of(rows))
                yield Bracket(rows)


def _grown(
    start: tuple[int, int], count: int, tied_rows: Collection[tuple[int, int]]
) -> tuple[int, ...]:
    """Return two rows with all others, the best first, that are tied with each one before."""
    members = list(start)
    for row in range(count):
        if row not in members and all(_pair(row, member) in tied_rows for member in members):
            members.append(row)
    return tuple(sorted(members))


def _pair(row: int, other: int) -> tuple[int, int]:
    return min(row, other), max(row, other)


def _pairs_of(rows: Sequence[int]) -> Iterator[tuple[int, int]]:
    for position, upper in enumerate(rows):
        for lower in rows[position + 1 :]:
            yield upper, lower
