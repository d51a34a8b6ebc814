import pytest

from qwen3nb.datasets.pydocs.mteb_tasks import embedded_task
from qwen3nb.evaluation.mteb.select import tier_tasks
from qwen3nb.tiers import TIERS


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
