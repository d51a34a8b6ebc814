"""Methods take turns; tables of times."""

import pytest

from benchmarks.options import in_child
from qwen3nb.bench.harness import in_turn


def test_methods_take_turns_after_an_untimed_call():
    calls = []
    methods = {name: lambda name=name: calls.append(name) or name.upper() for name in "ab"}
    medians, results = in_turn(methods, rounds=2, after=lambda: calls.append("-"))
    assert "".join(calls) == "abab-ab-"
    assert results == {"a": "A", "b": "B"}
    assert all(each.seconds >= 0 <= each.cpu for each in medians.values())


def hold(megabytes, before):
    held = bytearray(before * 2**20)

    def call():
        return [len(held), len(bytearray(megabytes * 2**20))]

    return call


@pytest.mark.integration
def test_a_child_measures_the_call_alone():
    done = in_child(hold, 64, 32)
    assert done.output == [32 * 2**20, 64 * 2**20]
    assert 60 * 2**20 < done.grown < 80 * 2**20
    assert done.peak > 96 * 2**20 > 80 * 2**20 > done.above
    with pytest.raises(ValueError, match="failed:(.|\\n)*TypeError"):
        in_child(hold, 64)
