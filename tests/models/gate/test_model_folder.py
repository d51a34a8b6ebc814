"""No malformed folder is loaded as something else: it is refused by name, or changes nothing."""

import re
import shutil

import numpy as np
import pytest
import torch
from helpers.archetypes import edit
from helpers.checkpoints import without_checksums
from helpers.malformed_models import (
    FAMILY_OF,
    OF_BERT,
    PLAIN,
    ROWS,
    drop,
    pick,
    vectors,
    write_model,
)
from safetensors.torch import load_file, save_file

from qwen3nb.models.gate.weights import check_finite
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.load import load_encoder
from qwen3nb.models.rerankers import load_reranker
from qwen3nb.models.types import CheckpointError


@pytest.fixture(scope="module")
def models(tmp_path_factory, tokenizer_folder, checkpoint, encoder_folder):
    """A folder per kind of model, not to be changed, with its vectors."""
    root = tmp_path_factory.mktemp("kinds")
    encoder = without_checksums(shutil.copytree(encoder_folder, root / "encoder"))
    folders = {"seq2seq": checkpoint, "encoder": encoder}
    for kind in (*FAMILY_OF, *PLAIN, "reranker"):
        folders[kind] = write_model(kind, root / kind, tokenizer_folder)
    return {kind: (folder, vectors(kind, folder)) for kind, folder in folders.items()}


@pytest.mark.integration
@pytest.mark.parametrize(("kind", "name"), ROWS)
def test_a_malformed_folder_is_refused_or_changes_nothing(models, tmp_path, kind, name):
    whole, expected = models[kind]
    folder = shutil.copytree(whole, tmp_path / "model")
    damage, refusal = OF_BERT[name]
    damage(folder)
    try:
        came = vectors(kind, folder)
    except ValueError as error:
        text = str(error)
        assert re.search(refusal or "", text), text
        assert str(folder) in text or ".json" in text
        assert "\n" not in text
        assert len(text) < 1_000
    else:
        assert refusal is None or kind != "bert"
        np.testing.assert_array_equal(came, expected)


@pytest.fixture
def broken(models, tmp_path):
    """A copy of a model to change."""

    def make(kind, change):
        folder = shutil.copytree(models[kind][0], tmp_path / "broken")
        change(folder)
        return folder

    return make


def check(folder, *, causal=False):
    source = find_source(str(folder))
    (source.kind.check_causal if causal else source.kind.check)(source)


def test_only_weights_that_no_vector_depends_on_may_be_absent(broken, models):
    folder = broken("bert", drop(pick(r"^pooler\.")))
    np.testing.assert_array_equal(vectors("bert", folder), models["bert"][1])
    # As soon as the model's files say that the pooler is used, it must be there.
    uses = {"text": {"method": "forward", "method_output_name": "pooler_output"}}
    more = {"modality_config": uses, "module_output_name": "token_embeddings"}
    edit(folder, "sentence_bert_config.json", **more)
    with pytest.raises(CheckpointError, match=r"pooler\.dense\.bias: missing"):
        check(folder)


@pytest.mark.parametrize(("kind", "positions"), [("bert", 80), ("xlm-roberta", 78)])
def test_a_length_beyond_the_learned_positions_is_refused(models, kind, positions):
    folder, _ = models[kind]
    encoder = load_encoder(folder, max_length=positions, cache=False)
    assert np.isfinite(encoder.encode("word " * 200)).all()
    with pytest.raises(CheckpointError, match=f"max_length is .*; expected at most {positions},"):
        load_encoder(folder, max_length=positions + 1, cache=False)


def test_the_output_matrix_is_needed_where_it_is_used_and_not_tied(broken):
    folder = broken("reranker", drop(pick(r"lm_head\.weight")))
    check(folder)
    with pytest.raises(CheckpointError, match=r"lm_head\.weight: missing"):
        check(folder, causal=True)
    edit(folder, "config.json", tie_word_embeddings=True)
    check(folder, causal=True)


@pytest.mark.parametrize("kind", ["llama", "bert"])
def test_code_in_a_folder_is_never_run(broken, tmp_path, kind):
    def change(folder):
        names = {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}
        edit(folder, "config.json", auto_map=names, model_type="evil")
        (folder / "evil.py").write_text(f"open({str(tmp_path / 'run')!r}, 'w').close()")

    with pytest.raises(CheckpointError, match="code in the folder .* is never run"):
        vectors(kind, broken(kind, change))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_weights_that_are_not_finite_are_named(dtype, tmp_path):
    def check_numbers(*numbers):
        layer = torch.nn.Linear(len(numbers), 1, bias=False, dtype=dtype)
        layer.weight.data[0] = torch.tensor(numbers)
        check_finite(layer, tmp_path)

    largest = torch.finfo(dtype).max
    check_numbers(largest, largest)  # finite, although their sum is not
    infinity = float("inf")
    for numbers in ((float("nan"),), (1.0, infinity), (infinity, -infinity)):
        with pytest.raises(CheckpointError, match="weight contains NaN or infinity"):
            check_numbers(*numbers)


LAYERS = ("layers.0", "layer.0", "block.0")


@pytest.mark.parametrize("value", [0.0, 0.5])
@pytest.mark.parametrize("kind", ["seq2seq", "encoder", "bert", "llama", "t5", "reranker"])
def test_a_layer_of_one_value_is_warned_of_wherever_it_is_loaded(
    models, tmp_path, caplog, kind, value
):
    folder = shutil.copytree(models[kind][0], tmp_path / "model")
    assert not warned(caplog, kind, folder)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    names = [name for name in tensors if any(layer in name for layer in LAYERS)]
    constant = [name for name in names if tensors[name].ndim > 1 and "decoder" not in name]
    for name in constant:
        tensors[name] = torch.full_like(tensors[name], value)
    save_file(tensors, file, metadata={"format": "pt"})
    assert f"({len(constant)} such matrices)" in warned(caplog, kind, folder)


def warned(caplog, kind, folder):
    """Return the warning of constant matrices when a model is loaded; empty without one."""
    caplog.clear()
    if kind == "reranker":
        load_reranker(folder, device="cpu")
    else:
        pooling = "mean" if kind in PLAIN else None
        load_encoder(folder, pooling=pooling, cache=False, device="cpu")
    texts = [text for text in caplog.messages if "its values are all equal" in text]
    assert len(texts) < 2
    return texts[0] if texts else ""


def test_a_matrix_with_a_zeroed_part_is_warned_of(models, tmp_path, caplog):
    folder = shutil.copytree(models["bert"][0], tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    name = next(name for name in tensors if name.endswith("word_embeddings.weight"))
    tensors[name][: int(0.3 * len(tensors[name]))] = 0
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    assert "word_embeddings.weight" in warned(caplog, "bert", folder)
