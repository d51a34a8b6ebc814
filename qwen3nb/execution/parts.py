"""Divide an evaluation into parts: tasks of about equal size, run on several nodes at a time.

A part evaluates its tasks as ``eval.ipynb`` does, without a page; its records are those of the
notebook. The page is run when all parts have ended, and finds their records.
"""

from __future__ import annotations

import functools
import heapq
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from qwen3nb.evaluation.mteb.plan import TO_RUN, Planned, costs
from qwen3nb.evaluation.mteb.select import SELECTION, choose_tasks
from qwen3nb.evaluation.run import SEARCH_TYPES
from qwen3nb.execution.parameters import model_of
from qwen3nb.models.kinds.prompts import names_prompt_set

_EACH = 4  # parts per run that fits on the cluster at a time, and of an evaluation at least
_LEAST = 2e6  # characters of a part; fewer take less time than starting it
_lock = threading.Lock()


def parts_of(values: Mapping[str, Any], *, slots: int, runs: int) -> list[tuple[str, ...]]:
    """Return the keys of the tasks of each part; empty if an evaluation is not divided.

    ``slots`` runs fit on the cluster at a time, and ``runs`` evaluations share them.
    """
    if not values["checkpoint"] or values["data"] or values["limit"]:
        return []
    if names_prompt_set(values["prompts"]):
        return []
    with _lock:
        planned = _planned(tuple(values[name] for name in SELECTION))
    if model_of(values).kind.searches:
        planned = [each for each in planned if each.type in SEARCH_TYPES]
    most = max(_EACH, -(-_EACH * slots // runs))
    worth = int(sum(each.characters for each in planned) / _LEAST)
    parts = divided(planned, max(1, min(most, worth)))
    return parts if len(parts) > 1 else []


@functools.cache
def _planned(selected: Sequence[str]) -> list[Planned]:
    tasks = choose_tasks(**dict(zip(SELECTION, selected, strict=True)))
    return costs(tasks, [TO_RUN] * len(tasks))


def divided(planned: Sequence[Planned], count: int) -> list[tuple[str, ...]]:
    """Return the keys of tasks in at most ``count`` parts of about equal size, the largest first.

    Tasks with a common corpus are in one part, where it is encoded or indexed once.
    """
    corpora = {each.task: each.dataset for each in planned}
    groups: dict[str, list[Planned]] = {}
    for each in planned:  # hard negatives are part of the whole corpus
        whole = corpora.get(each.task.removesuffix("HardNegatives"), each.dataset)
        groups.setdefault(whole, []).append(each)
    sized = [(max(each.characters for each in group), group) for group in groups.values()]
    parts: list[tuple[int, int, list[str]]] = [(0, i, []) for i in range(count)]
    for size, group in sorted(sized, key=lambda pair: -pair[0]):
        total, i, keys = parts[0]
        heapq.heapreplace(parts, (total + size, i, [*keys, *(each.task for each in group)]))
    return [tuple(keys) for _, _, keys in sorted(parts, key=lambda part: -part[0]) if keys]
