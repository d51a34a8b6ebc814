"""A collection of records: count them, filter them, convert them to a DataFrame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, overload

from qwen3nb.records.record import Result
from qwen3nb.tiers import TIERS
from qwen3nb.utils.choices import one_of

if TYPE_CHECKING:
    import pandas as pd

Names = str | Iterable[str]
_RICHEST_FIRST = ("full", "fast", "pydocs", "smoke")  # the tier that pages, cards and tables show


class Results(Sequence[Result]):
    """Records in a fixed order.

    >>> Results([]).filter(tier="smoke")
    <Results: no records>

    Attributes:
        unreadable: why a record was left out when they were loaded, by its file.
    """

    def __init__(
        self, records: Iterable[Result] = (), *, unreadable: Mapping[str, str] | None = None
    ) -> None:
        self._records = tuple(records)
        self.unreadable = dict(unreadable or {})

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Result]:
        return iter(self._records)

    @overload
    def __getitem__(self, index: int) -> Result: ...
    @overload
    def __getitem__(self, index: slice) -> Results: ...
    def __getitem__(self, index: int | slice) -> Result | Results:
        if isinstance(index, slice):
            return Results(self._records[index], unreadable=self.unreadable)
        return self._records[index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # records hold dictionaries

    def __repr__(self) -> str:
        """Number of records, and their models and tasks."""
        lost = f"; {len(self.unreadable)} unreadable" if self.unreadable else ""
        if not self._records:
            return f"<Results: no records{lost}>"
        records = f"{len(self)} record{'s' if len(self) > 1 else ''}"
        return f"<Results: {records}; models {_some(self.models)}; tasks {_some(self.tasks)}{lost}>"

    def _repr_html_(self) -> str:
        return str(self.to_frame().to_html(max_rows=20, float_format="{:.3f}".format))

    @property
    def models(self) -> tuple[str, ...]:
        """Labels of the models, sorted."""
        return tuple(sorted({record.model.label for record in self}))

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks, sorted."""
        return tuple(sorted({record.task.key for record in self}))

    def filter(
        self, *, model: Names | None = None, task: Names | None = None, tier: str | None = None
    ) -> Results:
        """Return the records that meet all given conditions.

        Args:
            model: a label, a spec, or the first digits (at least 8) of an identity; or several.
            task: a task name, or several.
            tier: a tier; keeps records of its tasks and those made by a run of the tier.

        Raises:
            ValueError: a model or task that no record has, or an unknown tier.
        """
        kept = self._records
        if model is not None:
            wanted = _listed(model)
            for name in wanted:
                if not any(_is_model(record, name) for record in kept):
                    one_of("model", name, self.models)
            kept = tuple(r for r in kept if any(_is_model(r, name) for name in wanted))
        if task is not None:
            tasks = {one_of("task", name, self.tasks) for name in _listed(task)}
            kept = tuple(r for r in kept if r.task.key in tasks)
        if tier is not None:
            tasks = set(TIERS[one_of("tier", tier, TIERS)].task_keys)
            kept = tuple(r for r in kept if r.task.key in tasks or r.config.get("tier") == tier)
        return Results(kept, unreadable=self.unreadable)

    def to_frame(self, *, all_metrics: bool = False) -> pd.DataFrame:
        """Return a row per record with its main metric, or per record and metric.

        Columns: model, task, type, metric, value, low and high (the confidence interval), n,
        unit, seed, identity, revision, finished. An undefined value is missing.
        """
        import pandas as pd

        rows = [
            _row(record, name)
            for record in self
            for name in (record.metrics if all_metrics else (record.task.main_metric,))
        ]
        return pd.DataFrame(rows, columns=_COLUMNS)

    def write_scores(self, file: Path | str) -> Path:
        """Write the score of every query to a ``.parquet`` or ``.csv`` file, a row per score.

        Columns: see `qwen3nb.records.score_export`.

        Raises:
            ValueError: another ending; lists the two.
            ResultError: the scores of a record are missing or changed.
        """
        from qwen3nb.records.score_export import write_scores

        return write_scores(self, file)


_COLUMNS = """
    model task type metric value low high n unit seed identity revision finished
""".split()  # noqa: SIM905 - a list of words reads better as a line


def _row(record: Result, metric: str) -> tuple[object, ...]:
    value, model, task = record.metrics[metric], record.model, record.task
    score = (value.value, value.low, value.high, value.n)
    of_run = (record.seed, model.identity[:8], task.revision, record.finished)
    return (model.label, task.key, task.type, metric, *score, task.unit, *of_run)


def _listed(names: Names) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _is_model(record: Result, name: str) -> bool:
    model = record.model
    return name in (model.label, model.spec) or (len(name) >= 8 and model.identity.startswith(name))


def _some(names: Sequence[str], most: int = 4) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def richest_tier(results: Iterable[Result]) -> str:
    """Return the largest tier that has results; ``smoke`` if none has.

    A tier has results if a run of it made one, or if a model has all of its tasks. Where no tier
    has, it is the smallest with a result of some of its tasks.
    """
    given = list(results)
    models: dict[str, set[str]] = {}
    for result in given:
        models.setdefault(result.model.identity, set()).add(result.task.key)
    for name in _RICHEST_FIRST:
        tasks = set(TIERS[name].task_keys)
        whole = any(tasks <= own for own in models.values())
        if whole or any(_of_run(each, name) and each.task.key in tasks for each in given):
            return name
    keys = {key for own in models.values() for key in own}
    some = (name for name in reversed(_RICHEST_FIRST) if keys & set(TIERS[name].task_keys))
    return next(some, "smoke")


def _of_run(result: Result, tier: str) -> bool:
    """Whether a run of the tier made the record, rather than one of tasks named one by one."""
    selected = any(result.config.get(name) for name in ("tasks", "types", "benchmark"))
    return bool(result.config.get("tier") == tier and not selected)
