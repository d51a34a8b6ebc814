"""Long documents in chunks: windows of a text that a model takes whole.

The rule, which is part of the identity of a model that uses it:

- a document that the model takes whole stays one text, unchanged;
- a longer one becomes windows of at most ``size`` tokens, with the prompt and what the tokenizer
  adds, or of at most ``size`` characters;
- a window ends with the last sentence, or else line, that ends in its second half; if none does, at
  a blank, and without blanks between two characters;
- the next window begins up to an eighth of ``size`` earlier, at a blank, so that windows overlap;
- every character but the blanks around a window is in some window.

Tokens of a window are counted as the model counts them, not summed over its words.

References:
    Dai and Callan 2019, arXiv:1905.09217 (a document scores as its best passage, MaxP).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from qwen3nb.utils.choices import check_choice

CUT, BEST = "cut", "max"  # texts are cut at the longest length; or split, and the best one counts
CHOICES = (CUT, BEST)
ONLY_SEARCHES = "searches and reranks only, as it splits documents into chunks"
RULE = 1  # increase when the same text is split elsewhere: part of the identity
_OVERLAP = 8  # windows share at most an eighth of their size
_FEWEST, _MOST = 20, 1_000_000  # characters of a window that a user may choose
# A word, or a piece of a longer one, with the blanks before it.
_PIECE = re.compile(r"\s*\S{1,24}")
_CHARACTER = re.compile(r"\s*\S")
_FEWEST_PIECES = 4  # of a window; a piece that fills more is split into characters
_SENTENCE_END = re.compile(r"[.!?…。！？｡]['\"’”»)\]]*$")
Lengths: TypeAlias = Callable[[Sequence[str]], Sequence[int]]
Ids: TypeAlias = NDArray[np.int64]


def check_chunks(chunks: str) -> str:
    """Return ``cut``, ``max``, or a number of characters, as it was given.

    Raises:
        ValueError: another text, or too small or large a number.
    """
    if not chunks.isdecimal():
        return check_choice("chunks", chunks, (*CHOICES, "a number of characters"))
    if not _FEWEST <= int(chunks) <= _MOST:
        raise ValueError(f"chunks: expected {_FEWEST} to {_MOST:,} characters; got {chunks}")
    return chunks


def suffix(chunks: str) -> str:
    """Return what the label of a model with such chunks ends in.

    >>> suffix("max"), suffix("800"), suffix("cut")
    ('-chunks', '-chunks-800', '')
    """
    if chunks == CUT:
        return ""
    return "-chunks" if chunks == BEST else f"-chunks-{chunks}"


@dataclass(frozen=True)
class Chunks:
    """Texts of documents, of which some are split."""

    texts: list[str]
    owners: Ids  # the document of each text (N,), rising
    documents: int  # how many there are

    @property
    def split(self) -> tuple[int, int]:
        """How many documents are split, and into how many chunks."""
        chunks_of_each = np.bincount(self.owners, minlength=self.documents)
        is_split = chunks_of_each > 1
        return int(is_split.sum()), int(chunks_of_each[is_split].sum())


def split_texts(texts: Iterable[str], lengths: Lengths, size: int) -> Chunks:
    """Return texts, those longer than ``size`` as windows.

    Args:
        texts: the documents.
        lengths: returns the length of texts, such as their tokens with the prompt.
        size: the length that fits.
    """
    documents = list(texts)
    windows = {
        number: [documents[number][start:end] for start, end in spans]
        for number, spans in _all_windows(documents, lengths, size).items()
    }
    chunks: list[str] = []
    owners: list[int] = []
    for number, document in enumerate(documents):
        of_document = windows.get(number, [document])
        chunks += of_document
        owners += [number] * len(of_document)
    return Chunks(chunks, np.array(owners, dtype=np.int64), len(documents))


def _all_windows(
    documents: Sequence[str], lengths: Lengths, size: int
) -> dict[int, list[tuple[int, int]]]:
    """Return the windows of each document that is longer than ``size``, by its number."""
    lengths_of_all = lengths(documents)
    long_numbers = [number for number, length in enumerate(lengths_of_all) if length > size]
    (fixed,) = lengths([""])  # of the prompt and of what a tokenizer adds
    room = size - fixed
    if room < 1 or not long_numbers:  # a prompt as long as a text: nothing helps
        return {}
    costs = _PieceCosts(lengths, fixed)
    texts = {number: _Pieces.of(documents[number], costs, room) for number in long_numbers}
    rooms = dict.fromkeys(long_numbers, room)
    windows: dict[int, list[tuple[int, int]]] = {}
    # A window is not exactly as long as its pieces together: where one is too long, all of the
    # document get less room.
    while rooms:
        for number, room_left in rooms.items():
            windows[number] = texts[number].windows(room_left)
        rooms = _rooms_left(rooms, windows, documents, lengths, size)
    return windows


def _rooms_left(
    rooms: dict[int, int],
    windows: dict[int, list[tuple[int, int]]],
    documents: Sequence[str],
    lengths: Lengths,
    size: int,
) -> dict[int, int]:
    """Return less room for each document with a window that is still too long."""
    owners = [number for number in rooms for _ in windows[number]]
    texts = [documents[number][start:end] for number in rooms for start, end in windows[number]]
    excess: dict[int, int] = {}
    for number, length in zip(owners, lengths(texts), strict=True):
        excess[number] = max(excess.get(number, 0), length - size)
    smaller_rooms = {}
    for number, room in rooms.items():
        if excess[number] > 0 and room > 1:
            smaller_rooms[number] = max(1, room - excess[number])
    return smaller_rooms


@dataclass
class _PieceCosts:
    """The lengths of pieces of texts; each different one is measured once."""

    lengths: Lengths
    fixed: int  # the length of an empty text
    known: dict[str, int] = field(default_factory=dict)

    def of(self, pieces: Sequence[str]) -> Ids:
        """Return the length of each piece, at least 1."""
        new_pieces = [piece for piece in dict.fromkeys(pieces) if piece not in self.known]
        if new_pieces:
            self.known.update(zip(new_pieces, self.lengths(new_pieces), strict=True))
        costs = np.array([self.known[piece] for piece in pieces], dtype=np.int64)
        return np.maximum(1, costs - self.fixed)


def _small_pieces(text: str, costs: _PieceCosts, room: int) -> list[str]:
    """Return a text as words, long ones in pieces; characters where these fill much of a window."""
    pieces = _PIECE.findall(text)
    small_pieces: list[str] = []
    for piece, cost in zip(pieces, costs.of(pieces).tolist(), strict=True):
        if cost * _FEWEST_PIECES > room:
            small_pieces += _CHARACTER.findall(piece)
        else:
            small_pieces.append(piece)
    return small_pieces


@dataclass(frozen=True)
class _Pieces:
    """A text as pieces: their places, where sentences and words end, and lengths added up."""

    starts: Ids  # positions in the text, after the blanks before a piece
    ends: Ids
    sums: Ids  # of the lengths of the pieces before each, and of all (pieces + 1,)
    sentence_ends: Ids  # numbers of the pieces that end a sentence or a line
    word_ends: Ids  # numbers of the pieces with a blank after them
    word_starts: Ids  # numbers of the pieces with a blank before them

    @classmethod
    def of(cls, text: str, costs: _PieceCosts, room: int) -> _Pieces:
        """Return the pieces of a text for windows of at most ``room``."""
        pieces = _small_pieces(text, costs, room)
        words = [piece.lstrip() for piece in pieces]
        ends = np.cumsum([len(piece) for piece in pieces], dtype=np.int64)
        starts = ends - np.array([len(word) for word in words], dtype=np.int64)
        sentence_ends, word_ends = [], []
        for number, next_piece in enumerate(pieces[1:]):
            blanks = next_piece[: len(next_piece) - len(words[number + 1])]
            if blanks:
                word_ends.append(number)
            ends_sentence = blanks and _SENTENCE_END.search(words[number])
            # Without blanks, as in Chinese, a full stop is enough.
            ends_packed = words[number][-1:] in ("。", "！", "？", "｡")
            if ends_sentence or ends_packed or "\n" in blanks:
                sentence_ends.append(number)
        numbers_of_word_ends = np.array(word_ends, dtype=np.int64)
        return cls(
            starts=starts,
            ends=ends,
            sums=np.concatenate([[0], np.cumsum(costs.of(pieces))]),
            sentence_ends=np.array(sentence_ends, dtype=np.int64),
            word_ends=numbers_of_word_ends,
            word_starts=numbers_of_word_ends + 1,
        )

    def windows(self, room: int) -> list[tuple[int, int]]:
        """Return where windows of at most ``room`` begin and end in the text."""
        windows = []
        first = 0
        while True:
            last = self._last_piece(first, room)
            windows.append((int(self.starts[first]), int(self.ends[last])))
            if last == len(self.starts) - 1:
                return windows
            first = self._next_first(first, last, room)

    def _last_piece(self, first: int, room: int) -> int:
        """Return the last piece of the window that begins with a piece."""
        # The sum of the pieces first to last is sums[last + 1] - sums[first].
        beyond = int(np.searchsorted(self.sums, self.sums[first] + room, side="right"))
        furthest = max(first, beyond - 2)
        if furthest == len(self.starts) - 1:
            return furthest
        middle = int(np.searchsorted(self.sums, self.sums[first] + room // 2))
        for ends in (self.sentence_ends, self.word_ends):
            before = int(np.searchsorted(ends, furthest, side="right"))
            if before and ends[before - 1] >= max(first, middle):
                return int(ends[before - 1])
        return furthest

    def _next_first(self, first: int, last: int, room: int) -> int:
        """Return the first piece of the next window, which may lie within this one."""
        earliest = int(np.searchsorted(self.sums, self.sums[last + 1] - room // _OVERLAP))
        earliest = max(earliest, first + 1)
        after = int(np.searchsorted(self.word_starts, earliest))
        if after < len(self.word_starts) and self.word_starts[after] <= last + 1:
            return int(self.word_starts[after])
        return last + 1
