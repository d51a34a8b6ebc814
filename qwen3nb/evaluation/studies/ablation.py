"""Ablate the extraction options of an encoder on the same queries.

The options of an extraction are pooling, checkpoint averaging, tokens added around each
text, and normalisation. Every combination is evaluated on the same tasks;
`qwen3nb.analysis.comparison.ablation_effects` estimates the effect of each option.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from qwen3nb import paths
from qwen3nb.checkpoints.averaging import averaged, select_checkpoints
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.mteb.select import tier_tasks
from qwen3nb.evaluation.studies.training_ablation import TrainingOutcome
from qwen3nb.models.load import load_encoder
from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.records.record import Result
from qwen3nb.utils.choices import one_of
from qwen3nb.utils.progress import tqdm

__all__ = ["Variant", "VariantResult", "ablate", "by_task", "variants"]

PLAIN = "plain"
_Outcome = TypeVar("_Outcome", "VariantResult", TrainingOutcome)


@dataclass(frozen=True)
class Variant:
    """One combination of extraction options.

    Attributes:
        pooling: one of `qwen3nb.models.modeling.pooling.POOLINGS`.
        weights: ``last`` for the last checkpoint, or ``mean of last N``.
        around: ``plain``, or the tokens added around each text, such as ``[R] … EOS``.
        length: ``unit`` (cosine similarity) or ``kept`` (dot product).
    """

    pooling: str = "mean"
    weights: str = "last"
    around: str = PLAIN
    length: str = "unit"

    @property
    def name(self) -> str:
        """All options, separated by commas."""
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
    """Return every combination, the reference (the first value of each option) first.

    Args:
        poolings: poolings to try.
        averages: numbers of last checkpoints to average; 1 for the last one only.
        prefix: prefix to compare with plain texts; empty for none.
        append_eos: whether to append the end-of-text token, together with the prefix.
        normalization: whether to also try unnormalised vectors with dot products.

    Raises:
        ValueError: unknown pooling, or a number that is not positive.
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
    """Evaluate every variant; stored records are reused.

    Records go to ``results/ablation``, apart from those of the leaderboard.

    Args:
        training: a folder with ``checkpoint-N`` folders.
        selected: variants to evaluate, from `variants`.
        tier: tier whose tasks to use.
        types: MTEB task types to keep.
        prefix: prefix of every text, in variants that are not plain.
        append_eos: whether such variants append the end-of-text token.
        output: folder for records.
        seed: seed of the confidence intervals.
        show_progress: whether to show a progress bar over the variants.
        options: options of `load_encoder`: ``device``, ``dtype``, ``batch_size``, ``max_length``.

    Raises:
        CheckpointError: no checkpoints, or they cannot be averaged.
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


def by_task(outcomes: Sequence[_Outcome]) -> dict[str, list[_Outcome]]:
    """Group outcomes by task, in the order of the variants."""
    grouped: dict[str, list[_Outcome]] = {}
    for outcome in outcomes:
        grouped.setdefault(outcome.result.task.key, []).append(outcome)
    return grouped


def _weights(training: Path, weights: str) -> Path:
    """Return the folder of the last checkpoint, or of the mean of the last few."""
    count = 1 if weights == "last" else int(weights.rsplit(" ", 1)[1])
    return averaged(select_checkpoints(training, last=count))
