import pytest

from qwen3nb.models.load import load_encoder


@pytest.fixture(scope="module")
def encoder(encoder_folder):
    return load_encoder(encoder_folder, cache=False, show_progress=False)
