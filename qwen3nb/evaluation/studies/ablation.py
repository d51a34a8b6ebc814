"""Which way of taking the encoder out is best: every combination, on the same queries.

Pooling, averaging of checkpoints, what stands around a text, and normalisation are
options of an extraction. Each combination is evaluated on the same tasks;
`qwen3nb.analysis.comparison.ablation_effects` says what each option changes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from qwen3nb import paths
from qwen3nb.checkpoints.averaging import averaged, select_checkpoints
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.mteb.select import tier_tasks
from qwen3nb.models.load import load_encoder
from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.records.record import Result
from qwen3nb.utils.choices import one_of

__all__ = ["Variant", "VariantResult", "ablate", "by_task", "variants"]

PLAIN = "plain"


@dataclass(frozen=True)
class Variant:
    """One way to use a training's encoder.

    Attributes:
        pooling: one of `qwen3nb.models.modeling.pooling.POOLINGS`.
        weights: ``last`` for the last checkpoint, or ``mean of last N``.
        around: ``plain``, or what stands around a text, such as ``[R] … EOS``.
        length: ``unit`` (cosine similarity) or ``kept`` (dot product).
    """

    pooling: str = "mean"
    weights: str = "last"
    around: str = PLAIN
    length: str = "unit"

    @property
    def name(self) -> str:
        """All of it in a few words."""
        return ", ".join(asdict(self).values())


@dataclass(frozen=True)
class VariantResult:
    """A variant and its record on one task."""

    variant: Variant
    result: Result


def variants(
    *,
    poolings: Sequence[str] = POOLINGS,
    averages: Sequence[int] = (1, 3),
    prefix: str = "[R]",
    append_eos: bool = True,
    normalization: bool = True,
) -> list[Variant]:
    """Every combination, the reference first: first pooling, first average, plain, unit.

    Args:
        poolings: which to try.
        averages: how many of the last checkpoints to average; 1 for the last alone.
        prefix: tried against plain texts, together with the end; empty for none.
        append_eos: likewise.
        normalization: whether kept lengths with dot products are tried too.

    Raises:
        ValueError: an unknown pooling, or a number that is not positive.
    """
    for pooling in poolings:
        one_of("pooling", pooling, POOLINGS)
    if bad := [count for count in averages if count < 1]:
        raise ValueError(f"expected positive numbers of checkpoints to average; got {bad[0]}")
    around = [PLAIN] + [_around(prefix, append_eos)] * bool(prefix or append_eos)
    return [
        Variant(pooling, weights, each, length)
        for pooling, weights, each, length in itertools.product(
            poolings,
            ["last" if count == 1 else f"mean of last {count}" for count in averages],
            around,
            ["unit", "kept"] if normalization else ["unit"],
        )
    ]


def _around(prefix: str, append_eos: bool) -> str:
    return " ".join([*([prefix] if prefix else []), "…", *(["EOS"] if append_eos else [])])


def ablate(
    training: Path | str,
    selected: Sequence[Variant],
    *,
    tier: str = "smoke",
    types: Sequence[str] = ("Retrieval",),
    prefix: str = "[R]",
    append_eos: bool = True,
    output: Path | None = None,
    seed: int = 0,
    show_progress: bool = True,
    **options: Any,
) -> list[VariantResult]:
    """Evaluate every variant; what is on disk already is not run again.

    Records go to ``results/ablation``, beside the leaderboard's and not among them.

    Args:
        training: a folder of ``checkpoint-N``.
        selected: from `variants`.
        tier: whose tasks to use.
        types: of those, the MTEB types to use.
        prefix: what a variant that is not plain puts before a text.
        append_eos: whether such a variant ends a text.
        output: folder for records.
        seed: of the intervals.
        show_progress: whether there is a bar over the variants.
        options: to `load_encoder`: ``device``, ``dtype``, ``batch_size``, ``max_length``.

    Raises:
        CheckpointError: no checkpoints, or ones that cannot be averaged.
    """
    tasks = [task for task in tier_tasks(tier) if task.metadata.type in types]
    output = output or paths.results() / "ablation"
    folders = {each: _weights(Path(training), each) for each in {v.weights for v in selected}}
    outcomes = []
    for variant in tqdm(selected, desc="ablation", unit="variant", disable=not show_progress):
        plain = variant.around == PLAIN
        encoder = load_encoder(
            folders[variant.weights],
            pooling=variant.pooling,
            prefix="" if plain else prefix,
            append_eos=append_eos and not plain,
            normalize=variant.length == "unit",
            show_progress=False,
            **options,
        )
        run = evaluate(
            encoder,
            tasks=tasks,
            output=output,
            seed=seed,
            config={"variant": asdict(variant)},
            show_progress=False,
        )
        outcomes += [VariantResult(variant, result) for result in run.results]
    return outcomes


def by_task(outcomes: Sequence[VariantResult]) -> dict[str, list[VariantResult]]:
    """The outcomes of each task, in the order of the variants."""
    grouped: dict[str, list[VariantResult]] = {}
    for outcome in outcomes:
        grouped.setdefault(outcome.result.task.name, []).append(outcome)
    return grouped


def _weights(training: Path, weights: str) -> Path:
    """The folder of the last checkpoint, or of the mean of the last few."""
    count = 1 if weights == "last" else int(weights.rsplit(" ", 1)[1])
    return averaged(select_checkpoints(training, last=count))
