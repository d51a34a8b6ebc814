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
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import bm25s
import numpy as np
import Stemmer

from qwen3nb.models.kinds.source import Source, mteb_meta
from qwen3nb.models.search import mteb_rows
from qwen3nb.models.search.bm25_index import build_index, kept_index
from qwen3nb.models.types import Stats
from qwen3nb.utils.atomic_files import sha256_json
from qwen3nb.utils.hardware import cores

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
LARGE = 20_000  # documents from which an index is kept; that of fewer takes a second


class BM25:
    """BM25 over a corpus, for retrieval and reranking tasks only.

    A document that shares no word with the query is not retrieved: its score would be 0, and
    its rank would depend on its id alone.
    """

    searches_only = True
    device = "cpu"

    def __init__(self, source: Source, *, cache: bool = True) -> None:
        self.label = source.label
        self.source = source
        self.settings: dict[str, Any] = {"model": {"kind": "bm25"}, **RECIPE}
        self.settings["bm25s"] = bm25s.__version__
        self.settings["PyStemmer"] = Stemmer.version()
        self.stats = Stats()
        self._documents: list[str] = []
        self._english = True
        self._cache = cache  # whether indexes of large corpora are kept
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
        language: str = mteb_rows.ENGLISH,
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
            mteb_rows.task_languages(task_metadata, hf_subset)
            if task_metadata is not None
            else {language}
        )
        self._english = mteb_rows.ENGLISH in spoken
        self._documents = mteb_rows.document_ids(corpus, range(len(corpus)))
        self.__dict__.pop("_positions", None)  # of an earlier corpus
        texts = partial(mteb_rows.joined_documents, corpus)
        options: dict[str, Any] = {"english": self._english, "settings": self.settings}
        if self._cache and len(self._documents) >= LARGE:
            self._index = kept_index(texts, **options)
        else:
            self._index = build_index(texts(), **options)
        self._count(len(self._documents), started)

    def search(
        self, queries: Any, *, top_k: int, top_ranked: Any = None, **_: Any
    ) -> dict[str, dict[str, float]]:
        """Score the ``top_k`` best documents per query, or those in ``top_ranked``."""
        started = time.perf_counter()
        names = [str(row["id"]) for row in queries]
        texts = [mteb_rows.joined_query(row) for row in queries]
        run: dict[str, dict[str, float]] = {}
        words = self._tokens(texts)
        if top_ranked is None:
            with ThreadPoolExecutor(cores()) as threads:
                best = threads.map(partial(self._best, k=top_k), words)
                run = dict(zip(names, best, strict=True))
        else:  # of the candidates those that share a word with the query
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
        scores = self._scores(self._tokens([query])[0])
        self._count(1, started)
        return [float(scores[self._positions[name]]) for name in documents]

    def _best(self, words: Sequence[str], *, k: int) -> dict[str, float]:
        """Return the scores of the ``k`` best documents for the words of a query.

        Of documents that tie with the k-th, the first in the corpus. In a small one, those that
        bm25s returns, as in all earlier records: NumPy's choice, which depends on the processor,
        and takes a hundred times as long as the rest where most documents score 0.
        """
        scores = self._scores(words)
        rows = np.flatnonzero(scores > 0)
        if len(rows) > k:
            found = scores[rows]
            least = np.partition(found, len(found) - k)[len(found) - k]
            above, tied = rows[found > least], rows[found == least]
            if len(above) + len(tied) > k and len(scores) < LARGE:
                rows = np.argpartition(scores, -k)[-k:]
            else:
                rows = np.concatenate([above, tied[: k - len(above)]])
        names = [self._documents[row] for row in rows.tolist()]
        return dict(zip(names, scores[rows].tolist(), strict=True))

    def _scores(self, words: Sequence[str]) -> Any:
        """Return the score of every document (N,) for the words of a query."""
        known = [word for word in words if word in self._index.vocab_dict]
        if not known:
            return np.zeros(len(self._documents), dtype=np.float32)
        return self._index.get_scores(known)

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self._documents)}

    def _tokens(self, texts: list[str]) -> list[list[str]]:
        tokens: list[list[str]] = bm25s.tokenize(
            texts,
            stopwords=RECIPE["stop_words"] if self._english else None,
            stemmer=Stemmer.Stemmer(RECIPE["stemmer"]) if self._english else None,
            return_ids=False,
            show_progress=False,
        )
        return tokens

    def _count(self, texts: int, started: float) -> None:
        self.stats.texts += texts
        self.stats.encoded += texts
        self.stats.seconds += time.perf_counter() - started

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """MTEB's description; its revision is the identity."""
        return mteb_meta(self, dimension=None, kinds=["sparse"])
