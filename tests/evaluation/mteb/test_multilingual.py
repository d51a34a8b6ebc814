"""A task of each type of the tier `multilingual`, in several languages, from a mirror."""

from statistics import fmean

import mteb
import pytest
from helpers.multilingual import SUBSETS, write_mirror

from qwen3nb.answers.languages import LANGUAGES, PAIRS, group_means
from qwen3nb.answers.leaderboard import leaderboard
from qwen3nb.datasets.mirror import local_data
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.mteb.select import choose_tasks, quiet
from qwen3nb.records.store import verify
from qwen3nb.tiers import BENCHMARKS, OPEN_MULTILINGUAL


def chosen():
    """The tasks, with the subsets that are in the mirror; classifiers learn three times, not 10."""
    tasks = []
    for name, subsets in SUBSETS.items():
        tasks += choose_tasks(tasks=[name], subsets=subsets)
    for task in tasks:
        if hasattr(task, "n_experiments"):
            task.n_experiments = 3
    return tasks


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("multilingual")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QWEN3NB_MIRROR", str(folder / "mirror"))
        patch.setenv("HF_HOME", str(folder / "hub"))
        write_mirror(folder / "mirror")
        yield folder


@pytest.fixture(scope="module")
def records(mirrored, encoder):
    run = evaluate(encoder, tasks=chosen(), output=mirrored / "results", show_progress=False)
    return {record.task.name: record for record in run.results}


def test_every_type_of_the_tier_has_a_record(records):
    types = {record.task.type for record in records.values()}
    assert types == set(BENCHMARKS[OPEN_MULTILINGUAL].types)
    assert [problem for record in records.values() for problem in verify(record)] == []


def test_every_score_is_mtebs_own_to_the_last_digit(records, mirrored, encoder):
    for task in chosen():
        with quiet(), local_data(task):
            outcome = mteb.evaluate(
                encoder, task, cache=None, overwrite_strategy="always", show_progress_bar=False
            ).task_results[0]
        record = records[task.metadata.name]
        assert record.task.mteb.value == outcome.get_score(), task.metadata.name
        parts = {(part.split, part.subset): part.mteb for part in record.parts}
        for split, entries in outcome.scores.items():
            for entry in entries:
                if parts:
                    assert parts[split, entry["hf_subset"]] == entry["main_score"]


def test_a_mean_by_language_is_that_of_its_subsets(records):
    """By hand: German has a retrieval, two splits of a classification, and an entailment."""
    scores = {}
    for name in ("BelebeleRetrieval", "AmazonCounterfactualClassification", "RTE3"):
        scores[name] = fmean(
            part.score.value
            for part in records[name].parts
            if {code.partition("-")[0] for code in part.languages} == {"deu"}
        )
    identity = records["RTE3"].model.identity
    german = group_means(records.values(), LANGUAGES).mean(identity, "deu")
    assert german.tasks == sorted(records[name].task.key for name in scores)
    assert german.value == pytest.approx(fmean(scores.values()))
    pairs = group_means(records.values(), PAIRS)
    assert {"deu-eng", "eng-hau"} <= set(pairs.tasks)


def test_a_mean_of_the_tier_needs_all_of_its_tasks(records):
    board = leaderboard(list(records.values()), tier="multilingual")
    (row,) = board.table().rows
    # The names of the other tasks with a selection are not those of the tier.
    whole = [name for name, record in records.items() if not record.task.selection]
    assert (row[1].text, row[1].value) == (f"{len(whole)} of 67", None)
    assert board.grid.columns[0].name == f"{OPEN_MULTILINGUAL} Mean (Task)"
