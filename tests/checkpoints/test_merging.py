"""Merges of checkpoints, against plain computations in numpy."""

import hashlib
import json

import numpy as np
import pytest
import torch
from helpers.checkpoints import folder_with
from safetensors.torch import load_file

from qwen3nb.checkpoints import writer
from qwen3nb.checkpoints.averaging import average_checkpoints, select_checkpoints
from qwen3nb.checkpoints.types import CheckpointError

SHAPES = {"a.weight": (37, 11), "b.weight": (5, 3, 2), "norm": (23,)}
# One unit in the last place, relative to the value.
ROUNDING = {torch.float32: 2.0**-23, torch.bfloat16: 2.0**-7, torch.float64: 2.0**-50}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Let tensors of a test have several blocks."""
    monkeypatch.setattr(writer, "_VALUES_AT_ONCE", 64)


def models(folder, count, *, dtype=torch.float32, seed=0, spread=0.3):
    """Return folders of models near one base, and the base as the last."""
    generator = torch.Generator().manual_seed(seed)
    base = {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}
    folders = []
    for index in range(count + 1):
        tensors = {}
        for name, value in base.items():
            change = spread * torch.randn(value.shape, generator=generator)
            is_base = index == count
            tensors[name] = (value if is_base else value + change).to(dtype)
        folders.append(folder_with(folder / f"model-{index}", tensors))
    return folders


def arrays(folder):
    tensors = load_file(folder / "model.safetensors")
    return {name: value.double().numpy() for name, value in tensors.items()}


def assert_equal_to_rounding(merged, expected, dtype):
    tensors = load_file(merged / "model.safetensors")
    assert tensors.keys() == expected.keys()
    for name, value in tensors.items():
        assert value.dtype == dtype
        np.testing.assert_allclose(
            value.double().numpy(), expected[name], rtol=ROUNDING[dtype], atol=1e-12, err_msg=name
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_weighted_mean(tmp_path, dtype):
    folders = models(tmp_path, 3, dtype=dtype)[:3]
    merged = average_checkpoints(folders, tmp_path / "out", weights=[5, 3, 2])
    sources = [arrays(folder) for folder in folders]
    expected = {}
    for name in SHAPES:
        expected[name] = sum(w * s[name] for w, s in zip([0.5, 0.3, 0.2], sources, strict=True))
    assert_equal_to_rounding(merged, expected, dtype)


def slerp(a, b, share):
    cosine = (a * b).sum() / np.linalg.norm(a) / np.linalg.norm(b)
    angle = np.arccos(cosine)
    return (np.sin((1 - share) * angle) * a + np.sin(share * angle) * b) / np.sin(angle)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_slerp_of_three_is_that_of_the_first_two_with_the_third(tmp_path, dtype):
    folders = models(tmp_path, 3, dtype=dtype)[:3]
    merged = average_checkpoints(
        folders, tmp_path / "out", method="slerp", weights=[0.5, 0.25, 0.25]
    )
    a, b, c = (arrays(folder) for folder in folders)
    expected = {name: slerp(slerp(a[name], b[name], 1 / 3), c[name], 1 / 4) for name in SHAPES}
    assert_equal_to_rounding(merged, expected, dtype)


@pytest.mark.parametrize("weights", [(1e308, 1e308), (5e-324, 5e-324)])
@pytest.mark.parametrize("method", ["mean", "slerp"])
def test_weights_of_any_size_count_by_their_ratio(tmp_path, method, weights):
    folders = models(tmp_path, 2)[:2]
    expected = average_checkpoints(folders, tmp_path / "expected", method=method, weights=[1, 1])
    merged = average_checkpoints(folders, tmp_path / "out", method=method, weights=weights)
    assert arrays(merged)["norm"].any()
    for name, values in arrays(expected).items():
        np.testing.assert_array_equal(arrays(merged)[name], values)


def test_slerp_between_unit_vectors_by_hand(tmp_path):
    a = folder_with(tmp_path / "a", {"w": torch.tensor([1.0, 0.0])})
    b = folder_with(tmp_path / "b", {"w": torch.tensor([0.0, 1.0])})
    merged = average_checkpoints([a, b], tmp_path / "out", method="slerp", weights=[2, 1])
    # A third of the way along a quarter of a circle: 30 degrees.
    assert arrays(merged)["w"] == pytest.approx([np.sqrt(3) / 2, 0.5], rel=1e-7)


@pytest.mark.parametrize("factor", [1.0, 1 + 1e-6, 2.0])
def test_slerp_of_equal_directions_is_the_mean(tmp_path, factor):
    values = torch.randn(9, generator=torch.Generator().manual_seed(1))
    a = folder_with(tmp_path / "a", {"w": values})
    b = folder_with(tmp_path / "b", {"w": values * factor})
    merged = average_checkpoints([a, b], tmp_path / "out", method="slerp")
    expected = (arrays(a)["w"] + arrays(b)["w"]) / 2
    assert arrays(merged)["w"] == pytest.approx(expected, rel=1e-6)


def test_slerp_refuses_opposite_directions_by_the_tensors_name(tmp_path):
    a = folder_with(tmp_path / "a", {"w": torch.ones(4)})
    b = folder_with(tmp_path / "b", {"w": -torch.ones(4)})
    with pytest.raises(CheckpointError, match=r"b.model.safetensors: w points away"):
        average_checkpoints([a, b], tmp_path / "out", method="slerp")
    assert not (tmp_path / "out").exists()


def ties(changes, weights, density):
    trimmed = []
    for change in changes:
        flat = np.abs(change).ravel()
        threshold = np.sort(flat)[::-1][int(density * flat.size) - 1]
        trimmed.append(np.where(np.abs(change) >= threshold, change, 0))
    weighted = np.array([w * change for w, change in zip(weights, trimmed, strict=True)])
    sign = np.where(weighted.sum(0) >= 0, 1, -1)
    agrees = np.sign(trimmed) == sign
    weight = sum(w * agree for w, agree in zip(weights, agrees, strict=True))
    total = (weighted * agrees).sum(0)
    return np.divide(total, weight, out=np.zeros_like(total), where=weight > 0)


@pytest.mark.parametrize("density", [0.1, 0.2, 0.77, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_ties(tmp_path, dtype, density):
    *folders, base = models(tmp_path, 3, dtype=dtype)
    weights = [0.5, 0.3, 0.2]
    merged = average_checkpoints(
        folders,
        tmp_path / "out",
        method="ties",
        weights=weights,
        base=base,
        density=density,
        scale=0.8,
    )
    before = arrays(base)
    sources = [arrays(folder) for folder in folders]
    expected = {}
    for name in SHAPES:
        changes = [source[name] - before[name] for source in sources]
        expected[name] = before[name] + 0.8 * ties(changes, weights, density)
    assert_equal_to_rounding(merged, expected, dtype)


def test_ties_equals_peft_with_equal_weights(tmp_path):
    from peft.utils.merge_utils import ties as peft_ties

    *folders, base = models(tmp_path, 4)
    merged = average_checkpoints(folders, tmp_path / "out", method="ties", base=base, density=0.3)
    before = arrays(base)
    for name, value in arrays(merged).items():
        changes = [torch.from_numpy(arrays(folder)[name] - before[name]) for folder in folders]
        expected = peft_ties(changes, torch.ones(4), 0.3).numpy() + before[name]
        np.testing.assert_allclose(value, expected, rtol=2e-7, atol=1e-7)


def test_a_density_that_keeps_nothing_gives_the_base(tmp_path):
    base = folder_with(tmp_path / "base", {"w": torch.zeros(3)})
    other = folder_with(tmp_path / "a", {"w": torch.ones(3)})
    merged = average_checkpoints([other], tmp_path / "out", method="ties", base=base, density=0.2)
    assert arrays(merged)["w"].tolist() == [0, 0, 0]


def mask(seed, index, name, count, density):
    digest = hashlib.sha256(f"{seed}\0{index}\0{name}".encode()).digest()
    generator = np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))
    return generator.random(count) < density


def test_dare_has_the_documented_mask(tmp_path):
    *folders, base = models(tmp_path, 2)
    merged = average_checkpoints(
        folders, tmp_path / "out", method="dare", base=base, density=0.4, seed=7, weights=[3, 1]
    )
    before = arrays(base)
    expected = {}
    for name, shape in SHAPES.items():
        expected[name] = before[name].copy()
        for index, (folder, weight) in enumerate(zip(folders, [0.75, 0.25], strict=True)):
            stays = mask(7, index, name, np.prod(shape), 0.4).reshape(shape)
            change = arrays(folder)[name] - before[name]
            expected[name] += weight * stays * change / 0.4
    assert_equal_to_rounding(merged, expected, torch.float32)


def test_blocks_of_another_size_give_the_same_bytes(tmp_path, monkeypatch):
    *folders, base = models(tmp_path, 2)
    for method in ("ties", "dare"):
        small = average_checkpoints(folders, tmp_path / "small", method=method, base=base)
        with monkeypatch.context() as patch:
            patch.setattr(writer, "_VALUES_AT_ONCE", 1 << 18)
            large = average_checkpoints(folders, tmp_path / "large", method=method, base=base)
        weights = [folder.joinpath("model.safetensors").read_bytes() for folder in (small, large)]
        assert weights[0] == weights[1]


def test_the_metadata_say_how_models_were_merged(tmp_path):
    *folders, base = models(tmp_path, 2)
    merged = average_checkpoints(
        folders, tmp_path / "out", method="dare", base=base, weights=[3, 1], seed=5
    )
    fields = json.loads((merged / "averaging_metadata.json").read_text())["merge"]
    assert fields["method"] == "dare"
    assert fields["weights"] == [0.75, 0.25]
    assert fields["seed"] == 5
    assert fields["base"] == "model-2"
    assert len(fields["base_digest"]) == 64


def test_checkpoints_of_one_name_are_told_apart_in_the_metadata(tmp_path):
    first, second = tmp_path / "a" / "checkpoint-9", tmp_path / "b" / "checkpoint-9"
    for folder, value in ((first, 1.0), (second, 2.0)):
        folder_with(folder, {"w": torch.full((2,), value)})
    merged = average_checkpoints([first, second], tmp_path / "out")
    fields = json.loads((merged / "averaging_metadata.json").read_text())
    assert fields["averaged_from"] == ["a/checkpoint-9", "b/checkpoint-9"]
    assert len(set(fields["digests"].values())) == 2


def test_weights_by_metric_favour_the_lower_loss(tmp_path, make_checkpoint):
    for step, loss in ((10, 2.0), (20, 1.0)):
        make_checkpoint(tmp_path / f"checkpoint-{step}", seed=step, eval_loss=loss)
    selection = select_checkpoints(tmp_path, best=2)
    assert [path.name for path in selection.folders] == ["checkpoint-10", "checkpoint-20"]
    assert selection.weights_by_metric() == (0.5, 1.0)
    with pytest.raises(ValueError, match="not by a metric"):
        select_checkpoints(tmp_path, last=2).weights_by_metric()


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ({"method": "soup"}, "unknown method 'soup'"),
        ({"method": "ties"}, "name it: --base FOLDER"),
        ({"method": "dare"}, "name it: --base FOLDER"),
        ({"method": "slerp", "density": 0.5}, "'slerp' has none"),
        ({"density": 1.5}, "above 0 and at most 1"),
        ({"weights": [1]}, "1 weights for 2 models"),
        ({"weights": [1, 0]}, "a weight is 0"),
        ({"weights": [1e-320, 1e308]}, "the weight 1e-320 is nothing next to 1e"),
        ({"weights": [1e-320, 1]}, "the weight 1e-320 is nothing next to 1"),
        ({"weights": [1, float("nan")]}, "a weight is nan"),
        ({"base": "model-2"}, "'mean' has no base"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tmp_path, options, cause):
    folders = models(tmp_path, 2)[:2]
    if "base" in options:
        options = {**options, "base": tmp_path / options["base"]}
    with pytest.raises(ValueError, match=cause):
        average_checkpoints(folders, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("method", ["mean", "slerp", "ties", "dare"])
def test_a_value_that_is_not_finite_is_refused_by_name(tmp_path, method):
    *folders, base = models(tmp_path, 1)
    tensors = load_file(folders[0] / "model.safetensors")
    tensors["norm"][3] = float("nan")
    broken = folder_with(tmp_path / "broken", tensors)
    options = {"base": base} if method in ("ties", "dare") else {}
    with pytest.raises(CheckpointError, match="norm contains NaN"):
        average_checkpoints(
            [folders[0], broken], tmp_path / "out", method=method, weights=[1, 2], **options
        )


def test_counters_that_are_equal_are_copied_in_a_merge(tmp_path):
    folders = []
    for index, value in enumerate((1.0, 2.0, 0.0)):
        tensors = {"w": torch.full((2, 2), value), "steps": torch.tensor([7])}
        folders.append(folder_with(tmp_path / str(index), tensors))
    *others, base = folders
    merged = average_checkpoints(others, tmp_path / "out", method="ties", base=base, density=1)
    tensors = load_file(merged / "model.safetensors")
    assert tensors["steps"].tolist() == [7]
    assert tensors["w"].tolist() == [[1.5, 1.5], [1.5, 1.5]]


STOCK = {"model_type": "qwen3", "tie_word_embeddings": True, "rope_theta": 1e6}


def stock(folder, tensors, **settings):
    """Write a model whose head is its embedding, as two tensors."""
    folder_with(folder, tensors)
    (folder / "config.json").write_text(json.dumps(STOCK | settings))
    return folder


def tied(generator):
    embedding = torch.randn(40, 8, generator=generator)
    return {"model.embed_tokens.weight": embedding, "lm_head.weight": embedding.clone()}


def test_a_tied_head_stays_tied_though_dare_drops_by_name(tmp_path):
    generator = torch.Generator().manual_seed(0)
    folders = [stock(tmp_path / str(place), tied(generator)) for place in range(3)]
    merged = average_checkpoints(folders[:2], tmp_path / "out", method="dare", base=folders[2])
    assert set(load_file(merged / "model.safetensors")) == {"model.embed_tokens.weight"}
    # A model that stores it once has the same tensors.
    once = stock(tmp_path / "once", {"model.embed_tokens.weight": torch.ones(40, 8)})
    average_checkpoints([folders[0], once], tmp_path / "mean")


def test_tied_copies_that_differ_are_refused_by_file_and_name(tmp_path):
    tensors = tied(torch.Generator().manual_seed(0))
    tensors["lm_head.weight"] += 1
    folder = stock(tmp_path / "a", tensors)
    with pytest.raises(
        CheckpointError, match=r"a.model\.safetensors: lm_head.weight and .* differ"
    ):
        average_checkpoints([folder], tmp_path / "out")
    untied = stock(tmp_path / "b", tensors, tie_word_embeddings=False)
    merged = average_checkpoints([untied], tmp_path / "untied")
    assert set(load_file(merged / "model.safetensors")) == set(tensors)


def test_the_stacks_of_t5gemma_keep_their_own_embeddings(tmp_path):
    tensors = {
        "model.encoder.embed_tokens.weight": torch.zeros(6, 2),
        "model.decoder.embed_tokens.weight": torch.ones(6, 2),
        "lm_head.out_proj.weight": torch.ones(6, 2),
    }
    folder = stock(tmp_path / "a", tensors, model_type="t5gemma")
    merged = average_checkpoints([folder], tmp_path / "out")
    assert load_file(merged / "model.safetensors").keys() == set(tensors) - {
        "lm_head.out_proj.weight"
    }


def test_a_base_may_have_another_float_dtype_and_release(tmp_path):
    folders = models(tmp_path, 3)
    *trained, base = folders
    settings = {"bos_token_id": 7, "use_cache": True, "rope_theta": 1e6, "layer_types": None}
    written = {"rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}, "use_cache": False}
    for folder in trained:
        written["layer_types"] = ["full_attention"]
        (folder / "config.json").write_text(json.dumps(written))
        (folder / "tokenizer.json").write_text('{"truncation": {"max": 9}, "model": {"a": 1}}')
    stored = {
        name: value.bfloat16() for name, value in load_file(base / "model.safetensors").items()
    }
    base = folder_with(tmp_path / "published", stored)
    (base / "config.json").write_text(json.dumps(settings))
    (base / "tokenizer.json").write_text('{"model":\n {"a": 1}}')
    merged = average_checkpoints(trained, tmp_path / "out", method="ties", base=base, density=0.5)
    weights = np.full(3, 1 / 3)
    for name, value in arrays(merged).items():
        start = stored[name].double().numpy()
        changes = np.stack([arrays(folder)[name] - start for folder in trained])
        expected = start + ties(changes, weights, 0.5)
        np.testing.assert_allclose(value, expected, rtol=1e-6, atol=1e-7, err_msg=name)
    (base / "tokenizer.json").write_text('{"model": {"b": 1}}')
    with pytest.raises(CheckpointError, match=r"tokenizer\.json differs"):
        average_checkpoints(trained, tmp_path / "no", method="ties", base=base)


def test_a_base_that_is_also_merged_is_refused(tmp_path):
    first, second, base = models(tmp_path, 2)
    with pytest.raises(CheckpointError, match="is the base and one of the models"):
        average_checkpoints([first, base], tmp_path / "out", method="ties", base=base)
    larger = folder_with(tmp_path / "larger", {"a.weight": torch.ones(2)})
    with pytest.raises(CheckpointError, match=r"b\.weight is in only one of them, in .*model-0"):
        average_checkpoints([first, larger], tmp_path / "out")
    del second


def test_blocks_of_many_models_together_are_no_larger_than_those_of_two(tmp_path, monkeypatch):
    """A merge holds several copies of all blocks in float64, in each of four threads."""
    sizes = []

    def for_tensor(self, tensor):
        del self, tensor

        def combine(blocks):
            sizes.append(sum(len(block) for block in blocks))
            return blocks[0]

        return combine

    monkeypatch.setattr("qwen3nb.checkpoints.merging.Slerp.for_tensor", for_tensor)
    average_checkpoints(models(tmp_path, 8), tmp_path / "out", method="slerp")
    assert max(sizes) <= 2 * 64
