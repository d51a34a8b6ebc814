"""A call that a file of others makes endless ends, and this process stays as it was."""

import faulthandler
import os
import signal

import psutil
import pytest

from qwen3nb.utils import bounded_call
from qwen3nb.utils.bounded_call import BoundError, bounded_text


def call(function, *, seconds=1, memory=64 << 20, most_bytes=1000):
    return bounded_text(function, seconds=seconds, memory=memory, most_bytes=most_bytes)


def endless():
    while True:
        pass


def failing():
    raise KeyError("a\nb")


def aborting():
    faulthandler.disable()  # pytest's, which would print a page
    os.abort()


def test_a_text_comes_as_it_is():
    assert call(lambda: "gr\u00f6\u00dfer\n\0") == "gr\u00f6\u00dfer\n\0"
    assert call(lambda: "") == ""
    assert call(lambda: "a" * 1000) == "a" * 1000
    assert call(lambda: str(os.getpid())) != str(os.getpid())


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (endless, "it takes more than 1 s, or 64 MiB"),
        (lambda: "a" * (1 << 30), "it needs more than 64 MiB"),
        (lambda: "a" * 1001, "it gives more than 1,000 bytes"),
        (lambda: "\u00e4" * 501, "it gives more than 1,000 bytes"),
        (lambda: "a" * (1 << 24), "it gives more than 1,000 bytes"),
        (failing, "KeyError: 'a"),
        (aborting, "it takes more"),
    ],
)
def test_what_is_beyond_a_limit_is_an_error(function, message):
    children = psutil.Process().children()
    with pytest.raises(BoundError, match=message):
        call(function)
    assert psutil.Process().children() == children


def test_a_call_that_waits_for_ever_ends(monkeypatch):
    """Such as for a lock that another thread held when the process was copied."""
    monkeypatch.setattr(bounded_call, "_WAITING", 1)
    with pytest.raises(BoundError, match="it takes more than 1 s"):
        call(lambda: str(signal.pause()))


def test_it_holds_where_the_end_of_children_is_ignored():
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert call(lambda: "a") == "a"
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_nothing_that_this_process_does_at_its_end_is_done_twice(tmp_path):
    with (tmp_path / "a.txt").open("w") as file:
        file.write("once")  # in memory until the file is closed
        assert call(lambda: "a") == "a"
    assert (tmp_path / "a.txt").read_text() == "once"
