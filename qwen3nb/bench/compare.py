"""Compare two kept runs of `qwen3nb bench encode --json`, such as of two processors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from qwen3nb.bench.harness import table
from qwen3nb.datasets.rows import finite_number
from qwen3nb.utils.atomic_files import read_json

_EXPECTED = "expected what `qwen3nb bench encode --json` prints"
Key: TypeAlias = tuple[str, str]  # model and set of texts
Bench: TypeAlias = dict[str, Any]  # an `EncodeBench` as JSON


@dataclass(frozen=True)
class RunComparison:
    """What two runs have in common, by model, set of texts and method.

    A row has the ratio to sentence-transformers in each run (``first`` and ``second``), and the
    ``speed`` of the second run in texts per second relative to the first.
    """

    machines: tuple[str, str]
    rows: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]  # what is not comparable

    def table(self) -> str:
        """The ratios as plain text."""
        first, second = self.machines
        return table(
            f"A: {first}",
            f"B: {second}",
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
    rows: list[dict[str, Any]] = []
    notes = []
    for key in dict.fromkeys([*first_benches, *second_benches]):
        name = ", ".join(key)
        if key not in second_benches:
            notes.append(f"{name}: only in A")
        elif key not in first_benches:
            notes.append(f"{name}: only in B")
        else:
            a, b = first_benches[key], second_benches[key]
            differing = _differing(a, b)
            if differing:
                notes.append(f"{name}: not the same {differing}; the speeds do not compare")
            rows += _rows(a, b)
    if not rows:
        raise ValueError(f"{first} and {second} have no model and texts in common")
    return RunComparison((first_machine, second_machine), tuple(rows), tuple(notes))


def _differing(a: Bench, b: Bench) -> str:
    """Name what differs between two runs of the same name: the model, the texts or both."""
    differing = []
    if a["identity"] != b["identity"]:
        differing.append("model")
    if a["digest"] != b["digest"]:
        differing.append("texts")
    return " and ".join(differing)


def _rows(a: Bench, b: Bench) -> Iterator[dict[str, Any]]:
    """Yield a row for each method that is in both runs."""
    second_timings = {timing["way"]: timing for timing in b["timings"]}
    for timing in a["timings"]:
        other = second_timings.get(timing["way"])
        if other is not None:
            yield {
                "model": a["model"],
                "texts": a["texts"],
                "method": timing["way"],
                "first": timing["ratio"],
                "second": other["ratio"],
                "speed": b["count"] / other["seconds"] * timing["seconds"] / a["count"],
            }


def _read_run(file: Path) -> tuple[str, dict[Key, Bench]]:
    """Return the machine, and the results by model and set of texts.

    Raises:
        ValueError: a file of something else.
    """
    document = read_json(file)
    try:
        benches = {}
        for bench in document["results"]:
            _check(bench, file)
            benches[bench["model"], bench["texts"]] = bench
        return document["machine"], benches
    except (LookupError, TypeError) as error:
        raise ValueError(f"{file}: {_EXPECTED}; {error!r:.120}") from None


def _check(bench: Bench, file: Path) -> None:
    """Raise unless a result has what a comparison needs."""
    name = ", ".join([bench["model"], bench["texts"]])  # TypeError for other than texts
    _ = bench["digest"], bench["identity"]
    numbers = [bench["count"]]
    for timing in bench["timings"]:
        _ = timing["way"]
        numbers += [timing["seconds"], timing["ratio"]]
    if not all(finite_number(number) for number in numbers):
        raise ValueError(f"{file}: {_EXPECTED}; {name}: a count, seconds or ratio is not a number")
