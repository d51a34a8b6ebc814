import json
import runpy
import shutil
import subprocess
import sys

import numpy as np
import pytest
from helpers import TEXTS
from safetensors import safe_open
from sentence_transformers import SentenceTransformer
from transformers import AutoTokenizer

from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.models.load import load_encoder
from qwen3nb.models.modeling.qwen3_seq2seq import Qwen3ForSeq2SeqLM, Qwen3Seq2SeqConfig
from qwen3nb.models.types import SpecError
from qwen3nb.report.card.card import extract


def json_of(folder, name):
    return json.loads((folder / name).read_text())


def test_the_export_describes_itself(encoder_folder, checkpoint, caplog):
    config = json_of(encoder_folder, "config.json")
    assert config["model_type"] == "qwen3"
    assert config["is_causal"] is False
    assert config["use_bidirectional_attention"] is True
    assert config["rope_theta"] == config["rope_parameters"]["rope_theta"] == 10000.0
    assert config["architectures"] == ["Qwen3Model"]
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
        layout = weights.metadata()["format"]
    assert "transformers 5.2" in layout
    assert "causal" in layout


@pytest.mark.parametrize(("normalize", "similarity"), [(True, "cosine"), (False, "dot")])
def test_vectors_are_compared_as_they_are_meant(checkpoint, tmp_path, normalize, similarity):
    folder = extract(checkpoint, tmp_path / "out", normalize=normalize).folder
    assert SentenceTransformer(str(folder), device="cpu").similarity_fn_name == similarity


def test_the_pooling_is_read_in_silence_and_by_servers_that_want_every_flag(encoder_folder):
    """A second name of the dimension would be a deprecation line at every load."""
    from sentence_transformers.sentence_transformer.modules import Pooling

    written = json_of(encoder_folder, "1_Pooling/config.json")
    flags = {name for name in written if name.startswith("pooling_mode_")}
    assert len(flags) == len(Pooling.POOLING_MODES)
    assert [name for name in flags if written[name]] == ["pooling_mode_mean_tokens"]
    read = Pooling.load_config(str(encoder_folder), subfolder="1_Pooling")
    assert set(read) == set(Pooling.config_keys)


def test_the_tokenizer_has_the_maximum_length_of_the_export(checkpoint, tmp_path):
    done = extract(checkpoint, tmp_path / "short", max_length=24)
    assert AutoTokenizer.from_pretrained(done.folder).model_max_length == 24
    before, after = (json_of(each, "tokenizer_config.json") for each in (checkpoint, done.folder))
    assert before["model_max_length"] == 512
    assert after == before | {"model_max_length": 24}
    whole = (done.folder / "tokenizer.json").read_bytes()
    assert whole == (checkpoint / "tokenizer.json").read_bytes()
    long = " ".join(TEXTS) * 9
    ours, theirs = load_encoder(done.folder, cache=False), SentenceTransformer(str(done.folder))
    assert theirs.max_seq_length == 24
    np.testing.assert_allclose(ours.encode([long]), theirs.encode([long]), atol=1e-5)


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_the_last_column_is_the_last_token_where_that_is_pooled(checkpoint, tmp_path, pooling):
    """transformers.js pools the last column of a batch, whatever the mask says."""
    done = extract(checkpoint, tmp_path / "out", pooling=pooling)
    batch = AutoTokenizer.from_pretrained(done.folder)(TEXTS, padding=True)
    assert all(row[-1] for row in batch["attention_mask"]) is (pooling == "last")


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


def test_a_prefix_and_an_end_token_surround_every_text(checkpoint, tmp_path):
    from tokenizers import Tokenizer

    options = {"prefix": "[R]", "append_eos": True, "pooling": "last", "max_length": 12}
    done = extract(checkpoint, tmp_path / "around", **options, prompts={"query": "find: "})
    plain = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    mode = plain.encode("[R]").ids
    end = plain.token_to_id("<|endoftext|>")
    long = " ".join(TEXTS)
    loaded = AutoTokenizer.from_pretrained(done.folder)
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
    np.testing.assert_allclose(ours.encode(texts), theirs.encode(texts), atol=1e-5)
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


@pytest.mark.integration
def test_the_script_in_the_export_detects_a_causal_run(
    encoder_folder, tmp_path, capsys, monkeypatch
):
    good = subprocess.run(
        [sys.executable, str(encoder_folder / "check_encoder.py")],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert good.returncode == 0, good.stderr
    assert "bidirectional" in good.stdout
    assert ": match" in good.stdout
    causal = tmp_path / "causal"
    shutil.copytree(encoder_folder, causal)
    config = json.loads((causal / "config.json").read_text())
    (causal / "config.json").write_text(json.dumps(config | {"is_causal": True}))
    monkeypatch.setattr(sys, "argv", ["check_encoder.py"])
    with pytest.raises(SystemExit) as bad:
        runpy.run_path(str(causal / "check_encoder.py"), run_name="__main__")
    assert bad.value.code == 1
    printed = capsys.readouterr().out
    assert "CAUSAL" in printed
    assert "MISMATCH" in printed
