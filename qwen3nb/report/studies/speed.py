"""Encoding throughput beside sentence-transformers in the same run, as tables and in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.conclusion import Conclusion
from qwen3nb.report.render.figure import COLORS, GREY, Figure, grid, plain
from qwen3nb.report.render.table import Table
from qwen3nb.utils.format import interval_text, number_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MplFigure

    from qwen3nb.bench.encode import EncodeBench
    from qwen3nb.bench.precision import PrecisionBench

__all__ = [
    "precision_table",
    "speed_conclusion",
    "speed_figure",
    "speed_table",
    "time_shares_table",
]

_NOISE = 0.1  # ratios closer to 1 are not called a difference


def speed_table(benches: Iterable[EncodeBench]) -> Table:
    """A row per model, set of texts and method; ratios are to the first method of each set."""
    rows = []
    notes = {}
    for bench in benches:
        notes[f"{bench.model}, {bench.texts}"] = (
            f"{bench.count} texts, {bench.tokens:,} tokens, {bench.rounds} rounds, best batch size "
            f"of sentence-transformers {bench.batch_size}, {bench.work.gflop:.3g} GFLOP, matrix "
            f"peak {bench.peak_gflops:,.0f} GFLOP/s"
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
                    Cell(f"{100 * timing.peak_share:.0f} %", value=timing.peak_share),
                    Cell("yes" if timing.equal else "no", f"by at most {timing.difference:.0e}"),
                )
            )
    about = "; ".join(f"{name}: {text}" for name, text in notes.items())
    return Table(
        ("model", "method", "texts/s", "faster", "less CPU", "of the peak", "same vectors"),
        tuple(rows),
        f"Medians over rounds in which methods alternate, including tokenisation. {about}. "
        "Ratios within one run are comparable; seconds on a busy machine are not. The peak is the "
        "rate of the model's matrix products alone, in the same shapes and rounds.",
        name="speed",
        caption="Encoding throughput beside sentence-transformers on the same weights and texts.",
    )


def time_shares_table(benches: Iterable[EncodeBench]) -> Table:
    """A row per model and set of texts, with the share of the time of each part."""
    timed = [bench for bench in benches if bench.time_shares]
    parts = list(timed[0].time_shares) if timed else []
    rows = [
        (
            Cell(bench.model, bench.texts),
            *(
                Cell(f"{bench.time_shares[part]:.0%}", value=bench.time_shares[part])
                for part in parts
            ),
        )
        for bench in timed
    ]
    return Table(
        ("model", *parts),
        tuple(rows),
        "Of one untimed pass, operators by PyTorch's profiler, which makes the small ones a little "
        "slower; Python is what is left of the wall-clock time. Not measured on a GPU.",
        name="time_shares",
        caption="Where the time of load_encoder goes.",
    )


def precision_table(benches: Iterable[PrecisionBench]) -> Table:
    """A row per model and dtype: speed, and what is left of the vectors and of nDCG@10."""
    rows, notes = [], []
    for bench in benches:
        features = ", ".join(bench.cpu_features) or "none, so 16 bits are slow"
        notes.append(
            f"{bench.model}: {bench.texts} texts of mixed lengths, {bench.tokens:,} tokens; "
            f"{bench.documents:,} documents and {bench.queries:,} queries of PyDocs; equivalent: "
            f"shown to be within {bench.margin:g} of nDCG@10 in float32, by the 95 % "
            f"interval; instructions for 16 bits: {features}."
        )
        for each in bench.timings:
            exact = each.dtype == "float32"
            change = f"{number_text(each.ndcg_difference, sign=True, digits=4)} "
            change += interval_text(each.interval, digits=4)
            rows.append(
                (
                    Cell(bench.model, each.dtype),
                    Cell(f"{each.float32_ratio:.2f} ×", value=each.float32_ratio),
                    Cell(f"{each.peer_ratio:.2f} ×", value=each.peer_ratio),
                    Cell(f"{100 * each.peak_share:.0f} %", value=each.peak_share),
                    Cell(f"{each.cosine_min:.6f}", value=each.cosine_min),
                    Cell(number_text(each.ndcg), "" if exact else change, value=each.ndcg),
                    Cell(*each.shown),
                )
            )
    columns = ("model", "beside float32", "beside sentence-transformers", "of the peak",
               "least cosine", "nDCG@10", "equivalent")  # fmt: skip
    return Table(
        columns,
        tuple(rows),
        "On the CPU; sentence-transformers has the same dtype, and the peak is that of the dtype. "
        + " ".join(notes),
        name="precision",
        caption="Speed, vectors and scores in 16 bits.",
    )


def speed_figure(benches: Sequence[EncodeBench]) -> Figure | None:
    """Draw the speed of each method relative to sentence-transformers; None without timings."""
    if not benches:
        return None
    words = "; ".join(
        f"{bench.model}, {bench.texts}, {timing.name}: {timing.ratio:.2f} times"
        for bench in benches
        for timing in bench.timings
    )
    return Figure(
        name="speed",
        draw=lambda width: _bars(benches, width),
        caption="Texts per second of each method, relative to sentence-transformers at its best "
        "batch size (the line at 1): medians of "
        f"{min(bench.rounds for bench in benches)} rounds, without intervals.",
        alt=f"Bars of relative speed. {words}.",
    )


def _bars(benches: Sequence[EncodeBench], width: float) -> MplFigure:
    import matplotlib.pyplot as plt

    columns = min(2 if width > 5 else 1, len(benches))
    lines = -(-len(benches) // columns)
    most = max(len(bench.timings) for bench in benches)
    size = (width, lines * (0.24 * most + 0.8))
    figure, axes = plt.subplots(lines, columns, figsize=size, squeeze=False)
    for axis, bench in zip(axes.flat, benches, strict=False):
        rows = bench.timings[::-1]
        axis.barh(range(len(rows)), [t.ratio for t in rows], height=0.65, color=COLORS[0])
        axis.axvline(1, color=GREY, linewidth=1)
        names = [t.name.replace("sentence-transformers", "s.-t.") for t in rows]
        axis.set_yticks(range(len(rows)), [plain(name, most=30) for name in names])
        axis.tick_params(axis="y", length=0)
        axis.set_title(plain(f"{bench.model}, {bench.texts}", most=44), loc="right")
        axis.set_xlabel("times as fast")
        grid(axis)
    for axis in list(axes.flat)[len(benches) :]:
        axis.remove()
    return figure


def speed_conclusion(benches: Sequence[EncodeBench]) -> Conclusion:
    """Say how fast `load_encoder` is beside sentence-transformers, and whether vectors agree."""
    if not benches:
        return Conclusion("No model was timed.")
    speeds = "; ".join(_speed(bench) for bench in benches)
    last = [bench.timings[-1] for bench in benches]
    furthest = max(timing.difference for timing in last)
    same = "The vectors are the same" if all(t.equal for t in last) else "The vectors differ"
    rounds = min(bench.rounds for bench in benches)
    return Conclusion(
        f"Beside sentence-transformers at its best batch size, load_encoder is {speeds}. "
        f"{same}: at most {furthest:.0e} apart. {_limits(benches)} The times are "
        f"medians of {rounds} rounds on one machine, without intervals, so ratios within "
        f"{100 * _NOISE:.0f} % of 1 count as equal."
    )


def _limits(benches: Sequence[EncodeBench]) -> str:
    """Say how close the last method comes to the machine's limit."""
    shares = [bench.timings[-1].peak_share for bench in benches]
    low, high = f"{100 * min(shares):.0f}", f"{100 * max(shares):.0f}"
    reached = f"{low} %" if low == high else f"{low} to {high} %"
    return f"It reaches {reached} of what this machine's matrix products reach alone."


def _speed(bench: EncodeBench) -> str:
    ratio = bench.timings[-1].ratio
    about = f"for {bench.model} on {bench.texts}"
    if abs(ratio - 1) <= _NOISE:
        return f"as fast {about} ({ratio:.2f} times)"
    return f"{ratio:.2f} times as fast{', so slower,' if ratio < 1 else ''} {about}"
