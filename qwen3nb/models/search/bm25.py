"""BM25, the baseline without training, as an MTEB search model.

It runs on bm25s with the settings of MTEB's own baseline for English (``mteb/baseline-bm25s``):
English stop words, the Snowball stemmer, k1 1.5, b 0.75, Lucene's variant. Texts in other
languages are neither stemmed nor stripped of stop words, and words are runs of two letters
or more, so scores on Chinese, Japanese or Thai say little; MTEB's baseline has settings per
language. Its settings are recorded with every score, because BM25 implementations differ more
from each other than many models do.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import bm25s
import Stemmer

from qwen3nb.models.kinds.source import Source, mteb_meta
from qwen3nb.models.search.mteb_rows import ENGLISH, joined_document, joined_query, task_languages
from qwen3nb.models.types import Stats
from qwen3nb.utils.atomic_files import sha256_json

if TYPE_CHECKING:
    from mteb.models.model_meta import ModelMeta

RECIPE = {
    "method": "lucene",
    "k1": 1.5,
    "b": 0.75,
    "stop_words": "en",
    "stemmer": "english",
    "other_languages": "no stop words, no stemmer",
}


class BM25:
    """BM25 over a corpus, for retrieval and reranking tasks only.

    A document that shares no word with the query is not retrieved: its score would be 0, and
    its rank would depend on its id alone.
    """

    searches_only = True
    device = "cpu"

    def __init__(self, source: Source) -> None:
        self.label = source.label
        self.source = source
        self.settings: dict[str, Any] = {"model": {"kind": "bm25"}, **RECIPE}
        self.settings["bm25s"] = bm25s.__version__
        self.settings["PyStemmer"] = Stemmer.version()
        self.stats = Stats()
        self._documents: list[str] = []
        self._english = True
        self._index = bm25s.BM25()

    def __repr__(self) -> str:
        return (
            f"<BM25: {RECIPE['method']}, k1 {RECIPE['k1']}, b {RECIPE['b']}, "
            f"{RECIPE['stemmer']} stemmer>"
        )

    @property
    def identity(self) -> str:
        """SHA-256 of the parameters."""
        return sha256_json(self.settings)

    def index(
        self,
        corpus: Any,
        *,
        task_metadata: Any = None,
        hf_subset: str = "",
        language: str = ENGLISH,
        **_: Any,
    ) -> None:
        """Index MTEB's corpus: rows with ``id``, ``text`` and optionally ``title``.

        Args:
            corpus: the rows.
            task_metadata: MTEB's description of the task, which knows its languages.
            hf_subset: the subset of a task with several languages.
            language: three-letter code of the language, without a task.

        Raises:
            ValueError: no document has a word.
        """
        started = time.perf_counter()
        spoken = (
            task_languages(task_metadata, hf_subset) if task_metadata is not None else {language}
        )
        self._english = ENGLISH in spoken
        self._documents = [str(row["id"]) for row in corpus]
        self.__dict__.pop("_positions", None)  # of an earlier corpus
        tokens = self._tokens([joined_document(row) for row in corpus])
        if not any(map(len, tokens.ids)):
            raise ValueError(
                f"expected documents with words to index; got {len(self._documents)} without "
                "any (empty texts, or nothing but stop words)"
            )
        self._index = bm25s.BM25(method=RECIPE["method"], k1=RECIPE["k1"], b=RECIPE["b"])
        self._index.index(tokens, show_progress=False)
        self._count(len(self._documents), started)

    def search(
        self, queries: Any, *, top_k: int, top_ranked: Any = None, **_: Any
    ) -> dict[str, dict[str, float]]:
        """Score the ``top_k`` best documents per query, or those in ``top_ranked``."""
        started = time.perf_counter()
        names = [str(row["id"]) for row in queries]
        texts = [joined_query(row) for row in queries]
        run: dict[str, dict[str, float]] = {}
        if top_ranked is None:
            depth = min(top_k, len(self._documents))
            tokens = self._tokens(texts)
            rows, scores = self._index.retrieve(tokens, k=depth, show_progress=False)
            for name, ids, values in zip(names, rows, scores, strict=True):
                best = zip(ids, values, strict=True)
                run[name] = {self._documents[row]: float(value) for row, value in best if value > 0}
        else:  # of the candidates those that share a word with the query
            words = self._tokens(texts, return_ids=False)
            for name, own in zip(names, words, strict=True):
                scores = self._scores(own)
                known = [each for each in top_ranked.get(name, ()) if each in self._positions]
                among = {each: float(scores[self._positions[each]]) for each in known}
                run[name] = {each: value for each, value in among.items() if value > 0}
        self._count(len(run), started)
        return run

    def score(self, query: str, documents: Sequence[str]) -> list[float]:
        """Return the scores of indexed ``documents`` for one query; 0 without a shared word."""
        started = time.perf_counter()
        scores = self._scores(self._tokens([query], return_ids=False)[0])
        self._count(1, started)
        return [float(scores[self._positions[name]]) for name in documents]

    def _scores(self, words: Sequence[str]) -> Any:
        """Return the score of every document (N,) for the words of a query."""
        known = [word for word in words if word in self._index.vocab_dict]
        return self._index.get_scores(known) if known else [0.0] * len(self._documents)

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self._documents)}

    def _tokens(self, texts: list[str], *, return_ids: bool = True) -> Any:
        return bm25s.tokenize(
            texts,
            stopwords=RECIPE["stop_words"] if self._english else None,
            stemmer=Stemmer.Stemmer(RECIPE["stemmer"]) if self._english else None,
            return_ids=return_ids,
            show_progress=False,
        )

    def _count(self, texts: int, started: float) -> None:
        self.stats.texts += texts
        self.stats.encoded += texts
        self.stats.seconds += time.perf_counter() - started

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """MTEB's description; its revision is the identity."""
        return mteb_meta(self, dimension=None, kinds=["sparse"])
