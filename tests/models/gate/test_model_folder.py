"""No malformed folder is loaded as something else: it is refused by name, or changes nothing."""

import json
import re
import shutil

import numpy as np
import pytest
import torch
from helpers import malformed_models as malformed
from helpers.archetypes import edit
from helpers.malformed_models import FAMILIES, KINDS, vectors, write_model
from safetensors.torch import load_file, save_file

from qwen3nb.models.gate.weights import check_finite
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.load import load_encoder
from qwen3nb.models.types import ModelFolderError

# One kind gets every family; the others share its rules, but not the names of its weights.
TRIED = [
    *(("bert", family) for family in FAMILIES),
    *((kind, "configuration") for kind in ("seq2seq", "llama")),
    *((kind, "weights") for kind in ("encoder", "llama", "mpnet", "reranker", "seq2seq", "t5")),
]


@pytest.fixture(scope="module")
def models(tmp_path_factory, tokenizer_folder, checkpoint, encoder_folder):
    """A folder per kind of model, not to be changed."""
    root = tmp_path_factory.mktemp("kinds")
    folders = {"seq2seq": checkpoint, "encoder": encoder_folder}
    for kind in KINDS:
        if kind not in folders:
            folders[kind] = write_model(kind, root / kind, tokenizer_folder)
    return folders


@pytest.mark.parametrize(("kind", "family"), TRIED)
def test_a_malformed_folder_is_refused_or_changes_nothing(models, tmp_path, kind, family):
    came = malformed.outcomes(kind, models[kind], family, tmp_path / "model")
    assert {name: each for name, each in came.items() if each not in ("refused", "harmless")} == {}
    assert sum(each == "refused" for each in came.values()) > len(came) / 2


@pytest.fixture
def broken(models, tmp_path):
    """A copy of a model to change."""

    def make(kind, change):
        folder = shutil.copytree(models[kind], tmp_path / "broken")
        change(folder)
        return folder

    return make


def config(**fields):
    return lambda folder: edit(folder, "config.json", **fields)


def weights(change):
    def apply(folder):
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    return apply


NAMED = {
    "size": ("bert", config(hidden_size=0), r"config\.json: no model can be built from it"),
    "nested": ("llama", config(text_config={"n_layer": 10**5}), r"text_config\.n_layer is 100000"),
    "flag": (
        "t5",
        config(tie_word_embeddings="no"),
        "tie_word_embeddings is 'no'; it should",
    ),
    "divisor": ("llama", config(num_key_value_heads=3), r"k_proj\.weight: shape"),
    "types": ("qwen3", config(layer_types=["full_attention"]), r"no model .*layer_type"),
    "choice": ("bert", config(hidden_act="gelo"), r"no model can be built from it .*'gelo'"),
    "layers": ("bert", config(num_hidden_layers=900), r"attention\..*: missing.* \(and \d+ more\)"),
    "too many": ("bert", config(num_hidden_layers=1001), "num_hidden_layers is 1001; it should"),
    "code": ("t5", config(model_type="evil", auto_map={"AutoConfig": "evil.E"}), "is never run"),
    "missing": (
        "mpnet",
        weights(lambda t: t.pop("encoder.layer.1.attention.attn.q.weight")),
        r"model\.safetensors do not match config\.json: encoder\.layer\.1\.attention\.attn\.q\."
        r"weight: missing\. Copy both",
    ),
    "shape": (
        "xlm-roberta",
        weights(lambda t: t.update({"embeddings.LayerNorm.bias": torch.ones(31)})),
        r"embeddings\.LayerNorm\.bias: shape \[31\], config\.json expects \[32\]",
    ),
    "type": (
        "llama",
        weights(lambda t: t.update({"model.norm.weight": torch.ones(32).long()})),
        r"model\.norm\.weight: of type I64; expected one of",
    ),
    "more layers": ("bert", config(num_hidden_layers=1), r"encoder\.layer\.1\..*: unexpected"),
}


@pytest.mark.parametrize("case", NAMED)
def test_a_refusal_names_the_file_and_what_it_expected(broken, case):
    kind, change, message = NAMED[case]
    folder = broken(kind, change)
    with pytest.raises(ModelFolderError, match=message) as caught:
        load_encoder(folder, pooling="mean" if kind in ("llama", "t5") else None, cache=False)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def check(folder, *, causal=False):
    source = find_source(str(folder))
    (source.kind.check_causal if causal else source.kind.check)(source)


def without(*endings):
    return weights(lambda t: [t.pop(name) for name in list(t) if name.endswith(endings)])


def test_only_weights_that_no_vector_depends_on_may_be_absent(broken, models):
    folder = broken("bert", without("pooler.dense.weight", "pooler.dense.bias"))
    np.testing.assert_array_equal(vectors("bert", folder), vectors("bert", models["bert"]))
    # As soon as the model's files say that the pooler is used, it must be there.
    file = folder / "sentence_bert_config.json"
    uses = {"text": {"method": "forward", "method_output_name": "pooler_output"}}
    fields = json.loads(file.read_text()) | {"modality_config": uses}
    file.write_text(json.dumps(fields | {"module_output_name": "token_embeddings"}))
    with pytest.raises(ModelFolderError, match=r"pooler\.dense\.bias: missing"):
        check(folder)


@pytest.mark.parametrize(("kind", "positions"), [("bert", 80), ("xlm-roberta", 78)])
def test_a_length_beyond_the_learned_positions_is_refused(models, kind, positions):
    encoder = load_encoder(models[kind], max_length=positions, cache=False)
    assert np.isfinite(encoder.encode("word " * 200)).all()
    with pytest.raises(ModelFolderError, match=f"max_length is .*; expected at most {positions},"):
        load_encoder(models[kind], max_length=positions + 1, cache=False)


def test_an_encoder_decoder_may_lack_the_decoder(broken, models):
    folder = broken(
        "t5", weights(lambda t: [t.pop(name) for name in list(t) if name.startswith("decoder.")])
    )
    np.testing.assert_array_equal(vectors("t5", folder), vectors("t5", models["t5"]))


def test_the_output_matrix_is_needed_where_it_is_used_and_not_tied(broken):
    folder = broken("reranker", without("lm_head.weight"))
    check(folder)
    with pytest.raises(ModelFolderError, match=r"lm_head\.weight: missing"):
        check(folder, causal=True)
    config(tie_word_embeddings=True)(folder)
    check(folder, causal=True)


def test_code_in_a_folder_is_never_run(broken, tmp_path):
    def change(folder):
        names = {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}
        config(auto_map=names, model_type="evil")(folder)
        trace = tmp_path / "run"
        (folder / "evil.py").write_text(f"open({str(trace)!r}, 'w').close()")

    for kind in ("llama", "bert"):
        folder = broken(kind, change)
        with pytest.raises(ModelFolderError, match="code in the folder .* is never run"):
            load_encoder(folder, pooling="mean" if kind == "llama" else None, cache=False)
        assert not (tmp_path / "run").exists()
        shutil.rmtree(folder)


COMMANDS = {
    "encode": "--model {0} --input {2} --out {1}/vectors.npy",
    "extract": "{0} {1}/encoder",
    "quick": "{0}",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_exits_with_1_and_one_line_and_writes_nothing(broken, cli, tmp_path, command):
    kind = "seq2seq" if command == "extract" else "bert"
    norm = "model.encoder.norm.weight" if kind == "seq2seq" else "embeddings.LayerNorm.weight"
    folder = broken(kind, weights(lambda tensors: tensors.pop(norm)))
    out, texts = tmp_path / "out", tmp_path / "texts.jsonl"
    out.mkdir()
    texts.write_text('{"text": "a text"}\n')
    done = cli(command, *COMMANDS[command].format(folder, out, texts).split())
    assert done.exit_code == 1, done.output
    assert re.search(r"norm\.weight: missing|Missing key.*norm\.weight", done.output, re.IGNORECASE)
    assert "Traceback" not in done.output
    assert list(out.iterdir()) == []


def linear(*numbers, dtype=torch.float32):
    layer = torch.nn.Linear(len(numbers), 1, bias=False, dtype=dtype)
    layer.weight.data[0] = torch.tensor(numbers)
    return layer


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_weights_that_are_not_finite_are_named(dtype, tmp_path):
    check_finite(linear(1.0, -2.0, dtype=dtype), tmp_path)
    for number in (float("nan"), float("inf"), float("-inf")):
        with pytest.raises(ModelFolderError, match="weight contains NaN or infinity"):
            check_finite(linear(1.0, number, 2.0, dtype=dtype), tmp_path)


def test_large_weights_are_finite_although_their_sum_is_not(tmp_path):
    check_finite(linear(3e38, 3e38), tmp_path)
    check_finite(linear(6e4, 6e4, dtype=torch.float16), tmp_path)


def test_opposite_infinities_do_not_cancel(tmp_path):
    with pytest.raises(ModelFolderError):
        check_finite(linear(float("inf"), float("-inf")), tmp_path)
