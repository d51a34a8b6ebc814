"""Methods take turns; tables of times."""

import os
import subprocess
import sys
import time

import pytest

from benchmarks.options import in_child
from qwen3nb.bench.harness import OtherWork, in_turn, other_work


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


def test_other_programs_are_counted_in_cores():
    command = [sys.executable, "-S", "-c", "sum(range(10**12))"]
    with subprocess.Popen(command) as busy:
        time.sleep(0.2)
        with other_work() as beside:
            time.sleep(1)
        busy.kill()
    assert beside.cores > 0.05
    assert "not quiet" in OtherWork(os.cpu_count()).warning
    assert OtherWork(0.01).warning == ""
