"""Ablate the extraction options of an encoder, or the components of its training.

Every combination of pooling, checkpoint averaging, added tokens and normalisation is evaluated on
the same tasks. A training is a folder with ``checkpoint-N`` folders, the last of which is
evaluated, and a ``training.json`` that describes it: ``objective``, ``data``, ``mixture``,
``denoisers``, and other ``settings`` such as ``learning_rate``. Records go to ``results/ablation``.
`qwen3nb.analysis.comparison.ablation_effects` estimates the effects.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Generic, NamedTuple, Self, TypedDict, TypeVar, Unpack

from qwen3nb import paths
from qwen3nb.checkpoints.averaging import averaged, select_checkpoints
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.mteb.select import choose_tasks
from qwen3nb.evaluation.run import EvaluationRun
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.load import load_encoder
from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.records.record import Result
from qwen3nb.utils.atomic_files import canonical, read_json
from qwen3nb.utils.choices import check_choice
from qwen3nb.utils.progress import tqdm

PLAIN = "plain"
FILE = "training.json"
SEED_COMPONENTS = ("seed", "data_seed", "training_seed")  # settings that number a repetition
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

    @property
    def without_seed(self) -> tuple[tuple[str, str], ...]:
        """The components besides the seed, sorted: what seeds of one training share."""
        components = [
            (name, value) for name, value in self.components.items() if name not in SEED_COMPONENTS
        ]
        return tuple(sorted(components))

    @property
    def seeds(self) -> tuple[str, ...]:
        """The values of the components that number a repetition; empty if none is stated."""
        return tuple(self.components[name] for name in SEED_COMPONENTS if name in self.components)

    def difference(self, other: Self) -> str:
        """Return the only component in which the trainings differ; empty for none or several."""
        names = sorted({*self.components, *other.components})
        different = [
            name for name in names if self.components.get(name) != other.components.get(name)
        ]
        if len(different) != 1:
            return ""
        return different[0]


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
    for count in averages:
        if count < 1:
            raise ValueError(f"expected positive numbers of checkpoints to average; got {count}")
    texts, lengths = [PLAIN], ["unit"]  # vectors are scaled to length 1
    if prefix or append_eos:
        texts.append(_text_with_tokens(prefix, append_eos=append_eos))
    if normalization:
        lengths.append("kept")  # or left as long as they are
    weights = [_weights(count) for count in averages]
    combinations = itertools.product(poolings, weights, texts, lengths)
    return [Variant(*options) for options in combinations]


def _text_with_tokens(prefix: str, *, append_eos: bool) -> str:
    """Name the tokens added around each text, such as ``[R] … EOS``."""
    parts = ["…"]
    if prefix:
        parts.insert(0, prefix)
    if append_eos:
        parts.append("EOS")
    return " ".join(parts)


class AblationOptions(TypedDict, total=False):
    """How variants are loaded and evaluated; see `ablate`."""

    tier: str
    types: str
    output: Path | None
    seed: int
    device: str
    dtype: str
    batch_size: int
    max_length: int | None


def ablate(
    training: Path | str,
    selected: Sequence[Variant],
    *,
    prefix: str = "[R]",
    append_eos: bool = True,
    show_progress: bool = True,
    **options: Unpack[AblationOptions],
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
    weights = _averaged_weights(Path(training), selected)
    folders = {entry.name: entry.folder for entry in weights.values()}
    # Each variant is named by the checkpoints that there are.
    available = [replace(variant, weights=weights[variant.weights].name) for variant in selected]
    # Of two checkpoints, the means of the last two and of the last three are the same.
    distinct = list(dict.fromkeys(available))
    outcomes: list[VariantResult[Variant]] = []
    for variant in tqdm(distinct, desc="ablation", unit="variant", disable=not show_progress):
        is_plain = variant.around == PLAIN
        encoder = load_encoder(
            folders[variant.weights],
            show_progress=False,
            pooling=variant.pooling,
            prefix="" if is_plain else prefix,
            append_eos=append_eos and not is_plain,
            normalize=variant.length == "unit",
            **_model_options(options),
        )
        run = _evaluate(encoder, {"variant": asdict(variant)}, options)
        outcomes += [VariantResult(variant, result) for result in run.results]
    return outcomes


class _Weights(NamedTuple):
    """Averaged weights, named by the checkpoints that there are."""

    name: str  # of two checkpoints, a mean of the last three is ``mean of last 2``
    folder: Path


def _averaged_weights(training: Path, variants: Iterable[Variant]) -> dict[str, _Weights]:
    """Return the weights that variants ask for, by the name in a variant."""
    weights: dict[str, _Weights] = {}
    for variant in variants:
        if variant.weights not in weights:
            checkpoints = select_checkpoints(training, last=_number_averaged(variant.weights))
            name = _weights(len(checkpoints.folders))
            weights[variant.weights] = _Weights(name, averaged(checkpoints))
    return weights


def _weights(count: int) -> str:
    """Name the mean of the last ``count`` checkpoints.

    >>> _weights(1), _weights(3)
    ('last', 'mean of last 3')
    """
    if count == 1:
        return "last"
    return f"mean of last {count}"


def _number_averaged(weights: str) -> int:
    """Return the number of checkpoints in a name of `_weights`."""
    if weights == "last":
        return 1
    *_, number = weights.split()
    return int(number)


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
        components = {}
        for name, value in values.items():
            components[name] = value
            if not isinstance(value, str):
                # As text, which is equal for equal values.
                components[name] = canonical(value).decode()
        trainings.append(TrainingVariant(file.parent.name, file.parent, components))
    return trainings


def ablate_trainings(
    trainings: Sequence[TrainingVariant],
    *,
    show_progress: bool = False,
    **options: Unpack[AblationOptions],
) -> list[VariantResult[TrainingVariant]]:
    """Evaluate the last checkpoint of each training; for the options see `ablate`."""
    outcomes = []
    for training in tqdm(trainings, desc="ablation", unit="training", disable=not show_progress):
        (checkpoint,) = select_checkpoints(training.folder, last=1).folders
        config = {"training_components": dict(training.components)}
        encoder = load_encoder(checkpoint, show_progress=False, **_model_options(options))
        run = _evaluate(encoder, config, options)
        outcomes += [VariantResult(training, result) for result in run.results]
    return outcomes


def _model_options(options: AblationOptions) -> dict[str, Any]:
    """Return those of the options that a model is loaded with."""
    of_evaluation = ("tier", "types", "output", "seed")
    return {name: value for name, value in options.items() if name not in of_evaluation}


def _evaluate(
    encoder: Encoder, config: Mapping[str, object], options: AblationOptions
) -> EvaluationRun:
    """Evaluate an encoder on the tasks of a tier that have one of the types."""
    tier, types = options.get("tier", "smoke"), options.get("types", "Retrieval")
    return evaluate(
        encoder,
        tasks=choose_tasks(tier=tier, types=types),
        output=options.get("output") or paths.results() / "ablation",
        seed=options.get("seed", 0),
        config=dict(config),
        show_progress=False,
    )
