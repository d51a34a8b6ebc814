"""Encoding throughput compared with sentence-transformers in the same run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from qwen3nb.report.render.figure import COLORS, GREY, Figure, MplFigure, grid, panels, plain
from qwen3nb.report.render.table import Cell, Conclusion, Table, number
from qwen3nb.utils.format import interval_text

if TYPE_CHECKING:
    from qwen3nb.bench.encode import EncodeBench, PrecisionBench


def _times(ratio: float) -> Cell:
    return Cell(f"{ratio:.2f} ×", value=ratio)


def _share(value: float) -> Cell:
    return Cell(f"{100 * value:.0f} %", value=value)


def speed_table(benches: Iterable[EncodeBench]) -> Table:
    """A row per model, set of texts and method; ratios are to the first method of each set."""
    benches = list(benches)
    about = "; ".join(
        f"{bench.model}, {bench.texts}: {bench.count} texts, {bench.tokens:,} tokens, "
        f"{bench.rounds} rounds, best batch size of sentence-transformers {bench.batch_size}, "
        f"{bench.gflop:.3g} GFLOP, matrix peak {bench.peak_gflops:,.0f} GFLOP/s"
        for bench in benches
    )
    return Table.of(
        (
            {
                "model": (bench.model, bench.texts),
                "method": timing["name"],
                "texts/s": number(bench.count / timing["seconds"], ",.0f"),
                "faster": _times(timing["ratio"]),
                "less CPU": _times(timing["cpu_ratio"]),
                "of the peak": _share(timing["peak_share"]),
                "same vectors": (
                    "yes" if timing["equal"] else "no",
                    f"by at most {timing['difference']:.0e}",
                ),
            }
            for bench in benches
            for timing in bench.timings
        ),
        note=f"Medians over rounds in which methods alternate, including tokenisation. {about}. "
        "Ratios within one run are comparable; seconds on a busy machine are not. The peak is the "
        "rate of the model's matrix products alone, in the same shapes and rounds.",
        name="speed",
        caption="Encoding throughput next to sentence-transformers on the same weights and texts.",
    )


def precision_table(benches: Sequence[PrecisionBench]) -> Table:
    """A row per model and dtype: speed, and the effect on vectors and nDCG@10."""
    rows = []
    for bench in benches:
        for each in bench.timings:
            ends = interval_text(each["interval"], digits=4)
            change = f"{each['ndcg_difference']:+.4f} {ends}" if each["dtype"] != "float32" else ""
            rows.append(
                {
                    "model": (bench.model, each["dtype"]),
                    "to float32": _times(each["float32_ratio"]),
                    "to sentence-transformers": _times(each["peer_ratio"]),
                    "of the peak": _share(each["peak_share"]),
                    "least cosine": number(each["cosine_min"], ".6f"),
                    f"nDCG@10\nPyDocs, {bench.queries} queries": (each["ndcg"], change),
                    f"equivalent\nwithin {bench.margin:g}": bench.shown(each),
                }
            )
    return Table.of(
        rows,
        note="On the CPU; sentence-transformers has the same dtype, or float32 for int8, and the "
        "peak is that of the dtype. Equivalent to float32 by the 95 % interval.",
        name="precision",
        caption="Speed, vectors and scores in 16 and 8 bits.",
    )


def speed_figure(benches: Sequence[EncodeBench]) -> Figure | None:
    """Draw the speed of each method relative to sentence-transformers; None without timings."""
    if not benches:
        return None

    def draw(width: float) -> MplFigure:
        height = 0.24 * max(len(bench.timings) for bench in benches) + 0.8
        figure, axes, _ = panels(len(benches), width, height=height, most=2)
        for axis, bench in zip(axes, benches, strict=True):
            rows = bench.timings[::-1]
            axis.barh(range(len(rows)), [t["ratio"] for t in rows], height=0.65, color=COLORS[0])
            axis.axvline(1, color=GREY, linewidth=1)
            names = [t["name"].replace("sentence-transformers", "s.-t.") for t in rows]
            axis.set_yticks(range(len(rows)), [plain(name, most=30) for name in names])
            axis.tick_params(axis="y", length=0)
            axis.set_title(plain(f"{bench.model}, {bench.texts}", most=44), loc="right")
            axis.set_xlabel("times as fast")
            grid(axis)
        return figure

    words = "; ".join(
        f"{bench.model}, {bench.texts}, {timing['name']}: {timing['ratio']:.2f} times"
        for bench in benches
        for timing in bench.timings
    )
    return Figure(
        name="speed",
        draw=draw,
        caption="Texts per second of each method, relative to sentence-transformers at its best "
        "batch size (the line at 1): medians of "
        f"{min(bench.rounds for bench in benches)} rounds, without intervals.",
        alt=f"Bars of relative speed. {words}.",
    )


def speed_conclusion(benches: Sequence[EncodeBench]) -> Conclusion:
    """Compare speed and vectors of `load_encoder` with those of sentence-transformers."""
    if not benches:
        return Conclusion("No model was timed.")
    last = [bench.timings[-1] for bench in benches]
    ratios = "; ".join(
        f"{timing['ratio']:.2f} times as fast for {bench.model} on {bench.texts}"
        for bench, timing in zip(benches, last, strict=True)
    )
    furthest = max(timing["difference"] for timing in last)
    same = "the same" if all(timing["equal"] for timing in last) else "not the same"
    shares = [100 * timing["peak_share"] for timing in last]
    return Conclusion(
        f"Compared with sentence-transformers at its best batch size, load_encoder is {ratios}. "
        f"The vectors are {same}, at most {furthest:.0e} apart. It reaches {min(shares):.0f} to "
        f"{max(shares):.0f} % of what this machine's matrix products reach alone. The times are "
        f"medians of {min(bench.rounds for bench in benches)} rounds on one machine, without "
        "intervals: ratios within 10 % of 1 are not a difference."
    )
