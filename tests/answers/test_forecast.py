"""The answer that forecasts a benchmark's mean."""

import pytest
from helpers.published import published_score
from helpers.records import amend, benchmark_record, tier_records

from qwen3nb.analysis.forecasting.published import published_benchmarks, published_scores
from qwen3nb.answers.board.grid import score_grid
from qwen3nb.answers.board.scores import means_table
from qwen3nb.answers.forecast import forecast, forecast_results, published_names
from qwen3nb.records.record import MTEBScore
from qwen3nb.tiers import BENCHMARKS

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
BENCHMARK = "MTEB(eng, v2)"


def published(*tasks):
    return {task: published_score(MINILM, task) for task in tasks}


FEW = published(
    "STSBenchmark", "ArguAna", "Banking77Classification", "SICK-R", "AskUbuntuDupQuestions"
)


def test_a_forecast_names_its_interval_and_what_it_rests_on():
    answer = forecast(FEW)
    low, high = answer.interval
    assert low < 0.5902 < high  # the published mean of all 41 tasks
    assert low < answer.mean < high
    assert "5 of 41 tasks, 1 % of the benchmark's time" in answer.conclusion.text
    assert "forecast" in answer.conclusion.text
    assert set(answer.tasks) == set(answer.benchmark.tasks) - set(FEW)
    assert set(answer.next_tasks) == set(answer.tasks)
    frame = answer.to_frame().set_index("task")
    assert frame["measured"].sum() == 5
    assert frame.loc["ArguAna", "low"] == frame.loc["ArguAna", "score"] == FEW["ArguAna"]
    assert "f4cc6c8b365a" in str(answer.table()._repr_html_())


def test_all_tasks_are_a_measurement():
    answer = forecast(published(*published_benchmarks()[BENCHMARK].tasks))
    assert answer.mean == pytest.approx(0.5902, abs=5e-5)
    assert answer.interval == pytest.approx((answer.mean, answer.mean))
    assert "measured on all tasks" in answer.conclusion.text
    assert answer.next_tasks == ()


def test_a_model_unlike_all_others_is_stated_to_be():
    tasks = published_benchmarks()[BENCHMARK].tasks[:12]
    values = {task: published_score("mteb/baseline-random-encoder", task) for task in tasks}
    answer = forecast(values)
    assert not answer.is_usual
    assert "unlike the published ones" in answer.conclusion.text
    assert "unlike" not in forecast(FEW).conclusion.text


def test_a_wrong_score_is_hinted_at():
    tasks = published_benchmarks()[BENCHMARK].tasks
    scores = published(*tasks)
    assert forecast(scores).implausible == ()
    low = forecast(dict(scores, **{"STSBenchmark": 0.35}))
    assert [residual.task for residual in low.implausible] == ["STSBenchmark"]
    assert "check prompt and length" in low.hints()._repr_html_()
    high = forecast(dict(scores, FiQA2018=0.95))
    assert "FiQA2018" in {residual.task for residual in high.implausible}
    assert "was it in the training data?" in high.hints()._repr_html_()


@pytest.mark.parametrize(
    ("scores", "benchmark", "message"),
    [
        ({"STSBenchmrk": 0.8}, BENCHMARK, "did you mean 'STSBenchmark'"),
        ({"STSBenchmark": 82.0}, BENCHMARK, "divide percentages by 100"),
        ({"STSBenchmark": float("nan")}, BENCHMARK, "expected a finite number .* got nan"),
        ({"STSBenchmark": "0.8"}, BENCHMARK, "expected a finite number .* got '0.8'"),
        ({"STSBenchmark": None}, BENCHMARK, "expected a finite number .* got None"),
        ({"STS17": 0.8, "STS17-en-en": 0.7}, BENCHMARK, "second score of STS17"),
        ({}, BENCHMARK, "at least one score"),
        ({"STSBenchmark": 0.8}, "MTEB", "expected a benchmark with published scores"),
        ({"STSBenchmark": 0.8}, "BEIR", "no published scores of 'STSBenchmark' in BEIR"),
    ],
)
def test_what_cannot_be_forecast_is_refused(scores, benchmark, message):
    with pytest.raises(ValueError, match=message):
        forecast(scores, benchmark=benchmark)


def test_every_task_of_our_benchmarks_has_a_published_name():
    for name in ("BEIR", BENCHMARK):
        keys = BENCHMARKS[name].tasks
        answer = forecast(dict.fromkeys(keys, 0.5), benchmark=name)
        assert set(answer.measured) == set(published_benchmarks()[name].tasks)


def test_records_are_forecast_by_the_metric_of_the_benchmark():
    keys = [key for key in BENCHMARKS[BENCHMARK].tasks if key.startswith("STS1")]
    records = [benchmark_record("m", key, mean=0.6) for key in keys]
    answer = forecast_results(records)
    assert answer is not None
    assert len(answer.measured) == len(keys)
    assert all(score == pytest.approx(0.6, abs=0.05) for score in answer.measured.values())
    assert forecast_results([]) is None


def test_a_leaderboard_marks_a_forecast_and_never_sorts_by_it():
    tasks = [key for key in BENCHMARKS[BENCHMARK].tasks if key in published_scores().tasks][:12]
    complete = tier_records("whole", mean=0.55)
    partial = []
    for key in tasks:
        record = benchmark_record("part", key)
        score = published_score(MINILM, key)
        amend(record, "task", mteb=MTEBScore("main", score))
        partial.append(record)
    table = means_table(score_grid([*complete, *partial], "full", ()), "full", {})
    place = next(i for i, head in enumerate(table.columns) if "Mean (Task)" in head)
    cells = {row[0].text: row[place] for row in table.rows}
    assert cells["part"].text == "12 of 41"
    assert cells["part"].value is None
    assert cells["part"].detail.startswith("forecast 0.")
    assert "forecast" not in cells["whole"].detail


def test_a_page_hints_at_a_score_far_from_the_others():
    records = []
    for key in BENCHMARKS[BENCHMARK].tasks[:20]:
        record = benchmark_record("part", key)
        name = published_names(published_benchmarks()[BENCHMARK])[key]
        score = published_score(MINILM, name)
        if name == "Banking77Classification":
            score -= 0.5
        amend(record, "task", mteb=MTEBScore("main", score))
        records.append(record)
    answer = forecast_results(records)
    assert [residual.task for residual in answer.implausible] == ["Banking77Classification"]
