"""Give freed memory back to the system.

glibc keeps what a program frees, in pieces between others that are in use. Passes of all lengths
leave ever more such pieces, and the memory of a process grows though it uses no more. So
`FreedMemory` returns whole free pages now and then. What that does is in benchmarks/memory.py.
"""

import ctypes
import time

_SECONDS = 10.0  # between two returns, each of which takes some hundredths of a second


class FreedMemory:
    """Returns the freed memory of this process, at most every ten seconds."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def give_back(self) -> bool:
        """Return free pages to the system; False if it was done a moment ago, or cannot be."""
        now = time.monotonic()
        if now < self._last + _SECONDS:
            return False
        self._last = now
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, others do not
        if trim is None:
            return False
        trim(0)
        return True
