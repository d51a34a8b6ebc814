"""A folder is evaluated as what it says it is, or refused by the name of what it is.

Each row of `FOLDERS` is made by the constructors of the library that defines it, and has one of
four outcomes, in Python and at every command: the vectors of sentence-transformers; those after a
choice of pooling; scores of a reranker; or a refusal.
"""

import warnings
from functools import partial

import numpy as np
import pytest
import torch
from helpers import TEXTS as PLAIN
from helpers import archetypes as made
from helpers.archetypes import between, config, module, plain, sentence, settings, stored_as
from helpers.tolerances import assert_close

from qwen3nb import paths
from qwen3nb.models.load import load_encoder, load_model
from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.models.rerankers import load_reranker
from qwen3nb.models.types import SpecError

MODES = ("cls", "max", "lasttoken", "mean_sqrt_len_tokens", "weightedmean")
TEXTS = (*PLAIN, "the <|endoftext|> of a text", "<|im_end|>the fox")

# Evaluated with the vectors that sentence-transformers gives.
DENSE = {
    **{f"pooling {mode}": sentence(pooling=mode) for mode in MODES},
    "two poolings": sentence(pooling=["cls", "mean"]),
    "Normalize": sentence(lambda m: m.Normalize()),
    "Dense, LayerNorm, Dropout": sentence(
        lambda m: m.Dense(32, 16), lambda m: m.LayerNorm(16), lambda m: m.Dropout(0.1)
    ),
    "CNN": between(lambda m: m.CNN(32, 8, [1, 3]), width=16),
    "WeightedLayerPooling": between(
        lambda m: m.WeightedLayerPooling(32, num_hidden_layers=2, layer_start=1), states=True
    ),
    "WordEmbeddings": made.words,
    "WordEmbeddings, WordWeights": partial(made.words, middle="WordWeights"),
    "WordEmbeddings, LSTM": partial(made.words, middle="LSTM", width=16),
    "StaticEmbedding": made.static,
    "StaticEmbedding, Dense": partial(made.static, dense=True),
    **{
        f"Transformer of {family}": sentence(family=family)
        for family in ("Gemma3Text", "ModernBert", "MPNet", "Qwen3", "T5")
    },
    "Transformer of a bidirectional Qwen3": config(
        sentence(family="Qwen3", pooling="cls"), is_causal=False
    ),
    "CLIP": made.clip_modules,
    "of an older release": settings(sentence(), model_type=None),
}
# Evaluated once a pooling is chosen, and refused without one.
PRETRAINED = {
    f"{family}{kind}": plain(family, kind)
    for family, kinds in {
        "Bart": ["ForConditionalGeneration"],
        "Bert": ["Model", "ForMaskedLM", "ForPreTraining", "LMHeadModel"],
        "Gemma3Text": ["ForCausalLM"],
        "Qwen3": ["Model", "ForCausalLM"],
        "T5": ["Model", "EncoderModel", "ForConditionalGeneration"],
    }.items()
    for kind in kinds
} | {
    "BertModel without architectures": config(plain(), architectures=None),
}
RERANKERS = {
    "LogitScore": made.logit_reranker,
    "LogitScore, undeclared": settings(made.logit_reranker, model_type=None),
}
ONE = "expected a model with one vector per text"
PAIRS = f"{ONE}.*; `qwen3nb rerank pairs` runs"
SEARCHES = {"SPLADE": made.splade, "MultiVectorEncoder": made.multi_vector}
REFUSED = {
    "SpladePooling, declared dense": (
        settings(made.splade, model_type="SentenceTransformer"),
        ONE,
    ),
    "query_length": (config(sentence(), file="sentence_bert_config.json", query_length=32), ONE),
    "CrossEncoder": (made.cross_encoder, PAIRS),
    "dense files declared a CrossEncoder": (settings(sentence(), model_type="CrossEncoder"), PAIRS),
    "Router": (made.router, ONE),
    "Transformer alone": (made.transformer_alone, "without Pooling"),
    "unknown module": (module(sentence(), 1, type="sentence_transformers.models.Fancy"), "Fancy"),
    **{
        name: (plain(*name.split(" ")), what)
        for name, what in {
            "Bert ForTokenClassification": ONE,
            "Bart ForSequenceClassification": PAIRS,
            "ViT Model": "model_type is 'vit', which is not an architecture for texts alone",
        }.items()
    },
    "CLIP of transformers": (made.clip, "'clip', which is not an architecture for texts alone"),
    "float8 weights": (stored_as(plain(), torch.float8_e4m3fn), "has dtype F8_E4M3"),
    "adapter SEQ_CLS": (partial(made.adapter, kind="SEQ_CLS"), "task_type is 'SEQ_CLS'"),
    "adapter without its base": (partial(made.adapter, base=False), "its base was not found"),
    "adapter beside a model": (
        partial(made.adapter, whole=True),
        "adapter_config.json next to a full model",
    ),
    "adapter of a SentenceTransformer": (made.sentence_adapter, "no adapter_model.safetensors"),
    "GGUF": (made.gguf, "no weights; expected model.safetensors"),
}
# Refused as rerankers, by name.
NO_RERANKERS = {
    "pooling cls": "a yes/no reranker is a causal language model",
    "Qwen3Model": "'Qwen3Model' is not a causal language model",
    "T5Model": "of kind 't5'; a yes/no reranker",
    "CrossEncoder": PAIRS,
    "SPLADE": "of kind 'sparse-encoder'; a yes/no reranker",
}
EVERY = {
    **DENSE,
    **PRETRAINED,
    **RERANKERS,
    **SEARCHES,
    **{name: write for name, (write, _) in REFUSED.items()},
}


@pytest.fixture
def write(tmp_path, tokenizer_folder):
    """Write the folder called ``name``."""

    def made_of(name):
        folder = tmp_path / "made" / "model"
        folder.parent.mkdir()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            EVERY[name](folder, tokenizer_folder)
        return folder

    return made_of


def theirs(folder, *, normalize):
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu")
    # One by one: the convolutions of CNN read the padding of a batch.
    return model.encode(list(TEXTS), batch_size=1, normalize_embeddings=normalize)


@pytest.mark.integration
@pytest.mark.parametrize("name", DENSE)
def test_a_dense_folder_has_the_vectors_of_sentence_transformers(write, name):
    folder = write(name)
    encoder = load_encoder(folder, cache=False)
    assert encoder.source.kind.name == "sentence-transformers"
    expected = theirs(folder, normalize=encoder.normalize)
    assert_close(encoder.encode(list(TEXTS)), expected)
    assert encoder.settings.get("padding") == ("none" if name == "CNN" else None)
    whole_words = name.startswith(("Static", "Word"))  # without special tokens
    assert encoder.stats.special == (0 if whole_words else 2)


@pytest.mark.integration
@pytest.mark.parametrize("name", PRETRAINED)
def test_a_pretrained_model_needs_a_choice_of_pooling(write, name):
    folder = write(name)
    with pytest.raises(SpecError, match=rf"choose one of: {', '.join(POOLINGS)} \(--pooling\)"):
        load_encoder(folder, cache=False)
    vectors = load_encoder(folder, cache=False, pooling="mean").encode(list(TEXTS))
    assert_close(vectors, states(folder))


@torch.inference_mode()
def states(folder):
    """The mean of the last hidden states, of the encoder where there is one, in transformers."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    names = transformers.AutoConfig.from_pretrained(folder).architectures or []
    loader = transformers.T5EncoderModel if "T5EncoderModel" in names else transformers.AutoModel
    model = loader.from_pretrained(folder).eval()
    model = model.get_encoder() if hasattr(model, "decoder") else model
    rows = []
    for text in TEXTS:
        ids = torch.tensor([tokenizer(text)["input_ids"]])
        rows.append(model(input_ids=ids).last_hidden_state[0].mean(dim=0))
    return torch.nn.functional.normalize(torch.stack(rows), dim=-1).numpy()


@pytest.mark.parametrize("name", RERANKERS)
def test_a_cross_encoder_of_yes_and_no_is_a_reranker(write, name):
    from sentence_transformers import CrossEncoder

    folder = write(name)
    with pytest.raises(SpecError, match="a cross-encoder, .*`qwen3nb rerank pairs`"):
        load_encoder(folder, cache=False, pooling="mean")
    scores = load_reranker(folder, device="cpu").score("which rows?", TEXTS).log_odds
    assert np.isfinite(scores).all()
    made.edit(folder, "1_LogitScore/config.json", true_token_id=5)
    with pytest.raises(SpecError, match=r"true_token_id is 5; expected \[\d+\], the token 'yes'"):
        load_reranker(folder, device="cpu")
    assert CrossEncoder(str(folder), device="cpu") is not None


@pytest.mark.parametrize("name", SEARCHES)
def test_a_folder_without_one_vector_per_text_is_no_encoder(write, name):
    folder = write(name)
    with pytest.raises(SpecError, match="searches and reranks only, .*; load_model"):
        load_encoder(folder, cache=False)
    assert load_model(folder).label


@pytest.mark.integration
@pytest.mark.parametrize("name", REFUSED)
def test_anything_else_is_refused_by_its_name(write, name):
    folder = write(name)
    for pooling in (None, "mean"):
        with pytest.raises(ValueError, match=REFUSED[name][1]) as caught:
            load_encoder(folder, cache=False, pooling=pooling)
        assert str(folder) in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", NO_RERANKERS)
def test_what_gives_no_scores_is_refused_as_a_reranker(write, name):
    with pytest.raises(ValueError, match=NO_RERANKERS[name]):
        load_reranker(write(name), device="cpu")


# All commands find a model by the same function.
COMMANDS = {
    "check": "MODEL",
    "encode": "--model MODEL --input TEXTS --out OUT/v.npy",
    "eval": "--model MODEL --tier smoke",
    "rerank pairs": "--model MODEL --pairs TEXTS --out OUT/s.jsonl",
    "run": "eval -p checkpoint MODEL",
    "sweep": "--model MODEL --tier smoke",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_refuses_by_the_same_names(checkout, write, tmp_path, cli, command):
    texts = tmp_path / "texts.jsonl"
    texts.write_text('{"text": "a", "query": "a", "document": "b"}\n')
    line = COMMANDS[command].replace("MODEL", str(write("Router"))).replace("TEXTS", str(texts))
    done = cli(*command.split(), *line.replace("OUT", str(tmp_path)).split())
    output = " ".join(done.output.split())
    assert done.exit_code != 0, output
    assert ONE in output, output
    assert "Traceback" not in output
    assert not list(paths.results().glob("**/*.json"))
