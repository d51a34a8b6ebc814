"""How fast texts are encoded, beside sentence-transformers in the same run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.table import Table

if TYPE_CHECKING:
    from qwen3nb.bench.encode import EncodeBench

__all__ = ["speed_table"]


def speed_table(benches: Iterable[EncodeBench]) -> Table:
    """A row per model, set of texts and way; how many times faster than the first way of each."""
    rows = []
    notes = {}
    for bench in benches:
        notes[f"{bench.model}, {bench.texts}"] = (
            f"{bench.count} texts, {bench.tokens:,} tokens, {bench.rounds} rounds, their best "
            f"batch size {bench.batch_size}"
        )
        for timing in bench.timings:
            rows.append(
                (
                    Cell(bench.model, bench.texts),
                    Cell(timing.name),
                    Cell(
                        f"{bench.count / timing.seconds:,.0f}", value=bench.count / timing.seconds
                    ),
                    Cell(f"{timing.ratio:.2f} ×", value=timing.ratio),
                    Cell(f"{timing.cpu_ratio:.2f} ×", value=timing.cpu_ratio),
                    Cell("yes" if timing.equal else "no", f"by at most {timing.difference:.0e}"),
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
