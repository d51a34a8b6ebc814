"""Compare two kept runs of `qwen3nb bench encode --json`, such as of two processors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from qwen3nb.bench.harness import Row, table
from qwen3nb.datasets.rows import finite_number
from qwen3nb.utils.bounded_files import read_bounded_json

_EXPECTED = "expected what `qwen3nb bench encode --json` prints"
Key: TypeAlias = tuple[str, str]  # model and set of texts


@dataclass(frozen=True)
class _Timing:
    """The time of one method."""

    method: str
    seconds: float
    ratio: float  # of sentence-transformers to it


@dataclass(frozen=True)
class _Bench:
    """A result of a kept run."""

    model: str
    texts: str  # name of the set
    identity: str  # of the model
    digest: str  # of the texts
    count: int
    timings: list[_Timing]


@dataclass(frozen=True)
class RunComparison:
    """What two runs have in common, by model, set of texts and method.

    A row has the ratio to sentence-transformers in each run (``first`` and ``second``), and the
    ``speed`` of the second run in texts per second relative to the first.
    """

    machines: tuple[str, str]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]  # what is not comparable

    def table(self) -> str:
        """The ratios as plain text."""
        first_machine, second_machine = self.machines
        return table(
            f"A: {first_machine}",
            f"B: {second_machine}",
            rows=self.rows,
            shown="model: {model} | texts: {texts} | method: {method} | A, faster: {first:.2f}x | "
            "B, faster: {second:.2f}x | speed of B to A: {speed:.2f}x",
            notes=["faster: than sentence-transformers in the same run", *self.notes],
        )


def compare_runs(first: Path, second: Path) -> RunComparison:
    """Read both files and compare what is in both.

    Raises:
        ValueError: a file of something else, or nothing in common.
    """
    first_machine, first_benches = _read_run(first)
    second_machine, second_benches = _read_run(second)
    rows: list[Row] = []
    notes = []
    # Keys of both runs, those of the first in its order, each once.
    for key in dict.fromkeys([*first_benches, *second_benches]):
        name = ", ".join(key)
        if key not in second_benches:
            notes.append(f"{name}: only in A")
            continue
        if key not in first_benches:
            notes.append(f"{name}: only in B")
            continue
        first_bench, second_bench = first_benches[key], second_benches[key]
        differing_parts = _differing(first_bench, second_bench)
        if differing_parts:
            notes.append(f"{name}: not the same {differing_parts}; the speeds do not compare")
        rows += _rows_of_both(first_bench, second_bench)
    if not rows:
        raise ValueError(f"{first} and {second} have no model and texts in common")
    return RunComparison((first_machine, second_machine), tuple(rows), tuple(notes))


def _differing(first: _Bench, second: _Bench) -> str:
    """Name what differs between two runs of the same name: the model, the texts or both."""
    differing_parts = []
    if first.identity != second.identity:
        differing_parts.append("model")
    if first.digest != second.digest:
        differing_parts.append("texts")
    return " and ".join(differing_parts)


def _rows_of_both(first: _Bench, second: _Bench) -> Iterator[Row]:
    """Yield a row for each method that is in both runs."""
    timing_in_second = {timing.method: timing for timing in second.timings}
    for timing in first.timings:
        second_timing = timing_in_second.get(timing.method)
        if second_timing is None:
            continue
        second_speed = second.count / second_timing.seconds
        yield {
            "model": first.model,
            "texts": first.texts,
            "method": timing.method,
            "first": timing.ratio,
            "second": second_timing.ratio,
            # Texts per second of the second run, over those of the first.
            "speed": second_speed * timing.seconds / first.count,
        }


def _read_run(file: Path) -> tuple[str, dict[Key, _Bench]]:
    """Return the machine, and the results by model and set of texts.

    Raises:
        ValueError: a file of something else.
    """
    document = read_bounded_json(file)
    try:
        benches = {}
        for content in document["results"]:
            bench = _read_bench(content, file)
            benches[bench.model, bench.texts] = bench
        return document["machine"], benches
    except (LookupError, TypeError) as error:
        raise ValueError(f"{file}: {_EXPECTED}; {error!r:.120}") from None


def _read_bench(content: Mapping[str, Any], file: Path) -> _Bench:
    """Return what a comparison needs of a result, an `EncodeBench` as JSON.

    Raises:
        LookupError: something is missing.
        TypeError: a name is not a text.
        ValueError: a number is none.
    """
    name = ", ".join([content["model"], content["texts"]])  # TypeError for other than texts
    timings = [
        _Timing(timing["way"], timing["seconds"], timing["ratio"]) for timing in content["timings"]
    ]
    numbers = [content["count"]]
    for timing in timings:
        numbers += [timing.seconds, timing.ratio]
    # `finite_number` is None for no number; 0 is refused, too, because speeds divide by it.
    if not all(finite_number(number) for number in numbers):
        raise ValueError(f"{file}: {_EXPECTED}; {name}: a count, seconds or ratio is not a number")
    return _Bench(
        model=content["model"],
        texts=content["texts"],
        identity=content["identity"],
        digest=content["digest"],
        count=content["count"],
        timings=timings,
    )
