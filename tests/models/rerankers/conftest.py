"""One tiny reranker for all tests of this folder."""

import pytest
from helpers.rerankers import write_reranker

from qwen3nb.models.rerankers import load_reranker


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return write_reranker(tmp_path_factory.mktemp("reranker") / "tiny")


@pytest.fixture(scope="module")
def reranker(folder, shared_cache):
    return load_reranker(folder, device="cpu")
