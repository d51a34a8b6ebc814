"""Select MTEB tasks by name, type, language, benchmark or tier, and limit their size."""

import copy
import difflib
import hashlib
import logging
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from qwen3nb.tiers import BENCHMARKS, TIERS
from qwen3nb.utils.choices import check_choice, split_names
from qwen3nb.utils.imports import load_library

# Parameters of `choose_tasks` that a notebook has.
SELECTION = ("tier", "tasks", "benchmark", "types", "languages", "splits", "subsets")
ALL = "all"  # instead of task names: every task of MTEB
_OWN = ("PyDocs", "AuthorSTS")
_LONGEST = 60  # characters of a selection in a file name
_WORDS = {"eval_splits": "split", "hf_subsets": "subset", "languages": "language"}
_LISTS = ("Clustering", "PairClassification")  # types whose rows may hold lists of texts


def tier_tasks(tier: str) -> list[Any]:
    """Return the MTEB task objects of a tier, in the order of `Tier.task_keys`, without data.

    Tasks of MTEB's benchmarks are restricted as by MTEB.

    Raises:
        ValueError: unknown tier.
    """
    entry = TIERS[check_choice("tier", tier, TIERS)]
    tasks = choose_tasks(tasks=entry.tasks) if entry.tasks else []
    for name in entry.benchmarks:
        if name.startswith("MTEB("):
            tasks += load_library("mteb").get_benchmark(name).tasks
        else:
            tasks += choose_tasks(tasks=BENCHMARKS[name].tasks)
    order = entry.task_keys
    return sorted(split_groups(tasks), key=lambda task: order.index(task_key(task)))


def split_groups(tasks: Iterable[Any]) -> list[Any]:
    """Replace tasks that consist of others by their parts; keep the first of equal keys."""
    unique: dict[str, Any] = {}
    for task in tasks:
        for part in getattr(task.metadata, "tasks", None) or [task]:
            unique.setdefault(task_key(part), part)
    return list(unique.values())


def task_key(task: Any, *, limit: int = 0) -> str:
    """Return the name of a task with its selection; see `qwen3nb.records.TaskInfo.key`."""
    name = str(task.metadata.name)
    part = selection(task, limit=limit)
    if not part:
        return name
    return f"{name}-{part}"


def selection(task: Any, *, limit: int = 0) -> str:
    """Return the evaluated part of a task: subsets, splits and limit; empty for all of it.

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
    return split_groups(_named(task) if isinstance(task, str) else task for task in tasks)


def check_types(types: Iterable[str], tasks: Iterable[Any]) -> list[str]:
    """Return the ``types`` that none of the tasks has; refuse one that MTEB does not know."""
    present = {task.metadata.type for task in tasks}
    missing = [name for name in types if name not in present]
    for name in missing:
        _check_known("type", name, (metadata.type for metadata in _metadata()))
    return missing


def choose_tasks(
    *,
    tier: str = "",
    tasks: str | Sequence[str] = (),
    types: str | Sequence[str] = (),
    languages: str | Sequence[str] = (),
    benchmark: str = "",
    splits: str | Sequence[str] = (),
    subsets: str | Sequence[str] = (),
) -> list[Any]:
    """Return the MTEB task objects that the arguments select, without loading data.

    Conditions are combined. A task without any of the languages, splits or subsets is left out, and
    others are restricted to these. Names are a list, or a comma-separated string.

    Args:
        tier: a tier, if no tasks and no benchmark are given; without it, all tasks of MTEB.
        tasks: names of tasks of MTEB or of this package; ``all`` for those of MTEB.
        types: MTEB task types, such as ``STS``.
        languages: three-letter codes, such as ``eng``.
        benchmark: an MTEB benchmark, such as ``MTEB(eng, v2)``.
        splits: splits to evaluate, such as ``validation``.
        subsets: subsets to evaluate, such as ``en``.

    Raises:
        ValueError: unknown name, type, benchmark, split or subset, or an empty selection.
    """
    names = _as_list(tasks)
    tasks_found, origin = _candidates(tier, names, benchmark)
    types = _as_list(types)
    check_types(types, tasks_found)
    conditions = {
        "languages": _as_list(languages),
        "eval_splits": _as_list(splits),
        "hf_subsets": _as_list(subsets),
    }
    is_narrowed = any(conditions.values())
    if is_narrowed:
        tasks_found = split_groups(tasks_found)
    if types:
        tasks_found = [task for task in tasks_found if task.metadata.type in types]
    if not tasks_found:
        of_type = f" is of the type {', '.join(types)}" if types else ""
        raise ValueError(f"no task in {origin}{of_type}")
    if not is_narrowed:
        return tasks_found
    for attribute in ("eval_splits", "hf_subsets", "languages"):
        tasks_found = _having(tasks_found, attribute, conditions[attribute], origin)
    return [_narrowed(task, *conditions.values()) for task in tasks_found]


def _as_list(names: str | Sequence[str]) -> list[str]:
    if isinstance(names, str):
        return split_names(names)
    return list(names)


def _candidates(tier: str, names: Sequence[str], benchmark: str) -> tuple[list[Any], str]:
    """Return the tasks of a benchmark, of names, of a tier or of all of MTEB, and their origin."""
    mteb = load_library("mteb")
    if benchmark:
        _check_known("benchmark", benchmark, (one.name for one in mteb.get_benchmarks()))
        tasks = list(mteb.get_benchmark(benchmark).tasks)
        if names and names != [ALL]:
            tasks = [task for task in tasks if task.metadata.name in names]
        return tasks, benchmark
    if names and names != [ALL]:
        return [_named(name) for name in names], " ".join(names)
    if tier and not names:
        origin = f"the tier {tier} (tasks {ALL!r} selects from all of MTEB)"
        return tier_tasks(tier), origin
    return list(mteb.get_tasks()), " ".join(names) or "MTEB"


def _having(tasks: list[Any], attribute: str, values: Sequence[str], origin: str) -> list[Any]:
    """Return the tasks with any of these splits, subsets or languages; all if none are given.

    Raises:
        ValueError: no task has one of them; lists the choices.
    """
    if not values:
        return tasks
    choices: set[str] = set()
    for task in tasks:
        choices.update(getattr(task, attribute))
    for value in values:
        check_choice(f"{_WORDS[attribute]} of {origin}", value, sorted(choices))
    return [task for task in tasks if set(values) & set(getattr(task, attribute))]


def _narrowed(
    task: Any, languages: Sequence[str], splits: Sequence[str], subsets: Sequence[str]
) -> Any:
    """Return a new task object, restricted further than ``task``."""
    names = list(task.hf_subsets)
    if subsets:
        names = [name for name in names if name in subsets]
    if languages:
        names = [name for name in names if _languages_of(task, name) & set(languages)]
    if not names:
        raise ValueError(
            f"{task.metadata.name}: none of the subsets {', '.join(subsets)} is in "
            f"{', '.join(languages)}"
        )
    narrowed = copy.copy(task)
    narrowed.hf_subsets = names
    if splits:
        narrowed.filter_eval_splits([split for split in task.eval_splits if split in splits])
    return narrowed


def _languages_of(task: Any, subset: str) -> set[str]:
    """Return the three-letter codes of a subset's languages."""
    return {code.split("-")[0] for code in task.metadata.hf_subsets_to_langscripts[subset]}


def _named(name: str) -> Any:
    if name.startswith(_OWN):
        from qwen3nb.datasets.pydocs.mteb_tasks import embedded_task

        try:
            return embedded_task(name)
        except KeyError as error:
            raise ValueError(str(error.args[0])) from None
    try:
        return load_library("mteb").get_task(name)
    except KeyError:
        _check_known("task", name, (metadata.name for metadata in _metadata()))
        raise


@cache
def _metadata() -> list[Any]:
    """Return the metadata of all MTEB tasks, which take seconds to list."""
    return [task.metadata for task in load_library("mteb").get_tasks()]


def _check_known(what: str, name: str, names: Iterable[str]) -> None:
    choices = sorted(set(names))
    if name in choices:
        return
    similar = difflib.get_close_matches(name, choices, n=3)
    hint = "."
    if similar:
        hint = f"; did you mean {' or '.join(similar)}?"
    raise ValueError(
        f"unknown {what} {name!r}{hint} `qwen3nb tasks` lists all {len(choices)}"
    ) from None


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the warnings and progress bars of MTEB's own code, scorers and loaders.

    Examples are superseded tasks, classes never predicted by a toy model, and deprecations in other
    libraries. MTEB warns and logs; pages would show its log above their first sentence.
    """
    import datasets

    shown = not datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    log = logging.getLogger("mteb")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
        if shown:
            datasets.enable_progress_bars()


@contextmanager
def limited(task: Any, limit: int) -> Iterator[None]:
    """Reduce a loaded MTEB task to at most ``limit`` items of each kind inside the block.

    For search tasks, these are queries and documents; documents judged for these queries, or listed
    as candidates, are always kept. For other tasks, they are rows of the evaluated splits. Every
    model gets the same data. A limited task is a different, usually easier task: its record has
    another name, and scores are comparable only under the same limit.
    """
    if not limit:
        yield
        return
    whole = task.dataset
    task.dataset = _less(whole, limit, task=task)
    try:
        yield
    finally:
        task.dataset = whole


def _less(data: Any, limit: int, *, task: Any) -> Any:
    """Return ``data`` of a subset or split with the evaluated splits subsampled."""
    import datasets

    if isinstance(data, datasets.Dataset):
        rows = data.select(drawn(len(data), limit))
        if task.metadata.type not in _LISTS:
            return rows
        return rows.map(  # keeps texts and labels in lists of a row aligned
            lambda row: {
                name: [value[i] for i in drawn(len(value), limit)]
                for name, value in row.items()
                if isinstance(value, list)
            }
        )
    if "relevant_docs" in data:
        return _less_to_search(data, limit)
    evaluated = {*task.eval_splits, *task.hf_subsets}  # not, for example, training texts
    return {
        name: _less(part, limit, task=task) if name in evaluated else part
        for name, part in data.items()
    }


def drawn(count: int, limit: int) -> list[int]:
    """Return at most ``limit`` of the numbers below ``count``, ascending, by a fixed seed."""
    if count <= limit:
        return list(range(count))
    return sorted(np.random.default_rng(0).choice(count, size=limit, replace=False).tolist())


def _less_to_search(data: Mapping[str, Any], limit: int) -> dict[str, Any]:
    judgements, candidates = data["relevant_docs"], data.get("top_ranked")
    answered = [row for row, query in enumerate(data["queries"]["id"]) if query in judgements]
    sample = [answered[number] for number in drawn(len(answered), limit)]
    queries = data["queries"].select(sample)
    names = set(queries["id"])
    judgements_left = {query: judgements[query] for query in judgements if query in names}
    needed: set[str] = set()
    for documents in judgements_left.values():
        needed.update(documents)
    if candidates:
        candidates = {query: candidates[query] for query in candidates if query in judgements_left}
        for documents in candidates.values():
            needed.update(documents)
    ids = data["corpus"]["id"]
    others = [row for row, document in enumerate(ids) if document not in needed]
    sampled = {others[number] for number in drawn(len(others), limit)}
    rows = [row for row, document in enumerate(ids) if row in sampled or document in needed]
    return {
        **data,
        "queries": queries,
        "corpus": data["corpus"].select(rows),
        "relevant_docs": judgements_left,
        "top_ranked": candidates,
    }
