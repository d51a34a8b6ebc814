import pytest

from qwen3nb.evaluation.mteb.cost import costs, throughput
from qwen3nb.evaluation.mteb.select import select_tasks, tier_tasks
from qwen3nb.models.load import load_encoder


@pytest.fixture(scope="module")
def encoder(encoder_folder):
    return load_encoder(encoder_folder, cache=False, show_progress=False)


def test_what_tasks_will_cost(encoder):
    estimates = {
        each.task: each for each in costs(tier_tasks("fast"), characters_per_second=1000.0)
    }
    # What MTEB publishes: 5,183 documents of 1,499.4 characters and 300 queries of 90.3.
    assert estimates["SciFact"].texts == 5183 + 300
    assert estimates["SciFact"].minutes == pytest.approx((7_771_451 + 27_104) / 1000 / 60, rel=1e-3)
    cut = costs(select_tasks(names=["SciFact"]), characters_per_second=1000.0, max_length=10)
    assert cut[0].minutes == pytest.approx((5183 + 300) * 45 / 1000 / 60, rel=1e-3)
    assert costs(select_tasks(names=["SciFact"]))[0].minutes is None
    assert len(costs(select_tasks(names=["CQADupstackRetrieval"]))) == 12
    assert throughput(encoder) > 0
