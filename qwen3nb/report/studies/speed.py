"""Table of encoding throughput beside sentence-transformers in the same run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.table import Table

if TYPE_CHECKING:
    from qwen3nb.bench.encode import EncodeBench

__all__ = ["speed_table"]


def speed_table(benches: Iterable[EncodeBench]) -> Table:
    """A row per model, set of texts and method; ratios are to the first method of each set."""
    rows = []
    notes = {}
    for bench in benches:
        notes[f"{bench.model}, {bench.texts}"] = (
            f"{bench.count} texts, {bench.tokens:,} tokens, {bench.rounds} rounds, best batch size "
            f"of sentence-transformers {bench.batch_size}"
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
        ("model", "method", "texts/s", "faster", "less CPU", "same vectors"),
        tuple(rows),
        f"Medians over rounds in which methods alternate, including tokenisation. {about}. "
        "Ratios within one run are comparable; seconds on a busy machine are not.",
        name="speed",
        caption="Encoding throughput beside sentence-transformers on the same weights and texts.",
    )
