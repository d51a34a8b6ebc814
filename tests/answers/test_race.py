"""Races of models on a benchmark, measured until the best are certain."""

import json

import pytest
from helpers.published import published_score
from helpers.records import amend, benchmark_record

from qwen3nb.analysis.forecasting.published import published_benchmarks
from qwen3nb.answers import race as module
from qwen3nb.answers.forecast import published_names
from qwen3nb.answers.race import until_certain
from qwen3nb.evaluation.mteb.select import benchmark_tasks, suite_tasks, task_key
from qwen3nb.records.record import MTEBScore
from qwen3nb.records.results import Results
from qwen3nb.tiers import BENCHMARKS

BENCHMARK = "MTEB(eng, v2)"
STRONG = "Qwen/Qwen3-Embedding-8B"
MIDDLE = "sentence-transformers/all-MiniLM-L6-v2"
WEAK = "sentence-transformers/LaBSE"
PUBLISHED = published_benchmarks()[BENCHMARK]


@pytest.fixture
def calls(monkeypatch, tmp_path):
    """Evaluations that return published scores, and the list of them."""
    names = published_names(PUBLISHED)
    made = []

    def evaluate(model, *, tasks, output, **options):
        assert options["config"] == {"until_certain": BENCHMARK}
        made.append((model.spec, tasks, output))
        records = []
        for task in tasks:
            key = task_key(task)
            record = benchmark_record(model.spec, key)
            score = published_score(model.spec, names[key])
            records.append(amend(record, "task", mteb=MTEBScore("main", score)) or record)
        return type("Run", (), {"results": Results(records)})

    monkeypatch.setattr(module, "evaluate", evaluate)
    return made


def run_race(tmp_path, models, **options):
    return until_certain(models, output=tmp_path, show_progress=False, **options)


def test_the_best_is_found_for_a_part_of_the_cost(calls, tmp_path):
    answer = run_race(tmp_path, [WEAK, STRONG, MIDDLE])
    assert answer.best == ("Qwen3-Embedding-8B",)
    assert answer.is_certain
    assert answer.cost < 0.1
    text = answer.conclusion.text
    assert "Best by the mean of MTEB(eng, v2): Qwen3-Embedding-8B" in text
    assert "fewer than 1 of 100" in text
    assert "no p-value" in text
    frame = answer.to_frame().set_index("model")
    assert frame.loc["LaBSE", "place"] == "dropped"
    assert "FiQA2018" in frame.loc["LaBSE", "not run"]
    assert len(calls) == sum(len(forecast.measured) for forecast in answer.forecasts.values())
    assert {output for *_, output in calls} == {tmp_path}
    (file,) = tmp_path.glob("races/*.json")
    kept = json.loads(file.read_text())
    assert kept["models"]["LaBSE"]["not_run"] == list(answer.not_run["LaBSE"])
    assert kept["goal"] == {"top": 1, "baseline": "", "margin": 0.0}
    assert kept["conclusion"] == text


def test_models_as_good_run_all_tasks_and_are_not_called_certain_before(calls, tmp_path):
    answer = run_race(tmp_path, ["codefuse-ai/F2LLM-0.6B", "codefuse-ai/F2LLM-v2-0.6B"])
    assert answer.cost > 0.3
    assert answer.is_certain


def test_each_model_beats_the_baseline_or_does_not(calls, tmp_path):
    answer = run_race(tmp_path, [MIDDLE, STRONG, WEAK], baseline=MIDDLE, margin=0.01)
    assert answer.best == ("Qwen3-Embedding-8B",)
    assert "Better than all-MiniLM-L6-v2 by 0.01" in answer.conclusion.text
    assert answer.to_frame().set_index("model").loc["all-MiniLM-L6-v2", "place"] == "baseline"


@pytest.mark.parametrize(
    ("models", "options", "message"),
    [
        ([WEAK], {}, "two or more different models"),
        ([WEAK, WEAK], {}, "two or more different models"),
        ([WEAK, STRONG], {"top": 2}, "from 1 to 1 best models"),
        ([WEAK, STRONG], {"baseline": MIDDLE}, "a baseline among"),
        ([WEAK, STRONG], {"benchmark": "MTEB"}, "expected one of"),
        ([WEAK, STRONG], {"margin": 0.01}, "a margin is for a baseline"),
        ([WEAK, STRONG], {"baseline": WEAK, "margin": 2}, "a margin from 0 to below 1"),
    ],
)
def test_a_race_that_cannot_be_decided_is_refused(models, options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        run_race(tmp_path, models, **options)


def test_tasks_that_a_model_cannot_run_leave_it_undecided(monkeypatch, calls, tmp_path):
    """Two models alike, of which one does no STS: at the end its mean is still a forecast."""
    whole = module.evaluate
    names = published_names(PUBLISHED)

    def without_similarity(model, *, tasks, **options):
        run = whole(model, tasks=tasks, **options)
        kept = [record for record in run.results if "STS" not in names[record.task.key]]
        return type("Run", (), {"results": Results(kept)})

    monkeypatch.setattr(module, "evaluate", without_similarity)
    answer = run_race(tmp_path, ["codefuse-ai/F2LLM-0.6B", "codefuse-ai/F2LLM-v2-0.6B"])
    assert not answer.is_certain
    assert "not certain: some tasks cannot be run" in answer.conclusion.text
    assert "fewer than 1 of 100" not in answer.conclusion.text


@pytest.mark.parametrize("benchmark", ["MTEB(eng, v2)", "BEIR"])
def test_a_race_runs_the_tasks_of_the_benchmark_themselves(benchmark):
    """Some are a subset of a task, which its name alone would not select."""
    tasks = benchmark_tasks(benchmark)
    assert set(tasks) == set(BENCHMARKS[benchmark].task_keys)
    selected = suite_tasks(tier="", tasks=list(tasks.values()))
    assert {task_key(task) for task in selected} == set(tasks)
