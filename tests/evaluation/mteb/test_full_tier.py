"""The tasks of the tier ``full``."""

import mteb
import pytest
from datasets import Dataset, DatasetDict
from helpers.mteb_tasks import WORDS, loaded

from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.mteb.select import task_key, tier_tasks
from qwen3nb.models.load import load_encoder
from qwen3nb.tiers import BENCHMARKS, GROUPS, TIERS


@pytest.fixture(scope="module")
def encoder(encoder_folder):
    return load_encoder(encoder_folder, cache=False, show_progress=False)


def search(name, query_ids="q{}"):
    ids = [query_ids.format(i) for i in range(len(WORDS))]
    split = {
        "corpus": Dataset.from_list(
            [{"id": f"d{i}", "text": word, "title": ""} for i, word in enumerate(WORDS)]
        ),
        "queries": Dataset.from_list(
            [{"id": query, "text": word} for query, word in zip(ids, WORDS, strict=True)]
        ),
        "relevant_docs": {query: {f"d{(i + 1) % 12}": 1} for i, query in enumerate(ids)},
        "top_ranked": None,
    }
    return loaded(name, {"default": {"test": split}})


def counterfactual(language, shift):
    """AmazonCounterfactual in one language; ``shift`` makes the languages' texts differ."""
    rows = {
        "text": [f"{WORDS[(i + shift) % 12]} {WORDS[i * shift % 12]} {i}" for i in range(48)],
        "label": [i % 2 for i in range(48)],
    }
    parts = DatasetDict({name: Dataset.from_dict(rows) for name in ("train", "validation", "test")})
    subset = {"deu": "de", "jpn": "ja"}[language]
    return loaded("AmazonCounterfactualClassification", {subset: parts}, languages=[language])


def test_another_language_of_a_task_is_not_served_from_the_first_ones_record(encoder, tmp_path):
    options = {"output": tmp_path, "show_progress": False}
    german = evaluate(encoder, tasks=[counterfactual("deu", 1)], **options)
    japanese = evaluate(encoder, tasks=[counterfactual("jpn", 5)], **options)
    assert japanese.reused == ()
    assert len(list(tmp_path.glob("*/seed_0/AmazonCounterfactual*.json"))) == 2
    assert german.results[0].task.subsets == ("de",)
    assert japanese.results[0].task.subsets == ("ja",)


def test_a_forum_of_cqadupstack_that_is_also_a_task_of_mteb_runs_once():
    keys = [task_key(task) for task in tier_tasks("full")]
    assert keys.count("CQADupstackGamingRetrieval") == 1
    assert len(keys) == len(set(keys)) == 61


@pytest.mark.parametrize("tier", TIERS)
def test_the_static_list_of_a_tier_names_the_tasks_that_run(tier):
    assert [task_key(task) for task in tier_tasks(tier)] == list(TIERS[tier].task_keys)


def test_benchmarks_are_those_of_mteb():
    assert GROUPS["CQADupstackRetrieval"] == tuple(
        task.metadata.name for task in mteb.get_task("CQADupstackRetrieval").metadata.tasks
    )
    ours = set(BENCHMARKS["MTEB(eng, v2)"].tasks)
    assert ours == {task_key(task) for task in mteb.get_benchmark("MTEB(eng, v2)").tasks}
    beir = {task.metadata.name for task in mteb.get_benchmark("BEIR").tasks}
    assert set(BENCHMARKS["BEIR"].tasks) == beir


def test_a_task_that_ignores_identical_ids_is_scored_as_mteb_scores_it(encoder, tmp_path):
    task = search("ArguAna", query_ids="d{}")
    assert task.ignore_identical_ids
    run = evaluate(encoder, tasks=[task], output=tmp_path, show_progress=False)
    record = run.results[0]
    assert record.main.value == pytest.approx(record.task.mteb.value, abs=1e-5)  # MTEB rounds
