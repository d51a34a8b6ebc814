"""How fast is it? Encoding next to sentence-transformers, and in 16 and 8 bits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from qwen3nb.answers.answer import Answer
from qwen3nb.bench.harness import OtherWork
from qwen3nb.report.render.figure import GREY, QUIET, Axes, Figure, MplFigure, grid, panels, plain
from qwen3nb.report.render.table import Cell, Conclusion, Table, number
from qwen3nb.utils.format import interval_text
from qwen3nb.utils.imports import DataFrame

if TYPE_CHECKING:
    from qwen3nb.bench.encode import EncodeBench, EncodeTiming
    from qwen3nb.bench.precision import PrecisionBench, PrecisionTiming
    from qwen3nb.models.encoders.base import Encoder

_SENTENCES = 3  # dtypes in a conclusion


@dataclass(frozen=True, repr=False)
class Speed(Answer):
    """Encoding throughput compared with sentence-transformers in the same run."""

    benches: tuple[EncodeBench, ...]  # one per model and set of texts
    models: tuple[str, ...] = ()
    texts: int = 16  # of each set; see `speed`
    rounds: int = 3  # how often each method was timed

    @property
    def texts_to_encode(self) -> dict[str, list[str]]:
        """The sets of texts that are encoded, by name."""
        from qwen3nb.bench.encode import bench_texts

        return bench_texts(self.texts)

    @contextmanager
    def encoder(self, model: str, **options: Any) -> Iterator[Encoder]:
        """Load one of the models for the block; random ones are written to a folder first.

        The options are those of `load_encoder`.
        """
        from qwen3nb.bench.random_models import model_folder
        from qwen3nb.models.load import load_encoder

        texts = self.texts_to_encode["mixed lengths"]
        with model_folder(model, texts) as folder:
            yield load_encoder(folder, **options)

    def in_fewer_bits(self, *, documents: int = 240, queries: int = 80) -> Precision:
        """Time the models in 16 and 8 bits, and compare vectors and scores with float32.

        So few ``documents`` and ``queries`` of PyDocs cannot show that a difference is small.
        """
        return precision(
            self.models,
            documents=documents,
            queries=queries,
            texts=self.texts,
            rounds=self.rounds,
        )

    @property
    def conclusion(self) -> Conclusion:
        """Speed and vectors of this package compared with those of sentence-transformers."""
        if not self.benches:
            return Conclusion("No model was timed.")
        # Our own method comes after those of the other libraries.
        our_timings = [bench.timings[-1] for bench in self.benches]
        difference = max(timing["difference"] for timing in our_timings)
        relation = "not the same"
        if all(timing["equal"] for timing in our_timings):
            relation = "the same"
        sentences = [
            f"load_encoder is {self._ratios_text()} as fast as sentence-transformers at its best "
            "batch size.",
            f"The vectors are {relation}, at most {difference:.0e} apart.",
            "The times have no intervals: a ratio within 10 % of 1 is no difference.",
        ]
        return Conclusion(" ".join(sentences))

    def _ratios_text(self) -> str:
        """Return how many times as fast it is, from the least to the most."""
        slowest_first = sorted(self.benches, key=lambda bench: bench.timings[-1]["ratio"])
        slowest, fastest = slowest_first[0], slowest_first[-1]
        least, most = slowest.timings[-1]["ratio"], fastest.timings[-1]["ratio"]
        if slowest is fastest:
            return f"{most:.2f} times"
        return f"{least:.2f} times ({slowest.texts}) to {most:.2f} times ({fastest.texts})"

    @property
    def _rounds(self) -> int:
        return min(bench.rounds for bench in self.benches)

    def table(self) -> Table:
        """A row per model, texts and method; ratios are to the first method of each set."""
        rows = []
        setups = []
        works = [bench.others for bench in self.benches]
        busiest = max(works, key=attrgetter("cores"), default=OtherWork())
        warning = f" But {busiest.warning}." if busiest.warning else ""
        for bench in self.benches:
            rows += [_row(bench, timing) for timing in bench.timings]
            setups.append(
                f"{bench.model}, {bench.texts}: {bench.count} texts, {bench.tokens:,} tokens, "
                f"{bench.rounds} rounds, best batch size of sentence-transformers "
                f"{bench.batch_size}, {bench.gflop:.3g} GFLOP, matrix peak in "
                f"GFLOP/s: {bench.peaks_text}"
            )
        return Table.of(
            rows,
            note="Medians over rounds in which methods alternate, including tokenisation. Compare "
            f"ratios within one run, not seconds.{warning}",
            method=f"{'; '.join(setups)}. The peak is the rate of the model's matrix products "
            "alone, in the same shapes, rounds and precision.",
            name="speed",
            caption="Encoding throughput next to sentence-transformers on the same weights and "
            "texts.",
        )

    def figure(self) -> Figure | None:
        """The speed of each method relative to sentence-transformers; None without timings."""
        if not self.benches:
            return None
        words = []
        for bench in self.benches:
            for timing in bench.timings:
                words.append(
                    f"{bench.model}, {bench.texts}, {timing['name']}: {timing['ratio']:.2f} times"
                )
        return Figure(
            name="speed",
            draw=self._draw,
            caption="Texts per second of each method, relative to sentence-transformers at its "
            f"best batch size (the line at 1): medians of {self._rounds} rounds, without "
            "intervals.",
            alt=f"Bars of relative speed. {'; '.join(words)}.",
        )

    def _draw(self, width: float) -> MplFigure:
        most_methods = max(len(bench.timings) for bench in self.benches)
        height = 0.24 * most_methods + 0.8
        figure, axes, _ = panels(len(self.benches), width, height=height, per_line=2)
        for axis, bench in zip(axes, self.benches, strict=True):
            _draw_ratios(axis, bench)
        return figure

    def to_frame(self) -> DataFrame:
        """Return a row per model, texts and method with all that was measured."""
        import pandas as pd

        rows = []
        for bench in self.benches:
            for timing in bench.timings:
                rows.append({"model": bench.model, "texts": bench.texts, **timing})
        return pd.DataFrame(rows)


@dataclass(frozen=True, repr=False)
class Precision(Answer):
    """Speed, vectors and scores in 16 and 8 bits."""

    benches: tuple[PrecisionBench, ...]  # one per model

    @property
    def conclusion(self) -> Conclusion:
        """How fast each dtype is, and whether its scores are equivalent to float32."""
        sentences = []
        for bench in self.benches:
            for timing in bench.timings:
                if timing["dtype"] != "float32":
                    sentences.append(_precision_sentence(bench, timing))
        if not sentences:
            return Conclusion("No model was timed in 16 or 8 bits.")
        more = len(sentences) - _SENTENCES
        if more > 0:
            sentences[_SENTENCES:] = [f"The table has {more} more."]
        return Conclusion(" ".join(sentences))

    def table(self) -> Table:
        """A row per model and dtype: speed, and the effect on vectors and nDCG@10."""
        rows = []
        for bench in self.benches:
            rows += [_precision_row(bench, timing) for timing in bench.timings]
        return Table.of(
            rows,
            note="On the CPU. Equivalent to float32 by the 95 % interval. sentence-transformers "
            "has the same dtype, or float32 for int8; the peak is that of the dtype. A dtype that "
            "this processor only emulates is left out.",
            name="precision",
            caption="Speed, vectors and scores in 16 and 8 bits.",
        )

    def to_frame(self) -> DataFrame:
        """Return a row per model and dtype with all that was measured."""
        import pandas as pd

        rows = []
        for bench in self.benches:
            rows += [{"model": bench.model, **timing} for timing in bench.timings]
        return pd.DataFrame(rows)


def speed(
    models: Sequence[str],
    *,
    texts: int = 16,
    rounds: int = 3,
    device: str = "auto",
    dtype: str = "float32",
) -> Speed:
    """Time each model next to sentence-transformers at its best batch size.

    Args:
        models: registry names or folders, or ``qwen3-60M-random``.
        texts: number of short ones, as many of mixed lengths, and a quarter as many long ones.
        rounds: how often each method is timed.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        dtype: of weights and activations.
    """
    from qwen3nb.bench.encode import bench_encode, bench_texts

    sets = bench_texts(texts)
    benches: list[EncodeBench] = []
    for model in models:
        benches += bench_encode(model, texts=sets, rounds=rounds, device=device, dtype=dtype)
    return Speed(tuple(benches), tuple(models), texts, rounds)


def precision(
    models: Sequence[str],
    *,
    documents: int = 240,
    queries: int = 80,
    texts: int = 16,
    rounds: int = 3,
) -> Precision:
    """Time each model in 16 and 8 bits, and compare its vectors and scores with float32.

    Args:
        models: as in `speed`.
        documents: of PyDocs; so few cannot show that a difference is small.
        queries: of PyDocs.
        texts: to encode.
        rounds: how often each dtype is timed.
    """
    from qwen3nb.bench.precision import bench_precision
    from qwen3nb.datasets.pydocs.build import load_pydocs

    pydocs = load_pydocs().sample(documents=documents, queries=queries)
    benches = [
        bench_precision(model, pydocs=pydocs, texts=texts, rounds=rounds) for model in models
    ]
    return Precision(tuple(benches))


def _precision_sentence(bench: PrecisionBench, timing: PrecisionTiming) -> str:
    is_equivalent, _ = bench.shown(timing)
    verb = "is" if is_equivalent == "yes" else "is not shown to be"
    time_ratio = 1 / timing["float32_ratio"]
    return (
        f"{bench.model} in {timing['dtype']} takes {time_ratio:.2f} times as long as in float32, "
        f"and {verb} equivalent within {bench.margin:g} nDCG@10."
    )


def _times(ratio: float) -> Cell:
    return Cell(f"{ratio:.2f} ×", value=ratio)


def _share(value: float | None) -> Cell:
    if value is None:  # 8 bits on a processor on which this package does not run in them
        return Cell("–")
    return Cell(f"{100 * value:.0f} %", value=value)


def _row(bench: EncodeBench, timing: EncodeTiming) -> dict[str, object]:
    """Return a row of the table of speed."""
    is_equal = "yes" if timing["equal"] else "no"
    return {
        "model": (bench.model, bench.texts),
        "method": timing["name"],
        "texts/s": number(bench.count / timing["seconds"], ",.0f"),
        "faster": _times(timing["ratio"]),
        "less CPU": _times(timing["cpu_ratio"]),
        "of the peak": _share(timing["peak_share"]),
        "same vectors": (is_equal, f"by at most {timing['difference']:.0e}"),
    }


def _precision_row(bench: PrecisionBench, timing: PrecisionTiming) -> dict[str, object]:
    """Return a row of the table of precision."""
    change = ""
    if timing["dtype"] != "float32":
        interval = interval_text(timing["interval"], digits=4)
        change = f"{timing['ndcg_difference']:+.4f} {interval}"
    return {
        "model": (bench.model, timing["dtype"]),
        "to float32": _times(timing["float32_ratio"]),
        "to sentence-transformers": _times(timing["peer_ratio"]),
        "of the peak": _share(timing["peak_share"]),
        "least cosine": number(timing["cosine_min"], ".6f"),
        f"nDCG@10\nPyDocs, {bench.queries} queries": (timing["ndcg"], change),
        f"equivalent\nwithin {bench.margin:g}": bench.shown(timing),
    }


def _draw_ratios(axis: Axes, bench: EncodeBench) -> None:
    """Draw a bar per method, the first at the top."""
    timings = bench.timings[::-1]  # the last bar is drawn on top
    ratios = [timing["ratio"] for timing in timings]
    names = [timing["name"].replace("sentence-transformers", "s.-t.") for timing in timings]
    axis.barh(range(len(timings)), ratios, height=0.65, color=QUIET)
    axis.axvline(1, color=GREY, linewidth=1)
    axis.set_yticks(range(len(timings)), [plain(name, longest=30) for name in names])
    axis.tick_params(axis="y", length=0)
    axis.set_title(plain(f"{bench.model}, {bench.texts}", longest=44), loc="right")
    axis.set_xlabel("times as fast")
    grid(axis)
