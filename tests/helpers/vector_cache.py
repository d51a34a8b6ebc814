"""An embedding cache of 300 random vectors."""

import numpy as np

from qwen3nb.vectors.cache import EmbeddingCache, text_key

KEYS = [text_key(str(i)) for i in range(300)]
ROWS = np.random.default_rng(0).standard_normal((300, 64), dtype=np.float32)


def put(cache, rows=range(300)):
    """Store some of them; return whether that worked."""
    return cache.put({KEYS[row]: ROWS[row] for row in rows})


def stored(folder, **options):
    """Return a cache in ``folder`` that holds all of them."""
    cache = EmbeddingCache(folder, **options)
    assert put(cache)
    return cache


def filled(cache, keys=KEYS):
    """Return which keys are there, and their vectors; NaN for the others."""
    target = np.full((len(keys), ROWS.shape[1]), np.nan, dtype=np.float32)
    return cache.fill(keys, target), target


def segment(cache):
    """Return the only segment of a cache."""
    (file,) = cache.folder.glob("*.npy")
    return file


def flip_vector(cache, row):
    """Change one bit of a stored vector."""
    data = bytearray(segment(cache).read_bytes())
    data[128 + row * 4 * ROWS.shape[1] + 100] ^= 1
    segment(cache).write_bytes(data)
