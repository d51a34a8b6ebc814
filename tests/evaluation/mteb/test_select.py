import mteb
import pytest

from qwen3nb.evaluation.mteb.select import choose_tasks, select_tasks, task_key, tier_tasks


def keys(tasks):
    return [task_key(task) for task in tasks]


def test_types_and_languages_filter_a_tier():
    assert keys(choose_tasks(tier="fast", types="STS")) == ["STSBenchmark", "SICK-R"]
    assert keys(choose_tasks(tier="smoke", types="STS", languages="eng")) == ["AuthorSTS"]
    assert keys(choose_tasks(tier="fast", tasks="SciFact,SICK-R", types="STS")) == ["SICK-R"]
    with pytest.raises(
        ValueError, match=r"no task in the tier fast \(.*'all'.* is of the type Sum"
    ):
        choose_tasks(tier="fast", types="Summarization")


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
    (german,) = select_tasks(names=["AmazonCounterfactualClassification"], languages=["deu"])
    assert german.hf_subsets == ["de"]
    (both,) = choose_tasks(tier="fast", benchmark="MTEB(eng, v2)", tasks="STS17", subsets="en-en")
    assert task_key(both) == "STS17-en-en"
    with pytest.raises(
        ValueError, match=r"unknown split 'dev' of PoemSent.*choose one of test, val"
    ):
        choose_tasks(tier="fast", tasks="PoemSentimentClassification", splits="dev")
    with pytest.raises(ValueError, match=r"unknown subset 'xx' of STS17; choose one of .*en-en"):
        choose_tasks(tier="fast", tasks="STS17", subsets="xx")
    with pytest.raises(ValueError, match="unknown language 'deu' of the tier fast"):
        choose_tasks(tier="fast", languages="deu")
    with pytest.raises(ValueError, match="STS17: none of the subsets ko-ko is in eng"):
        choose_tasks(tier="fast", tasks="STS17", subsets="ko-ko", languages="eng")


@pytest.mark.integration
def test_tasks_by_name_type_language_and_benchmark():
    assert [t.metadata.name for t in select_tasks(names=["SciFact", "AuthorSTS"])] == [
        "SciFact",
        "AuthorSTS",
    ]
    english = select_tasks(types=["STS"], languages=["eng"])
    assert {t.metadata.type for t in english} == {"STS"}
    assert all("eng" in str(t.metadata.eval_langs) for t in english)
    some = select_tasks(benchmark="MTEB(eng, v2)", types=["Summarization"])
    assert [t.metadata.type for t in some] == ["Summarization"]
    with pytest.raises(ValueError, match="unknown task 'Scifact'; did you mean SciFact"):
        select_tasks(names=["Scifact"])
    with pytest.raises(ValueError, match=r"did you mean MTEB\(eng, v2\)"):
        select_tasks(benchmark="MTEB(eng, v3)")
    with pytest.raises(ValueError, match="no task in"):
        select_tasks(benchmark="MTEB(eng, v2)", names=["AuthorSTS"])
    with pytest.raises(ValueError, match="unknown type 'sts'"):
        select_tasks(types=["sts"])
    names = [t.metadata.name for t in choose_tasks(tier="fast")]
    assert names == ["SciFact", "NFCorpus", "FiQA2018", "STSBenchmark", "SICK-R"]
    assert [t.metadata.name for t in choose_tasks(tier="fast", tasks="NQ, AuthorSTS")] == [
        "NQ",
        "AuthorSTS",
    ]
    typed = choose_tasks(tier="fast", tasks="all", types="STS", languages="eng")
    assert {t.metadata.name for t in typed} == {t.metadata.name for t in english}
    theirs = mteb.get_tasks(task_types=["STS"], languages=["eng"])
    assert {t.metadata.name: sorted(t.hf_subsets) for t in theirs} == {
        t.metadata.name: sorted(t.hf_subsets) for t in english
    }
    part = choose_tasks(tier="fast", benchmark="MTEB(eng, v2)", types="Summarization")
    assert [t.metadata.name for t in part] == [t.metadata.name for t in some]
    with pytest.raises(ValueError, match="unknown tier 'fst'"):
        tier_tasks("fst")
