import math
import time

import numpy as np
import pytest

from qwen3nb.datasets.mirror import data_revision
from qwen3nb.evaluation.mteb import plan as cost
from qwen3nb.evaluation.mteb.plan import EncodingSpeed, Range, costs, measure_encoding
from qwen3nb.evaluation.mteb.select import select_tasks, tier_tasks
from qwen3nb.models.load import load_encoder
from qwen3nb.models.types import EncoderError
from qwen3nb.report.studies.datasets import tier_table

# A text of 100 characters takes 1 to 2 s, one of 1,100 characters 11 to 22 s.
LINEAR = EncodingSpeed((100, 1100), fastest=(1.0, 11.0), slowest=(2.0, 22.0))


@pytest.fixture
def encoder(encoder_folder):
    return load_encoder(encoder_folder, cache=False, show_progress=False)


def test_a_text_costs_what_its_length_does():
    assert LINEAR.seconds(600) == Range(6.0, 12.0)
    assert LINEAR.seconds(10) == Range(1.0, 2.0)
    assert LINEAR.seconds(5000) == Range(11.0, 22.0)


def test_what_tasks_will_cost():
    estimates = {each.task: each for each in costs(tier_tasks("fast"), speed=LINEAR)}
    # MTEB publishes: 5,183 documents of 1,499.4 characters and 300 queries of 90.3.
    scifact = estimates["SciFact"]
    assert (scifact.texts, scifact.documents, scifact.queries) == (5183 + 300, 5183, 300)
    assert scifact.minutes == pytest.approx(((5183 * 11 + 300) / 60, (5183 * 22 + 600) / 60))
    (cut,) = costs(select_tasks(names=["SciFact"]), speed=LINEAR, max_length=100)  # 450 characters
    assert cut.minutes.low == pytest.approx((5183 * 4.5 + 300) / 60)
    assert costs(select_tasks(names=["SciFact"]))[0].minutes is None
    assert len(costs(select_tasks(names=["CQADupstackRetrieval"]))) == 12


def test_only_the_selected_subsets_and_splits_count():
    tasks = {each.task: each for each in costs(tier_tasks("full"))}
    # 2,974 English utterances, of which 2,970 are distinct; all 51 languages have 148,972.
    assert tasks["MassiveIntentClassification"].texts == 2970
    assert tasks["STS17"].texts == sum(map(_distinct_in_sts17, (1, 2)))
    assert len(costs(tier_tasks("full"))) == 61


def _distinct_in_sts17(column):
    (task,) = select_tasks(names=["STS17"])
    english = task.metadata.descriptive_stats["test"]["hf_subset_descriptive_stats"]["en-en"]
    return english[f"text{column}_statistics"]["unique_texts"]


def test_a_small_local_copy_is_not_taken_for_the_published_data(tmp_path, monkeypatch):
    monkeypatch.setenv("QWEN3NB_MIRROR", str(tmp_path))
    folder = tmp_path / "mteb" / "scifact"
    folder.mkdir(parents=True)
    (folder / "corpus.jsonl").write_bytes(b"x" * 1000)
    (small,) = costs(select_tasks(names=["SciFact"]))
    assert 0 < small.texts < 20
    # The revision is that of what will be read, as in the record.
    (task,) = select_tasks(names=["SciFact"])
    assert small.revision == data_revision(task)[:12]
    assert small.revision.startswith("local-")
    (row,) = [row for row in tier_table("fast").rows if row[0].text == "SciFact"]
    assert row[3].text == small.revision
    (folder / "corpus.jsonl").write_bytes(b"x" * 3_000_000)  # compressed, the real one is larger
    (real,) = costs(select_tasks(names=["SciFact"]))
    assert real.texts == 5183 + 300


@pytest.mark.integration
def test_speed_is_measured_at_three_lengths(encoder, monkeypatch):
    monkeypatch.setattr(cost, "_BUDGET", 0.05)
    monkeypatch.setattr(cost, "_ENOUGH", 0.02)
    encoder._embed = _taking(encoder._embed)
    speed = measure_encoding(encoder, batch_size=4)
    assert len(speed.characters) == 3
    assert speed.characters[-1] == int(encoder.max_length * 4.5)
    assert all(0 < low <= high for low, high in zip(speed.fastest, speed.slowest, strict=True))


@pytest.mark.integration
def test_few_texts_are_not_worth_repeats(encoder, monkeypatch):
    calls = []

    def timed(_, texts):
        calls.append(len(texts))
        return 0.002 * len(texts)

    monkeypatch.setattr(cost, "_timed", timed)

    def measured(texts):
        calls.clear()
        measure_encoding(encoder, texts=texts)
        return len(calls)

    few = measured(100)
    assert measured(100_000) == measured(None) == few + 3 * 4  # up to five samples per length


def _taking(embed):
    """Encode one text of a batch only, so that the test is quick."""

    def pretended(texts):
        time.sleep(0.002 * len(texts))
        return embed(texts[:1]).repeat(len(texts), axis=0)

    return pretended


@pytest.mark.integration
def test_memory_and_broken_vectors_are_seen_at_once(encoder):
    def no_memory(texts):
        raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")

    encoder._embed = no_memory
    with pytest.raises(EncoderError, match="--batch-size"):
        measure_encoding(encoder)
    encoder._embed = lambda texts: _vectors(len(texts), encoder.dimension)
    with pytest.raises(EncoderError, match="not finite"):
        measure_encoding(encoder)


def _vectors(count, dimension):
    return np.full((count, dimension), math.nan, dtype=np.float32)
