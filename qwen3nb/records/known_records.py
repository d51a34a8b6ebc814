"""What the cache knows of records and releases apart from their folders: a list of digests.

Whoever can write a folder can recompute every checksum in it. So each record that this package
writes, or finds consistent for the first time, is also listed in the cache, and so is each release
that it freezes. Another content of the same run, time, model and task was changed since.
"""

from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from qwen3nb import paths
from qwen3nb.utils.atomic_files import file_stamp, sha256_json
from qwen3nb.utils.journal import Journal, line_of

_DIGITS = 32  # of the digest of an occasion


def occasion_of(*facts: str) -> str:
    """Return a digest of when, by what and of what a record or a release was made."""
    return sha256_json(facts)[:_DIGITS]


def occasion_of_release(name: str, frozen: str) -> str:
    """Return a digest of when a release was frozen."""
    return occasion_of("release", name, frozen)


def known_list() -> Path:
    """Return the list in the cache; it need not exist."""
    return paths.cache() / "known" / "checksums.jsonl"


class KnownDigests:
    """The digests in the list of the cache, by occasion."""

    def __init__(self) -> None:
        self._file = known_list()
        self._listed: dict[str, set[str]] = {}
        self._added: dict[str, set[str]] = {}
        with suppress(OSError):  # a cache that cannot be read knows nothing
            self._listed = _digests_by_occasion(self._file, tuple(file_stamp(self._file)))

    def contradict(self, occasion: str, digest: str) -> bool:
        """Return whether only other digests of an occasion are known."""
        digests = self._of(occasion)
        return bool(digests) and digest not in digests

    def add(self, occasion: str, digest: str) -> None:
        """List a digest, unless it is known."""
        if digest not in self._of(occasion):
            self._added.setdefault(occasion, set()).add(digest)
            _append(self._file, occasion, digest)

    def _of(self, occasion: str) -> set[str]:
        return self._listed.get(occasion, set()) | self._added.get(occasion, set())


@lru_cache(maxsize=1)  # read once for many releases, and for records that are verified again
def _digests_by_occasion(file: Path, stamp: tuple[object, ...]) -> dict[str, set[str]]:
    """Return the digests in a list, which a stamp identifies; nobody may change the result."""
    digests: dict[str, set[str]] = {}
    for entry in Journal(file).keys():  # noqa: SIM118 - a journal is no mapping
        occasion, _, digest = entry.partition(" ")
        digests.setdefault(occasion, set()).add(digest)
    return digests


def remember(occasion: str, digest: str) -> None:
    """List a digest; a cache that cannot be written knows less."""
    _append(known_list(), occasion, digest)


def _append(file: Path, occasion: str, digest: str) -> None:
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        # One system call, so that lines of two processes do not mix.
        with file.open("ab", buffering=0) as stream:
            stream.write(line_of(f"{occasion} {digest}", True))
