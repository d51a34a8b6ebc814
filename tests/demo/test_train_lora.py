import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.rerankers import write_reranker

from qwen3nb.checkpoints.folder import open_checkpoint
from qwen3nb.demo.train_lora import BASE, LORA, last_states, train_adapters, train_base
from qwen3nb.evaluation.studies.lora_runs import find_trained
from qwen3nb.models.rerankers import load_reranker


@pytest.mark.integration
def test_adapters_are_written_as_that_training_writes_them(tmp_path):
    base = write_reranker(tmp_path / "base")
    settings = replace(LORA, steps=4, batch=2, log_every=2, seeds=(42,), window=900, length=200)

    messages = []
    folders = train_adapters(base, tmp_path / "outputs", settings=settings, say=messages.append)

    adapters = find_trained(tmp_path / "outputs")
    assert [each.mode for each in adapters] == ["emb_only", "joint", "rank_only"]
    assert {each.folder for each in adapters} == set(folders)
    assert len(messages) == 3
    for each in adapters:
        log = (each.seed_folder / "train_log.jsonl").read_text()
        lines = [json.loads(line) for line in log.splitlines()]
        assert [line["step"] for line in lines] == [2, 4]  # the same for every mode
        assert ("loss_emb" in lines[0]) == each.embeds
        assert ("loss_rerank" in lines[0]) == (each.mode != "emb_only")
        conflicts = each.seed_folder / "gradient_conflicts.jsonl"
        assert conflicts.is_file() == (each.mode == "joint")
        if each.mode == "joint":
            rows = [json.loads(line) for line in conflicts.read_text().splitlines()]
            assert [row["step"] for row in rows] == [2, 4]
            name = "model.base_model.model.model.layers.0.self_attn.q_proj.lora_A.default.weight"
            assert -1 <= rows[0]["per_layer"][name] <= 1


def test_what_pairs_share_is_computed_once_and_changes_nothing(tmp_path):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(write_reranker(tmp_path / "base")).eval()
    rows = [[5, 6, 7, 8, 9], [5, 6, 7, 1], [5, 6, 7, 8, 9, 10, 11], [5, 6]]
    with torch.inference_mode():
        states = last_states(model.model, rows)
        for row, state in zip(rows, states, strict=True):
            alone = model.model(input_ids=torch.tensor([row])).last_hidden_state[0, -1]
            torch.testing.assert_close(state, alone, atol=1e-5, rtol=0)
    loss = last_states(model.model, rows).sum()
    loss.backward()
    assert torch.isfinite(model.model.embed_tokens.weight.grad[5]).all()
    assert model.model.embed_tokens.weight.grad[5].any()  # through what is shared, too


@pytest.mark.integration
def test_the_base_is_a_seeded_language_model_with_yes_and_no(tmp_path):
    settings = replace(BASE, steps=2, batch=2, vocabulary=2000, hidden=32, window=900)
    folders = [train_base(tmp_path / name, settings) for name in ("one", "two")]
    digests = {open_checkpoint(folder).weights.digest for folder in folders}
    assert len(digests) == 1
    reranker = load_reranker(folders[0], template="double-newline", device="cpu")
    assert np.isfinite(reranker.score("sort rows", ["Sort rows.", "Open a file."]).log_odds).all()
    assert json.loads((folders[0] / "training.json").read_text())["settings"]["steps"] == 2
