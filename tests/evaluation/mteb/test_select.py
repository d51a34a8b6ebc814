import logging

import mteb
import pytest
from datasets import Dataset
from helpers.mteb_tasks import WORDS, loaded, search_data

from qwen3nb.datasets.pydocs.mteb_tasks import embedded_task
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.mteb.select import (
    check_task_names,
    choose_tasks,
    limited,
    quiet,
    task_key,
    tier_tasks,
)
from qwen3nb.records.store import load_results, verify
from qwen3nb.tiers import BENCHMARKS, GROUPS, TIERS


def keys(tasks):
    return [task_key(task) for task in tasks]


def test_types_and_languages_filter_a_tier():
    assert keys(choose_tasks(tier="fast", types="STS")) == ["STSBenchmark", "SICK-R"]
    assert keys(choose_tasks(tier="smoke", types="STS", languages="eng")) == ["AuthorSTS"]
    assert keys(choose_tasks(tier="fast", tasks="SciFact,SICK-R", types="STS")) == ["SICK-R"]


def test_splits_and_subsets_restrict_a_task():
    some = choose_tasks(
        tier="fast", tasks="STS17,PoemSentimentClassification", subsets="en-en,en-de"
    )
    assert keys(some) == ["STS17-en-de_en-en"]
    (poems,) = choose_tasks(tier="fast", tasks="PoemSentimentClassification", splits="validation")
    assert (task_key(poems), list(poems.eval_splits)) == (
        "PoemSentimentClassification-validation",
        ["validation"],
    )
    (german,) = choose_tasks(tasks=["AmazonCounterfactualClassification"], languages=["deu"])
    assert german.hf_subsets == ["de"]
    (both,) = choose_tasks(tier="fast", benchmark="MTEB(eng, v2)", tasks="STS17", subsets="en-en")
    assert task_key(both) == "STS17-en-en"


@pytest.mark.integration
@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ({"tasks": ["Scifact"]}, "unknown task 'Scifact'; did you mean SciFact"),
        ({"benchmark": "MTEB(eng, v3)"}, r"did you mean MTEB\(eng, v2\)"),
        ({"benchmark": "MTEB(eng, v2)", "tasks": ["AuthorSTS"]}, "no task in"),
        ({"types": ["sts"]}, "unknown type 'sts'"),
        ({"tier": "fst"}, "unknown tier 'fst'"),
        (
            {"tier": "fast", "types": ["Summarization"]},
            r"no task in the tier fast \(.*'all'.* is of",
        ),
        ({"tier": "fast", "languages": ["deu"]}, r"unknown language of the tier fast .*'deu'"),
        (
            {"tasks": ["STS17"], "splits": ["dev"]},
            "unknown split of STS17 'dev'; choose one of: test",
        ),
        ({"tasks": ["STS17"], "subsets": ["xx"]}, "unknown subset of STS17 'xx'; choose .*en-en"),
        (
            {"tasks": ["STS17"], "subsets": ["ko-ko"], "languages": ["eng"]},
            "STS17: none of the subsets ko-ko is in eng",
        ),
    ],
)
def test_a_selection_of_nothing_names_the_choices(selection, message):
    with pytest.raises(ValueError, match=message):
        choose_tasks(**selection)


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
    texts = {f"d{i}": word for i, word in enumerate(WORDS)}
    qrels = {f"d{i}": {f"d{(i + 1) % 12}": 1} for i in range(12)}
    task = loaded("ArguAna", {"default": {"test": search_data(texts, texts, qrels)}})
    assert task.ignore_identical_ids
    run = evaluate(encoder, tasks=[task], output=tmp_path, show_progress=False)
    record = run.results[0]
    assert record.main.value == pytest.approx(record.task.mteb.value, abs=1e-5)  # MTEB rounds


def scifact(documents=40, queries=10):
    texts = {f"d{i}": f"{WORDS[i % 12]} {i}" for i in range(documents)}
    qrels = {f"q{i}": {f"d{i}": 1, f"d{i + 12}": 2} for i in range(queries)}
    split = search_data(texts, {f"q{i}": WORDS[i] for i in range(queries)}, qrels)
    return loaded("SciFact", {"default": {"test": split}})


def test_a_limited_search_keeps_what_is_judged_and_is_the_same_for_all():
    task = scifact()
    whole = task.dataset
    with limited(task, 4):
        part = task.dataset["default"]["test"]
        kept = {*part["corpus"]["id"]}
        judged = {document for grades in part["relevant_docs"].values() for document in grades}
        assert set(part["relevant_docs"]) == {*part["queries"]["id"]}
        assert len(part["queries"]) == 4
        assert judged < kept
        assert len(kept) == len(judged) + 4
    assert task.dataset is whole
    other = scifact()
    with limited(other, 4):
        assert {*other.dataset["default"]["test"]["corpus"]["id"]} == kept
    with limited(task, 0):
        assert task.dataset is whole
    with limited(task, 1000):
        assert len(task.dataset["default"]["test"]["corpus"]) == 40


def test_a_limited_record_has_another_name_and_stays_out_of_mtebs_files(encoder, tmp_path):
    options = {"output": tmp_path, "show_progress": False}
    (result,) = evaluate(encoder, tasks=[scifact()], limit=4, **options)
    assert (result.task.key, result.task.name) == ("SciFact-limit4", "SciFact")
    assert (result.task.size["queries"], result.main.n) == (4, 4)
    assert verify(result) == []
    assert not (tmp_path / "mteb").exists()
    whole = evaluate(encoder, tasks=[scifact()], **options)
    assert (whole.reused, whole.results[0].main.n) == ((), 10)
    assert {r.task.key for r in load_results(tmp_path)} == {"SciFact", "SciFact-limit4"}


def test_lists_within_rows_are_cut_alike():
    pairs = {"sentence1": [list(WORDS)], "sentence2": [list(WORDS[::-1])], "labels": [[0, 1] * 6]}
    task = loaded("TwitterURLCorpus", {"test": Dataset.from_dict(pairs)})
    with limited(task, 5):
        (row,) = task.dataset["test"]
        assert [len(values) for values in row.values()] == [5, 5, 5]
        ranks = [WORDS.index(word) for word in row["sentence1"]]
        assert row["sentence2"] == [WORDS[::-1][rank] for rank in ranks]


def test_texts_to_learn_from_are_not_limited():
    (task,) = choose_tasks(tasks=["PyDocsSampleClassification"])
    task.load_data()
    before = len(task.dataset["train"])
    with limited(task, 5):
        assert (len(task.dataset["train"]), len(task.dataset["test"])) == (before, 5)


def test_bitext_mining_and_summarisation_are_mtebs(encoder, tmp_path):
    """Sentences paired with themselves are all matched; a summary equal to a human one is best."""
    same = {"sentence1": list(WORDS), "sentence2": list(WORDS)}
    bitext = loaded("Tatoeba", {"deu-eng": {"test": Dataset.from_dict(same)}}, languages=["deu"])
    summaries = {
        "text": ["weather", "seasons"],
        "human_summaries": [["rain and wind"], ["snow in winter"]],
        "machine_summaries": [["rain and wind", "a cat", "storm"], ["snow in winter", "x", "mist"]],
        "relevance": [[5.0, 1.0, 2.0], [5.0, 1.0, 2.0]],
    }
    summary = loaded("SummEvalSummarization.v2", {"test": Dataset.from_dict(summaries)})
    run = evaluate(encoder, tasks=[bitext, summary], output=tmp_path, show_progress=False)
    mined, summarised = run.results
    assert mined.main.value == pytest.approx(1.0)
    assert (mined.main.how, mined.main.low, mined.per_query) == ("reported", None, {})
    assert summarised.task.type == "Summarization"
    assert summarised.main.value > 0
    assert all(verify(result) == [] for result in run.results)


def test_tiers_list_their_choices():
    with pytest.raises(ValueError, match="unknown tier 'ful'; choose one of: smoke, pydocs, fast"):
        tier_tasks("ful")
    assert [task.metadata.name for task in tier_tasks("smoke")] == list(TIERS["smoke"].tasks)
    with pytest.raises(KeyError, match="PyDocsRetrieval"):
        embedded_task("PyDoc")


@pytest.mark.integration
def test_mteb_knows_the_tasks_of_the_other_tiers():
    names = {task.metadata.name for task in tier_tasks("full")}
    assert set(TIERS["full"].tasks) <= names
    assert len(names) > 40
    assert {task.metadata.name for task in tier_tasks("fast")} == set(TIERS["fast"].tasks)


def test_what_mteb_warns_and_logs_of_an_old_task_is_silent(caplog, capsys):
    task = mteb.get_task("STSBenchmark")
    assert task.superseded_by
    with quiet(), caplog.at_level(logging.DEBUG):
        task.check_if_dataset_is_superseded()
    assert not caplog.messages
    assert not capsys.readouterr().err
    with pytest.warns(UserWarning, match="superseded"):
        task.check_if_dataset_is_superseded()
    assert "superseded" in caplog.text


def test_scorers_of_mteb_draw_no_bars_inside_and_draw_them_again_after(capsys):
    from mteb._evaluators.text import bitext_mining_evaluator as scorer

    with quiet():
        assert list(scorer.tqdm(range(3), desc="Matching sentences")) == [0, 1, 2]
    assert capsys.readouterr().err == ""
    assert list(scorer.tqdm(range(3), desc="Matching sentences")) == [0, 1, 2]
    assert "Matching sentences" in capsys.readouterr().err


@pytest.mark.parametrize("key", ["STS17-en-en", "MTOPDomainClassification-en-test"])
def test_a_part_of_a_task_has_the_name_that_pages_give_it(key):
    check_task_names([key])
    (task,) = choose_tasks(tasks=key)
    assert task_key(task) == key


def test_a_part_that_no_task_has_is_refused():
    for name in ("STS17-xx-xx", "SICK-R-en-en", "-", "STS17-"):
        with pytest.raises(ValueError, match="unknown task"):
            check_task_names([name])
        with pytest.raises(ValueError, match="unknown task"):
            choose_tasks(tasks=name)
