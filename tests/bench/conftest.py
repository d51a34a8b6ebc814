"""What the benchmarks' tests share."""

import pytest

from qwen3nb.bench.harness import ChildTiming, in_child, timed
from qwen3nb.utils.hardware import peak_memory


@pytest.fixture
def one_child():
    """`in_child` with one kind of call in a process of its own, as all are, the others in this."""

    def within(*apart):
        def measure(prepare, *arguments):
            if apart == arguments[: len(apart)]:
                return in_child(prepare, *arguments)
            output, took = timed(prepare(*arguments))
            return ChildTiming(took.seconds, took.cpu, output, peak_memory(), 1, 1)

        return measure

    return within
