"""The host never waits for a GPU within a pass: counted on ``meta``, which stands in for one."""

from collections import Counter

import pytest
import torch
from helpers.tiny_models import ROWS, build, runner
from torch.utils._python_dispatch import TorchDispatchMode

from qwen3nb.models.inference import prefix_cache
from qwen3nb.models.inference.packing import packing_of
from qwen3nb.models.inference.prefix_cache import Prefix, PrefixModel
from qwen3nb.models.modeling.pooling import POOLINGS

READS = {
    *("_local_scalar_dense", "_unique2", "equal", "is_nonzero", "item", "masked_select"),
    *("nonzero", "unique_consecutive"),
}


class Waits(TorchDispatchMode):
    """Counts operators, and those at which the host waits for another device than the CPU."""

    def __init__(self):
        super().__init__()
        self.operators, self.waits = 0, Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        given = dict(zip((each.name for each in func._schema.arguments), args, strict=False))
        given |= kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        devices = {each.device.type for each in given.values() if isinstance(each, torch.Tensor)}
        away = devices - {"cpu"}
        self.operators += bool(away)
        if away and name in READS:
            self.waits[name] += 1
        repeats = name == "repeat_interleave" and given.get("output_size") is None
        if away and repeats and isinstance(given.get("repeats"), torch.Tensor):
            self.waits[name] += 1
        out = func(*args, **(kwargs or {}))
        moved = {out.device.type, *devices} if isinstance(out, torch.Tensor) else set()
        moves = len(moved) == 2 and name in ("to", "_to_copy", "copy_")
        if moves and not given.get("non_blocking"):
            self.waits[name] += 1
        return out


def ragged(query, key, value, limits, longest, *, scale, causal):
    return torch.empty_like(query)


@pytest.mark.parametrize("how", POOLINGS)
@pytest.mark.parametrize("name", ["qwen3 encoder", "qwen3 causal", "bert", "roberta"])
def test_a_pass_over_many_lengths_never_waits(name, how):
    target = runner(name, how=how, linear="torch")
    target.model.to("meta", torch.bfloat16)
    target._packing = packing_of(target.model, kernel=ragged)
    operators = set()
    for rows in (ROWS, [list(range(3, 3 + length)) for length in range(40)]):
        rows = sorted(filter(None, rows), key=len, reverse=True)
        with torch.inference_mode(), Waits() as counted:
            assert target._pooled(rows).shape == (len(rows), 32)
        assert counted.waits == {}
        operators.add(counted.operators)
    assert len(operators) == 1  # not one group after the other


def test_a_reranked_batch_never_waits_and_repeats_grouped_heads(monkeypatch):
    attend, heads = torch.nn.functional.scaled_dot_product_attention, []

    def seen(query, key, value, **options):
        heads.append((query.shape[1], key.shape[1], options["enable_gqa"]))
        return attend(query, key, value, **options)

    monkeypatch.setattr(prefix_cache, "scaled_dot_product_attention", seen)
    model = PrefixModel(build("qwen3 causal").to("meta", torch.bfloat16))
    with Waits() as counted:
        prefix = model.extend(Prefix(), [5, 6, 7])
        states = model.last_states(prefix, [[8, 9], [10], [11, 12, 13]])
    assert states.shape == (3, 32)
    assert counted.waits == {}
    assert set(heads) == {(4, 4, False)}
