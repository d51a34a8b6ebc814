"""Select MTEB tasks by name, by type and language, by benchmark, or by tier."""

from __future__ import annotations

import copy
import difflib
import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from qwen3nb.tiers import BENCHMARKS, TIERS
from qwen3nb.utils.choices import one_of
from qwen3nb.utils.imports import load_library

__all__ = [
    "ALL",
    "choose_tasks",
    "select_tasks",
    "selection",
    "split_groups",
    "split_names",
    "suite_tasks",
    "task_key",
    "tier_tasks",
]

ALL = "all"  # in place of task names: every task of MTEB
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
    mteb = load_library("mteb")

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


def suite_tasks(*, tier: str, tasks: Iterable[Any] | str | None) -> list[Any]:
    """Return the task objects to evaluate, with aggregate tasks split into parts."""
    if isinstance(tasks, str):
        tasks = split_names(tasks) or None
    if tasks is None:
        return tier_tasks(tier)
    return split_groups(
        select_tasks(names=[each])[0] if isinstance(each, str) else each for each in tasks
    )


def choose_tasks(
    *,
    tier: str,
    tasks: str = "",
    types: str = "",
    languages: str = "",
    benchmark: str = "",
    splits: str = "",
    subsets: str = "",
) -> list[Any]:
    """Return the tier's tasks, or those that the comma-separated arguments select.

    Args:
        tier: tier to use if no tasks and no benchmark are given.
        tasks: task names, or ``all`` for every task of MTEB; with ``benchmark``, only tasks of
            that benchmark.
        types: MTEB task types, such as ``STS,Retrieval``, to keep of these tasks.
        languages: three-letter codes, such as ``eng``, likewise.
        benchmark: name of a benchmark, such as ``MTEB(eng, v2)``.
        splits: splits to evaluate, such as ``test``, of those a task has.
        subsets: subsets to evaluate, such as ``en,de``, likewise.

    Raises:
        ValueError: as `select_tasks`.
    """
    filters = {
        "types": split_names(types),
        "languages": split_names(languages),
        "splits": split_names(splits),
        "subsets": split_names(subsets),
    }
    if tasks or benchmark:
        names = [] if tasks.strip() == ALL else split_names(tasks)
        return select_tasks(names=names, benchmark=benchmark or None, **filters)
    origin = f"the tier {tier} (tasks {ALL!r} selects from all of MTEB)"
    return _restricted(tier_tasks(tier), origin=origin, **filters)


def split_names(text: str) -> list[str]:
    """Split a comma-separated string; an empty one gives an empty list."""
    return [each.strip() for each in text.split(",") if each.strip()]


def select_tasks(
    *,
    names: Sequence[str] = (),
    types: Sequence[str] = (),
    languages: Sequence[str] = (),
    benchmark: str | None = None,
    splits: Sequence[str] = (),
    subsets: Sequence[str] = (),
) -> list[Any]:
    """Return the selected MTEB task objects, without loading data.

    The arguments combine: each one selects from what the others leave.

    Args:
        names: names of tasks of MTEB or of this package.
        types: MTEB task types, such as ``STS``.
        languages: three-letter codes, such as ``eng``; restricts a multilingual task to
            these languages.
        benchmark: an MTEB benchmark, such as ``MTEB(eng, v2)``.
        splits: splits to evaluate, such as ``validation``; a task without any of them is left
            out.
        subsets: subsets to evaluate, such as ``en``, likewise.

    Raises:
        ValueError: unknown name, type, benchmark, split or subset, or an empty selection.
    """
    mteb = load_library("mteb")

    if benchmark is not None:
        known = sorted(each.name for each in mteb.get_benchmarks())
        if benchmark not in known:
            raise ValueError(_unknown("benchmark", benchmark, known))
        tasks = [
            task
            for task in mteb.get_benchmark(benchmark).tasks
            if not names or task.metadata.name in names
        ]
    elif names:
        tasks = [_named(name) for name in names]
    else:
        tasks = list(mteb.get_tasks())
    return _restricted(
        tasks, types=types, languages=languages, splits=splits, subsets=subsets,
        origin=benchmark or " ".join(names) or "MTEB",
    )  # fmt: skip


def _restricted(
    tasks: list[Any],
    *,
    origin: str,
    types: Sequence[str] = (),
    languages: Sequence[str] = (),
    splits: Sequence[str] = (),
    subsets: Sequence[str] = (),
) -> list[Any]:
    """Keep tasks of the given types, and of each the given languages, splits and subsets.

    Raises:
        ValueError: an unknown type; a split, subset or language that none of the tasks has.
    """
    if absent := set(types) - {task.metadata.type for task in tasks}:
        _check_types([each for each in types if each in absent])
    tasks = split_groups(tasks) if languages or splits or subsets else tasks
    kept = [task for task in tasks if not types or task.metadata.type in types]
    if not kept:
        raise ValueError(
            f"no task in {origin}" + (f" is of the type {', '.join(types)}" if types else "")
        )
    for what, wanted, available in (
        ("split", splits, lambda task: task.eval_splits),
        ("subset", subsets, lambda task: task.hf_subsets),
        ("language", languages, lambda task: task.languages),
    ):
        kept = _having(kept, what, wanted, available, origin=origin)
    if not (languages or splits or subsets):
        return kept
    return [_narrowed(task, languages=languages, splits=splits, subsets=subsets) for task in kept]


def _check_types(types: Sequence[str]) -> None:
    """Refuse a type that no task of MTEB has; to make them all takes a moment."""
    mteb = load_library("mteb")

    known = sorted({task.metadata.type for task in mteb.get_tasks()})
    for each in types:
        if each not in known:
            raise ValueError(_unknown("type", each, known))


def _having(
    tasks: list[Any],
    what: str,
    wanted: Sequence[str],
    available: Callable[[Any], Iterable[str]],
    *,
    origin: str,
) -> list[Any]:
    """Keep the tasks that have one of the wanted splits, subsets or languages."""
    if not wanted:
        return tasks
    every = sorted({each for task in tasks for each in available(task)})
    for each in wanted:
        if each not in every:
            raise ValueError(
                f"unknown {what} {each!r} of {origin}; choose one of {', '.join(every)}"
            )
    return [task for task in tasks if set(wanted) & set(available(task))]


def _narrowed(
    task: Any, *, languages: Sequence[str], splits: Sequence[str], subsets: Sequence[str]
) -> Any:
    """Return a new task object, restricted further than ``task`` is.

    Raises:
        ValueError: the restrictions exclude each other.
    """
    split = [each for each in task.eval_splits if not splits or each in splits]
    subset = [each for each in task.hf_subsets if not subsets or each in subsets]
    spoken = task.metadata.hf_subsets_to_langscripts
    subset = [
        each
        for each in subset
        if not languages or {code.split("-")[0] for code in spoken[each]} & set(languages)
    ]
    if not subset:
        raise ValueError(
            f"{task.metadata.name}: none of the subsets {', '.join(subsets)} is in "
            f"{', '.join(languages)}"
        )
    narrowed = copy.copy(task)
    narrowed.hf_subsets, narrowed._eval_splits = subset, split
    return narrowed


def _named(name: str) -> Any:
    mteb = load_library("mteb")

    if name.startswith(_OWN):
        from qwen3nb.datasets.pydocs.mteb_tasks import embedded_task

        try:
            return embedded_task(name)
        except KeyError as error:
            raise ValueError(str(error.args[0])) from None
    try:
        return mteb.get_task(name)
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
