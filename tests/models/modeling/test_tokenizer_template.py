"""Tokens around every text: the same ids in every program that reads the tokenizer."""

import json

import pytest
from tokenizers import Tokenizer

from qwen3nb.models.modeling.tokenizer_template import surround

END = "<|endoftext|>"
CASES = [
    ("[R]", None),
    ("", END),
    ("[R]", END),
    ("query: ", END),  # a colon and a dollar are syntax in tokenizers' own constructor
    ("$A:1 ", None),
    ("aaa", END),  # one token several times
    ("é 日", None),  # tokens that are bytes, not characters
    (END, END),
]
TEXTS = ["x", "", "How do I sort a list?", "a\n b"]


@pytest.fixture(params=["made here", "of a training"])
def tokenizer_file(request, tokenizer_folder):
    if request.param == "made here":
        return tokenizer_folder / "tokenizer.json"
    fixtures = request.getfixturevalue("fixtures")
    return fixtures / "checkpoints" / "checkpoint-400" / "tokenizer.json"


def templates(tokenizer):
    """Return the template processors in the stored form, as other programs read them."""
    stored = json.loads(tokenizer.to_str())["post_processor"]
    each = stored.get("processors", [stored])
    return [processor for processor in each if processor["type"] == "TemplateProcessing"]


@pytest.mark.parametrize(("prefix", "end"), CASES)
def test_ids_are_those_of_prefix_text_and_end(tokenizer_file, prefix, end):
    plain, around = (Tokenizer.from_file(str(tokenizer_file)) for _ in range(2))
    before = plain.encode(prefix, add_special_tokens=False).ids
    after = [plain.token_to_id(end)] if end else []
    surround(around, prefix=prefix, end=end)
    again = Tokenizer.from_str(around.to_str())
    assert again.num_special_tokens_to_add(is_pair=False) == len(before) + len(after)
    for text in TEXTS:
        alone = plain.encode(text, add_special_tokens=False).ids
        assert again.encode(text).ids == [*before, *alone, *after]
        assert again.encode(text, add_special_tokens=False).ids == alone
    first, second = plain.encode("a").ids, plain.encode("b c").ids
    pair = again.encode("a", "b c")
    assert pair.ids == [*before, *first, *second, *after]
    kinds = [0] * len(before + first) + [1] * len(second) + [0] * len(after)
    assert pair.type_ids == kinds
    # transformers.js and llama.cpp look the names up in the vocabulary.
    (template,) = templates(again)
    for name, entry in template["special_tokens"].items():
        assert entry == {"id": name, "ids": [plain.token_to_id(name)], "tokens": [name]}
    for kind in ("single", "pair"):
        names = [item["SpecialToken"]["id"] for item in template[kind] if "SpecialToken" in item]
        assert [plain.token_to_id(name) for name in names] == [*before, *after]


@pytest.mark.parametrize(
    ("first", "then"),
    [(("", END), ("", END)), (("", END), ("[R]", END)), (("[R]", None), ("[R]", END))],
)
def test_tokens_that_are_there_are_not_added_twice(tokenizer_file, first, then):
    """As a tokenizer of a training that ends every text has."""
    once, twice = (Tokenizer.from_file(str(tokenizer_file)) for _ in range(2))
    surround(once, prefix=then[0], end=then[1])
    for prefix, end in (first, then):
        surround(twice, prefix=prefix, end=end)
    assert templates(twice) == templates(once)
    assert twice.encode("x", "y").tokens == once.encode("x", "y").tokens


def test_another_prefix_cannot_follow_and_an_end_is_a_token(tokenizer_file):
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    with pytest.raises(ValueError, match="no token '</s>'"):
        surround(tokenizer, prefix="[R]", end="</s>")
    surround(tokenizer, prefix="[R]", end=END)
    for end in (None, END):
        with pytest.raises(ValueError, match="cannot be combined"):
            surround(tokenizer, prefix="[S]", end=end)
