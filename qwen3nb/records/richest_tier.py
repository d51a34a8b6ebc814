"""The tier that pages, cards and tables show unless another is named."""

from __future__ import annotations

from collections.abc import Iterable

from qwen3nb.records.record import Result
from qwen3nb.tiers import TIERS

__all__ = ["richest_tier"]

_RICHEST_FIRST = ("full", "fast", "pydocs", "smoke")


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
