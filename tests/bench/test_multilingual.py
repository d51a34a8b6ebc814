"""The tier `multilingual` is the part of MTEB's benchmark that its rule chooses."""

import gzip

import mteb
import pytest
from helpers import REPOSITORY

from benchmarks.multilingual import (
    MOST_CHARACTERS,
    OPEN_LICENCES,
    WHOLE,
    coverage_table,
    multilingual,
    open_part,
    published_hours,
)
from qwen3nb.tiers import BENCHMARKS, OPEN_MULTILINGUAL


@pytest.fixture(scope="module")
def part():
    return multilingual()


def test_the_tier_is_what_the_rule_chooses_from_mteb(part):
    static = {kind: list(tasks) for kind, tasks in BENCHMARKS[OPEN_MULTILINGUAL].types.items()}
    assert part.tasks == static


def test_the_guide_says_what_the_tier_covers(part):
    page = (REPOSITORY / "book" / "guide" / "multilingual.md").read_text(encoding="utf-8")
    assert coverage_table(part.languages) in page
    count = sum(len(tasks) for tasks in part.tasks.values())
    assert f"{count} of the 131 tasks" in page
    assert f"{part.all_languages} languages in {len(part.languages)} scripts" in page
    assert f"{MOST_CHARACTERS / 1e6:.0f} million characters" in page


def test_every_task_is_open_and_of_another_language_than_english():
    tasks = open_part()
    assert not [task for task in tasks if "nc" in task.metadata.license.split("-")]
    assert {task.metadata.license.partition("-")[0] for task in tasks} == {
        licence.partition("-")[0] for licence in OPEN_LICENCES
    }
    names = {task.metadata.name for task in tasks}
    # Of use without gain alone, of no stated licence, and in English alone.
    assert names.isdisjoint({"DiaBlaBitextMining", "XNLI", "ArguAna"})


def test_hours_are_of_models_with_nearly_all_tasks(tmp_path):
    """By hand: an hour a task; the model with three tasks is not counted."""
    tasks = [task.metadata.name for task in mteb.get_benchmark(WHOLE).tasks]
    rows = ["model\trevision\ttask\tscore\tseconds"]
    rows += [f"all\t1\t{task}\t0.5\t3600" for task in tasks]
    rows += [f"few\t1\t{task}\t0.5\t3600" for task in tasks[:3]]
    file = tmp_path / "scores.tsv.gz"
    file.write_bytes(gzip.compress("\n".join(rows).encode()))
    assert published_hours(str(file), tasks[:2]) == {"all@1": (2.0, 131.0)}
