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


def reference_models() -> dict[str, str]:
    """Hub ids of the reference models, by name, in the order of the rule; bm25 has its name."""
    known = {name: each for name, each in registry().items() if each.get("baseline", True)}
    return {"bm25": "bm25", **{name: str(each.get("id", name)) for name, each in known.items()}}


def baselines(results: Iterable[Result], names: Names, *, named: str = "") -> list[str]:
    """Names of the systems that a task may be compared with, the first choice first.

    Args:
        results: records with scores on the tasks shown.
        names: of the systems, by identity and seed.
        named: label of the model that the reader names, which comes first if it has a record.
    """
    ids = reference_models()
    order, of_id = list(ids), {each: name for name, each in ids.items()}
    tasks: dict[str, set[str]] = {}
    ranks: dict[str, int] = {}
    first, floors = [], []
    for result in results:
        name = names[result.model.identity, result.seed]
        tasks.setdefault(name, set()).add(result.task.key)
        if result.model.label == named:
            first.append(name)
        spec = of_id.get(result.model.spec, result.model.spec)
        if spec in order:  # a training's result is in a folder
            ranks[name] = order.index(spec)
        elif spec.partition(":")[0] == FLOOR:
            floors.append(name)
    references = sorted(ranks, key=lambda name: (-len(tasks[name]), ranks[name], name))
    return list(dict.fromkeys([*first[:1], *references, *floors]))
