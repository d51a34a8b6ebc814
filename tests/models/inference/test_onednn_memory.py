"""oneDNN keeps few prepared products, unless its user says how many."""

import os

import pytest

from qwen3nb.models.inference.onednn_linear import linear_library
from qwen3nb.models.inference.onednn_memory import KEPT_PRODUCTS, bound_products
from qwen3nb.models.load import load_encoder

NAME, FORMER_NAME = "ONEDNN_PRIMITIVE_CACHE_CAPACITY", "DNNL_PRIMITIVE_CACHE_CAPACITY"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch):
    monkeypatch.setenv(NAME, "")  # so that what the test sets is undone
    monkeypatch.delenv(NAME)
    monkeypatch.delenv(FORMER_NAME, raising=False)


def test_products_are_bounded_unless_the_user_says_how_many(monkeypatch):
    bound_products()
    assert os.environ[NAME] == str(KEPT_PRODUCTS)
    monkeypatch.setenv(NAME, "7")
    bound_products()
    assert os.environ[NAME] == "7"
    monkeypatch.delenv(NAME)
    monkeypatch.setenv(FORMER_NAME, "9")
    bound_products()
    assert NAME not in os.environ


def test_products_are_bounded_before_the_first(monkeypatch, encoder_folder):
    monkeypatch.setenv("QWEN3NB_LINEAR", "auto")
    linear_library()
    load_encoder(encoder_folder, show_progress=False, cache=False)
    assert os.environ[NAME] == str(KEPT_PRODUCTS)
