"""Divide an evaluation into parts: tasks of about equal size, run on several nodes at a time.

A part evaluates its tasks as ``eval.ipynb`` does, without a page; its records are those of the
notebook. The page is run when all parts have ended, and finds their records.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from qwen3nb.evaluation.mteb.availability import TO_RUN
from qwen3nb.evaluation.mteb.costs import Planned, costs
from qwen3nb.evaluation.mteb.resources import task_memory
from qwen3nb.evaluation.mteb.select import SELECTION, choose_tasks
from qwen3nb.evaluation.run import SEARCH_TYPES
from qwen3nb.execution.parameters import model_of
from qwen3nb.execution.study_paths import Values
from qwen3nb.models.capabilities import searches
from qwen3nb.models.kinds.prompts import names_prompt_set
from qwen3nb.models.load import load_model
from qwen3nb.models.search.searcher import Searcher
from qwen3nb.utils.choices import split_names

_PARTS_PER_SLOT = 4  # so that a node that is done early gets another one
_FEWEST_PARTS = 4
_WIDTH = 4096  # of a vector, at most; that of a model is known once it is loaded
_LEAST_CHARACTERS = 2e6  # of a part; fewer take less time than starting it
_lock = threading.Lock()


def parts_of(values: Values, *, slots: int, runs: int) -> list[tuple[str, ...]]:
    """Return the keys of the tasks of each part; empty if an evaluation is not divided.

    ``slots`` runs fit on the cluster at a time, and ``runs`` evaluations share them.
    """
    if not _is_planned(values):
        return []
    planned_tasks = _planned_for(values)
    slots_per_run = slots / runs
    # Enough to keep all nodes busy, but each worth the time to start it.
    useful_count = max(_FEWEST_PARTS, math.ceil(_PARTS_PER_SLOT * slots_per_run))
    worthwhile_count = int(sum(task.characters for task in planned_tasks) / _LEAST_CHARACTERS)
    count = min(useful_count, worthwhile_count)
    if count < 2:
        return []
    parts = divided(planned_tasks, count)
    if len(parts) == 1:  # all tasks are on one corpus
        return []
    return parts


def shares_of(values: Values, count: int) -> list[tuple[str, ...]]:
    """Return the tasks, or the folders of data, in at most ``count`` shares of about equal size."""
    folders = split_names(values["data"])
    if folders:
        return [tuple(folders[first::count]) for first in range(min(count, len(folders)))]
    return divided(_planned_for(values), count)


def tasks_memory(values: Values, keys: Sequence[str] = ()) -> int:
    """Return the bytes that the largest of the tasks needs, beside the model; 0 if unknown.

    The tasks are those with the ``keys``, or all of an evaluation.
    """
    if not _is_planned(values):
        return 0
    searchers: list[Searcher] = []
    width = _WIDTH
    kind = model_of(values).kind
    if kind.searches:
        width = 0
        if kind.weightless:  # loaded in no time
            loaded = load_model(values["checkpoint"])
            searchers = [part for part in loaded.parts if searches(part)]
    needs = [
        task_memory(task, width, 0, searchers)
        for task in _planned_for(values)
        if task.task in keys or not keys
    ]
    return max(needs, default=0)


def _is_planned(values: Values) -> bool:
    """Return whether an evaluation is of a known model on whole tasks of MTEB."""
    if not values["checkpoint"] or values["data"] or values["limit"]:
        return False
    return not names_prompt_set(values["prompts"])


def _planned_for(values: Values) -> list[Planned]:
    """Return the tasks that an evaluation selects and its model can do, with their costs."""
    # Threads of a sweep ask at once: one chooses the tasks, which takes seconds.
    with _lock:
        planned_tasks = _planned(tuple(values[name] for name in SELECTION))
    # Such as bm25, which skips all other tasks.
    if values["checkpoint"] and model_of(values).kind.searches:
        planned_tasks = [task for task in planned_tasks if task.type in SEARCH_TYPES]
    return planned_tasks


@functools.cache
def _planned(selection: tuple[str, ...]) -> list[Planned]:
    """Return the tasks that an evaluation selects, with their costs."""
    tasks = choose_tasks(**dict(zip(SELECTION, selection, strict=True)))
    return costs(tasks, [TO_RUN] * len(tasks))


@dataclass
class _Part:
    """Tasks that one run evaluates."""

    characters: int = 0
    tasks: list[str] = field(default_factory=list)


def divided(planned: Sequence[Planned], count: int) -> list[tuple[str, ...]]:
    """Return the keys of tasks in at most ``count`` parts of about equal size, the largest first.

    Tasks with a common corpus are in one part, where it is encoded or indexed once.
    """
    groups = _by_corpus(planned)
    groups.sort(key=_characters, reverse=True)
    parts = [_Part() for _ in range(count)]
    # The largest first, each to the part that has the least so far.
    for group in groups:
        smallest = min(parts, key=lambda part: part.characters)
        smallest.characters += _characters(group)
        smallest.tasks += [task.task for task in group]
    parts.sort(key=lambda part: part.characters, reverse=True)
    return [tuple(part.tasks) for part in parts if part.tasks]


def _by_corpus(planned: Sequence[Planned]) -> list[list[Planned]]:
    """Group tasks by corpus; hard negatives are part of the whole corpus."""
    corpora = {task.task: task.dataset for task in planned}
    groups: dict[str, list[Planned]] = {}
    for task in planned:
        corpus = corpora.get(task.task.removesuffix("HardNegatives"), task.dataset)
        groups.setdefault(corpus, []).append(task)
    return list(groups.values())


def _characters(group: Sequence[Planned]) -> int:
    """Return the characters of the corpus that tasks share."""
    return max(task.characters for task in group)
