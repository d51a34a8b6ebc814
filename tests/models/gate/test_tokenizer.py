"""A tokenizer that does not fit its model is refused in one line, before a library loads it."""

import json
import shutil

import pytest
from helpers import malformed_files as malformed
from helpers.checkpoints import without_checksums
from helpers.sentence_models import write_sentence_bert
from tokenizers import Tokenizer, models

from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.extraction.extract import extract_encoder
from qwen3nb.models.gate.tokenizer import (
    check_loaded,
    check_modules,
    check_tokenizer,
    read_vocabulary,
    rust_tokenizer,
)
from qwen3nb.models.load import load_encoder
from qwen3nb.models.modeling.runtime import load_tokenizer
from qwen3nb.models.types import SpecError

ROWS = 448


@pytest.fixture
def folder(tokenizer_folder, tmp_path):
    return shutil.copytree(tokenizer_folder, tmp_path / "model")


# Only the library that builds the tokenizer can tell.
BY_LIBRARY = {
    "a model of an unknown type", "an unknown post-processor", "merges of unknown tokens",
}  # fmt: skip


def test_a_good_tokenizer_passes(folder):
    check_tokenizer(folder, rows=ROWS, config={"eos_token_id": [1, 2], "pad_token_id": None})
    vocabulary = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab()
    assert read_vocabulary(folder) == vocabulary
    (folder / "tokenizer.json").unlink()  # the older files hold the same, without added tokens
    slow = read_vocabulary(folder)
    assert slow.items() <= vocabulary.items()
    assert len(slow) == 300


@pytest.mark.parametrize("case", sorted(malformed.TOKENIZERS.keys() - BY_LIBRARY))
def test_a_malformed_tokenizer_is_refused_by_its_files(folder, case):
    malformed.TOKENIZERS[case](folder)
    with pytest.raises(CheckpointError) as raised:
        check_tokenizer(folder, rows=ROWS)
    assert str(raised.value).startswith(str(folder))
    assert "\n" not in str(raised.value)
    assert not (folder.parent / "hacked").exists()


@pytest.mark.parametrize("case", sorted(BY_LIBRARY))
def test_what_only_the_library_can_tell_is_refused_in_one_line(folder, case):
    from transformers import Qwen3Config

    malformed.TOKENIZERS[case](folder)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: not a valid tokenizer"):
        rust_tokenizer(folder / "tokenizer.json")
    with pytest.raises(SpecError, match=r"^[^\n]*the tokenizer cannot be loaded[^\n]*$"):
        load_tokenizer(folder, Qwen3Config(vocab_size=ROWS))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"eos_token_id": ROWS}, "eos_token_id is 448, but the embedding has 448 rows"),
        ({"pad_token_id": "0"}, "pad_token_id is '0'"),
        ({"eos_token_id": [1, 9999]}, "eos_token_id is 9999"),
        ({"bos_token_id": -5}, "bos_token_id is -5"),
    ],
)
def test_special_ids_of_the_configuration_lie_within_the_embedding(folder, config, message):
    with pytest.raises(CheckpointError, match=message):
        check_tokenizer(folder, rows=ROWS, config=config)


def test_other_formats(tmp_path):
    pieces = [("<unk>", 0.0), ("a", -1.0), ("b", -2.0)]
    Tokenizer(models.Unigram(pieces, 0)).save(str(tmp_path / "tokenizer.json"))
    assert read_vocabulary(tmp_path) == {"<unk>": 0, "a": 1, "b": 2}
    with pytest.raises(CheckpointError, match=r"id 2 \('b'\), but the embedding has only 2 rows"):
        check_tokenizer(tmp_path, rows=2)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\nword\n")
    (tmp_path / "added_tokens.json").write_text('{"more": 7}')
    assert read_vocabulary(tmp_path) == {"[PAD]": 0, "[UNK]": 1, "word": 2, "more": 7}
    (tmp_path / "vocab.txt").unlink()
    (tmp_path / "spiece.model").write_bytes(b"no protocol buffer")
    with pytest.raises(CheckpointError, match="the tokenizer cannot be loaded"):
        read_vocabulary(tmp_path)


def test_a_tokenizer_of_bytes_needs_no_file(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "ByT5Tokenizer"}')
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    check_tokenizer(tmp_path, rows=384)
    with pytest.raises(CheckpointError, match="the embedding has only 258 rows"):
        check_tokenizer(tmp_path, rows=258)


def test_a_token_that_a_library_adds_is_noticed(tmp_path):
    class Loaded:
        def get_vocab(self):
            return {"a": 0, "added": 5}

    check_loaded(Loaded(), rows=6, folder=tmp_path)
    with pytest.raises(CheckpointError, match=r"id 5 \('added'\)"):
        check_loaded(Loaded(), rows=5, folder=tmp_path)


def test_the_modules_of_sentence_transformers_have_their_own(tokenizer_folder, tmp_path):
    folder = tmp_path / "bert"
    write_sentence_bert(folder, tokenizer_folder)
    check_modules(folder)
    malformed.TOKENIZERS["a larger vocabulary"](folder)
    with pytest.raises(ValueError, match="the tokenizer belongs to another model"):
        load_encoder(folder, cache=False)


def test_an_export_without_its_template_is_refused(checkpoint, tmp_path):
    options = {"prefix": "[R]", "append_eos": True, "pooling": "last"}
    folder = extract_encoder(checkpoint, tmp_path / "export", **options).folder
    check_tokenizer(folder, rows=ROWS)
    shutil.copyfile(checkpoint / "tokenizer.json", folder / "tokenizer.json")
    with pytest.raises(CheckpointError, match="lacks the template of this export"):
        check_tokenizer(folder, rows=ROWS)
    without_checksums(folder)
    provenance = json.loads((folder / "qwen3nb.json").read_text())
    (folder / "qwen3nb.json").write_text(json.dumps({**provenance, "prefix": ""}))
    with pytest.raises(ValueError, match="lacks the template of this export"):
        load_encoder(folder, cache=False)


@pytest.mark.parametrize("case", ["no tokenizer at all", "a larger vocabulary"])
def test_nothing_is_written_for_a_tokenizer_of_another_model(checkpoint, tmp_path, case):
    folder = shutil.copytree(checkpoint, tmp_path / "model")
    malformed.TOKENIZERS[case](folder)
    with pytest.raises(CheckpointError):
        extract_encoder(folder, tmp_path / "export")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["home", "model"]
