"""Prompt templates: a query and a document in the format a reranker was trained on.

    prefix    system message, start of the user's turn
    content   <Instruct>: …  <Query>: …  <Document>: …
    suffix    end of the user's turn, start of the assistant's, an empty thought

The three are tokenised separately, as in Qwen3-Reranker's own code
(https://huggingface.co/Qwen/Qwen3-Reranker-0.6B). In prefix and suffix, special tokens
are control tokens. In the content, they are plain text: otherwise a document could end the user's
turn and write the assistant's answer. Encoders have no such turns, and treat special tokens like
sentence-transformers (`qwen3nb.models.encoders.base`).

If a pair exceeds the maximum length, the document is truncated at a token boundary. Only if the
query leaves no room for a document, the query is truncated as well, to give the document a quarter
of the content's tokens. Prefix, markers and suffix are always complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
_SYSTEM = (
    "Judge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".'
)

_SHARE = 4  # a document gets at least 1/4 of the tokens if its query is truncated


class RerankError(ValueError):
    """A pair that cannot be scored, or a score that must not be used."""


@dataclass(frozen=True)
class PromptTemplate:
    """The text around and between the parts of a prompt."""

    name: str  # key in `TEMPLATES`
    gap: str  # text between the parts of the content
    # text before the content
    prefix: str = f"<|im_start|>system\n{_SYSTEM}<|im_end|>\n<|im_start|>user\n"
    # text after the content
    suffix: str = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"

    def start(self, instruction: str) -> str:
        """Return the content up to the query, which follows after a space."""
        return f"<Instruct>: {instruction}{self.gap}<Query>:"

    def head(self, instruction: str, query: str) -> str:
        """Return the content up to the document, which follows after a space."""
        return f"{self.start(instruction)} {query}{self.gap}<Document>:"


TEMPLATES = {
    each.name: each
    for each in (
        PromptTemplate("qwen3-reranker", "\n"),  # from the model card
        PromptTemplate("double-newline", "\n\n"),  # used to train this project's LoRA adapters
    )
}


@dataclass(frozen=True)
class Tokenised:
    """The tokens of one query and its documents."""

    shared: tuple[int, ...]  # tokens that all pairs start with
    rests: list[list[int]]  # the remaining tokens per document, including the suffix
    cut: list[bool]  # per document, whether it was truncated
    query_cut: bool = False  # whether the query was truncated


class PairTokens:
    """Tokenises pairs of a query and a document.

    Attributes:
        yes: the id of the token ``yes``.
        no: the id of the token ``no``.
        system: tokens at the start of every pair, for any query.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        template: PromptTemplate,
        instruction: str,
        max_length: int,
    ) -> None:
        """Tokenise the parts that do not depend on the pair."""
        self._tokenizer, self._template = tokenizer, template
        self._instruction, self.max_length = instruction, max_length
        self.yes, self.no = (self._single(word) for word in ("yes", "no"))
        self._prefix, self._suffix = (
            tokenizer(text, add_special_tokens=False, split_special_tokens=False)["input_ids"]
            for text in (template.prefix, template.suffix)
        )
        self._room = max_length - len(self._prefix) - len(self._suffix)
        start = self._ids([template.start(instruction)])[0]
        self._empty = self._content("")
        if self._room <= self._empty:
            raise RerankError(
                f"a maximum length of {max_length} leaves no room for query and document: "
                f"template and instruction take {self.length('')} tokens"
            )
        self.system = (*self._prefix, *start)

    def rows(self, query: str, documents: Sequence[str]) -> Tokenised:
        """Tokenise ``query`` with each of ``documents``.

        Head and document are tokenised together, as in training; the shared prefix is found by
        comparing tokens.
        """
        check_text(query, "the query")
        for index, document in enumerate(documents):
            check_text(document, f"document {index}")
        text = self._template.head(self._instruction, query)
        head, *contents = self._ids([text, *(f"{text} {document}" for document in documents)])
        if self._room <= len(head):
            return replace(self.rows(self._shortened(query), documents), query_cut=True)
        same = min((common_start(head, each) for each in contents), default=len(head))
        return Tokenised(
            shared=(*self._prefix, *head[:same]),
            rests=[[*each[same : self._room], *self._suffix] for each in contents],
            cut=[len(each) > self._room for each in contents],
        )

    def length(self, query: str) -> int:
        """Number of tokens of a prompt with the whole ``query`` and no document."""
        return self.max_length - self._room + self._content(query)

    def _content(self, query: str) -> int:
        """Number of tokens of the content up to the document."""
        return len(self._ids([self._template.head(self._instruction, query)])[0])

    def _shortened(self, query: str) -> str:
        """Return the longest start of ``query`` that leaves the document its share of tokens."""
        limit = max(self._empty, self._room - self._room // _SHARE - 1)
        low, high = 0, len(query)
        while low < high:  # bisection, because a truncated text may have different tokens
            middle = (low + high + 1) // 2
            if self._content(query[:middle]) <= limit:
                low = middle
            else:
                high = middle - 1
        return query[:low]

    def _ids(self, texts: list[str]) -> list[list[int]]:
        encoded = self._tokenizer(
            texts,
            add_special_tokens=False,
            split_special_tokens=True,
            return_attention_mask=False,
            verbose=False,  # no warning about long texts, which are truncated here
        )
        rows: list[list[int]] = encoded["input_ids"]
        return rows

    def _single(self, word: str) -> int:
        ids = self._tokenizer(word, add_special_tokens=False)["input_ids"]
        if len(ids) != 1 or ids[0] == self._tokenizer.unk_token_id:
            raise RerankError(
                f"the tokenizer has no token {word!r} (it gives {ids}); a yes/no reranker needs "
                "yes and no as one token each"
            )
        return int(ids[0])


def common_start(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the length of the common prefix of two token sequences."""
    for index, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return index
    return min(len(first), len(second))


def check_text(text: Any, what: str) -> None:
    """Refuse anything but valid text, such as a lone surrogate, with a `RerankError`."""
    if not isinstance(text, str):
        raise RerankError(f"{what} is {type(text).__name__}, expected a string")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise RerankError(f"{what} is not valid Unicode: {text!r:.80}") from None
