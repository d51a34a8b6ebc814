"""Which two models are before and after a training, and on which task they are compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from qwen3nb.analysis.comparison.alignment import system_name, system_names
from qwen3nb.analysis.training.checkpoint_scores import trajectories
from qwen3nb.answers.candidate_rules import CUSTOM_DATA
from qwen3nb.evaluation.run import SEARCH_TYPES
from qwen3nb.records.record import Result
from qwen3nb.records.results import Results, from_oldest
from qwen3nb.utils.choices import check_choice
from qwen3nb.utils.format import first_names


@dataclass(frozen=True)
class TrainedPair:
    """Records of two models on one task."""

    before: str  # name of the earlier model
    after: str
    records: tuple[Result, Result]  # in this order

    @property
    def task(self) -> str:
        """The key of their task."""
        return self.records[1].task.key

    @property
    def metric(self) -> str:
        """The main metric of their task."""
        return self.records[1].task.main_metric

    @classmethod
    def of(cls, before: Result, after: Result) -> TrainedPair:
        """Return the pair of two records, with their names next to each other."""
        names = system_names([before, after])
        return cls(system_name(before, names), system_name(after, names), (before, after))


def find_pair(
    records: Sequence[Result], before: str, after: str, *, task: str = ""
) -> TrainedPair | str:
    """Return the records of two models, or the reason why no two are found by themselves.

    Args:
        records: the latest ones.
        before: a label, a spec, or the first digits of an identity; with an empty ``after``, both
            are the first and the last evaluated step of the newest training.
        after: likewise.
        task: by default, the one of most queries that both have.

    Raises:
        ValueError: an unknown model or task, only one model, a name that several have, or no task
            in common.
    """
    searches = [record for record in records if _has_scores(record)]
    if task:
        searches = _searches_on(task, records)
    if not before and not after:
        return _newest_training(searches)
    if not before or not after:
        raise ValueError("expected two models, before and after; got one of them")
    earlier, later = _by_task(searches, before), _by_task(searches, after)
    shared = [key for key in later if key in earlier]
    if not shared:
        raise ValueError(
            f"{before} and {after} have no search or reranking in common; {before} has "
            f"{_listed(earlier)}, {after} has {_listed(later)}"
        )
    largest = max(shared, key=lambda key: (_queries(later[key][0]), key))
    first, last = _only(earlier[largest], before), _only(later[largest], after)
    if (first.model.identity, first.seed) == (last.model.identity, last.seed):
        raise ValueError(f"{before} and {after} are the same model")
    return TrainedPair.of(first, last)


def _has_scores(record: Result) -> bool:
    """Whether a record is of a search with a score per query."""
    is_search = record.task.type in SEARCH_TYPES
    return is_search and record.task.main_metric in record.per_query


def _names_of_task(record: Result) -> tuple[str, ...]:
    """Return the key of a record's task, and the name of own data."""
    return record.task.key, (record.task.dataset or "").removeprefix(CUSTOM_DATA)


def _searches_on(task: str, records: Sequence[Result]) -> list[Result]:
    """Return the records of a task.

    Raises:
        ValueError: an unknown task, or one whose main score is not a mean over queries.
    """
    on_task = [record for record in records if task in _names_of_task(record)]
    if not on_task:
        check_choice("task", task, sorted({record.task.key for record in records}))
    for record in on_task:
        if not _has_scores(record):
            raise ValueError(
                f"{record.task.key} is of type {record.task.type}: its {record.task.main_metric} "
                "is not a mean over queries, so that no group of them has one; name a search or a "
                "reranking"
            )
    return on_task


def _by_task(records: Sequence[Result], name: str) -> dict[str, list[Result]]:
    """Return the records of the models that a name may mean, by task.

    Raises:
        ValueError: an unknown name.
    """
    by_task: dict[str, list[Result]] = {}
    for record in from_oldest(Results(records).filter(model=name)):
        by_task.setdefault(record.task.key, []).append(record)
    return by_task


def _only(records: Sequence[Result], name: str) -> Result:
    """Return the newest record of the model that a name means on a task.

    Raises:
        ValueError: a name of several models.
    """
    # A label goes before the spec of a model that has another one.
    of_label = [record for record in records if record.model.label == name]
    records = of_label or records
    systems = sorted({(record.model.identity, record.seed) for record in records})
    if len(systems) > 1:
        identities = [f"{identity[:8]} (seed {seed})" for identity, seed in systems]
        raise ValueError(
            f"{name} is the name of {len(systems)} models on {records[0].task.key}; give the first "
            f"digits of an identity: {first_names(identities)}"
        )
    return records[-1]


def _newest_training(records: Sequence[Result]) -> TrainedPair | str:
    """Return the first and the last step of the training that was evaluated last."""
    order = {id(record): age for age, record in enumerate(from_oldest(records))}
    pairs: list[tuple[int, int, str, Result, Result]] = []
    for trajectory in trajectories(records, tasks=sorted({record.task.key for record in records})):
        for by_step in trajectory.records.values():
            if len(by_step) < 2:
                continue
            first, last = by_step[min(by_step)], by_step[max(by_step)]
            age = order[id(last)]
            pairs.append((_queries(last), age, trajectory.task, first, last))
    if not pairs:
        models = sorted({record.model.label for record in records})
        return (
            "No training has two evaluated checkpoints. Name the models: `-p before A -p after B`, "
            f"of {_listed(models)}."
        )
    *_, first, last = max(pairs, key=lambda pair: pair[:3])
    return TrainedPair.of(first, last)


def _queries(record: Result) -> int:
    return len(record.scores.queries)


def _listed(names: Iterable[str]) -> str:
    return first_names(sorted(names), most=6) or "none"
