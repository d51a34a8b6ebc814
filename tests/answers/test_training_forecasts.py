"""What more steps would bring: the sentence, the table and the figure."""

import json

import numpy as np
import pytest
from helpers.records import RERANKING, RETRIEVAL, amend, make

from qwen3nb.analysis.training.checkpoint_scores import tokens_by_step
from qwen3nb.answers.training_forecasts import tokens_text, training_forecasts
from qwen3nb.answers.trainings import trainings


def saturating(share):
    return 0.3 + 0.25 * (1 - np.exp(-share / 0.35))


def turning(share):
    return 0.3 + 0.2 * (1 - np.exp(-share / 0.15)) - 0.18 * share**2


def straight(share):
    return 0.3 + 0.2 * share


def checkpoints(name, curve, *, count=12, task=RETRIEVAL, metric="nDCG@10", seed=0):
    """Records of a training's checkpoints, every 1,000 steps."""
    generator = np.random.default_rng(seed)
    hardness = generator.normal(0, 0.1, 60)
    records = []
    for number in range(1, count + 1):
        scores = curve(number / count) + hardness + generator.normal(0, 0.02, 60)
        label = f"{name}-checkpoint-{1000 * number}"
        records.append(make(label, scores.clip(0, 1), task=task, metric=metric))
    return records


def test_a_forecast_says_steps_gain_and_test(home):
    answer = trainings(checkpoints("ul2", saturating)).forecast()
    (course,) = answer.courses
    low, high = course.forecast.interval
    assert answer.conclusion.text == (
        f"Another 1,000 steps of ul2 would bring {low:+.3f} to {high:+.3f} nDCG@10 on Retrieval. "
        "The curve foresaw the last 3 checkpoints, which it had not seen."
    )
    true_gain = saturating(13 / 12) - saturating(1)
    assert low <= true_gain <= high
    row = answer.to_frame().iloc[0]
    assert (row["low"], row["high"], row["unit"], row["more_steps"]) == (low, high, "steps", 1000)
    assert row["is_stated"]
    assert row["foreseen"] == row["tested"] == 3
    table = answer.table().to_markdown()
    assert "foreseen" in table
    assert f"{low:+.3f}" in table
    figure = answer.figure()
    assert answer.conclusion.text in figure.alt
    (axis,) = figure.axes
    assert axis.get_xlabel() == "training step"
    assert len(axis.collections) == 1  # the band


@pytest.mark.parametrize(
    ("records", "more_steps", "reason"),
    [
        (checkpoints("ul2", saturating, count=3), 0, "it has 3 checkpoints with scores"),
        (checkpoints("ul2", turning), 0, "its scores turn near step"),
        (checkpoints("ul2", saturating), 5000, "looks 3,000 steps ahead, and 5,000 were asked"),
        (
            [make(f"ul2-checkpoint-{step}", [0.2, 0.4, 0.9]) for step in range(1, 10)],
            0,
            "all its checkpoints score the same",
        ),
        (
            [make(f"ul2-checkpoint-{step}", [step / 20]) for step in range(1, 10)],
            0,
            "a task has a single query",
        ),
    ],
)
def test_what_is_not_said_has_its_reason(home, records, more_steps, reason):
    answer = trainings(records).forecast(more_steps=more_steps)
    assert answer.conclusion.text.startswith("Nothing is forecast for ul2 on Retrieval: ")
    assert reason in answer.conclusion.text
    assert "not said" in answer.table().to_markdown()
    row = answer.to_frame().iloc[0]
    assert row["refusal"]
    assert not row["is_stated"]
    assert row["low"] is None


def test_a_curve_that_misses_is_shown_with_what_it_foresaw(home):
    def jumping(share):
        return saturating(share) + 0.1 * (share > 0.76)

    answer = trainings(checkpoints("ul2", jumping)).forecast()
    assert "missed the last 3 checkpoints" in answer.conclusion.text
    (axis,) = answer.figure().axes
    assert len(axis.collections) == 0  # no band


def test_the_mean_of_tasks_comes_first_and_unlike_metrics_have_none(home):
    records = checkpoints("ul2", saturating)
    records += checkpoints("ul2", saturating, task=RERANKING, seed=1)
    answer = trainings(records).forecast()
    assert [course.where for course in answer.courses] == [
        "the mean of 2 tasks",
        "Retrieval",
        "Reranking",
    ]
    mean, first, second = (course.forecast.scores for course in answer.courses)
    assert mean == pytest.approx(np.mean([first, second], axis=0))
    unlike = checkpoints("ul2", saturating)
    unlike += checkpoints("ul2", saturating, task=RERANKING, metric="MAP@10", seed=1)
    for record in unlike:
        amend(record, "task", main_metric=next(iter(record.per_query)))
    alone = trainings(unlike).forecast().courses
    assert [course.where for course in alone] == ["Retrieval", "Reranking"]


def test_trainings_with_a_forecast_are_said_first(home):
    records = checkpoints("a-short", saturating, count=3) + checkpoints("ul2", saturating)
    text = trainings(records).forecast().conclusion.text
    first, second = text.split(". ")[:2]
    assert first.startswith("Another 1,000 steps of ul2")
    assert second.startswith("Nothing is forecast for a-short")


def with_tokens(home, record, tokens):
    """Give a record's checkpoint a state of its trainer that counts tokens."""
    folder = home / "runs" / record.model.label
    folder.mkdir(parents=True)
    state = {"num_input_tokens_seen": tokens, "log_history": []}
    (folder / "trainer_state.json").write_text(json.dumps(state))
    amend(record, "model", spec=f"runs/{record.model.label}")


def test_tokens_are_used_where_every_checkpoint_states_them(home):
    records = checkpoints("ul2", saturating)
    for number, record in enumerate(records, start=1):
        with_tokens(home, record, 2_500_000 * number)
    answer = trainings(records).forecast()
    assert "Another 1,000 steps (2.5 million tokens) of ul2" in answer.conclusion.text
    (course,) = answer.courses
    assert course.forecast.places[-1] == 30_000_000
    assert answer.to_frame().iloc[0]["unit"] == "tokens"
    (axis,) = answer.figure().axes
    assert axis.get_xlabel() == "training tokens"
    # Equal batches: the same curve, whatever its unit.
    by_steps = training_forecasts(trainings(checkpoints("ul2", saturating)).trajectories).courses[0]
    assert course.forecast.interval == pytest.approx(by_steps.forecast.interval, abs=1e-9)


@pytest.mark.parametrize("state", ['{"num_input_tokens_seen": 0}', "{", '{"other": 1}'])
def test_unknown_tokens_leave_the_steps(home, state):
    records = checkpoints("ul2", saturating)
    for number, record in enumerate(records, start=1):
        with_tokens(home, record, 1000 * number)
    (home / "runs" / records[4].model.label / "trainer_state.json").write_text(state)
    by_step = {1000 * number: record for number, record in enumerate(records, start=1)}
    assert tokens_by_step(by_step) is None
    assert trainings(records).forecast().courses[0].is_in_tokens is False


def test_numbers_of_tokens_have_units():
    assert tokens_text(131_000_000) == "131 million tokens"
    assert tokens_text(2_500_000_000) == "2.5 billion tokens"
    assert tokens_text(8_000) == "8,000 tokens"


def test_a_negative_distance_is_refused(home):
    with pytest.raises(ValueError, match="more_steps: expected 0 or more; got -1"):
        trainings(checkpoints("ul2", saturating)).forecast(more_steps=-1)


def test_without_trainings_nothing_is_drawn(home):
    answer = trainings([]).forecast()
    assert answer.figure() is None
    assert "no training has two evaluated checkpoints" in answer.conclusion.text
