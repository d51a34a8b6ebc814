"""The benchmark of exchanged layers damages and counts what it says."""

from types import SimpleNamespace

import numpy as np
import torch
from helpers.adapters import save_adapter

from benchmarks.exchanges import costs, count, noisy, permuted, shown
from qwen3nb.models.kinds.adapter_exchange import parts_of, read_changes


def test_a_damaged_layer_has_the_same_numbers_in_another_order(tmp_path):
    adapter = read_changes(save_adapter(tmp_path / "a", 0))
    damaged = permuted(adapter, 1, np.random.default_rng(0))
    assert list(parts_of(adapter, damaged, by="layer")) == ["1"]
    name = "model.layers.1.self_attn.q_proj"
    before, after = adapter.by_module[name].a, damaged.by_module[name].a
    assert torch.equal(before.flatten().sort().values, after.flatten().sort().values)


def test_noise_changes_every_layer_by_its_share(tmp_path):
    adapter = read_changes(save_adapter(tmp_path / "a", 0))
    shaken = noisy(adapter, 0.1, np.random.default_rng(0))
    assert list(parts_of(adapter, shaken, by="layer")) == ["embed_tokens", "0", "1"]
    for name, change in shaken.by_module.items():
        a = adapter.by_module[name].a
        assert 0.05 < float((change.a - a).std() / a.std()) < 0.2


def test_trials_are_counted():
    part = SimpleNamespace(part="0", is_significant=True)
    other = SimpleNamespace(part="1", is_significant=False)
    trial = SimpleNamespace(named=(part,), parts=(part, other), joint=0.1, specialist=0.2)
    row = count("damage", iter([(trial, "0"), (trial, "1")]))
    assert (row.trials, row.right, row.costly, row.either) == (2, 1, 1, 1)
    line = shown([row]).splitlines()[1]
    assert line.split() == ["damage", "2", "1", "1", "1", "0.100", "0.200"]


def test_a_combination_of_layers_is_scored_once_and_anew_in_each_trial(tmp_path):
    """Layers 0 and 1 and the embeddings: two adapters, and six with one part of the other."""
    joint = read_changes(save_adapter(tmp_path / "a", 0))
    specialist = noisy(joint, 0.1, np.random.default_rng(0))
    requested = []

    def scorer(changes):
        requested.append(changes)
        return {f"q{row}": row / (10 + len(requested)) for row in range(10)}

    parts = len(parts_of(joint, specialist, by="layer"))
    for trial in (1, 2):
        costs(scorer, joint, specialist)
        assert len(requested) == trial * (2 + 2 * parts)
