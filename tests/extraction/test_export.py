"""The files of an export: what they say, how other libraries read them, and their checksums."""

import json
import os
import re
import runpy
import shutil
import sys

import numpy as np
import pytest
import torch
from helpers import TEXTS
from helpers.archetypes import edit
from helpers.checkpoints import without_checksums
from helpers.flips import flipped, flips, refusal
from helpers.tolerances import assert_close
from safetensors import safe_open
from sentence_transformers import SentenceTransformer
from transformers import AutoTokenizer

from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.extraction.export import ExportOptions
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.kinds.source import fingerprint
from qwen3nb.models.load import load_encoder
from qwen3nb.models.modeling.qwen3_encoder import Qwen3EncoderModel
from qwen3nb.models.modeling.qwen3_seq2seq import Qwen3ForSeq2SeqLM, Qwen3Seq2SeqConfig
from qwen3nb.models.types import SpecError
from qwen3nb.report.card import extract
from qwen3nb.utils.atomic_files import sha256_file, sha256_json


def json_of(folder, name):
    return json.loads((folder / name).read_text())


def test_the_export_describes_itself(encoder_folder, checkpoint, caplog):
    config = json_of(encoder_folder, "config.json")
    assert (config["model_type"], config["architectures"]) == ("qwen3", ["Qwen3Model"])
    assert (config["is_causal"], config["use_bidirectional_attention"]) == (False, True)
    assert config["rope_theta"] == config["rope_parameters"]["rope_theta"] == 10000.0
    assert json_of(encoder_folder, "tokenizer_config.json").get("padding_side") != "left"
    kinds = [m["type"].rpartition(".")[2] for m in json_of(encoder_folder, "modules.json")]
    assert kinds == ["Transformer", "Pooling", "Normalize"]
    provenance = json_of(encoder_folder, "qwen3nb.json")
    assert provenance["verification"]["max_difference"] <= 1e-5
    assert provenance["source"]["step"] == 10
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (encoder_folder / name).read_bytes() == (checkpoint / name).read_bytes()
    assert "transformers 5.2" in (encoder_folder / "README.md").read_text()
    # An identity by content must not depend on what was installed at extraction.
    needed = json_of(encoder_folder, "config_sentence_transformers.json")["__version__"]
    assert needed == {"sentence_transformers": "5.4.0", "transformers": "5.2.0"}
    SentenceTransformer(str(encoder_folder), device="cpu")
    assert "created with" not in caplog.text
    # transformers 4 loads "pt", "tf", "flax" and "mlx", and shows any other in its error.
    with safe_open(encoder_folder / "model.safetensors", "pt") as weights:
        assert re.search("transformers 5.2.* causal", weights.metadata()["format"])


def test_heads_that_do_not_make_up_the_hidden_size(tmp_path, checkpoint):
    """As in Qwen3-0.6B: 16 heads of 128 on a hidden size of 1024."""
    fields = json_of(checkpoint, "config.json")
    config = Qwen3Seq2SeqConfig(**fields | {"_head_dim": 24, "rope_theta": 12345.0})
    Qwen3ForSeq2SeqLM(config).save_pretrained(tmp_path / "wide")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(checkpoint / name, tmp_path / "wide" / name)
    done = extract(tmp_path / "wide", tmp_path / "out")
    written = json_of(done.folder, "config.json")
    assert (written["head_dim"], written["hidden_size"]) == (24, 32)
    assert (written["num_attention_heads"], written["rope_theta"]) == (4, 12345.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 10**25}, r"max_length is 10+; expected at most 1,000,000,000"),
        ({"max_length": 0}, r"expected a max_length of at least 1; got 0"),
        ({"prefix": "sort \udcff"}, r"expected a prefix that is valid Unicode; got 'sort \\udcff'"),
    ],
)
def test_options_that_no_tokenizer_takes_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ExportOptions(**options)


def test_a_prefix_and_an_end_token_surround_every_text(checkpoint, tmp_path):
    from tokenizers import Tokenizer

    options = {"prefix": "[R]", "append_eos": True, "pooling": "last", "max_length": 12}
    done = extract(checkpoint, tmp_path / "around", **options, prompts={"query": "find: "})
    plain = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    mode = plain.encode("[R]").ids
    end = plain.token_to_id("<|endoftext|>")
    long = " ".join(TEXTS)
    loaded = AutoTokenizer.from_pretrained(done.folder)
    assert loaded.model_max_length == 12
    assert loaded.padding_side == "left"  # transformers.js pools the last column of a batch
    for text in (TEXTS[0], "x", ""):
        row = loaded(text)["input_ids"]
        assert row == [*mode, *plain.encode(text).ids, end]
    cut = loaded(long, truncation=True, max_length=12)["input_ids"]
    assert cut == [*mode, *plain.encode(long).ids[: 11 - len(mode)], end]

    before = json_of(checkpoint, "tokenizer.json")
    after = json_of(done.folder, "tokenizer.json")
    assert {key for key in before if before[key] != after[key]} == {"post_processor"}
    texts = [*TEXTS, long, ""]
    theirs = SentenceTransformer(str(done.folder), device="cpu")
    ours = load_encoder(done.folder, cache=False)
    assert_close(ours.encode(texts), theirs.encode(texts))
    assert theirs.prompts["query"] == "find: "
    inside = load_encoder(
        checkpoint, pooling="last", prefix="[R]", append_eos=True, max_length=12, cache=False
    )
    np.testing.assert_array_equal(inside.encode(texts), ours.encode(texts))
    added = len(mode) + 1
    for length in (3, added):
        with pytest.raises(CheckpointError, match="leaves no room"):
            extract(checkpoint, tmp_path / "none", **options | {"max_length": length})
    one = extract(checkpoint, tmp_path / "one", **options | {"max_length": added + 1}).folder
    with pytest.raises(SpecError, match=f"adds {added} tokens to each; expected at least"):
        load_encoder(one, max_length=added, cache=False)
    vectors = load_encoder(one, cache=False).encode(["a", "b"])
    assert not np.allclose(vectors[0], vectors[1])


@pytest.fixture
def export(encoder_folder, tmp_path):
    return shutil.copytree(encoder_folder, tmp_path / "encoder")


@pytest.mark.integration
def test_the_script_in_the_export_detects_a_causal_run(export, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["check_encoder.py"])
    for causal, answers in ((False, ("bidirectional", ": match")), (True, ("CAUSAL", "MISMATCH"))):
        edit(export, "config.json", is_causal=causal)
        with pytest.raises(SystemExit) as done:
            runpy.run_path(str(export / "check_encoder.py"), run_name="__main__")
        assert done.value.code == causal
        printed = capsys.readouterr().out
        assert all(answer in printed for answer in answers)


def vectors_of(folder):
    return load_encoder(folder, cache=False, show_progress=False).encode(list(TEXTS))


def test_a_flipped_byte_in_an_export_is_refused_or_harmless(export):
    expected, refused = vectors_of(export), 0
    for flip in flips(export, count=40, leave_out=("README.md",)):
        with flipped(*flip):
            text = refusal(lambda: fingerprint(find_source(str(export))))
            if text is None:
                np.testing.assert_array_equal(vectors_of(export), expected)
            else:
                assert str(export) in text
                refused += 1
    assert refused > 35
    fingerprint(find_source(str(export)))


def test_what_was_written_is_compared_with_its_checksums(export):
    (export / "README.md").write_text("mine")  # which is the authors'
    load_encoder(export, cache=False)
    script = export / "check_encoder.py"
    script.write_text(script.read_text() + "#")
    pattern = rf"{script.name}: changed .* expected SHA-256 \w{{12}}…, got \w{{12}}…; extract or"
    with pytest.raises(CheckpointError, match=pattern):
        load_encoder(export, cache=False)
    script.unlink()
    load_encoder(export, cache=False)  # as our own downloads leave it out
    (export / "modules.json").unlink()
    with pytest.raises(CheckpointError, match=r"modules\.json: missing, but qwen3nb\.json lists"):
        load_encoder(export, cache=False)
    load_encoder(without_checksums(export), cache=False)


@pytest.mark.parametrize("name", ["../outside.json", "1_Pooling/../../outside.json"])
def test_a_name_outside_the_folder_is_refused_unread(export, name):
    (export.parent / "outside.json").write_text("{}")
    fields = json_of(export, "qwen3nb.json")
    fields["checksums"]["files"][name] = sha256_file(export.parent / "outside.json")
    del fields["checksums"]["self"]
    fields["checksums"]["self"] = sha256_json(fields)
    (export / "qwen3nb.json").write_text(json.dumps(fields))
    with pytest.raises(CheckpointError, match="expected files of its folder, got"):
        load_encoder(export, cache=False)


@pytest.mark.integration
def test_your_own_checkpoint(tmp_path):
    """TEST_CHECKPOINT=runs/ul2/checkpoint-9000 pytest tests/extraction -k own."""
    folder = os.environ.get("TEST_CHECKPOINT")
    if not folder:
        pytest.skip("set TEST_CHECKPOINT to the folder of an encoder-decoder checkpoint")
    done = extract(folder, tmp_path / "encoder")  # which compares it with its source
    names = "config.json tokenizer.json README.md modules.json 1_Pooling/config.json qwen3nb.json"
    assert [name for name in names.split() if not (done.folder / name).is_file()] == []
    assert done.max_difference < 1e-5
    hidden = json_of(done.folder, "config.json")["hidden_size"]
    model = Qwen3EncoderModel.from_pretrained(done.folder).eval()
    batch = AutoTokenizer.from_pretrained(done.folder)(TEXTS[0], return_tensors="pt")
    with torch.inference_mode():
        pooled = model(**batch).pooler_output
    assert pooled.shape == (1, hidden)
    assert pooled.norm().item() == pytest.approx(1, abs=1e-5)
    theirs = SentenceTransformer(str(done.folder), device="cpu").encode(list(TEXTS))
    assert_close(theirs, vectors_of(done.folder))
