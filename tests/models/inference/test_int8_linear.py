"""Linear layers in 8 bits: by hand, close to float32, and the same whoever the neighbours are."""

import numpy as np
import pytest
import torch
from helpers.tiny_models import PACKED, ROWS, build, runner

from qwen3nb.models.inference import int8_linear as int8
from qwen3nb.models.load import load_encoder
from qwen3nb.models.types import SpecError

vnni = pytest.mark.skipif(
    not int8.runs_in_int8(), reason="this processor has no VNNI, or PyTorch no products in 8 bits"
)


def test_codes_by_hand():
    """A range from -1 to 3: its middle is 1, its scale 2 / 127."""
    states = torch.tensor([[-1.0, 3.0, 1.0, 2.0], [5.0, 5.0, 5.0, 5.0]])
    codes, scales, middles = int8.to_codes(states)
    # 63.5 rounds to the even 64
    assert codes.tolist() == [[128 - 127, 128 + 127, 128, 128 + 64], [128] * 4]
    assert middles.flatten().tolist() == [1, 5]
    assert float(scales[0]) == pytest.approx(2 / 127)


@vnni
@pytest.mark.parametrize("activation", ["none", "silu", "gelu", "gelu_tanh"])
def test_a_layer_is_what_numpy_computes_in_integers(activation):
    random = np.random.default_rng(0)
    states = random.normal(size=(7, 24)).astype(np.float32)
    states[2, 5] = 40  # an outlier
    weight, bias = random.normal(size=(10, 24)), random.normal(size=10)
    layer = int8.Int8Linear(torch.tensor(weight).float(), torch.tensor(bias).float())
    layer.activation = activation
    low, high = states.min(1, keepdims=True), states.max(1, keepdims=True)
    middle, scale = (low + high) / 2, (high - low) / 254
    per_output = np.abs(weight).max(1) / 127
    codes = np.rint((states - middle) / scale).astype(int)
    weights = np.rint(weight / per_output[:, None]).astype(int)
    expected = (codes @ weights.T * scale + middle * weights.sum(1)) * per_output + bias
    known = {"none": lambda x: x, "silu": torch.nn.functional.silu, "gelu": torch.nn.GELU()}
    known["gelu_tanh"] = torch.nn.GELU("tanh")
    expected = known[activation](torch.tensor(expected)).numpy()
    with torch.inference_mode():
        out = layer(torch.tensor(states)).numpy()
        np.testing.assert_allclose(out, expected, atol=1e-4, rtol=1e-5)
        if activation == "none":
            other = torch.tensor(random.normal(size=out.shape)).float()
            np.testing.assert_array_equal(
                layer(torch.tensor(states), times=other).numpy(), out * other.numpy()
            )


@vnni
@pytest.mark.parametrize("name", PACKED)
def test_vectors_are_close_to_float32_and_do_not_depend_on_their_neighbours(name):
    model = runner(name, linear="int8")
    vectors = model.vectors(ROWS)
    exact = runner(name).vectors(ROWS)
    assert (vectors * exact).sum(1).min() > 0.99
    assert not np.array_equal(vectors, exact)
    for start in range(len(ROWS)):
        rows = ROWS[start:] + ROWS[:start]
        np.testing.assert_array_equal(model.vectors(rows), np.roll(vectors, -start, axis=0))
    alone = np.concatenate([model.vectors([row]) for row in ROWS])
    np.testing.assert_array_equal(alone, vectors)


def test_what_cannot_run_says_why(monkeypatch):
    with monkeypatch.context() as patch:  # on a processor that could
        patch.setattr(int8, "runs_in_int8", lambda: True)
        with pytest.raises(SpecError, match="models that run packed .*, not ElectraModel: choose"):
            runner("unknown architecture", linear="int8")
    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: False)
    int8.runs_in_int8.cache_clear()
    with pytest.raises(SpecError, match="int8 needs a CPU with VNNI.*float32 or bfloat16"):
        runner("bert", linear="int8")
    int8.runs_in_int8.cache_clear()
    with pytest.raises(SpecError, match="int8 is for CPUs, not meta: choose device 'cpu'"):
        int8.quantize(build("bert").to("meta"))


@vnni
@pytest.mark.integration
def test_a_real_model_stays_close_and_has_its_own_identity():
    texts = [
        "How long does a transfer take?",
        "A man is playing a guitar on stage.",
        "The laminar boundary layer over a flat plate is solved by a series in powers of the "
        "distance from the leading edge, and the skin friction is compared with experiment. " * 4,
    ]
    options = {"device": "cpu", "cache": False, "show_progress": False}
    loaded = [
        load_encoder("all-MiniLM-L6-v2", dtype=dtype, **options)
        for dtype in ("float32", "bfloat16", "int8", "int8")
    ]
    exact, _, vectors, again = (each.encode(texts) for each in loaded)
    assert (vectors * exact).sum(1).min() > 0.998
    np.testing.assert_array_equal(vectors, again)
    assert len({each.identity for each in loaded}) == 3
    assert [each.label.removeprefix("all-MiniLM-L6-v2") for each in loaded[1:3]] == ["", "-int8"]
    with pytest.raises(SpecError, match="is a table of vectors; int8 is for linear layers"):
        load_encoder("wordllama", dtype="int8", **options)


@vnni
@pytest.mark.parametrize("name", ["bert", "roberta", "xlm-roberta"])
def test_fixed_ranges_are_as_close_and_cut_what_leaves_them(name):
    exact = runner(name).vectors(ROWS)
    own = runner(name, linear="int8", examples=ROWS)
    assert not any(type(each) is torch.nn.GELU for each in own.model.modules())
    vectors = own.vectors(ROWS)
    assert (vectors * exact).sum(1).min() > 0.99
    np.testing.assert_array_equal(own.vectors(ROWS[::-1]), vectors[::-1])
    np.testing.assert_array_equal(np.concatenate([own.vectors([row]) for row in ROWS]), vectors)
    narrow = runner(name, linear="int8", examples=[[3, 3]]).vectors(ROWS)
    assert np.isfinite(narrow).all()
    assert (narrow * exact).sum(1).min() < (vectors * exact).sum(1).min()
