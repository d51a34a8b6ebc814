import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3nb import paths
from qwen3nb.checkpoints.folder import list_checkpoints, metric_of, open_checkpoint
from qwen3nb.demo.pipeline import lesson_training
from qwen3nb.demo.train_ul2 import (
    Ul2Settings,
    hide_spans,
    hide_suffix,
    texts_of_tier,
    train_seq2seq,
    training_texts,
)

SENTINELS = list(range(1000, 1100))


def put_back(source, target):
    """Restore the original from a source and the tokens its sentinels hide."""
    hidden, current = {}, None
    for token in target:
        if token >= 1000:
            current = hidden.setdefault(token, [])
        else:
            current.append(token)
    return [t for token in source for t in (hidden[token] if token >= 1000 else [token])]


@given(
    length=st.integers(4, 80),
    rate=st.sampled_from([0.15, 0.5]),
    span=st.sampled_from([1, 3, 8]),
    seed=st.integers(0, 999),
)
@settings(deadline=None, max_examples=40)
def test_hidden_spans_can_be_put_back(length, rate, span, seed):
    ids = list(range(length))
    rng = np.random.default_rng(seed)
    source, target = hide_spans(ids, rate=rate, span=span, sentinels=SENTINELS, generator=rng)
    assert put_back(source, target) == ids
    hidden = sum(token < 1000 for token in target)
    assert hidden == min(max(1, round(length * rate)), length - 1)
    assert source[0] == 0
    used = [token for token in source if token >= 1000]
    assert used == SENTINELS[: len(used)] == [token for token in target if token >= 1000]
    source, target = hide_suffix(ids, sentinel=1000, generator=rng)
    assert put_back(source, target) == ids
    assert min(len(source), len(target)) - 1 >= length // 4


@pytest.mark.integration
def test_the_training_writes_real_checkpoints(trained):
    checkpoints = list_checkpoints(trained)
    assert [path.name for path in checkpoints] == ["checkpoint-2", "checkpoint-4", "checkpoint-6"]
    losses = [metric_of(path) for path in checkpoints]
    assert all(np.isfinite(losses))
    digests = {open_checkpoint(path).weights.digest for path in (*checkpoints, trained / "init")}
    assert len(digests) == 4
    for path in (*checkpoints, trained / "init"):
        assert (path / "tokenizer.json").read_bytes() == (
            trained / "tokenizer" / "tokenizer.json"
        ).read_bytes()
        assert open_checkpoint(path).config["model_type"] == "qwen3_encdec"
    record = json.loads((trained / "training.json").read_text())
    assert record["settings"]["steps"] == 6
    assert record["tokens_seen"] > 0


@pytest.mark.integration
def test_the_training_is_seeded(trained, tmp_path):
    settings = Ul2Settings(**json.loads((trained / "training.json").read_text())["settings"])
    again = train_seq2seq(tmp_path / "again", settings)
    for name in ("init", "checkpoint-6"):
        assert (
            open_checkpoint(again / name).weights.digest
            == open_checkpoint(trained / name).weights.digest
        )


def test_nothing_that_is_measured_is_trained_on():
    from qwen3nb.datasets.pydocs.mteb_tasks import author_sts, pydocs_sample

    train, held_out = training_texts()
    measured = {text for each in pydocs_sample().entries for text in (each.summary, each.text)}
    measured |= {text for first, second, _ in author_sts() for text in (first, second)}
    assert measured <= texts_of_tier()
    assert not measured & {*train, *held_out}
    assert len(train) > 3000


def test_the_demo_is_used_if_it_has_been_run(home, checkpoint):
    folder = paths.runs() / "demo" / "train"
    folder.mkdir(parents=True)
    (folder / "checkpoint-10").symlink_to(checkpoint)
    assert lesson_training() == folder


@pytest.mark.integration
def test_without_the_demo_a_short_training_is_kept_in_the_cache(home):
    folder = lesson_training()
    assert folder.is_relative_to(paths.cache())
    assert [each.name for each in list_checkpoints(folder)] == ["checkpoint-10", "checkpoint-20"]
    stamp = folder.stat().st_mtime_ns
    assert lesson_training().stat().st_mtime_ns == stamp
