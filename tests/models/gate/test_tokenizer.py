"""A tokenizer that does not fit its model is refused in one line, and runs no code."""

import shutil

import pytest
from helpers import malformed_files as malformed
from helpers.archetypes import write_sentence_bert
from tokenizers import Tokenizer, models
from transformers import Qwen3Config

from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.models.gate.tokenizer import check_loaded, check_tokenizer
from qwen3nb.models.load import load_encoder
from qwen3nb.models.modeling.runtime import load_tokenizer
from qwen3nb.models.types import SpecError

CONFIG = Qwen3Config(vocab_size=448)


@pytest.fixture
def folder(tokenizer_folder, tmp_path):
    return shutil.copytree(tokenizer_folder, tmp_path / "model")


def test_older_files_hold_the_same_tokenizer(folder):
    tokens = load_tokenizer(ModelFolder(folder), CONFIG).get_vocab()
    (folder / "tokenizer.json").unlink()
    assert load_tokenizer(ModelFolder(folder), CONFIG).get_vocab() == tokens


@pytest.mark.parametrize("case", malformed.TOKENIZERS)
def test_a_malformed_tokenizer_is_refused_in_one_line(folder, case):
    malformed.TOKENIZERS[case](folder)
    with pytest.raises(SpecError) as raised:
        load_tokenizer(ModelFolder(folder), CONFIG)
    assert str(raised.value).startswith(str(folder))
    assert "\n" not in str(raised.value)
    assert not (folder.parent / "hacked").exists()


def test_normalizers_that_hardly_lengthen_a_text_are_accepted(folder):
    blank = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    quote = {"type": "Replace", "pattern": {"String": "``"}, "content": '"'}
    dots = {"type": "Replace", "pattern": {"Regex": "…"}, "content": "..."}
    malformed.rust(normalizer={"type": "Sequence", "normalizers": [blank, quote, dots]})(folder)
    load_tokenizer(ModelFolder(folder), CONFIG)


def test_other_formats(tmp_path):
    folder = ModelFolder(tmp_path)
    tokenizer = Tokenizer(models.Unigram([("<unk>", 0.0), ("a", -1.0), ("b", -2.0)], 0))
    check_loaded(tokenizer, rows=3, folder=folder)
    with pytest.raises(CheckpointError, match=r"id 2 \('b'\), but the embedding has only 2 rows"):
        check_loaded(tokenizer, rows=2, folder=folder)
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "ByT5Tokenizer"}')
    check_tokenizer(folder)  # its tokens are bytes, so it needs no file
    (tmp_path / "vocab.txt").write_text("")
    with pytest.raises(CheckpointError, match=r"vocab\.txt: empty"):
        check_tokenizer(folder)


def test_the_modules_of_sentence_transformers_have_their_own(tokenizer_folder, tmp_path):
    folder = tmp_path / "bert"
    write_sentence_bert(folder, tokenizer_folder)
    malformed.TOKENIZERS["a larger vocabulary"](folder)
    with pytest.raises(ValueError, match="the tokenizer belongs to another model"):
        load_encoder(folder, cache=False)
