"""Tokens around every text: a mode prefix and an end token.

UL2 training starts each input with a mode such as ``[R]`` and ends it with the end-of-text token. A
model pooled from its first or last token was trained with these tokens there. Both become part of
the tokenizer's template, so every library that reads ``tokenizer.json`` adds them, counts them
against the maximum length, and keeps them when truncating.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_PROBE = "a"


def surround(tokenizer: Tokenizer, *, prefix: str = "", end: str | None = None) -> None:
    """Make ``tokenizer`` add ``prefix`` before every text and ``end`` after it, in place.

    The prefix is a text such as ``[R]`` of one or more tokens, the end a token such as
    ``<|endoftext|>``. Tokens that the tokenizer already adds are not added twice.

    Raises:
        ValueError: ``end`` is not a token, or the tokenizer's own template cannot be combined
            with this one.
    """
    truncation = tokenizer.truncation
    tokenizer.no_truncation()  # do not truncate the text that is tried below
    before = tokenizer.encode(prefix, add_special_tokens=False).ids
    after = []
    if end is not None:
        end_token = tokenizer.token_to_id(end)
        if end_token is None:
            raise ValueError(f"the tokenizer has no token {end!r} to put at the end")
        after = [end_token]
    # A short text, without and with the tokens that the tokenizer adds by itself.
    text = tokenizer.encode(_PROBE, add_special_tokens=False).ids
    encoded = tokenizer.encode(_PROBE).ids
    surrounded = [*before, *text, *after]
    # The tokenizer may already add one, or both.
    if encoded not in (text, [*text, *after], [*before, *text], surrounded):
        raise ValueError(
            f"the tokenizer adds its own tokens ({encoded} for {_PROBE!r}, which alone is "
            f"{text}), which cannot be combined with a prefix or an end token"
        )
    if encoded != surrounded:
        _set_template(tokenizer, before, after)
    if truncation is not None:
        tokenizer.enable_truncation(**truncation)


def _set_template(tokenizer: Tokenizer, before: Sequence[int], after: Sequence[int]) -> None:
    """Replace the template by one that names each token by its own text.

    The tokenizers library allows any name for one or more tokens; transformers.js and llama.cpp
    look names up in the vocabulary. The constructor, unlike the stored form, treats ``:`` and ``$``
    in names as syntax.
    """
    from tokenizers import processors

    # The form that tokenizers stores in tokenizer.json, with an entry for each added token.
    names = {token: tokenizer.id_to_token(token) for token in (*before, *after)}
    start = [_special_token(names[token]) for token in before]
    end = [_special_token(names[token]) for token in after]
    text = {"Sequence": {"id": "A", "type_id": 0}}  # the place of the text in the template
    second_text = {"Sequence": {"id": "B", "type_id": 1}}
    special_tokens = {}
    for token, name in names.items():
        special_tokens[name] = {"id": name, "ids": [token], "tokens": [name]}
    template = {
        "type": "TemplateProcessing",
        "single": [*start, text, *end],
        "pair": [*start, text, second_text, *end],
        "special_tokens": special_tokens,
    }
    all_processors = []
    for processor in _stored_processors(tokenizer):
        if processor["type"] != template["type"]:
            all_processors.append(processor)
    all_processors.append(template)
    state = {"type": "Sequence", "processors": all_processors}
    # Set as pickle would: the constructor reads ":" and "$" in names as syntax.
    post_processor = processors.Sequence([])
    post_processor.__setstate__(json.dumps(state).encode())
    tokenizer.post_processor = post_processor


def _special_token(name: str | None) -> dict[str, dict[str, object]]:
    return {"SpecialToken": {"id": name, "type_id": 0}}


def _stored_processors(tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """Return the processors of a tokenizer, as they are stored."""
    if not tokenizer.post_processor:
        return []
    stored = json.loads(tokenizer.post_processor.__getstate__())
    processors: list[dict[str, Any]] = stored.get("processors", [stored])
    return processors
