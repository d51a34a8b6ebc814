"""Candidates and soups are evaluated once, and chosen by one half of the queries."""

import json

import numpy as np
import pytest

from qwen3nb.analysis.training.choosing import Halves, flattery, split
from qwen3nb.answers.choosing import choose
from qwen3nb.answers.soup import soup_of
from qwen3nb.checkpoints.averaging import average_checkpoints
from qwen3nb.checkpoints.types import CheckpointError, SpecError
from qwen3nb.datasets.collection import TestCollection
from qwen3nb.evaluation.studies.choosing import expanded
from qwen3nb.models.load import load_encoder
from qwen3nb.utils.atomic_files import write_text
from qwen3nb.utils.format import short_names

TASK = "PyDocsSampleRetrieval"
TEXTS = {f"d{place}": f"text {place} on sort {place % 3} rows" for place in range(12)}
QUERIES = {f"q{place}": f"sort {place % 3} text {place}" for place in range(8)}
QRELS = {query: {f"d{place}": 1} for place, query in enumerate(QUERIES)}
SMALL = TestCollection("small", TEXTS, QUERIES, QRELS)


@pytest.fixture
def training(home, make_checkpoint):
    for step in (10, 20, 30):
        make_checkpoint(home / "runs" / "ul2" / f"checkpoint-{step}", seed=step)
    return home / "runs" / "ul2"


def test_names_are_as_short_as_they_can_be():
    assert short_names(["x/a", "y/b"]) == ["a", "b"]
    assert short_names(["x/a", "y/a", "bm25"]) == ["x/a", "y/a", "bm25"]


def test_a_training_stands_for_its_checkpoints(training):
    steps = [str(training / f"checkpoint-{step}") for step in (10, 20, 30)]
    assert expanded([str(training), "bm25"]) == [*steps, "bm25"]


@pytest.mark.parametrize(
    ("models", "cause"), [(["bm25"], "got 1"), (["bm25", "bm25"], "got bm25 twice")]
)
def test_two_different_models_are_needed(home, models, cause):
    with pytest.raises(ValueError, match=cause):
        choose(models, tasks=TASK)


def test_own_data_are_folders_as_for_eval(training):
    """The command gives their names as text, the empty one included."""
    folder = training.parent / "own"
    for name, texts in {"corpus": TEXTS, "queries": QUERIES}.items():
        rows = [{"_id": key, "text": text} for key, text in texts.items()]
        write_text(folder / f"{name}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    lines = ["query-id\tcorpus-id\tscore", *(f"{key}\td{key[1:]}\t1" for key in QUERIES)]
    write_text(folder / "qrels" / "test.tsv", "\n".join(lines) + "\n")
    steps = [str(training / f"checkpoint-{step}") for step in (10, 20)]
    answer = choose(steps, data=str(folder), tasks="", show_progress=False)
    same = choose(steps, data=SMALL, show_progress=False)
    assert answer.to_frame()["score"].tolist() == same.to_frame()["score"].tolist()
    with pytest.raises(ValueError, match="got both: tasks 'SciFact', data 'own'"):
        choose(steps, data="own", tasks="SciFact")


def test_a_soup_has_the_mean_of_its_members(training, monkeypatch):
    """With scores that favour 20 and then 10, the soup is their mean, and is evaluated once."""
    folders = [str(training / f"checkpoint-{step}") for step in (10, 20, 30)]
    answer = choose(folders, data=SMALL, soup=True, show_progress=False)
    steps = answer.soup.steps
    assert steps[0].added == int(
        np.argmax([candidate_score(answer, f"checkpoint-{step}") for step in (10, 20, 30)])
    )
    assert len(steps) == 3
    kept = [step for step in steps if step.is_kept][-1]
    assert list(answer.soup.members) == [f"checkpoint-{10 * (place + 1)}" for place in kept.members]
    if answer.soup.name:
        mean = average_checkpoints(
            [training / name for name in answer.soup.members], training.parent / "mean"
        )
        texts = ["Sort the rows by date", "no"]
        record = answer.soup.results[0]
        assert record.model.identity == load_encoder(mean, cache=False).identity
        assert load_encoder(mean, cache=False).encode(texts).shape[0] == 2
    # Stored records answer the second time.
    monkeypatch.setattr(
        "qwen3nb.models.encoders.base.Encoder.encode",
        lambda *_, **__: pytest.fail("encoded again"),
    )
    again = choose(folders, data=SMALL, soup=True, show_progress=False)
    assert again.conclusion.text == answer.conclusion.text


def candidate_score(answer, name):
    for candidate in (answer.choice.chosen, *answer.choice.others):
        if candidate.name == name:
            return candidate.selecting
    return None


def test_the_frame_has_both_halves_and_the_sentence_the_score_of_the_other(training):
    answer = choose([str(training)], data=SMALL, show_progress=False)
    frame = answer.to_frame()
    means = frame.groupby(["half", "candidate"])["score"].mean()
    assert means["reporting", answer.chosen] == pytest.approx(answer.choice.chosen.reporting)
    assert means["selecting"].max() == pytest.approx(answer.choice.chosen.selecting)
    assert f"Take {answer.chosen}: {answer.choice.chosen.reporting:.3f} [" in answer.conclusion.text
    assert answer.halves == split(answer.matrices, seed=0)
    rows = answer.table().to_frame()
    assert len(rows) == 3
    assert answer.soup_table() is None


def test_a_soup_of_a_model_without_a_folder_is_refused(home):
    with pytest.raises(SpecError, match="bm25: not a folder, and a soup averages"):
        soup_of(["bm25"], {}, Halves({}), options=None)


def test_a_candidate_that_fails_is_left_out_and_named(training):
    file = training / "checkpoint-20" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:100])
    answer = choose([str(training)], data=SMALL, show_progress=False)
    assert list(answer.failures) == ["checkpoint-20"]
    assert "left out: checkpoint-20." in answer.conclusion.text
    assert "truncated" in answer.table().note
    assert "checkpoint-20" not in answer.matrices[0].systems
    (training / "checkpoint-30" / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="checkpoint-20"):
        choose([str(training)], data=SMALL, show_progress=False)


def test_a_soup_takes_no_part_in_the_mean_flattery(training):
    answer = choose([str(training)], data=SMALL, soup=True, show_progress=False)
    alone = choose([str(training)], data=SMALL, show_progress=False)
    assert alone.choice.flattery == pytest.approx(flattery(alone.matrices))
    assert answer.choice.flattery == pytest.approx(alone.choice.flattery)
    assert answer.halves == alone.halves
