"""Prompts: which one a text gets, their names elsewhere, and those that authors prescribe."""

import logging
import re
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.archetypes import edit, write_sentence_bert
from hypothesis import given
from hypothesis import strategies as st

from qwen3nb.models.kinds.prompts import (
    named_prompts,
    parse_prompts,
    prompt_for,
    prompt_warning,
    prompts_line,
)
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.kinds.source import registry
from qwen3nb.models.load import load_encoder
from qwen3nb.models.types import SpecError

TASK = "Given a web search query, retrieve relevant passages that answer the query"
SENTENCE = "Represent this sentence for searching relevant passages: "
# Hub ids outside the registry, and the start of a query and of a passage by its model card.
PRESCRIBED = {
    "intfloat/e5-large-v2": ("query: ", "passage: "),
    "BAAI/bge-large-en-v1.5": (SENTENCE, None),
    "Qwen/Qwen3-Embedding-4B": (f"Instruct: {TASK}\nQuery:", None),
    "google/embeddinggemma-300m-qat-q8_0-unquantized": (
        "task: search result | query: ",
        "title: none | text: ",
    ),
}
NONE = (
    *("thenlper/gte-large", "Alibaba-NLP/gte-base-en-v1.5", "BAAI/bge-m3", "Qwen/Qwen3-0.6B"),
    *("sentence-transformers/all-mpnet-base-v2", "lab/node5-base", "bm25", "random"),
)


@pytest.mark.parametrize("hub_id", PRESCRIBED)
def test_a_hub_id_outside_the_registry_gets_the_prompts_of_its_card(hub_id):
    warning = prompt_warning(find_source(hub_id))
    query, passage = PRESCRIBED[hub_id]
    assert repr(query) in warning
    assert (passage is None) == ("for a passage" not in warning)
    assert passage is None or f"{passage!r} for a passage" in warning
    assert "https://huggingface.co/" in warning


def test_other_models_and_those_of_the_registry_get_no_warning():
    for spec in (*NONE, *registry()):
        source = find_source(spec)
        if not source.folder or source.prompts:
            assert prompt_warning(source) == "", spec


def config(folder):
    edit(folder, "config.json", _name_or_path="intfloat/e5-large-v2")


@pytest.mark.integration
@pytest.mark.parametrize(
    ("name", "change", "warned"),
    [
        ("E5_large_v2-mine", None, True),
        ("mine", config, True),
        ("mine", None, False),
    ],
)
def test_a_folder_of_a_known_family_is_warned_of(
    tokenizer_folder, tmp_path, caplog, name, change, warned
):
    write_sentence_bert(tmp_path / name, tokenizer_folder)
    folder = tmp_path / name
    if change is not None:
        change(folder)
    with caplog.at_level(logging.WARNING, logger="qwen3nb"):
        encoder = load_encoder(folder, cache=False)
    warnings = [each.getMessage() for each in caplog.records if "prescribe" in each.getMessage()]
    assert len(warnings) == warned
    assert all("'query: ' for a query" in each and str(encoder.label) in each for each in warnings)
    caplog.clear()
    for options in ({"prompts": {}}, {"prompts": {"query": "query: "}}):
        load_encoder(folder, cache=False, **options)
    assert "prescribe" not in caplog.text


NAMES = ["query", "document", "passage", "symmetric", "STS", "STS12-query", "STS12-document", "x"]


@pytest.mark.parametrize(
    ("line", "prompts"),
    [
        ("", None),
        ("none", {}),
        ("{}", {}),
        ("query=query: ;document=passage: ", {"query": "query: ", "passage": "passage: "}),
        (r"STS12-query=a; b=\nc", {"STS12-query": "a", "b": "\nc"}),
        ('{"query": "a;b=c"}', {"query": "a;b=c"}),
    ],
)
def test_prompts_in_one_line(line, prompts):
    assert parse_prompts(line) == prompts


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("query: ", "expected NAME=TEXT, such as query='query: '"),
        ("query=a;query=b", "a name occurs twice"),
        ("passage=a;document=b", "two prompts for 'passage'"),
        ("qeury=a", "did you mean 'query'?"),
        ('{"query": 1}', "prompt 'query' is 1; expected a string"),
        ('{"query"', "not a JSON object of texts"),
    ],
)
def test_what_is_wrong_with_prompts_is_stated(line, reason):
    with pytest.raises(SpecError, match=re.escape(reason)):
        parse_prompts(line)


@given(st.dictionaries(st.sampled_from(NAMES), st.text(st.sampled_from("a =;\\n\n{"))))
def test_prompts_come_back_from_their_line(prompts):
    if "document" in prompts:
        prompts.pop("passage", None)
    assert parse_prompts(prompts_line(prompts)) == named_prompts(prompts)


@pytest.mark.integration
def test_prompts_are_in_identity_and_label(encoder_folder):
    own = load_encoder(encoder_folder, cache=False)
    line = load_encoder(encoder_folder, cache=False, prompts="query=find: ;passage=text: ")
    both = load_encoder(
        encoder_folder, cache=False, prompts={"query": "find: ", "passage": "text: "}
    )
    none = load_encoder(encoder_folder, cache=False, prompts="none")
    assert line.identity == both.identity != own.identity == none.identity
    assert (line.label, none.label) == (f"{own.label}-prompts", own.label)
    np.testing.assert_array_equal(line.encode("x", role="query"), own.encode("find: x"))


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
        ({"query": "q ", "Retrieval-query": "r ", "T": "n "}, "query", task(), "n "),
        ({"query": "{instruction}: "}, "query", None, "usual: "),
        ({"STS": "", "symmetric": "s "}, None, task(type="STS"), ""),
        ({"query": "{instruction}: "}, "query", task(prompt="own"), "own: "),
        ({"query": "{instruction}: "}, "query", task(prompt={"query": "asks"}), "asks: "),
        ({"passage": "{instruction}: "}, "passage", task(prompt={"document": "is"}), "is: "),
        ({"Retrieval": "t ", "query": "q "}, "query", task(), "t "),
        ({"T-passage": "m ", "passage": "p "}, "query", task(), ""),
    ],
)
def test_the_most_specific_prompt_wins(prompts, role, about, expected):
    assert prompt_for(prompts, role=role, task=about, instruction="usual") == expected
    # Braces are text for a model without instructions.
    plain = prompt_for(prompts, role=role, task=about)
    assert plain == expected or "{instruction}" in plain


@pytest.mark.parametrize(
    ("spec", "given", "named"),
    [
        (
            "intfloat/e5-small",
            {"query": "query:", "passage": "passage:"},
            ["'query:'", "'query: '"],
        ),
        ("intfloat/e5-small", {"query": "query: ", "passage": " passage: "}, ["' passage: '"]),
        ("intfloat/e5-small", {"query": "query: ", "passage": "passage: "}, []),
        ("intfloat/e5-small", {"query": "find: ", "passage": ""}, []),
        ("intfloat/e5-small", {}, []),
        ("e5-base-v2", {"query": "query:"}, ["'query:'", "--prompt 'query=query: '"]),
        ("org/unknown", {"query": "query:"}, []),
    ],
)
def test_prompts_without_the_authors_blank_are_named(spec, given, named):
    warning = prompt_warning(find_source(spec), given)
    assert bool(warning) == bool(named)
    assert all(text in warning for text in named)
