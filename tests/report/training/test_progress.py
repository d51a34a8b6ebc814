"""What each training changed, as a table and in words that follow from the numbers."""

import json

import numpy as np
import pytest
from helpers.records import make

from qwen3nb.report.training.trainings import (
    Trainings,
    gains_table,
    read_trainings,
    training_conclusion,
)

NOISE = np.random.default_rng(0).normal(0, 0.2, 60)
NOISE -= NOISE.mean()


def steps_of(training, *means, first=100, spread=1.0, other=0.0, **fields):
    """Records of a training with these means; ``other`` is noise of its own at each step."""
    own = np.random.default_rng(1).normal(0, other, (len(means), 60))
    return [
        make(
            f"{training}-checkpoint-{first + 100 * i}",
            scores=(mean + spread * NOISE + own[i] - own[i].mean()).tolist(),
            **fields,
        )
        for i, mean in enumerate(means)
    ]


UP, DOWN = steps_of("a", 0.2, 0.3, 0.5, other=0.01), steps_of("a", 0.5, 0.3, 0.2, other=0.01)
UNCLEAR = steps_of("a", 0.3, 0.31, 0.302, other=0.2)
SEEDS = steps_of("a-seed-1", 0.2, 0.4) + steps_of("a-seed-2", 0.2, 0.4)
MANY = [each for name in "abcde" for each in steps_of(name, 0.2, 0.5, other=0.01)]


@pytest.mark.parametrize(
    ("results", "words"),
    [
        (UP, "Training a raised nDCG@10 on Retrieval: 0.200 at step 100, 0.500 at step 300 (+0.3"),
        (DOWN, "lowered nDCG@10 on Retrieval: 0.500 at step 100, 0.200 at step 300"),
        (UNCLEAR, "Training a shows no effect on nDCG@10 on Retrieval: 0.300 at step 100"),
        (steps_of("a", 0.3), "No training has two evaluated checkpoints"),
        (SEEDS, "Training a, seed 2 raised"),
        (MANY, "2 more are in the table."),
    ],
)
def test_what_a_training_changed(tmp_path, results, words):
    assert words in str(
        training_conclusion(read_trainings(results, tier="smoke", outputs=tmp_path))
    )


def test_p_values_of_gains_are_corrected_over_all_of_them(tmp_path):
    results = [*steps_of("a", 0.2, 0.5, other=0.01), *steps_of("b", 0.3, 0.31, other=0.2)]
    trainings = read_trainings(results, tier="smoke", outputs=tmp_path)
    clear, noise = gains_table(trainings).rows
    assert clear[5].value == pytest.approx(2 / 10_001)  # the smallest, times Holm's 2
    assert (clear[5].strong, noise[5].strong) == (True, False)
    assert clear[4].value == pytest.approx(0.3)
    assert (clear[2].detail, clear[3].detail, clear[6].text) == ("step 100", "step 200", "60")
    assert "Holm over these 2" in gains_table(trainings).note
    empty = Trainings((), (), (), (), 0)
    assert "No training" in gains_table(empty).note


@pytest.fixture
def continued(home, monkeypatch):
    """A training of two checkpoints, and one that started from the last of them."""
    monkeypatch.setenv("QWEN3NB_HOME", str(home))
    records = steps_of("ul2", 0.2, 0.3) + steps_of("pairs", 0.4, 0.6, first=50)
    folders = ("ul2/checkpoint-100", "ul2/checkpoint-200", "pairs/checkpoint-50")
    for result, folder in zip(records, (*folders, "pairs/checkpoint-150"), strict=True):
        export = home / "exports" / result.model.label
        export.mkdir(parents=True)
        source = {"source": {"folder": f"runs/{folder}"}}
        (export / "qwen3nb.json").write_text(json.dumps(source))
        object.__setattr__(result.model, "spec", str(export.relative_to(home)))
        (home / "runs" / folder).mkdir(parents=True)
    return records


@pytest.mark.parametrize(
    ("start", "steps"),
    [("runs/ul2/checkpoint-200", (0, 50, 150)), ("runs/nowhere", (50, 150)), (7, (50, 150))],
)
def test_a_training_starts_where_it_says(home, continued, start, steps):
    (home / "runs" / "pairs" / "training.json").write_text(json.dumps({"start": start}))
    for number, result in enumerate(continued[2:]):  # the step is then that of the checkpoint
        object.__setattr__(result.model, "label", f"my-model-{number}")
    trainings = read_trainings(continued, tier="smoke")
    second, first = sorted(trainings.trajectories, key=lambda each: each.training)
    assert (first.training, first.steps) == ("ul2", (100, 200))
    assert (second.training, second.steps) == ("pairs", steps)
    if 0 in steps:
        assert second.records[0][0] is continued[1]
        assert "pairs raised nDCG@10 on Retrieval: 0.300 at step 0" in str(
            training_conclusion(trainings)
        )
