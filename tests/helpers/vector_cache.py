"""An embedding cache of 300 random vectors."""

import numpy as np

from qwen3nb.models.cache.embedding_cache import EmbeddingCache, text_key

KEYS = [text_key(str(i)) for i in range(300)]
ROWS = np.random.default_rng(0).standard_normal((300, 64), dtype=np.float32)


def stored(folder, **options):
    """Return a cache in ``folder`` that holds all of them."""
    cache = EmbeddingCache(folder, **options)
    assert cache.put(dict(zip(KEYS, ROWS, strict=True)))
    return cache


def filled(cache, keys=KEYS):
    """Return which keys are there, and their vectors; NaN for the others."""
    target = np.full((len(keys), ROWS.shape[1]), np.nan, dtype=np.float32)
    return cache.fill(keys, target), target


def segment(cache):
    """Return the only segment of a cache."""
    (file,) = cache.folder.glob("*.vectors")
    return file
