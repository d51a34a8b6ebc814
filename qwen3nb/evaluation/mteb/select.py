"""Select MTEB tasks by name, by type and language, by benchmark, or by tier."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

from qwen3nb.tiers import BENCHMARKS, TIERS
from qwen3nb.utils.choices import one_of

__all__ = [
    "choose_tasks",
    "select_tasks",
    "selection",
    "split_groups",
    "split_names",
    "task_key",
    "tier_tasks",
]

_OWN = ("PyDocs", "AuthorSTS")
_LONGEST = 60  # characters of a selection in a file name


def tier_tasks(tier: str) -> list[Any]:
    """Return the MTEB task objects of a tier, in the order of `Tier.task_keys`.

    No data is loaded.

    Raises:
        ValueError: unknown tier.
    """
    entry = TIERS[one_of("tier", tier, TIERS)]
    tasks = select_tasks(names=entry.tasks) if entry.tasks else []
    for benchmark in entry.benchmarks:
        tasks += _benchmark_tasks(benchmark)
    order = entry.task_keys
    return sorted(split_groups(tasks), key=lambda task: order.index(task_key(task)))


def _benchmark_tasks(name: str) -> list[Any]:
    """Return the tasks of an entry of `BENCHMARKS`; MTEB's own are restricted as MTEB does."""
    import mteb

    if name.startswith("MTEB("):
        return list(mteb.get_benchmark(name).tasks)
    return select_tasks(names=BENCHMARKS[name].tasks)


def split_groups(tasks: Iterable[Any]) -> list[Any]:
    """Replace tasks that consist of others by these; keep the first of tasks with one key."""
    parts = (part for task in tasks for part in getattr(task.metadata, "tasks", None) or [task])
    unique: dict[str, Any] = {}
    for part in parts:
        unique.setdefault(task_key(part), part)
    return list(unique.values())


def task_key(task: Any, *, limit: int = 0) -> str:
    """Return the name of a task with its selection; see `qwen3nb.records.TaskInfo.key`."""
    selected = selection(task, limit=limit)
    return f"{task.metadata.name}-{selected}" if selected else str(task.metadata.name)


def selection(task: Any, *, limit: int = 0) -> str:
    """Return what of a task is evaluated: its subsets, splits and limit; empty if all of it.

    >>> import mteb
    >>> selection(mteb.get_task("STS17", hf_subsets=["en-en"]), limit=20)
    'en-en-limit20'
    """
    whole = task.metadata
    parts = []
    if set(task.hf_subsets) != set(whole.hf_subsets):
        parts.append("_".join(task.hf_subsets))
    if set(task.eval_splits) != set(whole.eval_splits):
        parts.append("_".join(task.eval_splits))
    if limit:
        parts.append(f"limit{limit}")
    text = re.sub(r"[^A-Za-z0-9._-]", "", "-".join(parts))
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:8]}"


def choose_tasks(
    *, tier: str, tasks: str = "", types: str = "", languages: str = "", benchmark: str = ""
) -> list[Any]:
    """Return the tier's tasks, or those that the comma-separated arguments select.

    Args:
        tier: tier to use if nothing else is given.
        tasks: task names; with ``benchmark``, only tasks of that benchmark.
        types: MTEB task types, such as ``STS,Retrieval``.
        languages: three-letter codes, such as ``eng``.
        benchmark: name of a benchmark, such as ``MTEB(eng, v2)``.

    Raises:
        ValueError: as `select_tasks`.
    """
    if not (tasks or types or languages or benchmark):
        return tier_tasks(tier)
    return select_tasks(
        names=split_names(tasks),
        types=split_names(types),
        languages=split_names(languages),
        benchmark=benchmark or None,
    )


def split_names(text: str) -> list[str]:
    """Split a comma-separated string; an empty one gives an empty list."""
    return [each.strip() for each in text.split(",") if each.strip()]


def select_tasks(
    *,
    names: Sequence[str] = (),
    types: Sequence[str] = (),
    languages: Sequence[str] = (),
    benchmark: str | None = None,
) -> list[Any]:
    """Return the selected MTEB task objects, without loading data.

    Args:
        names: names of tasks of MTEB or of this package.
        types: MTEB task types, such as ``STS``; can be combined with ``languages``.
        languages: three-letter codes, such as ``eng``; restricts a multilingual task to
            these languages.
        benchmark: an MTEB benchmark, such as ``MTEB(eng, v2)``; ``types`` and ``names``
            select from it.

    Raises:
        ValueError: unknown name, type or benchmark, or an empty selection.
    """
    import mteb

    known_types = sorted({task.metadata.type for task in mteb.get_tasks()}) if types else []
    for each in types:
        if each not in known_types:
            raise ValueError(_unknown("type", each, known_types))
    if benchmark is not None:
        known = sorted(each.name for each in mteb.get_benchmarks())
        if benchmark not in known:
            raise ValueError(_unknown("benchmark", benchmark, known))
        tasks = list(mteb.get_benchmark(benchmark).tasks)
        selected = [
            task
            for task in tasks
            if (not types or task.metadata.type in types)
            and (not names or task.metadata.name in names)
        ]
    elif names:
        selected = [_named(name, languages) for name in names]
    else:
        selected = list(mteb.get_tasks(task_types=list(types) or None,
                                     languages=list(languages) or None))  # fmt: skip
    if not selected:
        raise ValueError(
            f"no task in {benchmark or 'MTEB'} matches names {list(names)}, types {list(types)} "
            f"and languages {list(languages)}"
        )
    return selected


def _named(name: str, languages: Sequence[str]) -> Any:
    import mteb

    if name.startswith(_OWN):
        from qwen3nb.datasets.pydocs.mteb_tasks import embedded_task

        try:
            return embedded_task(name)
        except KeyError as error:
            raise ValueError(str(error.args[0])) from None
    try:
        return mteb.get_task(name, languages=list(languages) or None)
    except KeyError:
        known = sorted({task.metadata.name for task in mteb.get_tasks()})
        raise ValueError(_unknown("task", name, known)) from None


def _unknown(what: str, name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=3)
    return (
        f"unknown {what} {name!r}"
        + (f"; did you mean {' or '.join(near)}?" if near else "")
        + f" `qwen3nb tasks` lists all {len(known)}"
    )
