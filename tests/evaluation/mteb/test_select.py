import pytest

from qwen3nb.evaluation.mteb.select import choose_tasks, select_tasks, tier_tasks


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
    typed = choose_tasks(tier="fast", types="STS", languages="eng")
    assert {t.metadata.name for t in typed} == {t.metadata.name for t in english}
    part = choose_tasks(tier="fast", benchmark="MTEB(eng, v2)", types="Summarization")
    assert [t.metadata.name for t in part] == [t.metadata.name for t in some]
    with pytest.raises(ValueError, match="unknown tier 'fst'"):
        tier_tasks("fst")
