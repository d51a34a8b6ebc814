"""Compare two kept runs of `qwen3nb bench encode --json`, such as of two processors."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qwen3nb.bench.harness import table
from qwen3nb.datasets.rows import finite_number
from qwen3nb.utils.atomic_files import read_json


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
        return table(
            *(f"{name}: {each}" for name, each in zip("AB", self.machines, strict=True)),
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
    machines, benches = zip(*map(_run, (first, second)), strict=True)
    rows, notes = [], []
    for key in dict.fromkeys([*benches[0], *benches[1]]):
        name = ", ".join(key)
        if any(key not in each for each in benches):
            notes.append(f"{name}: only in {'A' if key in benches[0] else 'B'}")
            continue
        a, b = (each[key] for each in benches)
        what = [k for k, f in (("model", "identity"), ("texts", "digest")) if a[f] != b[f]]
        if what:
            notes.append(f"{name}: not the same {' and '.join(what)}; the speeds do not compare")
        theirs = {each["way"]: each for each in b["timings"]}
        for own in a["timings"]:
            if other := theirs.get(own["way"]):
                speed = b["count"] / other["seconds"] * own["seconds"] / a["count"]
                rows.append(
                    {"model": key[0], "texts": key[1], "method": own["way"]}
                    | {"first": own["ratio"], "second": other["ratio"], "speed": speed}
                )
    if not rows:
        raise ValueError(f"{first} and {second} have no model and texts in common")
    return RunComparison(machines, tuple(rows), tuple(notes))


def _run(file: Path) -> tuple[str, dict[tuple[str, str], dict[str, Any]]]:
    """Return the machine, and the results by model and set of texts."""
    document, expected = read_json(file), "expected what `qwen3nb bench encode --json` prints"
    try:
        benches = {(each["model"], each["texts"]): each for each in document["results"]}
        for key, each in benches.items():
            _ = each["digest"], each["identity"], {timing["way"] for timing in each["timings"]}
            numbers = (timing[name] for timing in each["timings"] for name in ("seconds", "ratio"))
            odd = f"{', '.join(key)}: a count, seconds or ratio is not a number"
            if not all(map(finite_number, (each["count"], *numbers))):
                raise ValueError(f"{file}: {expected}; {odd}")
        return document["machine"], benches
    except (LookupError, TypeError) as error:
        raise ValueError(f"{file}: {expected}; {error!r:.120}") from None
