"""Tasks of every kind that MTEB has: its own small ones for tests, and all by their metadata."""

import os
import warnings
from functools import cache
from types import SimpleNamespace

import mteb
import numpy as np
import pytest
from datasets import Dataset
from mteb.mocks import MOCK_TASK_TEST_GRID
from sentence_transformers import SentenceTransformer

from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.mteb.availability import task_statuses
from qwen3nb.evaluation.mteb.costs import costs
from qwen3nb.evaluation.mteb.evaluate import TaskItem
from qwen3nb.evaluation.mteb.per_query import Slice, score_task
from qwen3nb.evaluation.mteb.select import choose_tasks, split_groups, task_key
from qwen3nb.evaluation.mteb.sizes import task_parts
from qwen3nb.evaluation.run import Run
from qwen3nb.models.load import load_encoder, load_model

GRID = {type(task).__name__: type(task) for task in MOCK_TASK_TEST_GRID}


def main_score(outcome):
    scores = outcome.task_results[0].scores
    return float(np.mean([part["main_score"] for parts in scores.values() for part in parts]))


@pytest.fixture(scope="module")
def encoders(encoder_folder):
    """An encoder of ours, and sentence-transformers' of the same folder."""
    ours = load_encoder(encoder_folder, cache=False, show_progress=False)
    return ours, SentenceTransformer(str(encoder_folder), device="cpu")


@pytest.mark.integration
@pytest.mark.parametrize("name", GRID)
def test_the_score_is_that_of_plain_mteb(encoders, name, tmp_path):
    ours, theirs = encoders
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcome = mteb.evaluate(theirs, GRID[name](), cache=None, show_progress_bar=False)
    (record,) = evaluate(ours, tasks=[GRID[name]()], output=tmp_path, show_progress=False)
    right = main_score(outcome)
    assert record.value == pytest.approx(right, rel=1e-5, abs=1e-9)
    assert record.task.mteb.value == pytest.approx(right, rel=1e-5, abs=1e-9)


@pytest.mark.integration
@pytest.mark.parametrize("name", [name for name in GRID if "Instruct" in name])
def test_bm25_runs_tasks_with_instructions_as_the_baseline_of_mteb(name, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = mteb.get_model("mteb/baseline-bm25s")
        outcome = mteb.evaluate(theirs, GRID[name](), cache=None, show_progress_bar=False)
    (record,) = evaluate("bm25", tasks=[GRID[name]()], output=tmp_path, show_progress=False)
    assert record.value == pytest.approx(main_score(outcome), rel=1e-5, abs=1e-9)


@pytest.mark.parametrize(
    ("measures", "right"),
    [
        ([0.25, 0.75], {"00": 0.25, "01": 0.75}),  # of each set, in tasks before 2024
        ({"Level 0": [0.25, 0.75]}, {"00": 0.25, "01": 0.75}),
        ({"Level 0": [0.25], "Level 1": [0.75]}, {"00": 0.25, "01": 0.75}),
        (None, {}),
    ],
)
def test_every_form_of_clusterings(measures, right, monkeypatch):
    entry = {"hf_subset": "default", "main_score": 0.5, "languages": ["eng-Latn"]}
    entry |= {} if measures is None else {"v_measures": measures}
    task = SimpleNamespace(
        metadata=SimpleNamespace(type="Clustering", main_score="v_measure", name="T"),
        input_column_name="sentences",
    )
    part = Slice("test", "default", "", Dataset.from_dict({"sentences": [["a", "b"]]}))
    monkeypatch.setattr("qwen3nb.evaluation.mteb.per_query.task_slices", lambda task: [part])
    outcome = SimpleNamespace(scores={"test": [entry]}, get_score=lambda: 0.5)
    scores = score_task(task, {}, outcome)
    assert scores.per_query.get("v_measure", {}) == right
    main = scores.metrics[scores.main]
    assert (main.value, main.how) == (0.5, "mean" if right else "reported")


@pytest.mark.integration
def test_every_task_and_benchmark_has_a_line(tmp_path, monkeypatch):
    # Sizes do not depend on the model, and a thousand files have them.
    monkeypatch.setattr("qwen3nb.evaluation.mteb.costs.task_parts", cache(task_parts))
    models = [load_model("random", cache=False, show_progress=False), load_model("bm25")]
    run = Run(output=tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        every = split_groups(mteb.get_tasks(exclude_superseded=False, exclude_aggregate=False))
        benchmarks = [choose_tasks(benchmark=each.name) for each in mteb.get_benchmarks()]
    assert len(every) > 1000
    seen = set()
    for group in (every, *map(split_groups, benchmarks)):
        # Most tasks of a benchmark are those of another, or among all, with the same languages.
        tasks = [task for task in group if task_key(task) not in seen]
        seen |= set(map(task_key, tasks))
        for model in models:
            planned = costs(tasks, task_statuses(model, tasks, run))
            assert [line.type for line in planned] == [task.metadata.type for task in tasks]
            for task, line in zip(tasks, planned, strict=True):
                other = "only text is evaluated" in line.status
                assert other == ({*task.metadata.modalities} != {"text"})


def test_a_task_on_images_says_that_only_text_is_evaluated():
    task = mteb.get_task("STS12VisualSTS")
    model = load_model("random", cache=False, show_progress=False)
    reason = "only text is evaluated, and its data have images"
    assert TaskItem(task).unsuited(model) == reason
    run = evaluate(model, tasks=[task], output=os.devnull, show_progress=False)
    assert run.skipped == {"STS12VisualSTS": reason}
