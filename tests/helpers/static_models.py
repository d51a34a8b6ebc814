"""Small static models in the format of sentence-transformers."""

import numpy as np
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


def word_tokenizer():
    """A tokenizer of `WORDS`, with an unknown token."""
    model = models.WordLevel({"[UNK]": 0, **{w: i for i, w in enumerate(WORDS, 1)}}, "[UNK]")
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Lowercase(), normalizers.Replace(Regex("\u200b"), "")]
    )
    return tokenizer


def token_table(rows):
    """A random table, (rows, WIDTH)."""
    return np.random.default_rng(0).normal(size=(rows, WIDTH)).astype(np.float32)


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
