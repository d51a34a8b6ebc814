"""Which part of MTEB(Multilingual, v2) the tier ``multilingual`` is, and how long it takes.

A task is in the tier if all of this holds, by what MTEB itself says of it:

    licence     everybody may use the data for everything: `OPEN_LICENCES`; a licence with NC, a
                link instead of a name, and "not specified" are left out
    languages   at least one other than English, of which the tier ``full`` has MTEB(eng, v2)
    size        a run encodes at most `MOST_CHARACTERS` characters

Printed are the tasks, the languages by script and type of task, and the hours that models took,
if ``--published`` names a table of MTEB's published seconds (columns model, revision, task and
seconds, with tabs and packed by gzip).

    python -m benchmarks.multilingual --published scores.tsv.gz
"""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.options import command
from qwen3nb.evaluation.mteb.costs import costs
from qwen3nb.tiers import BENCHMARKS, OPEN_MULTILINGUAL
from qwen3nb.utils.format import markdown_table
from qwen3nb.utils.imports import load_library

if TYPE_CHECKING:
    from mteb import AbsTask

WHOLE = BENCHMARKS[OPEN_MULTILINGUAL].part_of
# Beginnings of the names that MTEB writes; "cc-by-n…" would be for use without gain alone.
OPEN_LICENCES = (
    "afl-",
    "apache-",
    "cc-by-2",
    "cc-by-3",
    "cc-by-4",
    "cc-by-sa-",
    "cc0-",
    "gpl-",
    "mit",
    "mpl-",
)
MOST_CHARACTERS = 120_000_000
_ENOUGH_TASKS = 0.95  # of the benchmark, so that a model's seconds are counted


@dataclass(frozen=True)
class OpenPart:
    """The tasks that the rule chooses, and what they cover."""

    tasks: dict[str, list[str]]  # names by type
    languages: dict[str, dict[str, int]]  # number of languages by script, then type
    all_languages: int  # a language in two scripts counts twice
    characters: int  # that a run encodes
    texts: int
    hours: dict[str, tuple[float, float]]  # of the part and of the whole, by model


def open_part() -> list[AbsTask]:
    """Return the tasks that the rule chooses."""
    tasks = load_library("mteb").get_benchmark(WHOLE).tasks
    characters = {planned.task: planned.characters for planned in costs(tasks)}
    return [
        task
        for task in tasks
        if (task.metadata.license or "").startswith(OPEN_LICENCES)
        and set(task.metadata.bcp47_codes) != {"eng-Latn"}
        and characters[task.metadata.name] <= MOST_CHARACTERS
    ]


def spoken(tasks: Iterable[AbsTask]) -> dict[str, set[str]]:
    """Return the languages of tasks by script: ``Latn`` has ``deu``."""
    languages: dict[str, set[str]] = defaultdict(set)
    for task in tasks:
        for subset in task.hf_subsets:
            for code in task.metadata.hf_subsets_to_langscripts[subset]:
                language, _, script = code.partition("-")
                languages[script].add(language)
    return languages


def coverage_table(languages: dict[str, dict[str, int]]) -> str:
    """Return the numbers of languages as Markdown: a row per script, a column per type."""
    kinds = list(BENCHMARKS[OPEN_MULTILINGUAL].types)
    rows = []
    for script, counts in languages.items():
        rows.append([script, *(str(counts.get(kind, "")) for kind in kinds)])
    return markdown_table(["script", *kinds], rows)


def published_hours(file: str, tasks: Iterable[str]) -> dict[str, tuple[float, float]]:
    """Return the hours of the tasks and of the whole benchmark, by model.

    Only models with seconds of nearly all tasks of the benchmark are counted.
    """
    whole = {task.metadata.name for task in load_library("mteb").get_benchmark(WHOLE).tasks}
    part = set(tasks)
    seconds: dict[str, dict[str, float]] = defaultdict(dict)
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        for row in csv.DictReader(lines, delimiter="\t"):
            if row["seconds"] and row["task"] in whole:
                seconds[f"{row['model']}@{row['revision']}"][row["task"]] = float(row["seconds"])
    hours = {}
    for model, by_task in seconds.items():
        if len(by_task) >= _ENOUGH_TASKS * len(whole):
            of_part = sum(by_task[task] for task in by_task if task in part)
            hours[model] = (of_part / 3600, sum(by_task.values()) / 3600)
    return hours


def multilingual(*, published: str = "") -> OpenPart:
    """Choose the tasks of the tier by its rule; add up what it covers and takes."""
    tasks = open_part()
    by_type: dict[str, list[AbsTask]] = defaultdict(list)
    for task in sorted(tasks, key=lambda task: (task.metadata.type, task.metadata.name)):
        by_type[task.metadata.type].append(task)
    everywhere = spoken(tasks)
    most_first = sorted(everywhere, key=lambda script: (-len(everywhere[script]), script))
    languages: dict[str, dict[str, int]] = {script: {} for script in most_first}
    for kind, tasks_of_type in by_type.items():
        for script, codes in spoken(tasks_of_type).items():
            languages[script][kind] = len(codes)
    planned = costs(tasks)
    names = {
        kind: [task.metadata.name for task in tasks_of_type]
        for kind, tasks_of_type in by_type.items()
    }
    hours = {}
    if published:
        hours = published_hours(published, [task.metadata.name for task in tasks])
    return OpenPart(
        names,
        languages,
        all_languages=sum(len(codes) for codes in everywhere.values()),
        characters=sum(task.characters for task in planned),
        texts=sum(task.texts or 0 for task in planned),
        hours=hours,
    )


def shown(part: OpenPart) -> str:
    """Return the part as text."""
    count = sum(len(tasks) for tasks in part.tasks.values())
    lines = [
        f"{count} tasks, {part.all_languages} languages in {len(part.languages)} scripts, "
        f"{part.texts:,} texts, {part.characters / 1e6:,.0f} million characters",
        "",
    ]
    lines += [f"{kind}: {' '.join(tasks)}" for kind, tasks in part.tasks.items()]
    lines += ["", coverage_table(part.languages)]
    if part.hours:
        hours = np.array([of_part for of_part, _ in part.hours.values()])
        low, middle, high = np.quantile(hours, [0.25, 0.5, 0.75])
        share = np.median([of_part / whole for of_part, whole in part.hours.values()])
        lines += [
            "",
            f"{len(hours)} models, as published: {middle:.1f} hours in the middle, {low:.1f} to "
            f"{high:.1f} for half of them; {share:.0%} of the whole benchmark's hours",
        ]
        for model, (of_part, _) in sorted(part.hours.items()):
            if model.startswith("Qwen/"):
                lines.append(f"  {model.partition('@')[0]}: {of_part:.2f} hours")
    return "\n".join(lines)


if __name__ == "__main__":
    command(multilingual, shown)
