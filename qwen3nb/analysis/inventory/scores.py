"""The score of one system on one task, from any kind of result file."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, cmp_to_key
from typing import Any

from qwen3nb.metrics.query_scores import QueryScores
from qwen3nb.records.record import SCHEMA, Result

# Facts of a run, and their key paths in the training's configuration.
_KEY_PATHS: dict[str, tuple[tuple[str, ...], ...]] = {
    "mode": (("training", "mode"), ("mode",)),
    "rank": (("lora", "rank"), ("rank",)),
    "base": (("model", "base_model_name"), ("base",)),
    "data_seed": (("data", "seed"), ("data_seed",), ("seed",)),
}
_RECORDED_FACTS = ("steps", "steps_embedding", "steps_reranking", "weights", "change")
_OPTIONS_OF_USE = ("pooling", "max_length", "dtype", "prompts")


@dataclass(frozen=True)
class Score:
    """One system's score on one task."""

    system: str  # name of the model, or of its training configuration
    seed: int | None  # of the run; None if unknown
    task: str  # name of the task or data set
    metric: str  # name of the metric
    value: float | None  # the score, or None if undefined
    kind: str = ""  # ``reranking`` or ``embedding`` for adapters; else the type of the task
    # score per query id; may be empty
    per_query: Mapping[str, float] = field(default_factory=dict, repr=False)
    # cluster per query id; empty if queries were sampled one by one, or it is unknown
    clusters: Mapping[str, str] = field(default_factory=dict, repr=False)
    identity: str = ""  # digest of the weights; empty if unknown
    source: str = ""  # file it was read from
    origin: str = ""  # the program that wrote the file
    revision: str = ""  # of the task's data, or empty
    finished: str = ""  # time, ISO 8601, or empty
    # of a record: its place among all that were written to its folder; see `Result.place`
    place: int = field(default=0, compare=False)
    folder: str = field(default="", compare=False, repr=False)  # in which it has this place
    # how the run was trained: mode, rank, base, data_seed, steps, …
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False)
    main: bool = True  # whether it is the task's main metric
    collection: str = ""  # the data set of a reranking, whose task also names the first stage

    @property
    def data_set(self) -> str:
        """The name of the data, without a first stage."""
        return self.collection or self.task

    @property
    def run(self) -> str:
        """The system and its seed."""
        if self.seed is None:
            return self.system
        return f"{self.system} (seed {self.seed})"


def from_oldest(scores: Iterable[Score]) -> list[Score]:
    """Return scores in the order in which they were made, as `records.results.from_oldest` does.

    The wall clock, which may have been set back, decides only without places in one folder.
    """
    return sorted(scores, key=cmp_to_key(_age))


def _age(score: Score, other: Score) -> int:
    """Return a negative number if the first score is older, 0 if neither is."""
    have_places = score.place and other.place and score.folder == other.folder
    if have_places:
        return score.place - other.place
    if score.finished == other.finished:
        return 0
    return 1 if score.finished > other.finished else -1


def record_scores(result: Result, *, source: str, folder: str) -> list[Score]:
    """Return the scores of a record, one per metric.

    Adapters of different seeds have different labels but share their configuration.

    Args:
        result: the record.
        source: its file.
        folder: the folder in which it has its place.
    """
    settings = result.model.settings
    training: dict[str, Any] = {}
    if result.training is not None:
        training = result.training.stated()
    # How the model was used, such as ``mean, 512, float32, None``.
    use = ", ".join(str(settings.get(name)) for name in _OPTIONS_OF_USE)
    scores = []
    for name, metric in result.metrics.items():
        # Only a mean is of scores per query; they are read when they are needed.
        per_query: Mapping[str, float] = {}
        if metric.how == "mean" and name in result.per_query:
            per_query = _Column(result.scores, name)
        score = Score(
            system=_system(result, training),
            seed=result.seed,
            task=result.task.key,
            metric=name,
            value=metric.value,
            kind=_kind(result, training),
            per_query=per_query,
            clusters=result.task.clusters,
            identity=result.model.identity,
            source=source,
            origin=SCHEMA,
            revision=result.task.substitute or result.task.revision,
            finished=result.finished,
            place=result.place,
            folder=folder,
            facts={**training_facts(training), "use": use},
            main=name == result.task.main_metric,  # the metric reported first
            collection=result.data.collection or "",
        )
        scores.append(score)
    return scores


def _system(result: Result, training: Mapping[str, Any]) -> str:
    """Return the configuration of an adapter, or the label of any other model."""
    if not training.get("mode"):
        return result.model.label
    if "configuration" in training:
        return str(training["configuration"] or training["mode"])
    if training.get("rank") is not None:
        return f"{training['mode']}_r{training['rank']}"  # such as ``joint_r8``
    return str(training["mode"])


def _kind(result: Result, training: Mapping[str, Any]) -> str:
    """Return what an adapter was evaluated on, or the type of task of any other model."""
    if not training:
        return result.task.type
    if training.get("kind"):
        return str(training["kind"])
    return "reranking" if result.task.type == "Reranking" else "embedding"


def training_facts(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the known facts of a training, from its configuration, nested or flat."""
    settings = config.get("settings")  # our own records contain the configuration as this field
    configuration = config
    if isinstance(settings, Mapping):
        configuration = {**config, **settings}
    # A fact has another key in each format: the first that has a value counts.
    facts = {name: _first_value(configuration, paths) for name, paths in _KEY_PATHS.items()}
    for name in _RECORDED_FACTS:
        facts[name] = config.get(name)
    return {name: fact for name, fact in facts.items() if fact is not None}


def _first_value(
    config: Mapping[str, Any], key_paths: tuple[tuple[str, ...], ...]
) -> str | float | None:
    """Return the value of the first key path that leads to a text or a number."""
    for key_path in key_paths:
        value: Any = config
        for key in key_path:
            value = value.get(key) if isinstance(value, Mapping) else None
        # Bools are ints in Python, but no number here.
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return value
    return None


@dataclass(frozen=True)
class _Column(Mapping[str, float]):
    """A column of a record's scores, read when needed."""

    scores: QueryScores
    name: str

    @cached_property
    def _values(self) -> dict[str, float]:
        return self.scores[self.name]

    def __getitem__(self, query: str) -> float:
        return self._values[query]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return self.scores.counts[self.name]
