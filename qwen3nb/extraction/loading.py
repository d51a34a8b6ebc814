"""Whether sentence-transformers loads a model as it is configured."""

import logging
from pathlib import Path

import numpy as np

from qwen3nb.checkpoints.types import SpecError
from qwen3nb.models.load import load_encoder
from qwen3nb.models.types import EncoderError, refusing

log = logging.getLogger(__name__)
_TEXTS = ("a text", "another, longer text about sorting a list of words", "")
_TOLERANCE = 1e-4  # of the largest norm; other kernels and paddings differ by 1e-6


def verify_sentence_transformers_loading(folder: Path | str) -> bool:
    """Return whether sentence-transformers loads ``folder`` and computes its vectors.

    The vectors are compared with `load_encoder`'s. A folder without ``modules.json`` counts as not
    loaded: sentence-transformers would silently pool it by the mean. A warning says why it fails.

    Raises:
        ImportError: sentence-transformers is not installed.
    """
    from sentence_transformers import SentenceTransformer

    problem = ""
    if not (Path(folder) / "modules.json").is_file():
        problem = "it has no modules.json, so its pooling is not known"
    else:
        try:
            # Both without a prompt before the texts, and ours without cached vectors.
            encoder = load_encoder(folder, device="cpu", prompts={}, cache=False)
            our_vectors = encoder.encode(list(_TEXTS))
            with refusing(folder, "sentence-transformers cannot load it"):
                model = SentenceTransformer(str(folder), device="cpu")
                library_vectors = model.encode(list(_TEXTS), prompt="", show_progress_bar=False)
            problem = _difference(np.asarray(library_vectors, dtype=np.float32), our_vectors)
        except (SpecError, EncoderError) as error:
            problem = str(error).split("\n")[0]
    if problem:
        log.warning("%s: not as sentence-transformers loads it: %s", folder, problem)
    return not problem


def _difference(library_vectors: np.ndarray, our_vectors: np.ndarray) -> str:
    """Return how two arrays of vectors differ; empty if they don't, but for rounding."""
    if library_vectors.shape != our_vectors.shape:
        dimension = library_vectors.shape[1]
        expected = our_vectors.shape[1]
        return f"its vectors have {dimension} dimensions, expected {expected}"
    difference = float(np.abs(library_vectors - our_vectors).max())
    largest_norm = float(np.linalg.norm(our_vectors, axis=1).max())
    bound = _TOLERANCE * largest_norm
    if difference <= bound:  # NaN is not
        return ""
    return f"its vectors differ by {difference:.1e}, expected at most {bound:.1e}"
