"""Encoding throughput next to sentence-transformers in the same run, as tables and in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from qwen3nb.report.render.cell import Cell, number
from qwen3nb.report.render.conclusion import Conclusion
from qwen3nb.report.render.figure import COLORS, GREY, Figure, MplFigure, grid, panels, plain
from qwen3nb.report.render.table import Table
from qwen3nb.utils.format import interval_text

if TYPE_CHECKING:
    from qwen3nb.bench.encode import EncodeBench, PrecisionBench

_NOISE = 0.1  # ratios closer to 1 are not called a difference


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
        f"{bench.work.gflop:.3g} GFLOP, matrix peak {bench.peak_gflops:,.0f} GFLOP/s"
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
        caption="Encoding throughput beside sentence-transformers on the same weights and texts.",
    )


def time_shares_table(benches: Iterable[EncodeBench]) -> Table:
    """A row per model and set of texts, with the share of the time of each part."""
    return Table.of(
        (
            {
                "model": (bench.model, bench.texts),
                **{part: number(share, ".0%") for part, share in bench.time_shares.items()},
            }
            for bench in benches
            if bench.time_shares
        ),
        note="Of one untimed pass, operators by PyTorch's profiler, which makes the small ones a "
        "little slower; Python is what is left of the wall-clock time. Not measured on a GPU.",
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
            ends = interval_text(each["interval"], digits=4)
            change = f"{each['ndcg_difference']:+.4f} {ends}" if each["dtype"] != "float32" else ""
            rows.append(
                {
                    "model": (bench.model, each["dtype"]),
                    "to float32": _times(each["float32_ratio"]),
                    "to sentence-transformers": _times(each["peer_ratio"]),
                    "of the peak": _share(each["peak_share"]),
                    "least cosine": number(each["cosine_min"], ".6f"),
                    "nDCG@10": (each["ndcg"], change),
                    "equivalent": bench.shown(each),
                }
            )
    return Table.of(
        rows,
        note="On the CPU; sentence-transformers has the same dtype, and the peak is that of the "
        f"dtype. {' '.join(notes)}",
        name="precision",
        caption="Speed, vectors and scores in 16 bits.",
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
    """Say how `load_encoder` compares with sentence-transformers in speed and in vectors."""
    if not benches:
        return Conclusion("No model was timed.")
    ratios = []
    for bench in benches:
        ratio, about = bench.timings[-1]["ratio"], f"for {bench.model} on {bench.texts}"
        words = f"{ratio:.2f} times as fast{', so slower,' if ratio < 1 else ''} {about}"
        equal = abs(ratio - 1) <= _NOISE
        ratios.append(f"as fast {about} ({ratio:.2f} times)" if equal else words)
    last = [bench.timings[-1] for bench in benches]
    furthest = max(timing["difference"] for timing in last)
    same = "The vectors are the same" if all(t["equal"] for t in last) else "The vectors differ"
    shares = sorted(timing["peak_share"] for timing in last)
    ends = dict.fromkeys(f"{100 * share:.0f}" for share in (shares[0], shares[-1]))
    return Conclusion(
        "Beside sentence-transformers at its best batch size, load_encoder is "
        f"{'; '.join(ratios)}. {same}: at most {furthest:.0e} apart. "
        f"It reaches {' to '.join(ends)} % of what this machine's matrix products reach alone. "
        f"The times are medians of {min(bench.rounds for bench in benches)} rounds on one machine, "
        f"without intervals, so ratios within {100 * _NOISE:.0f} % of 1 count as equal."
    )
