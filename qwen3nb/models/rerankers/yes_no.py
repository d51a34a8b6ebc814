"""The yes/no reranker: a language model judges whether a document answers a query.

A reranker is a causal language model: a base model, a base with a LoRA adapter, or a
Qwen3-Reranker. Its score for a pair comes from the last position alone:

    log-odds = logit(yes) - logit(no)      P(yes) = 1 / (1 + exp(-log-odds))

which is the softmax over the two. Ranking uses the log-odds: P(yes) saturates at 0 or 1, and
in half precision is so coarse that documents tie, long before the log-odds do.

Logits of other tokens and positions are not computed, and the shared prefix of a query's
documents only once (see `qwen3nb.models.inference.prefix_cache`).

Shapes: N documents or pairs.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from qwen3nb.models.batching import deduplicate, texts_of
from qwen3nb.models.kinds.source import Source, unchanged
from qwen3nb.models.mteb_meta import mteb_meta
from qwen3nb.models.rerankers.prompt_template import (
    INSTRUCTION,
    TEMPLATES,
    PairTokens,
    RerankError,
    common_start,
)
from qwen3nb.models.types import SpecError, Stats
from qwen3nb.utils.atomic_files import sha256_json
from qwen3nb.utils.choices import one_of

if TYPE_CHECKING:
    from mteb.models.model_meta import ModelMeta
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

    from qwen3nb.models.inference.prefix_cache import Prefix

SCORING = 1  # increase when scores change for the same model: part of every identity
MAX_LENGTH = 512
Floats = NDArray[np.float64]


@dataclass
class RerankStats(Stats):
    """Work done by a reranker; ``texts`` counts pairs, ``cut`` truncated documents."""

    tokens: int = 0  # tokens that went through the model
    shared: int = 0  # tokens that did not, because their states were cached
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


class Reranker:
    """Scores pairs of query and document; MTEB's ``CrossEncoderProtocol``.

    Attributes:
        label: a name that is safe in file names and tables.
        settings: everything its scores depend on, as JSON; see `identity`.
        stats: work done so far.
        instruction: what makes a document relevant, as the prompt states it.
        max_length: tokens of a pair, template included.
    """

    searches_only = True
    reranks_only = True

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
        """Wrap a loaded ``model``; `load_reranker` loads one, and names the errors."""
        from qwen3nb.models.inference.prefix_cache import PrefixModel
        from qwen3nb.models.inference.token_budget import TokenBudget, tokens_per_pass
        from qwen3nb.models.modeling.runtime import library_versions

        limit = int(model.backbone.config.max_position_embeddings)
        if not 0 < max_length <= limit:
            raise RerankError(f"expected a maximum length of 1 to {limit}; got {max_length}")
        self.source, self.label = source, source.label
        self.instruction, self.max_length = instruction, max_length
        layout = TEMPLATES[one_of("template", template, TEMPLATES)]
        self._pairs = PairTokens(
            model.tokenizer, template=layout, instruction=instruction, max_length=max_length
        )
        self._model = PrefixModel(model.backbone)
        self._rows = model.rows(self._pairs.yes, self._pairs.no)
        self.parameters = model.parameters
        self._budget = TokenBudget(budget or tokens_per_pass(model.backbone))
        self._system: Prefix | None = None
        self.stats = RerankStats()
        self.settings: dict[str, Any] = {
            "scoring": SCORING,
            "model": unchanged(source),
            "template": [layout.name, layout.prefix, layout.head("", ""), layout.suffix],
            "instruction": instruction,
            "max_length": max_length,
            "dtype": model.dtype,
            "versions": library_versions(),
        }

    def __repr__(self) -> str:
        return f"<Reranker {self.label}: on {self.device}, identity {self.identity[:8]}>"

    @property
    def identity(self) -> str:
        """SHA-256 of everything this reranker's scores depend on."""
        return sha256_json(self.settings)

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
        started, tokens = time.perf_counter(), self.stats.tokens
        distinct, where = deduplicate(list(documents))
        rows = self._pairs.rows(query, distinct)
        log_odds = self._log_odds(rows.shared, rows.rests)
        bad = np.flatnonzero(~np.isfinite(log_odds))
        if len(bad):
            raise RerankError(
                f"{self.label}: the score of document {where.index(int(bad[0]))} is not finite, "
                f"for the query {query!r:.80}"
            )
        cut, scores, stats = np.array(rows.cut, dtype=bool)[where], log_odds[where], self.stats
        stats.texts += len(where)
        stats.encoded += len(distinct)
        stats.cut += int(cut.sum())
        stats.queries_cut += rows.query_cut
        stats.tokens += sum(map(len, rows.rests))
        whole = sum(len(rows.shared) + len(rest) for rest in rows.rests)
        stats.shared += whole - (stats.tokens - tokens)
        stats.seconds += time.perf_counter() - started
        return RerankScores(scores, sigmoid(scores), cut)

    def score_pairs(self, pairs: Iterable[tuple[str, str]]) -> RerankScores:
        """Score pairs of query and document; pairs of one query are scored together."""
        positions: dict[str, list[int]] = {}
        documents: list[str] = []
        for index, (query, document) in enumerate(pairs):
            positions.setdefault(query, []).append(index)
            documents.append(document)
        log_odds = np.empty(len(documents))
        truncated = np.empty(len(documents), dtype=bool)
        for query, indices in positions.items():
            part = self.score(query, [documents[index] for index in indices])
            log_odds[indices], truncated[indices] = part.log_odds, part.truncated
        return RerankScores(log_odds, sigmoid(log_odds), truncated)

    def predict(self, inputs1: Any, inputs2: Any, **_: Any) -> Floats:
        """Return log-odds (N,) of two equally long lists of strings, or of MTEB's batches."""
        pairs = zip(texts_of(inputs1), texts_of(inputs2), strict=True)
        return self.score_pairs(pairs).log_odds

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """MTEB's description, with a name and revision unique to this reranker."""
        return mteb_meta(self, dimension=None, kinds=["cross-encoder"])

    def _log_odds(self, shared: tuple[int, ...], rests: Sequence[Sequence[int]]) -> Floats:
        import torch

        result = np.empty(len(rests))
        if not rests:
            return result
        prefix = self._prefix(shared)
        passes = self._budget.passes(
            [len(rest) for rest in rests],
            lambda batch: self._logits(prefix, [rests[index] for index in batch]),
            error=RerankError,
            padded=True,
            parallel=self._model.model.device.type == "cpu",
        )
        batches, logits = zip(*passes, strict=True)
        no, yes = torch.cat(logits).T.cpu().numpy().astype(np.float64)  # the only wait for a GPU
        result[list(chain.from_iterable(batches))] = yes - no
        return result

    def _logits(self, prefix: Prefix, rests: Sequence[Sequence[int]]) -> Tensor:
        """Return logits (N, 2) of no and yes, in float32 whatever the model's dtype is."""
        states = self._model.last_states(prefix, rests)
        return states.float() @ self._rows.T

    def _prefix(self, shared: tuple[int, ...]) -> Prefix:
        """Return the keys and values of the prefix that a query's documents share.

        Its first part is the same for all queries and computed only once.
        """
        from qwen3nb.models.inference.prefix_cache import Prefix

        if self._system is None:
            self._system = self._model.extend(Prefix(), self._pairs.system)
            self.stats.tokens += len(self._pairs.system)
        start = self._system.cut(common_start(self._system.ids, shared))
        self.stats.tokens += len(shared) - len(start.ids)
        return self._model.extend(start, shared[len(start.ids) :])


def sigmoid(log_odds: Floats) -> Floats:
    """Return P(yes), without overflow at either end."""
    half = np.exp(-np.abs(log_odds))
    result: Floats = np.where(log_odds >= 0, 1, half) / (1 + half)
    return result
