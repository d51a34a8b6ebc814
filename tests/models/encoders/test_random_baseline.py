"""Random vectors."""

import numpy as np
import pytest

from qwen3nb.models.load import load_encoder


@pytest.fixture(scope="module")
def encoder(encoder_folder):
    return load_encoder(encoder_folder, cache=False, show_progress=False)


def test_a_random_vector_depends_on_its_text_alone():
    encoder = load_encoder("random:32", seed=3, cache=False)
    first, second = encoder.encode(["a", "b"]), encoder.encode(["b", "a"])
    np.testing.assert_array_equal(first, second[::-1])
    np.testing.assert_allclose(np.linalg.norm(first, axis=1), 1, rtol=1e-6)
    assert abs(float(first[0] @ first[1])) < 0.9
    assert not np.array_equal(load_encoder("random:32", seed=4, cache=False).encode("a"), first[0])
