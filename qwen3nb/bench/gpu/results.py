"""What `qwen3nb.bench.gpu.run` measures, as rows and as a table."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GpuBench", "GpuEquality", "GpuSpeed"]


@dataclass(frozen=True)
class GpuEquality:
    """How close results in 16 bits are.

    Attributes:
        model: key of `SHAPES`.
        what: ``vectors`` or ``scores``.
        way: how the model runs: ``varlen``, ``packed`` or ``padded``; empty for a reranker.
        sample: number of texts.
        to_float32: smallest cosine with float32 on the CPU; of scores the largest difference of
            P(yes).
        across_batches: the same, of all texts together with one text at a time.
        equal: whether both are within the bounds.
    """

    model: str
    what: str
    way: str
    sample: int
    to_float32: float
    across_batches: float
    equal: bool


@dataclass(frozen=True)
class GpuSpeed:
    """Speed of one model on texts of one length; medians.

    Attributes:
        model: key of `SHAPES`.
        what: ``encode`` or ``rerank``.
        tokens: tokens per text, on average.
        texts: number of texts, or documents of one query.
        ours: texts per second.
        peer: texts per second of sentence-transformers.
        method: its attention and batch size.
        share: operations per second of ours over those of the measured matrix product; None for
            reranking.
    """

    model: str
    what: str
    tokens: float
    texts: int
    ours: float
    peer: float
    method: str
    share: float | None


@dataclass(frozen=True)
class GpuBench:
    """All that was measured.

    Attributes:
        device: name of the GPU, or ``cpu``.
        machine: what else speed depends on.
        dtype: dtype of the weights.
        peak: operations per second of a large matrix product in ``dtype``.
        equality: per model.
        speed: per model and length.
        left_out: what did not fit in time or memory, and why.
    """

    device: str
    machine: str
    dtype: str
    peak: float
    equality: tuple[GpuEquality, ...]
    speed: tuple[GpuSpeed, ...]
    left_out: tuple[str, ...]

    def table(self) -> str:
        """The measurements as plain text."""
        lines = [
            f"{self.device}, {self.machine}",
            f"matrix products in {self.dtype}: {self.peak / 1e12:.4g} TFLOP/s",
            "",
            "equality: cosine of vectors, difference of P(yes) of scores",
            f"{'model':12} {'of':8} {'way':8} {'sample':>7} {'to float32':>11} "
            f"{'across batches':>15} equal",
        ]
        lines += [
            f"{each.model:12} {each.what:8} {each.way:8} {each.sample:7} {each.to_float32:11.6f} "
            f"{each.across_batches:15.6f} {'yes' if each.equal else 'NO'}"
            for each in self.equality
        ]
        lines += [
            "",
            f"{'model':12} {'speed of':8} {'tokens':>7} {'texts':>8} {'texts/s':>9} {'peer':>9} "
            f"{'faster':>8} {'of peak':>8}  peer's method",
        ]
        for row in self.speed:
            share = "-" if row.share is None else f"{row.share:.0%}"
            lines.append(
                f"{row.model:12} {row.what:8} {row.tokens:7.0f} {row.texts:8} {row.ours:9.1f} "
                f"{row.peer:9.1f} {row.ours / row.peer:7.2f}x {share:>8}  {row.method}"
            )
        return "\n".join([*lines, *(f"left out: {each}" for each in self.left_out)])
