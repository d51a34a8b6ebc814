import json
from dataclasses import replace

import pytest
from rerankers import write_reranker

from qwen3nb.demo.lora import LORA, train_adapters
from qwen3nb.tasks.trained import find_trained


@pytest.mark.slow
def test_adapters_are_written_as_that_training_writes_them(tmp_path):
    base = write_reranker(tmp_path / "base")
    settings = replace(LORA, steps=4, batch=2, log_every=2, seeds=(42,), window=900, length=200)

    said = []
    folders = train_adapters(base, tmp_path / "outputs", settings=settings, say=said.append)

    found = find_trained(tmp_path / "outputs")
    assert [each.mode for each in found] == ["emb_only", "joint", "rank_only"]
    assert {each.folder for each in found} == set(folders)
    assert len(said) == 3
    for each in found:
        *lines, last = [
            json.loads(line) for line in (each.place / "train_log.jsonl").read_text().splitlines()
        ]
        assert [line["step"] for line in lines] == [2, 4]
        assert last["type"] == "epoch_summary"
        assert last["epoch_steps"] == 4  # the same for every mode
        assert ("loss_emb" in lines[0]) == each.embeds
        assert ("loss_rerank" in lines[0]) == (each.mode != "emb_only")
        conflicts = each.place / "gradient_conflicts.jsonl"
        assert conflicts.is_file() == (each.mode == "joint")
        if each.mode == "joint":
            rows = [json.loads(line) for line in conflicts.read_text().splitlines()]
            assert [row["step"] for row in rows] == [2, 4]
            name = "model.base_model.model.model.layers.0.self_attn.q_proj.lora_A.default.weight"
            assert -1 <= rows[0]["per_layer"][name] <= 1
            values = rows[0]["per_layer"].values()
            assert rows[0]["mean_cosine_similarity"] == pytest.approx(sum(values) / len(values))
