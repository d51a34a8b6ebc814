"""The share of one process in a job that several do, such as the tasks of a Slurm array.

All that they share is a disk. Each does its own share first, then what no other has begun. What a
process is at is claimed by a lock, which ends with it; see `qwen3nb.utils.atomic_files.claim`. The
first process with nothing left to claim waits for the others, takes over what one of them leaves
when it dies, and finishes the job: the page of an evaluation, the book of a sweep. All others end.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from qwen3nb.evaluation.run import EvaluationRun
from qwen3nb.execution.parts import shares_of
from qwen3nb.execution.study_paths import Values
from qwen3nb.report.evaluation.checked_run import check_and_evaluate, check_baseline
from qwen3nb.utils.atomic_files import claim

_Entry = TypeVar("_Entry")
_MOST_NAMES = 5  # of tasks or runs in a line


@dataclass(frozen=True)
class Share:
    """The share of one process. Processes count from 0 or from 1: of eight, 8 is the same as 0."""

    number: int
    count: int  # of processes

    @classmethod
    def parse(cls, text: str) -> Share:
        """Return the share in a text such as ``3/8``; raise ValueError for any other.

        >>> Share.parse("3/8")
        Share(number=3, count=8)
        """
        match = re.fullmatch(r"(\d{1,6})/([1-9]\d{0,5})", text.strip(), flags=re.ASCII)
        if match is None:
            raise ValueError(f"expected a part and their number, such as 3/8; got {text!r}")
        number, count = int(match[1]), int(match[2])
        if number > count:
            raise ValueError(
                f"expected a part of 0/{count} to {count - 1}/{count}, or of 1/{count} to "
                f"{count}/{count}; got {text!r}"
            )
        return cls(number, count)

    def in_turn(self, shares: Sequence[Sequence[_Entry]]) -> list[_Entry]:
        """Return the entries of all shares in the order in which this process tries them.

        The own ones come first. Those of others begin with the next share, each from its end, where
        its process comes last.

        >>> Share(1, 3).in_turn([("a", "b"), ("c", "d"), ("e",)])
        ['c', 'd', 'e', 'b', 'a']
        """
        padded: list[Sequence[_Entry]] = [*shares]
        padded += [()] * (self.count - len(shares))
        own = self.number % self.count
        entries = list(padded[own])
        for share in [*padded[own + 1 :], *padded[:own]]:
            entries += reversed(share)
        return entries

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


class LastOne:
    """The claim of the process that waits for the others, and finishes the job.

    Use as a context, which ends the claim.
    """

    def __init__(self, file: Path) -> None:
        """Claim by a lock next to ``file``, which all processes share."""
        self._file = file
        self._stack = ExitStack()
        self._is_this: bool | None = None  # None: not tried yet

    def __enter__(self) -> LastOne:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def is_this(self) -> bool:
        """Return whether this process has the claim; try to get it if that was not tried yet."""
        if self._is_this is None:
            self._is_this = self._stack.enter_context(claim(self._file, purpose="waits"))
        return self._is_this

    def waits_for(self, names: Sequence[str]) -> bool:
        """Return `is_this`; if so, say for what this process waits."""
        if self.is_this():
            print(f"waiting for other processes: {short_list(names)}", file=sys.stderr)
        return self.is_this()


@dataclass(frozen=True)
class SharedEvaluation:
    """What one process did of an evaluation."""

    share: Share
    run: EvaluationRun
    is_last: bool  # whether it has to make the page

    @property
    def line(self) -> str:
        """What it did, and what is still open, in one line."""
        number_new = len(self.run.results) - len(self.run.reused)
        counts = [f"{number_new} evaluated", f"{len(self.run.reused)} found"]
        if self.run.failures:
            counts.append(f"{len(self.run.failures)} failed")
        open_names = [*self.run.left, *self.run.failures]
        return share_line(self.share, counts, open_names, is_last=self.is_last)


@contextmanager
def share_of_evaluation(values: Values, share: Share, *, file: Path) -> Iterator[SharedEvaluation]:
    """Evaluate a share of the tasks of an evaluation; in the block, its page can be made.

    Args:
        values: all parameters of ``eval.ipynb``, with paths as seen from the working directory.
        share: of this process.
        file: of the evaluation, next to which processes claim its end.

    Raises:
        ValueError, MirrorError, PreflightError, EncoderError: as `check_and_evaluate`.
    """
    check_baseline(values["baseline"], values["output_dir"])
    names = share.in_turn(shares_of(values, share.count))
    with LastOne(file) as last_one:
        evaluation = check_and_evaluate(**values, only=names, wait_for=last_one.waits_for)
        run = evaluation.evaluation
        del evaluation  # and the model, which the page may need to load
        yield SharedEvaluation(share, run, is_last=last_one.is_this())


def share_line(
    share: Share, counts: Sequence[str], open_names: Sequence[str], *, is_last: bool
) -> str:
    """Return what a process did and what is open, in one line."""
    line = f"part {share}: {', '.join(counts)}; "
    if open_names:
        line += f"open: {short_list(open_names)}"
    else:
        line += "nothing is open"
    if not is_last:
        line += "; another process finishes"
    return line


def short_list(names: Sequence[str]) -> str:
    """Return a list of names, the first of many.

    >>> short_list(list("abcdefgh"))
    'a, b, c, d, e and 3 more'
    """
    text = ", ".join(names[:_MOST_NAMES])
    number_more = len(names) - _MOST_NAMES
    if number_more > 0:
        text += f" and {number_more} more"
    return text
