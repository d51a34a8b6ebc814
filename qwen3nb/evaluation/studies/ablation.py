"""Ablate the extraction options of an encoder, or the components of its training.

Every combination of pooling, checkpoint averaging, added tokens and normalisation is evaluated on
the same tasks. A training is a folder with ``checkpoint-N`` folders, the last of which is
evaluated, and a ``training.json`` that describes it: ``objective``, ``data``, ``mixture``,
``denoisers``, and other ``settings`` such as ``learning_rate``. Records go to ``results/ablation``.
`qwen3nb.analysis.comparison.ablation_effects` estimates the effects.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from qwen3nb import paths
from qwen3nb.checkpoints.averaging import averaged, select_checkpoints
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.mteb.select import choose_tasks
from qwen3nb.evaluation.run import EvaluationRun
from qwen3nb.models.load import load_encoder
from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.records.record import Result
from qwen3nb.utils.atomic_files import canonical, read_json
from qwen3nb.utils.choices import check_choice
from qwen3nb.utils.progress import tqdm

PLAIN = "plain"
FILE = "training.json"
_COMPONENTS = ("objective", "data", "mixture", "denoisers")


@dataclass(frozen=True)
class Variant:
    """One combination of extraction options."""

    pooling: str = "mean"  # one of `qwen3nb.models.modeling.pooling.POOLINGS`
    weights: str = "last"  # ``last`` for the last checkpoint, or ``mean of last N``
    around: str = PLAIN  # ``plain``, or the tokens added around each text, such as ``[R] … EOS``
    length: str = "unit"  # ``unit`` (cosine similarity) or ``kept`` (dot product)

    @property
    def name(self) -> str:
        """All options, separated by commas."""
        return ", ".join(asdict(self).values())


@dataclass(frozen=True)
class TrainingVariant:
    """A training of a series: the folder with its checkpoints, and its components."""

    name: str
    folder: Path
    components: Mapping[str, str]

    def difference(self, other: Self) -> str:
        """Return the only component in which the trainings differ; empty for none or several."""
        names = sorted({*self.components, *other.components})
        differ = [n for n in names if self.components.get(n) != other.components.get(n)]
        return differ[0] if len(differ) == 1 else ""


V = TypeVar("V", Variant, TrainingVariant)


@dataclass(frozen=True)
class VariantResult(Generic[V]):
    """A variant, or a training, and its record on one task."""

    variant: V
    result: Result


def by_task(outcomes: Sequence[VariantResult[V]]) -> dict[str, list[VariantResult[V]]]:
    """Group outcomes by task, in the order of the variants."""
    grouped: dict[str, list[VariantResult[V]]] = {}
    for outcome in outcomes:
        grouped.setdefault(outcome.result.task.key, []).append(outcome)
    return grouped


def variants(
    *,
    poolings: Sequence[str] = tuple(POOLINGS),
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
        normalization: whether to include unnormalised vectors with dot products.

    Raises:
        ValueError: unknown pooling, or a number that is not positive.
    """
    for pooling in poolings:
        check_choice("pooling", pooling, POOLINGS)
    if bad := [count for count in averages if count < 1]:
        raise ValueError(f"expected positive numbers of checkpoints to average; got {bad[0]}")
    added = " ".join(filter(None, [prefix, "…", "EOS" if append_eos else ""]))
    combinations = itertools.product(
        poolings,
        [_weights(count) for count in averages],
        [PLAIN, added] if prefix or append_eos else [PLAIN],
        ["unit", "kept"] if normalization else ["unit"],
    )
    return [Variant(*each) for each in combinations]


def ablate(
    training: Path | str,
    selected: Sequence[Variant],
    *,
    prefix: str = "[R]",
    append_eos: bool = True,
    show_progress: bool = True,
    **options: Any,
) -> list[VariantResult[Variant]]:
    """Evaluate every variant; stored records are reused.

    Args:
        training: a folder with ``checkpoint-N`` folders.
        selected: variants to evaluate, from `variants`.
        prefix: prefix of every text, except in plain variants.
        append_eos: whether such variants append the end-of-text token.
        show_progress: whether to show a progress bar over the variants.
        options: ``tier``, ``types`` (comma-separated MTEB task types, by default ``Retrieval``),
            ``output`` and ``seed`` of the evaluation; and those of `load_encoder`: ``device``,
            ``dtype``, ``batch_size``, ``max_length``.

    Raises:
        CheckpointError: no checkpoints, or they cannot be averaged.
    """
    outcomes = []
    averages = {
        weights: select_checkpoints(Path(training), last=_counted(weights))
        for weights in dict.fromkeys(variant.weights for variant in selected)
    }
    folders = {_weights(len(chosen.folders)): averaged(chosen) for chosen in averages.values()}
    # Named by the checkpoints that there are: of two, a mean of the last three is one of two.
    made = [
        replace(variant, weights=_weights(len(averages[variant.weights].folders)))
        for variant in selected
    ]
    selected = list(dict.fromkeys(made))
    for variant in tqdm(selected, desc="ablation", unit="variant", disable=not show_progress):
        plain = variant.around == PLAIN
        own: dict[str, Any] = {
            "pooling": variant.pooling,
            "prefix": "" if plain else prefix,
            "append_eos": append_eos and not plain,
            "normalize": variant.length == "unit",
        }
        run = _evaluated(folders[variant.weights], {"variant": asdict(variant)}, **options, **own)
        outcomes += [VariantResult(variant, result) for result in run.results]
    return outcomes


def _weights(count: int) -> str:
    """Name the mean of the last ``count`` checkpoints.

    >>> _weights(1), _weights(3)
    ('last', 'mean of last 3')
    """
    return "last" if count == 1 else f"mean of last {count}"


def _counted(weights: str) -> int:
    """Return the number of checkpoints in a name of `_weights`."""
    return 1 if weights == "last" else int(weights.rsplit(" ", 1)[1])


def find_trainings(folder: Path | str) -> list[TrainingVariant]:
    """Return the trainings in the folders below ``folder``, by name.

    Raises:
        CheckpointError: fewer than two, or one without checkpoints.
    """
    files = sorted(Path(folder).expanduser().glob(f"*/{FILE}"))
    if len(files) < 2:
        raise CheckpointError(
            f"{folder}: expected two or more folders, each with checkpoint-N folders and a {FILE}; "
            f"got {len(files)}"
        )
    trainings = []
    for file in files:
        training = read_json(file)
        values = {name: training[name] for name in _COMPONENTS if name in training}
        values |= training.get("settings", {})
        components = {
            name: value if isinstance(value, str) else canonical(value).decode()
            for name, value in values.items()
        }
        trainings.append(TrainingVariant(file.parent.name, file.parent, components))
    return trainings


def ablate_trainings(
    trainings: Sequence[TrainingVariant], **options: Any
) -> list[VariantResult[TrainingVariant]]:
    """Evaluate the last checkpoint of each training; for the options see `ablate`."""
    outcomes = []
    for training in trainings:
        (checkpoint,) = select_checkpoints(training.folder, last=1).folders
        config = {"training_components": dict(training.components)}
        run = _evaluated(checkpoint, config, **options)
        outcomes += [VariantResult(training, result) for result in run.results]
    return outcomes


def _evaluated(
    folder: Path,
    config: dict[str, Any],
    *,
    tier: str = "smoke",
    types: str = "Retrieval",
    output: Path | None = None,
    seed: int = 0,
    **options: Any,
) -> EvaluationRun:
    """Evaluate an encoder on the tasks of a tier that have one of the types."""
    return evaluate(
        load_encoder(folder, show_progress=False, **options),
        tasks=choose_tasks(tier=tier, types=types),
        output=output or paths.results() / "ablation",
        seed=seed,
        config=config,
        show_progress=False,
    )
