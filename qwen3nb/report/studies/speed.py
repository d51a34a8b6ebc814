"""How fast texts are encoded, beside sentence-transformers in the same run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.table import Table

if TYPE_CHECKING:
    from qwen3nb.bench.encode import EncodeBench

__all__ = ["speed_table"]


def speed_table(found: Iterable[EncodeBench]) -> Table:
    """A row per model, set of texts and way; how many times faster than the first way of each."""
    rows = []
    notes = {}
    for bench in found:
        notes[f"{bench.model}, {bench.texts}"] = (
            f"{bench.count} texts, {bench.tokens:,} tokens, {bench.rounds} rounds, their best "
            f"batch size {bench.batch_size}"
        )
        for way in bench.timings:
            rows.append(
                (
                    Cell(bench.model, bench.texts),
                    Cell(way.name),
                    Cell(f"{bench.count / way.seconds:,.0f}", value=bench.count / way.seconds),
                    Cell(f"{way.ratio:.2f} ×", value=way.ratio),
                    Cell(f"{way.cpu_ratio:.2f} ×", value=way.cpu_ratio),
                    Cell("yes" if way.equal else "no", f"by at most {way.difference:.0e}"),
                )
            )
    about = "; ".join(f"{name}: {text}" for name, text in notes.items())
    return Table(
        ("model", "way", "texts/s", "faster", "less CPU", "same vectors"),
        tuple(rows),
        f"Medians of rounds in which all ways take turns, tokenising included. {about}. Ratios of "
        "one run compare; seconds of a busy machine do not.",
        name="speed",
        caption="Encoding beside sentence-transformers on the same weights and texts.",
    )
