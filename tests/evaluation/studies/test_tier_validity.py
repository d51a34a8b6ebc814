import numpy as np
import pytest
from scipy.stats import spearmanr

from qwen3nb.evaluation.studies.tier_validity import predict_elsewhere, published_table


def test_how_a_tier_ranks_models_as_other_tasks_do():
    table = published_table()
    assert len(table) == 9
    assert table["sentence-transformers/all-MiniLM-L6-v2"]["FiQA2018"] == pytest.approx(
        0.3687, abs=1e-4
    )
    whole, *single = predict_elsewhere("fast")
    assert whole.tasks == ("SciFact", "NFCorpus", "FiQA2018", "STSBenchmark", "SICK-R")
    assert not set(whole.tasks) & set(whole.targets)
    ours = [np.mean([table[m][t] for t in whole.tasks]) for m in sorted(table)]
    theirs = [np.mean([table[m][t] for t in whole.targets]) for m in sorted(table)]
    assert whole.correlation.value == pytest.approx(spearmanr(ours, theirs).statistic)
    assert len(single) == 5
