from collections import Counter

import pytest

from qwen3nb.datasets.pydocs.mteb_tasks import author_sts, embedded_task


def test_the_sentence_pairs_keep_their_rules():
    pairs = author_sts()
    assert len(pairs) == 120
    assert Counter(gold for *_, gold in pairs) == dict.fromkeys(range(6), 20)
    sentences = [text for first, second, _ in pairs for text in (first, second)]
    assert len(set(sentences)) == len(sentences)
    assert all(text == text.strip() and text.endswith(".") for text in sentences)


def test_counting_shared_words_does_not_solve_the_pairs():
    from scipy.stats import spearmanr

    def overlap(first, second):
        one, other = (set(text.lower().rstrip(".").split()) for text in (first, second))
        return len(one & other) / len(one | other)

    pairs = author_sts()
    correlation = spearmanr([overlap(a, b) for a, b, _ in pairs], [gold for *_, gold in pairs])
    assert correlation.statistic < 0.6


@pytest.mark.parametrize("name", ["PyDocsSampleClassification", "PyDocsSampleClustering"])
def test_classes_are_large_enough_and_on_both_sides(name):
    task = embedded_task(name)
    task.load_data()
    for split in task.dataset.values():
        column = "label" if "label" in split.column_names else "labels"
        assert len(set(split[column])) >= 10


def test_first_stage_of_the_reranking_task_is_bm25s_best_hundred():
    task = embedded_task("PyDocsSampleReranking")
    task.load_data()
    data = task.dataset["default"]["test"]
    assert all(len(set(candidates)) == 100 for candidates in data["top_ranked"].values())
    assert set(data["top_ranked"]) == set(data["queries"]["id"])
