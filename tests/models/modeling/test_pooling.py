import numpy as np
import pytest
import torch
from helpers.handbook import example
from helpers.tolerances import assert_close
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import pad

from qwen3nb.models.load import load_encoder
from qwen3nb.models.modeling.pooling import POOLINGS, Pooling, pool, pool_segments

# Three tokens of two dimensions.
STATES = torch.tensor([[[2.0, -1.0], [4.0, 3.0], [9.0, 1.0]]])
BY_HAND = {
    "mean": [5.0, 1.0],  # (2+4+9)/3, (-1+3+1)/3
    "cls": [2.0, -1.0],
    "last": [9.0, 1.0],
    "weighted_mean": [37 / 6, 8 / 6],  # (2+8+27)/6, (-1+6+3)/6
}


@pytest.mark.parametrize("how", POOLINGS)
def test_by_hand(how):
    vector = pool(STATES, torch.ones(1, 3), pooling=how)
    torch.testing.assert_close(vector, torch.tensor([BY_HAND[how]]))


@pytest.mark.parametrize("how", POOLINGS)
@given(
    left=st.integers(0, 4),
    right=st.integers(0, 4),
    length=st.integers(1, 6),
    seed=st.integers(0, 99),
)
@settings(deadline=None, max_examples=20)
def test_padding_changes_nothing_wherever_it_is_and_whatever_it_holds(
    how, left, right, length, seed
):
    states = torch.randn(1, length, 3, generator=torch.Generator().manual_seed(seed))
    alone = pool(states, torch.ones(1, length), pooling=how)
    padded = pad(states, (0, 0, left, right), value=float("nan"))
    mask = pad(torch.ones(1, length, dtype=torch.long), (left, right))
    torch.testing.assert_close(pool(padded, mask, pooling=how), alone)


def test_refusals_name_the_choices_the_shapes_and_the_rows():
    with pytest.raises(ValueError, match="unknown pooling 'men'.*mean, cls, last, weighted_mean"):
        pool(STATES, torch.ones(1, 3), pooling="men")
    with pytest.raises(ValueError, match=r"got \(1, 3, 2\) and \(1, 4\)"):
        pool(STATES, torch.ones(1, 4), pooling="mean")
    with pytest.raises(ValueError, match=r"rows \[1\] have no real token"):
        pool(STATES.repeat(2, 1, 1), torch.tensor([[1, 1, 1], [0, 0, 0]]), pooling="mean")


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("how", POOLINGS)
@given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=8), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=25)
def test_texts_in_a_row_pool_as_texts_on_their_own(how, normalize, lengths, seed):
    states = torch.randn(sum(lengths), 3, generator=torch.Generator().manual_seed(seed))
    limits = torch.tensor([0, *lengths]).cumsum(0).int()
    alone = [
        pool(part.unsqueeze(0), torch.ones(1, len(part)), pooling=how, normalize=normalize)
        for part in states.split(lengths)
    ]
    together = pool_segments(states, limits, pooling=how, normalize=normalize)
    assert_close(together, torch.cat(alone))


@pytest.mark.parametrize("how", POOLINGS)
@pytest.mark.parametrize("length", [1, 17, 256, 257, 512, 1024])
def test_a_text_has_the_same_bits_alone_in_a_batch_and_on_any_number_of_threads(how, length):
    states = torch.randn(4, length, 384, generator=torch.Generator().manual_seed(length))
    mask = torch.ones(4, length, dtype=torch.long)
    before, vectors = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            vectors.append(pool(states, mask, pooling=how))
            alone = [pool(each[None].clone(), mask[:1], pooling=how) for each in states]
            vectors.append(torch.cat(alone))
    finally:
        torch.set_num_threads(before)
    for other in vectors[1:]:
        assert torch.equal(other, vectors[0])


def test_a_new_pooling_is_one_entry(monkeypatch, make_checkpoint, tmp_path):
    """Its weights are used wherever a pooling is named: in batches, in packed texts, by models."""
    entry = example("POOLINGS[")
    poolings = dict(POOLINGS)
    exec(entry, {"POOLINGS": poolings, "Pooling": Pooling})  # noqa: S102 - our own text
    monkeypatch.setitem(POOLINGS, "last_two", poolings["last_two"])
    card = {"states": STATES, "mask": torch.ones(1, 3)}
    exec(POOLINGS["last_two"].code, card)  # noqa: S102 - our own text
    assert_close(card["vectors"], STATES[:, 1:].mean(1))
    packed = pool_segments(STATES[0], torch.tensor([0, 3]), pooling="last_two")
    assert_close(packed, STATES[:, 1:].mean(1))
    folder = make_checkpoint(tmp_path / "m")
    vectors = {
        how: load_encoder(str(folder), pooling=how, cache=False).encode(["one two three four"])
        for how in ("last", "last_two")
    }
    assert vectors["last"].shape == vectors["last_two"].shape
    assert not np.allclose(vectors["last"], vectors["last_two"])
