"""The baseline: the model that the others are compared with, by one rule for all pages.

It is the model that the reader names, as a parameter or as ``baseline:`` below ``qwen3nb:`` in
``_config.yml``. Else it is a reference model: bm25 or one of the registry's, as published; of a
study's ``models.toml``, those with ``baseline = true``. Of several, the one with scores on most of
the tasks shown; if tied, the first in this order. A task that it lacks takes the next reference
model. Random vectors are a floor: they take a task that no reference model has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from qwen3nb.analysis.comparison.alignment import Names
from qwen3nb.models.kinds.source import registry
from qwen3nb.records.record import Result

FLOOR = "random"


def in_words(baseline: str) -> str:
    """Name of a baseline as pages show it.

    >>> in_words("bm25"), in_words("random")
    ('bm25', 'random (the floor)')
    """
    of_random = re.fullmatch(rf"{FLOOR}(-\d+)?( \(.*\))?", baseline)
    return f"{baseline} (the floor)" if of_random else baseline


def baselines(results: Iterable[Result], names: Names, *, named: str = "") -> list[str]:
    """Names of the systems that a task may be compared with, the first choice first.

    Args:
        results: records with scores on the tasks shown.
        names: of the systems, by identity and seed.
        named: name of the system that the reader names, which comes first; empty for none.
    """
    known = {name: each for name, each in registry().items() if each.get("baseline", True)}
    order = ["bm25", *known]
    ids = {str(entry.get("id", name)): name for name, entry in known.items()}
    tasks: dict[str, set[str]] = {}
    ranks: dict[str, int] = {}
    floors = []
    for result in results:
        name = names[result.model.identity, result.seed]
        tasks.setdefault(name, set()).add(result.task.key)
        spec = ids.get(result.model.spec, result.model.spec)
        if spec in order:  # a training's result is in a folder
            ranks[name] = order.index(spec)
        elif spec.partition(":")[0] == FLOOR:
            floors.append(name)
    references = sorted(ranks, key=lambda name: (-len(tasks[name]), ranks[name], name))
    return list(dict.fromkeys([*filter(None, [named]), *references, *floors]))
