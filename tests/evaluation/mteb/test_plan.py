"""What is planned before a run, and the tables that show it."""

import pytest

from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.mteb import plan as module
from qwen3nb.evaluation.mteb.plan import EncodingSpeed, Planned, Range, task_statuses
from qwen3nb.evaluation.mteb.select import select_tasks, suite_tasks, tier_tasks
from qwen3nb.evaluation.run import Run
from qwen3nb.models.load import load_encoder, load_model
from qwen3nb.report.leaderboard.preflight import plan_by_type_table, plan_table

# Half a second to a second per text, whatever its length.
SPEED = EncodingSpeed((1, 10), (0.5, 0.5), (1.0, 1.0))


def plan(model, *, tier="smoke", tasks=None, output, limit=0, speed=None):
    selected, run = suite_tasks(tier=tier, tasks=tasks), Run(output=output)
    statuses = task_statuses(model, selected, run, limit=limit)
    return module.plan(model, selected, statuses, limit=limit, speed=speed)


@pytest.fixture
def encoder(encoder_folder):
    return load_encoder(encoder_folder, cache=False, show_progress=False)


@pytest.mark.integration
def test_a_plan_says_what_will_be_run_and_what_is_there(encoder, tmp_path):
    names = "PyDocsSampleRetrieval,AuthorSTS"
    first, second = plan(encoder, tasks=names, output=tmp_path, speed=SPEED)
    assert [first.status, second.status] == ["to run", "to run"]
    count = len(set(_texts("AuthorSTS")))
    assert second.texts == count
    assert second.minutes == pytest.approx((count / 120, count / 60))
    evaluate(encoder, tasks="AuthorSTS", output=tmp_path, show_progress=False)
    planned = plan(encoder, tasks=names, output=tmp_path, speed=SPEED)
    assert [each.status for each in planned] == ["to run", "there"]
    assert planned[1].minutes is None
    assert [row[-1].text for row in plan_table(planned).rows] == ["to run", "record found"]
    (short,) = plan(encoder, tasks="AuthorSTS", limit=7, output=tmp_path)
    assert short.task == "AuthorSTS-limit7"
    assert short.texts <= 14


def _texts(name):
    (task,) = select_tasks(names=[name])
    task.load_data()
    rows = task.dataset["test"]
    return [*rows["sentence1"], *rows["sentence2"]]


def test_a_plan_names_what_a_model_cannot_do_and_needs_no_data(tmp_path):
    planned = plan(load_model("bm25"), tier="fast", output=tmp_path)
    states = {each.task: each.status for each in planned}
    assert states["SciFact"] == "to run"
    assert states["SICK-R"] == "bm25 has no vectors"
    assert all(each.minutes is None for each in planned)
    assert {each.task: each.texts for each in planned}["SciFact"] == 5483  # MTEB's own count


def test_the_tier_full_has_61_tasks_in_seven_types(tmp_path):
    planned = plan(load_model("bm25"), tasks=tier_tasks("full"), output=tmp_path)
    *types, total = [[cell.text for cell in row] for row in plan_by_type_table(planned).rows]
    assert [row[0] for row in types] == [
        "Classification",
        "Clustering",
        "PairClassification",
        "Reranking",
        "Retrieval",
        "STS",
        "Summarization",
    ]
    assert total[:2] == ["all", "61"]
    assert sum(int(row[1]) for row in types) == 61
    assert total[2] == "32"  # what BM25 can do: retrieval and reranking


def test_the_totals_of_a_plan():
    planned = [
        Planned("a", "STS", "x/a", "1", 10, Range(1, 2), "to run"),
        Planned("b", "STS", "x/b", "1", None, None, "there"),
    ]
    sts, total = plan_by_type_table(planned).rows
    assert [cell.text for cell in sts] == ["STS", "2", "1", "10", "1.0–2.0"]
    assert sts[3].detail == "1 unknown"
    assert [cell.text for cell in total] == ["all", "2", "1", "10", "1.0–2.0"]
