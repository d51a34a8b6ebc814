"""Freed memory goes back to the system."""

import ctypes
import sys

import numpy as np
import pytest

from qwen3nb.models.inference import freed_memory
from qwen3nb.models.inference.freed_memory import FreedMemory
from qwen3nb.utils.hardware import resident_memory

pytestmark = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the library of C is not glibc"
)


@pytest.fixture
def clock(monkeypatch):
    """The seconds of the clock, in a list."""
    seconds = [0.0]
    monkeypatch.setattr(freed_memory.time, "monotonic", lambda: seconds[0])
    return seconds


def test_memory_is_given_back_every_ten_seconds(clock):
    memory = FreedMemory()
    given_back = []
    for second in range(25):
        clock[0] = float(second)
        given_back.append(memory.give_back())
    assert np.flatnonzero(given_back).tolist() == [10, 20]


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_pages_between_pieces_in_use_are_given_back(clock):
    """Pieces of 64 KiB: all but every tenth are freed, so that the heap cannot shrink."""
    memory = FreedMemory()
    pieces = [bytearray(b"x" * 65_000) for _ in range(2000)]
    pieces = pieces[::10]
    before = resident_memory()
    clock[0] = 10.0
    assert memory.give_back()
    assert resident_memory() < before - 50e6
    assert all(piece == b"x" * 65_000 for piece in pieces)
