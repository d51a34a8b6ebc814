"""The benchmark of exchanged layers damages and counts what it says."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers.adapters import save_adapter

from benchmarks.exchanges import NDCG, Trial, costs, count, noisy, permuted, shown
from qwen3nb.models.kinds.adapter_exchange import parts_of, read_changes


@pytest.fixture
def adapter(tmp_path):
    return read_changes(save_adapter(tmp_path / "a", 0))


@pytest.fixture
def base(adapter):
    """Weights of the modules that the adapter changes."""
    generator = torch.Generator().manual_seed(0)
    shapes = {name: change.shape for name, change in adapter.by_module.items()}
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def weights(base, adapter, name):
    change = adapter.by_module[name]
    return base[name] + change.scale * change.b @ change.a


def test_a_damaged_layer_has_the_same_weights_in_another_order(adapter, base):
    damaged = permuted(adapter, base, 1, np.random.default_rng(0))
    for name in base:
        before, after = weights(base, adapter, name), weights(base, damaged, name)
        if ".layers.1." in name:
            assert not torch.allclose(before, after)
            before, after = before.flatten().sort().values, after.flatten().sort().values
        torch.testing.assert_close(before, after, atol=1e-5, rtol=0)


def test_noise_changes_every_layer_by_its_share(adapter, base):
    shaken = noisy(adapter, base, 0.1, np.random.default_rng(0))
    assert list(parts_of(adapter, shaken, by="layer")) == ["embed_tokens", "0", "1"]
    for name in base:
        before, after = weights(base, adapter, name), weights(base, shaken, name)
        assert 0.05 < float((after - before).std() / before.std()) < 0.2


def test_trials_are_counted():
    part = SimpleNamespace(part="0", is_significant=True)
    other = SimpleNamespace(part="1", is_significant=False)
    found = {NDCG: SimpleNamespace(named=(part,), parts=(part, other), joint=0.1, specialist=0.2)}
    trials = [Trial(found, damaged, undamaged={NDCG: 0.4}) for damaged in ("0", "1")]
    row = count("damage", NDCG, trials)
    assert (row.trials, row.right, row.costly, row.either) == (2, 1, 1, 1)
    line = shown([row]).splitlines()[1]
    assert line.split() == ["nDCG@10", "damage", *"2111", "0.300", "0.100", "0.200"]


def test_a_combination_of_layers_is_scored_once_and_anew_in_each_trial(adapter, base):
    """Layers 0 and 1 and the embeddings: two adapters, and six with one part of the other."""
    specialist = noisy(adapter, base, 0.1, np.random.default_rng(0))
    requested = []

    def scorer(changes):
        requested.append(changes)
        return {NDCG: {f"q{row}": row / (10 + len(requested)) for row in range(10)}}

    parts = len(parts_of(adapter, specialist, by="layer"))
    for trial in (1, 2):
        costs(scorer, adapter, specialist)
        assert len(requested) == trial * (2 + 2 * parts)
