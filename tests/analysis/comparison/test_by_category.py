"""Differences by category of queries, and their reversals."""

import pytest

from qwen3nb.analysis.comparison.by_category import breakdown


def test_categories_add_up_and_opposed_ones_are_flagged():
    queries = [f"q{i:03d}" for i in range(60)]
    categories = {query: "short" if i < 20 else "long" for i, query in enumerate(queries)}
    first = {query: 0.3 if i < 20 else 0.9 for i, query in enumerate(queries)}
    second = dict.fromkeys(queries, 0.6)
    by_kind = breakdown(first, second, categories, n_resamples=2000, seed=0)
    long, short = by_kind.rows
    assert (long.n, short.n, by_kind.overall.n) == (40, 20, 60)
    assert by_kind.overall.difference == pytest.approx(
        (40 * long.difference + 20 * short.difference) / 60
    )
    assert [each.kind for each in by_kind.reversals] == ["opposed"]
    assert "short: -0.300 on 20 queries" in by_kind.reversals[0].text
    assert "against +0.100 on all 60" in by_kind.reversals[0].text


def test_weighting_reverses_an_order():
    """Ten queries of one kind at -0.1, one each of two kinds at +0.4."""
    queries = [f"q{i:02d}" for i in range(12)]
    first = {query: 0.4 if i < 10 else 0.9 for i, query in enumerate(queries)}
    second = dict.fromkeys(queries, 0.5)
    kinds = dict.fromkeys(queries, "many") | {"q10": "x", "q11": "y"}
    by_kind = breakdown(first, second, kinds, n_resamples=200, seed=0)
    (reversal,) = (each.text for each in by_kind.reversals if each.kind == "weighting")
    assert "-0.017 with queries weighted equally, +0.233 with categories weighted" in reversal


def test_simpsons_paradox_of_unequal_coverage():
    """a is better on every shared query, but answered more of the hard ones."""
    easy, hard = [f"e{i}" for i in range(10)], [f"h{i}" for i in range(10)]
    first = dict.fromkeys(easy[:2], 0.9) | dict.fromkeys(hard, 0.3)
    second = dict.fromkeys(easy, 0.8) | dict.fromkeys(hard[:2], 0.2)
    categories = dict.fromkeys(easy, "easy") | dict.fromkeys(hard[:5], "hard")
    by_kind = breakdown(first, second, categories, n_resamples=200, seed=0)
    assert by_kind.overall.difference == pytest.approx(0.1)
    assert [each.kind for each in by_kind.reversals] == ["coverage"]
    assert len(by_kind.notes) == 2
