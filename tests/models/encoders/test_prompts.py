"""Which prompt a text gets."""

from types import SimpleNamespace

import numpy as np
import pytest

from qwen3nb.models.encoders.prompts import prompt_for
from qwen3nb.models.load import load_encoder


@pytest.fixture(scope="module")
def encoder(encoder_folder):
    return load_encoder(encoder_folder, cache=False, show_progress=False)


def task(**fields):
    return SimpleNamespace(**{"name": "T", "type": "Retrieval", "prompt": None, **fields})


@pytest.mark.parametrize(
    ("prompts", "role", "about", "expected"),
    [
        ({"query": "q ", "passage": "p "}, "query", None, "q "),
        ({"query": "q "}, "passage", None, ""),
        ({"query": "q "}, None, None, ""),
        ({"query": "q ", "symmetric": "s "}, None, task(type="STS"), "s "),
        ({"query": "q ", "STS": "t "}, None, task(type="STS"), "t "),
        ({"query": "q ", "Retrieval-query": "r "}, "query", task(), "r "),
        ({"query": "q ", "Retrieval-query": "r ", "T": "n "}, "query", task(), "n "),
        ({"T": "n ", "T-query": "m "}, "query", task(), "m "),
        ({"query": "{instruction}: "}, "query", None, "usual: "),
        ({"STS": "", "symmetric": "s "}, None, task(type="STS"), ""),
        ({"query": "{instruction}: "}, "query", task(prompt="own"), "own: "),
        ({"query": "{instruction}: "}, "query", task(prompt={"query": "asks"}), "asks: "),
        ({"query": "{instruction}: "}, "query", task(prompt={"document": "is"}), "usual: "),
        ({"passage": "{instruction}: "}, "passage", task(prompt={"document": "is"}), "is: "),
        ({"T": "n ", "Retrieval-query": "r "}, "query", task(), "n "),
        ({"Retrieval": "t ", "query": "q "}, "query", task(), "t "),
        ({"T-passage": "m ", "passage": "p "}, "query", task(), ""),
    ],
)
def test_the_most_specific_prompt_wins(prompts, role, about, expected):
    assert prompt_for(prompts, role=role, task=about, instruction="usual") == expected


def test_braces_are_text_for_a_model_without_instructions():
    prompts = {"query": "{instruction}: "}
    assert prompt_for(prompts, role="query", task=task(prompt="own")) == "{instruction}: "


def test_the_prompt_depends_on_the_mteb_task(encoder_folder, monkeypatch):
    encoder = load_encoder(encoder_folder, cache=False)
    monkeypatch.setattr(encoder, "prompts", {"STS": "similar: "})
    np.testing.assert_array_equal(
        encoder.encode([{"text": ["x"]}], task_metadata=task(type="STS"))[0],
        encoder.encode("similar: x"),
    )
