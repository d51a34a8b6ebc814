"""The tier that a book shows, without building one."""

import pytest
from helpers.records import make, tier_records

from qwen3nb.book.build import BookError, build_book


@pytest.fixture
def built(checkout, monkeypatch):
    """What `build_book` would run; records are those that a test sets."""
    runs = []

    def stop(jobs, **_):
        runs.append(jobs[0].parameters)
        raise InterruptedError

    monkeypatch.setattr("qwen3nb.book.build.sweep", stop)

    def build(results, **options):
        monkeypatch.setattr("qwen3nb.book.build.load_results", lambda **_: results)
        with pytest.raises(InterruptedError):
            build_book(**options)
        return runs.pop()["tier"]

    return build


def test_the_richest_tier_with_results_is_shown(built):
    assert built([]) == "smoke"
    assert built([make("m"), *tier_records("m", tier="fast")]) == "fast"
    assert built([make("m"), *tier_records("m", tier="fast")], tier="smoke") == "smoke"


def test_an_empty_leaderboard_never_replaces_one_with_results(built):
    with pytest.raises(BookError, match=r"'pydocs', got none.*--tier fast"):
        built(tier_records("m", tier="fast"), tier="pydocs")
