import pytest
from helpers.beir import write_beir

from qwen3nb.models.load import load_encoder


@pytest.fixture(scope="module")
def encoder(encoder_folder):
    return load_encoder(encoder_folder, cache=False, show_progress=False)


@pytest.fixture
def beir(tmp_path):
    return write_beir(tmp_path / "words")
