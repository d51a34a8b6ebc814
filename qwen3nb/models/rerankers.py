"""The yes/no reranker: a language model judges whether a document answers a query.

A reranker is a causal language model: a base model, a base with a LoRA adapter, or a
Qwen3-Reranker. Only the rows of ``yes`` and ``no`` of its output matrix are kept (it has one row
per token, 151,936 for Qwen3), and an adapter is merged in float32, before the weights are
converted to the dtype they run in. Its score for a pair comes from the last position alone:

    log-odds = logit(yes) - logit(no)      P(yes) = 1 / (1 + exp(-log-odds))

which is the softmax over the two. Ranking uses the log-odds: P(yes) saturates at 0 or 1 and, in
half precision, is coarse enough to produce ties where log-odds differ.

Logits of other tokens and positions are not computed; the shared prefix of a query's documents is
computed once (see `qwen3nb.models.inference.prefix_cache`).

A prompt has three parts, which are tokenised separately, as in Qwen3-Reranker's own code
(https://huggingface.co/Qwen/Qwen3-Reranker-0.6B):

    prefix    system message, start of the user's turn
    content   <Instruct>: …  <Query>: …  <Document>: …
    suffix    end of the user's turn, start of the assistant's, an empty thought

In prefix and suffix, special tokens are control tokens. In the content, they are plain text:
otherwise a document could end the user's turn and write the assistant's answer. Encoders have no
such turns, and treat special tokens like sentence-transformers (`qwen3nb.models.encoders.base`).

If a pair exceeds the maximum length, the document is truncated at a token boundary. Only if the
query leaves no room for a document, the query is truncated as well, to give the document a quarter
of the content's tokens. Prefix, markers and suffix are always complete.

Shapes: N documents or pairs.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.models.batching import deduplicate, texts_of
from qwen3nb.models.kinds.resolve import adapter_source, fetch_model, find_source
from qwen3nb.models.kinds.source import Source, fingerprint, mteb_meta, unchanged
from qwen3nb.models.types import (
    INSTRUCTION,
    TEMPLATE_NAMES,
    Identified,
    Settings,
    SpecError,
    Stats,
    torch_dtype,
)
from qwen3nb.utils.choices import check_choice
from qwen3nb.utils.imports import load_library

if TYPE_CHECKING:
    from mteb.models.model_meta import ModelMeta
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

    from qwen3nb.models.inference.prefix_cache import Prefix


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
    name: PromptTemplate(name, gap)
    for name, gap in zip(TEMPLATE_NAMES, ("\n", "\n\n"), strict=True)
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
        self._tokenizer = tokenizer
        self._template = template
        self._instruction = instruction
        self.max_length = max_length
        self.yes = self._single_token("yes")
        self.no = self._single_token("no")
        self._prefix = self._control_tokens(template.prefix)
        self._suffix = self._control_tokens(template.suffix)
        # A text in which special tokens are plain text, unlike those of prefix and suffix.
        (content_start,) = self._tokens([template.start(instruction)])
        self.system = (*self._prefix, *content_start)
        # Tokens for the content: all but those of the template around it.
        self._room = max_length - len(self._prefix) - len(self._suffix)
        self._length_without_query = self._head_length("")
        if self._room <= self._length_without_query:
            raise RerankError(
                f"a maximum length of {max_length} leaves no room for query and document: "
                f"template and instruction take {self.length('')} tokens"
            )

    def rows(self, query: str, documents: Sequence[str]) -> Tokenised:
        """Tokenise ``query`` with each of ``documents``.

        Head and document are tokenised together, as in training; the shared prefix is found by
        comparing tokens.
        """
        check_text(query, "the query")
        for index, document in enumerate(documents):
            check_text(document, f"document {index}")
        head_text = self._template.head(self._instruction, query)
        content_texts = [f"{head_text} {document}" for document in documents]
        head, *contents = self._tokens([head_text, *content_texts])
        if len(head) >= self._room:  # no room for a document: once more, with a shorter query
            shortened = self.rows(self._shortened(query), documents)
            return replace(shortened, query_cut=True)
        # Where head and document meet, a token may span both, and differ from the head's last.
        shared = len(head)
        for content in contents:
            shared = min(shared, common_start(head, content))
        rests = []
        for content in contents:
            rests.append([*content[shared : self._room], *self._suffix])
        return Tokenised(
            shared=(*self._prefix, *head[:shared]),
            rests=rests,
            cut=[len(content) > self._room for content in contents],
        )

    def length(self, query: str) -> int:
        """Number of tokens of a prompt with the whole ``query`` and no document."""
        template_length = self.max_length - self._room
        return template_length + self._head_length(query)

    def _head_length(self, query: str) -> int:
        """Number of tokens of the content up to the document."""
        (head,) = self._tokens([self._template.head(self._instruction, query)])
        return len(head)

    def _shortened(self, query: str) -> str:
        """Return the longest start of ``query`` that leaves the document its share of tokens."""
        document_share = self._room // _SHARE  # a quarter of the content's tokens
        # For all before the document: what it leaves, and at least what the template takes.
        limit = max(self._length_without_query, self._room - document_share - 1)
        # Bisection over characters, because a shorter text may have different tokens: the first
        # `fitting` ones fit, the first `too_long` ones do not.
        fitting, too_long = 0, len(query) + 1
        while too_long - fitting > 1:
            middle = (fitting + too_long) // 2
            if self._head_length(query[:middle]) <= limit:
                fitting = middle
            else:
                too_long = middle
        return query[:fitting]

    def _tokens(self, texts: list[str]) -> list[list[int]]:
        encoded = self._tokenizer(
            texts,
            add_special_tokens=False,
            split_special_tokens=True,  # "<|im_end|>" in a document is plain text
            return_attention_mask=False,
            verbose=False,  # no warning about long texts, which are truncated here
        )
        rows: list[list[int]] = encoded["input_ids"]
        return rows

    def _control_tokens(self, text: str) -> list[int]:
        """Return the tokens of a text in which special tokens are control tokens."""
        encoded = self._tokenizer(text, add_special_tokens=False, split_special_tokens=False)
        ids: list[int] = encoded["input_ids"]
        return ids

    def _single_token(self, word: str) -> int:
        ids = self._tokenizer(word, add_special_tokens=False)["input_ids"]
        if len(ids) != 1 or ids[0] == self._tokenizer.unk_token_id:
            raise RerankError(
                f"the tokenizer has no token {word!r} (it gives {ids}); a yes/no reranker needs "
                "yes and no as one token each"
            )
        return int(ids[0])


def common_start(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the length of the common prefix of two token sequences."""
    for index, (first_token, second_token) in enumerate(zip(first, second, strict=False)):
        if first_token != second_token:
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


SCORING = 1  # increase when scores change for the same model: part of every identity
MAX_LENGTH = 512
Floats = NDArray[np.float64]


@dataclass
class RerankStats(Stats):
    """Work done by a reranker; ``texts`` counts pairs, ``cut`` truncated documents."""

    tokens: int = 0  # tokens that went through the model
    shared: int = 0  # tokens whose states were cached
    queries_cut: int = 0  # queries that were truncated because they left no room for a document


@dataclass(frozen=True)
class YesNoModel:
    """A causal language model, split into backbone and output matrix."""

    backbone: Any  # everything but the output matrix, on its device, in evaluation mode
    head: Tensor  # the output matrix (vocabulary, hidden size), as stored
    tokenizer: PreTrainedTokenizerBase  # its tokenizer
    dtype: str  # name of the dtype it runs in
    # number of parameters; includes the output matrix unless it is tied to the embedding
    parameters: int

    def rows(self, yes: int, no: int) -> Tensor:
        """Return a float32 copy of the rows of ``no`` and ``yes``: (2, hidden size)."""
        if not 0 <= max(yes, no) < len(self.head):
            raise SpecError(
                f"the tokenizer's ids of yes and no ({yes}, {no}) exceed the output "
                f"matrix's {len(self.head)} rows; the tokenizer belongs to another model"
            )
        return self.head[[no, yes]].detach().float().clone()


@dataclass(frozen=True)
class RerankScores:
    """Scores of N pairs, in input order."""

    log_odds: Floats  # logit of yes minus logit of no; documents rank by it
    p_yes: Floats  # the probability of yes, among yes and no
    truncated: NDArray[np.bool_]  # whether the document was truncated


class Reranker(Identified):
    """Scores pairs of query and document; MTEB's ``CrossEncoderProtocol``.

    Attributes:
        label: a name that is safe in file names and tables.
        settings: everything its scores depend on, as JSON; see `identity`.
        stats: work done so far.
        instruction: definition of relevance in the prompt.
        max_length: tokens of a pair, template included.
    """

    def __init__(
        self,
        source: Source,
        model: YesNoModel,
        *,
        template: str = "qwen3-reranker",
        instruction: str = INSTRUCTION,
        max_length: int = MAX_LENGTH,
        budget: int | None = None,
    ) -> None:
        """Wrap a loaded ``model``; see `load_reranker`."""
        from qwen3nb.models.inference.prefix_cache import PrefixModel
        from qwen3nb.models.inference.token_budget import TokenBudget, tokens_per_pass
        from qwen3nb.models.modeling.runtime import library_versions

        limit = int(model.backbone.config.max_position_embeddings)
        if not 0 < max_length <= limit:
            raise RerankError(f"expected a maximum length of 1 to {limit}; got {max_length}")
        self.source = source
        self.label = source.label
        self.instruction = instruction
        self.max_length = max_length
        self.parameters = model.parameters
        self.stats = RerankStats()
        layout = TEMPLATES[check_choice("template", template, TEMPLATES)]
        self._pairs = PairTokens(
            model.tokenizer, template=layout, instruction=instruction, max_length=max_length
        )
        self._model = PrefixModel(model.backbone)
        self._yes_no_rows = model.rows(self._pairs.yes, self._pairs.no)
        self._budget = TokenBudget(budget or tokens_per_pass(model.backbone))
        self._system_prefix: Prefix | None = None  # computed when it is first needed
        self.settings: Settings = {
            "scoring": SCORING,
            "model": unchanged(source),  # its fingerprint; raises if a file has changed
            "template": [
                layout.name,
                layout.prefix,
                layout.head(instruction="", query=""),
                layout.suffix,
            ],
            "instruction": instruction,
            "max_length": max_length,
            "dtype": model.dtype,
            "versions": library_versions(),
        }

    def __repr__(self) -> str:
        return f"<Reranker {self.label}: on {self.device}, identity {self.identity[:8]}>"

    @property
    def only_searches(self) -> str:
        """Why it does no other tasks."""
        return "reranks only"

    @property
    def device(self) -> str:
        """The device that the model runs on."""
        return str(self._model.model.device)

    def score(self, query: str, documents: Sequence[str]) -> RerankScores:
        """Score ``documents`` for one query; equal documents are scored once.

        Raises:
            RerankError: an invalid text, a score that is not finite, or a document that does
                not fit in memory.
        """
        started = time.perf_counter()
        distinct_documents, positions = deduplicate(list(documents))
        rows = self._pairs.rows(query, distinct_documents)
        tokens_before = self.stats.tokens
        log_odds = self._log_odds(rows.shared, rows.rests)
        prefix_tokens = self.stats.tokens - tokens_before  # those that were not cached
        is_invalid = ~np.isfinite(log_odds)
        if is_invalid.any():
            first_document = positions.index(int(np.flatnonzero(is_invalid)[0]))
            raise RerankError(
                f"{self.label}: the score of document {first_document} is not finite, "
                f"for the query {query!r:.80}"
            )
        self.stats.tokens += sum(map(len, rows.rests))
        # Without the cache, the shared tokens would go through the model for every document.
        self.stats.shared += len(rows.shared) * len(rows.rests) - prefix_tokens
        self.stats.texts += len(positions)
        self.stats.encoded += len(distinct_documents)
        truncated = np.array(rows.cut, dtype=bool)[positions]
        self.stats.cut += int(truncated.sum())
        self.stats.queries_cut += rows.query_cut
        self.stats.seconds += time.perf_counter() - started
        scores = log_odds[positions]
        return RerankScores(scores, sigmoid(scores), truncated)

    def score_documents(self, query: str, documents: Sequence[str]) -> Floats:
        """Return the log-odds (N,) of the texts of N documents for one query."""
        return self.score(query, documents).log_odds

    def score_pairs(self, pairs: Iterable[tuple[str, str]]) -> RerankScores:
        """Score pairs of query and document; pairs of one query are scored together."""
        indices_by_query: dict[str, list[int]] = {}
        documents: list[str] = []
        for index, (query, document) in enumerate(pairs):
            indices_by_query.setdefault(query, []).append(index)
            documents.append(document)
        log_odds = np.empty(len(documents))
        truncated = np.empty(len(documents), dtype=bool)
        for query, indices in indices_by_query.items():
            scores = self.score(query, [documents[index] for index in indices])
            log_odds[indices] = scores.log_odds
            truncated[indices] = scores.truncated
        return RerankScores(log_odds, sigmoid(log_odds), truncated)

    def predict(self, inputs1: Any, inputs2: Any, **_: object) -> Floats:
        """Return log-odds (N,) of two equally long lists of strings, or of MTEB's batches."""
        pairs = zip(texts_of(inputs1), texts_of(inputs2), strict=True)
        return self.score_pairs(pairs).log_odds

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """MTEB's description, with a name and revision unique to this reranker."""
        return mteb_meta(self, dimension=None, kinds=["cross-encoder"])

    def _log_odds(self, shared: tuple[int, ...], rests: Sequence[Sequence[int]]) -> Floats:
        import torch

        if not rests:
            return np.empty(0)
        prefix = self._prefix(shared)
        order: list[int] = []  # passes come by length, not in the order of the documents
        logits: list[Tensor] = []
        for batch, batch_logits in self._budget.passes(
            [len(rest) for rest in rests],
            lambda batch: self._logits(prefix, [rests[index] for index in batch]),
            error=RerankError,
            padded=True,
            parallel=self._model.model.device.type == "cpu",
        ):
            order.extend(batch)
            logits.append(batch_logits)
        # (N, 2) to two rows (N,). The only synchronisation with a GPU.
        no, yes = torch.cat(logits).T.cpu().numpy().astype(np.float64)
        log_odds = np.empty(len(rests))
        log_odds[order] = yes - no
        return log_odds

    def _logits(self, prefix: Prefix, rests: Sequence[Sequence[int]]) -> Tensor:
        """Return logits (N, 2) of no and yes, in float32 for any dtype of the model."""
        states = self._model.last_states(prefix, rests)
        return states.float() @ self._yes_no_rows.T

    def _prefix(self, shared: tuple[int, ...]) -> Prefix:
        """Return the keys and values of the shared prefix of a query's documents.

        Its first part is the same for all queries and computed once.
        """
        from qwen3nb.models.inference.prefix_cache import Prefix

        if self._system_prefix is None:
            self._system_prefix = self._model.extend(Prefix(), self._pairs.system)
            self.stats.tokens += len(self._pairs.system)
        # What a query adds to the system's tokens; the last of these may depend on the query.
        common = common_start(self._system_prefix.ids, shared)
        rest_of_shared = shared[common:]
        self.stats.tokens += len(rest_of_shared)
        return self._model.extend(self._system_prefix.cut(common), rest_of_shared)


def sigmoid(log_odds: Floats) -> Floats:
    """Return P(yes), without overflow at either end."""
    half = np.exp(-np.abs(log_odds))
    result: Floats = np.where(log_odds >= 0, 1, half) / (1 + half)
    return result


# Settings of a cross-encoder, and the words whose tokens they should be.
_SCORED_WORDS = {"true_token_id": "yes", "false_token_id": "no"}


def load_reranker(
    model: str | Path,
    *,
    adapter: str | Path | None = None,
    template: str | None = None,
    instruction: str | None = None,
    max_length: int = MAX_LENGTH,
    device: str = "auto",
    dtype: str = "float32",
    budget: int | None = None,
) -> Reranker:
    """Load the reranker that ``model`` names.

    Args:
        model: the folder or hub id of a causal language model such as a Qwen3-Reranker, or
            the folder of a LoRA adapter whose base model is available.
        adapter: folder of a LoRA adapter for ``model``.
        template: ``qwen3-reranker`` (from the model card) or ``double-newline``; None for the one
            used in training: ``double-newline`` for adapters, else ``qwen3-reranker``.
        instruction: definition of relevance; None for `INSTRUCTION` (web search).
        max_length: tokens of a pair, template included; longer documents are truncated.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:1``.
        dtype: ``float32``, or ``bfloat16``, ``float16`` or ``int8`` for speed at the cost of
            precision.
        budget: tokens per forward pass; affects speed, not scores.

    Raises:
        SpecError: no such model, or not a causal language model.
        RerankError: a tokenizer without ``yes`` and ``no``, or an invalid maximum length.
        ValueError: an unknown template, dtype or device.
    """
    if adapter is not None:
        source = adapter_source(Path(adapter), base=model)
    else:
        source = find_source(str(model))
        if source.on_hub:
            source = fetch_model(source)
    load_library("transformers.modeling_utils")
    source.kind.check_causal(source)  # raises before any weight is loaded
    label = source.label
    if dtype == "int8":
        label += "-int8"
    source = replace(source, label=label, content=fingerprint(source))
    if not template:
        template = "double-newline" if source.kind.adapts else "qwen3-reranker"
    return Reranker(
        source,
        load_yes_no(source, device=device, dtype=dtype),
        template=template,
        instruction=INSTRUCTION if instruction is None else instruction,
        max_length=max_length,
        budget=budget,
    )


def load_yes_no(source: Source, *, device: str, dtype: str) -> YesNoModel:
    """Load a checked causal language model, split into backbone and head."""
    from qwen3nb.models.inference.fused_layers import fuse_layers
    from qwen3nb.models.inference.prefix_cache import check_causal
    from qwen3nb.models.modeling.runtime import load_tokenizer, pick_device

    model = source.kind.causal(source, torch_dtype(dtype)).to(pick_device(device)).eval()
    check_causal(model.config)
    tokenizer = load_tokenizer(source.model_folder, model.config)
    if model.config.model_type.startswith("qwen"):
        _check_markers(tokenizer, source.model_folder)
    _check_scored_tokens(tokenizer, source.model_folder)
    parameters = sum(weight.numel() for weight in model.parameters())  # tied ones count once
    backbone = model.model
    head = model.get_output_embeddings().weight
    fuse_layers(backbone, int8=dtype == "int8")
    return YesNoModel(backbone, head, tokenizer, dtype, parameters)


def _check_markers(tokenizer: PreTrainedTokenizerBase, folder: ModelFolder) -> None:
    """Check that the markers of the template are tokens, as in all Qwen models.

    As plain text, they would be a different prompt than in training; other families have none.

    Raises:
        SpecError: no token for a marker.
    """
    for marker in ("<|im_start|>", "<|im_end|>"):
        ids = tokenizer(marker, add_special_tokens=False)["input_ids"]
        if len(ids) != 1:
            raise SpecError(
                f"{folder}: the tokenizer has no token {marker!r}, which the prompt of a Qwen "
                "reranker needs; copy the tokenizer again"
            )


def _check_scored_tokens(tokenizer: PreTrainedTokenizerBase, folder: ModelFolder) -> None:
    """Check that a cross-encoder of sentence-transformers scores yes and no.

    Raises:
        SpecError: it scores other tokens.
    """
    for module in folder.modules:
        if module.name != "LogitScore":
            continue
        # Its settings should name the tokens of yes and no: {"true_token_id": 9693, …}.
        for key, word in _SCORED_WORDS.items():
            ids = tokenizer(word, add_special_tokens=False)["input_ids"]
            scored_id = module.fields.get(key)
            if [scored_id] != ids:
                raise SpecError(
                    f"{module.file}: {key} is {scored_id!r:.40}; expected {ids}, "
                    f"the token {word!r} of a yes/no reranker"
                )
