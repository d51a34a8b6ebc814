from dataclasses import replace

import pytest
import torch

from qwen3nb.checkpoints.averaging import select_checkpoints
from qwen3nb.checkpoints.folder import list_checkpoints, metric_of, open_checkpoint
from qwen3nb.datasets.pydocs.training_pairs import DocstringPair, TrainingPairs
from qwen3nb.demo.train_contrastive import (
    CONTRASTIVE,
    METRIC,
    _collate,
    _embed,
    train_contrastive,
)
from qwen3nb.models.modeling.qwen3_seq2seq import Qwen3ForSeq2SeqLM

SMALL = replace(CONTRASTIVE, steps=4, save_every=2, batch=8, length=16, development=6)


def made_pairs():
    nouns = ["row", "file", "table", "image", "path", "token", "array", "graph"]
    verbs = ["read", "write", "close", "merge"]
    made = [
        DocstringPair(
            "networkx" if verb == "merge" else "torch",
            f"{verb.title()} one {noun}.",
            f"To {verb} it, the {noun} must exist." * (1 + len(noun) % 3),
        )
        for verb in verbs
        for noun in nouns
    ]
    return TrainingPairs(tuple(made), {"repeats the benchmark": 1}, {"torch": "1", "networkx": "2"})


@pytest.fixture(scope="module")
def start(trained):
    return trained / "checkpoint-2"


@pytest.fixture(scope="module")
def contrastive(start):
    return train_contrastive(start.parents[1] / "contrastive", start, made_pairs(), SMALL)


@pytest.mark.integration
def test_the_contrastive_phase_writes_real_checkpoints(start, contrastive):
    checkpoints = list_checkpoints(contrastive)
    assert [path.name for path in checkpoints] == ["checkpoint-2", "checkpoint-4"]
    best = select_checkpoints(contrastive, best=1, metric=METRIC, lower_is_better=False)
    assert best.metrics == {path.name: metric_of(path, METRIC) for path in checkpoints}
    assert all(0 <= value <= 1 for value in best.metrics.values())
    assert all(metric_of(path) > 0 for path in checkpoints)
    before = open_checkpoint(start)
    for path in (*checkpoints, contrastive / "average"):
        after = open_checkpoint(path)
        assert after.config["model_type"] == "qwen3_encdec"
        assert after.weights.tensors.keys() == before.weights.tensors.keys()
        assert (path / "tokenizer.json").read_bytes() == (start / "tokenizer.json").read_bytes()


@pytest.mark.integration
def test_only_encoder_and_embedding_change(start, contrastive):
    before = Qwen3ForSeq2SeqLM.from_pretrained(start).state_dict()
    after = Qwen3ForSeq2SeqLM.from_pretrained(contrastive / "checkpoint-4").state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    own = {name for name in changed if "decoder" in name and "embed_tokens" not in name}
    assert not own
    assert {name for name in before if ".encoder.layers." in name} <= changed
    assert "model.shared.weight" in changed


@pytest.mark.integration
def test_texts_are_embedded_the_same_alone_and_together(start):
    model = Qwen3ForSeq2SeqLM.from_pretrained(start).eval()
    rows = [{"summary": list(range(5, 5 + n)), "text": [1]} for n in (9, 2, 30, 4, *range(1, 20))]
    with torch.inference_mode():
        together = _embed(model, _collate(rows, pad=0), "summary")
        alone = torch.cat([_embed(model, _collate([row], pad=0), "summary") for row in rows])
    torch.testing.assert_close(alone, together, atol=1e-5, rtol=0)
