"""Small static models in the formats of model2vec and of sentence-transformers."""

import json

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from helpers import TEXTS

WIDTH = 12
WORDS = sorted({word.strip(".,").lower() for text in TEXTS for word in text.split()})
# Known and unknown words, none at all, long texts, long words, what a tokenizer removes.
ODD = (
    *TEXTS,
    "",
    " ",
    "zyx",
    "the zyx fox zyx",
    "fox " * 700,
    "a" * 5_000 + " fox",
    "Fox\tfox, FOX!",
    "the zyx",
    "\u200b",
    "largest element of zyx list " * 9,
)


def word_tokenizer(kind="words"):
    """A tokenizer of `WORDS`: of whole words, or of Unigram, with an unknown token."""
    if kind == "words":
        model = models.WordLevel({"[UNK]": 0, **{w: i for i, w in enumerate(WORDS, 1)}}, "[UNK]")
        tokenizer = Tokenizer(model)
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    else:
        pieces = [("the", -3.0), ("<unk>", 0.0), *((word, -2.0) for word in WORDS if word != "the")]
        tokenizer = Tokenizer(models.Unigram(pieces, 1))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Lowercase(), normalizers.Replace(Regex("\u200b"), "")]
    )
    return tokenizer


def token_table(rows, *, seed=0, dtype=np.float32):
    """A random table, (rows, WIDTH)."""
    table = np.random.default_rng(seed).normal(size=(rows, WIDTH))
    return (table * 40).round().astype(dtype) if dtype == np.int8 else table.astype(dtype)


def write_model2vec(folder, *, kind="words", dtype=np.float32, clusters=0, modules=True, **config):
    """Write a folder as model2vec's ``save_pretrained`` does.

    ``clusters``: number of rows that tokens share, each with a weight of its own; 0 for none.
    """
    tokenizer = word_tokenizer(kind)
    tokens = tokenizer.get_vocab_size()
    tensors = {"embeddings": token_table(clusters or tokens, dtype=dtype)}
    if clusters:
        rng = np.random.default_rng(1)
        tensors["mapping"] = rng.integers(0, clusters, tokens)
        tensors["weights"] = rng.random(tokens).astype(np.float32)
    folder.mkdir(parents=True)
    save_file(tensors, folder / "model.safetensors")
    tokenizer.save(str(folder / "tokenizer.json"))
    fields = {"model_type": "model2vec", "architectures": ["StaticModel"], **config}
    (folder / "config.json").write_text(json.dumps(fields))
    if modules:
        kinds = ["StaticEmbedding", *(["Normalize"] if config.get("normalize") else [])]
        listed = [
            {
                "idx": i,
                "name": str(i),
                "path": f"{i}_{kind}" if i else ".",
                "type": f"sentence_transformers.models.{kind}",
            }
            for i, kind in enumerate(kinds)
        ]
        (folder / "modules.json").write_text(json.dumps(listed))
    return folder


def write_static_sentence_model(folder, *modules, truncation=None, width=WIDTH, **options):
    """Save a sentence-transformers model that begins with StaticEmbedding; return the folder."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    tokenizer = word_tokenizer()
    if truncation:
        tokenizer.enable_truncation(truncation)
    static = StaticEmbedding(tokenizer, embedding_weights=token_table(len(WORDS) + 1)[:, :width])
    model = SentenceTransformer(modules=[static, *modules], device="cpu", **options)
    model.save(str(folder), create_model_card=False)
    return folder
