"""The base class of searchers: models that rank documents, and have no vector per text.

A searcher is one file with a class and its kind. The class is a `PairSearcher`, which says how
queries and a block of documents are scored. Search, reranking, own data with boosts, MTEB's
protocol and times follow::

    prepared(queries)                    once per search, such as encoding the queries
    block_scores(prepared, documents)    scores (Q, n) of a block of n documents; minus infinity
                                         where a document is not found

Documents are scored block by block, and only the best ones of each query are kept, so that memory
does not grow with the corpus. A searcher that needs the whole corpus at once, such as BM25, is a
`Searcher` and defines ``index`` and ``search``.

Shapes: Q queries, n documents of a block, N documents.
"""

from __future__ import annotations

import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from qwen3nb.models.batching import check_texts
from qwen3nb.models.kinds.source import SEARCHER_IN_MEMORY, Source, mteb_meta, safe_label
from qwen3nb.models.search.exact import BestDocuments, Hits, boosted
from qwen3nb.models.search.mteb_rows import document_ids, joined_documents, joined_query
from qwen3nb.models.types import Identified, Settings, Stats
from qwen3nb.utils.progress import tqdm

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.models.model_meta import ModelMeta

    from qwen3nb.models.search.mteb_rows import MtebRows
    from qwen3nb.models.search.words import Words

Run = dict[str, dict[str, float]]
Ranking = tuple[str, Mapping[str, float]]  # a query and the scores of its documents
QUERIES_AT_ONCE = 256
_DELAY = 2.0  # seconds until a progress bar appears
_TIMED_QUERIES = 20  # at most


class SearchTexts(Protocol):
    """The texts of a search: those of a test collection, or of custom data."""

    @property
    def queries(self) -> Mapping[str, str]:
        """Texts of the queries, by id."""

    @property
    def documents(self) -> Mapping[str, str]:
        """Texts of the documents, by id."""

    @property
    def words(self) -> Words:
        """How BM25 reads the texts."""


class Searcher(Identified, ABC):
    """Ranks documents for queries.

    Attributes:
        label: a name that is safe in file names and tables.
        settings: everything that its rankings depend on, as JSON; see `identity`.
        source: the model.
        stats: work done so far.
    """

    mteb_kinds: ClassVar[Sequence[str]] = ("sparse",)  # MTEB's names of its kind
    least_score: float | None = None  # the lowest score that can be; None if there is no bound
    matched_share: ClassVar[float] = 1.0  # of candidates, those that get a score
    seconds_per_pair: ClassVar[float] = 1e-7  # of a core, for a query and a document
    seconds_per_candidates: ClassVar[float] = 2.5e-4  # for a query with its candidates
    longest: int | None = None  # most tokens of a document that it reads; None for any
    device: str = "cpu"
    label: str
    source: Source
    stats: Stats
    _task: TaskMetadata | None = None  # MTEB's description of the task that is searched

    @property
    def only_searches(self) -> str:
        """Why it does no other tasks, such as ``has no vectors``."""
        return self.source.kind.only_searches

    @abstractmethod
    def index(self, corpus: MtebRows, **options: Any) -> None:
        """Take MTEB's corpus: rows with ``id``, ``text`` and optionally ``title``."""

    @abstractmethod
    def search(self, queries: MtebRows, *, top_k: int, **options: Any) -> Run:
        """Score the ``top_k`` best documents per query, of all or of those in ``top_ranked``."""

    @contextmanager
    def of_task(self, task: TaskMetadata | None) -> Iterator[None]:
        """Search with the prompts of a task within the block, if the model has such."""
        self._task = task
        try:
            yield
        finally:
            self._task = None

    def rank(self, texts: SearchTexts, *, k: int) -> Iterator[Ranking]:
        """Yield each query with its ``k`` best documents."""
        self.index(document_rows(texts), words=texts.words)
        queries = [{"id": name, "text": text} for name, text in texts.queries.items()]
        for start in range(0, len(queries), QUERIES_AT_ONCE):
            yield from self.search(queries[start : start + QUERIES_AT_ONCE], top_k=k).items()

    def rank_boosted(self, texts: SearchTexts, boosts: Mapping[str, float], *, k: int) -> Run:
        """Return each query's ``k`` best documents or more, by boosted score, with all ties."""
        self.index(document_rows(texts), words=texts.words)
        run: Run = {}
        for query, text in texts.queries.items():
            scores_by_query = self.search([{"id": query, "text": text}], top_k=len(texts.documents))
            boosted_scores = {}
            for name, score in scores_by_query[query].items():
                boost = boosts[name]
                # Divided where negative, so that a larger boost never lowers a score.
                boosted_scores[name] = score * boost if score >= 0 else score / boost
            run[query] = boosted_scores
        return run

    def scores_of_all(self, query: str, texts: SearchTexts) -> dict[str, float]:
        """Return the score of every document that is found for one query."""
        self.index(document_rows(texts), words=texts.words)
        scores_by_query = self.search([{"id": "q", "text": query}], top_k=len(texts.documents))
        return dict(scores_by_query["q"])

    def first_stage(self) -> tuple[str, Settings]:
        """Return its name and recipe as the first stage of a reranker."""
        return self.label, {"kind": "search", "identity": self.identity}

    def seconds_per_query(self, queries: Sequence[str]) -> float:
        """Return the median time from a query to a ranking of the indexed documents."""
        return median_seconds(
            lambda query: self.search([{"id": "q", "text": query}], top_k=100), queries
        )

    def index_texts(self, texts: Sequence[str]) -> None:
        """Do the work that a corpus of these texts costs, to time it."""
        self.index([{"id": str(row), "text": text} for row, text in enumerate(texts)])

    def index_memory(self, characters: int) -> int:
        """Return the bytes of memory for an index of texts with so many characters."""
        return 0

    def index_disk(self, documents: int, characters: int) -> int:
        """Return the bytes of disk for an index that is kept."""
        return 0

    def found_share(self, documents: int, k: int) -> float:
        """Return how much of its ``k`` documents a query finds among so many, or all if fewer."""
        return 1.0

    def is_quick(self, documents: int) -> bool:
        """Return whether so many documents can be searched again without encoding them."""
        return True

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """MTEB's description; its revision is the identity."""
        return mteb_meta(self, dimension=None, kinds=list(self.mteb_kinds))

    def _count(self, texts: int, started: float) -> None:
        self.stats.texts += texts
        self.stats.encoded += texts
        self.stats.seconds += time.perf_counter() - started


class TextSearcher(Searcher):
    """Searches texts as they come: it says which documents are best, and keeps no index."""

    _corpus: MtebRows = ()  # the rows that are searched; see `index`

    @abstractmethod
    def best_documents(
        self,
        queries: Sequence[str],
        documents: Iterable[str],
        *,
        k: int,
        boosts: NDArray[np.float64] | None = None,
        keep_ties: bool = False,
    ) -> Hits:
        """Return the ``k`` best documents of each query.

        Args:
            queries: their texts.
            documents: their texts.
            k: documents per query.
            boosts: a positive factor per document (N,).
            keep_ties: return every document that ties with the k-th, too.
        """

    def index(self, corpus: MtebRows, **_: object) -> None:
        """Keep MTEB's corpus, whose texts are scored when it is searched."""
        self._corpus = corpus

    def search(
        self,
        queries: MtebRows,
        *,
        top_k: int,
        top_ranked: Mapping[str, Sequence[str]] | None = None,
        task_metadata: TaskMetadata | None = None,
        **_: Any,
    ) -> Run:
        """Score the ``top_k`` best documents per query, of all or of those in ``top_ranked``.

        Raises:
            ValueError: one of these is not in the corpus.
        """
        names = [str(row["id"]) for row in queries]
        texts = [joined_query(row) for row in queries]
        with self.of_task(task_metadata):  # which may have prompts of its own
            if top_ranked is not None:
                candidates = distinct_candidates(names, top_ranked)
                return self._search_candidates(candidates, texts, top_k)
            hits = self.best_documents(texts, joined_documents(self._corpus), k=top_k)
        return named_hits(hits, names, self._corpus)

    def _search_candidates(
        self, candidates: Mapping[str, Sequence[str]], texts: Sequence[str], k: int
    ) -> Run:
        """Return the ``k`` best candidates of each query."""
        documents = candidate_texts(self._corpus, candidates)
        run: Run = {}
        for query, text in zip(candidates, texts, strict=True):
            names = candidates[query]
            run[query] = {}
            if names:  # not every query has candidates
                hits = self.best_documents([text], [documents[name] for name in names], k=k)
                run.update(hits.run([query], names))
        return run

    def rank(self, texts: SearchTexts, *, k: int) -> Iterator[Ranking]:
        """Yield each query with its ``k`` best documents."""
        queries, documents = texts.queries, texts.documents
        hits = self.best_documents(list(queries.values()), documents.values(), k=k)
        yield from rankings(hits, list(queries), list(documents))

    def rank_boosted(self, texts: SearchTexts, boosts: Mapping[str, float], *, k: int) -> Run:
        """Return each query's ``k`` best documents by boosted score, and ties with the last."""
        hits = self.best_documents(
            list(texts.queries.values()),
            texts.documents.values(),
            k=k,
            boosts=np.array([boosts[name] for name in texts.documents]),
            keep_ties=True,
        )
        return hits.run(texts.queries, list(texts.documents))


class PairSearcher(TextSearcher):
    """Searches by the scores of pairs: every query with every document, block by block.

    Attributes:
        block_size: documents that are scored at once.
        show_progress: whether a long search shows a progress bar.
    """

    block_size: int = 256
    show_progress: bool = False

    def __init__(self, source: Source | str, *, settings: Mapping[str, object]) -> None:
        """Set what all searchers have.

        Args:
            source: what loads the model; or a name, for a searcher that is made in a program.
            settings: everything that the scores depend on, as JSON.
        """
        if isinstance(source, str):
            source = Source(source, SEARCHER_IN_MEMORY, safe_label(source))
            settings = {"model": {"kind": source.kind.name, "spec": source.spec}, **settings}
        self.label = source.label
        self.source = source
        self.settings = dict(settings)
        self.stats = Stats()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.label}: identity {self.identity[:8]}>"

    def prepared(self, queries: Sequence[str]) -> Any:
        """Return queries in the form that `block_scores` takes; by default their texts."""
        return list(queries)

    @abstractmethod
    def block_scores(self, queries: Any, documents: Sequence[str]) -> NDArray[Any]:
        """Return the scores (Q, n) of prepared queries and a block of documents.

        Minus infinity is the score of a document that is not found.
        """

    def best_documents(
        self,
        queries: Sequence[str],
        documents: Iterable[str],
        *,
        k: int,
        boosts: NDArray[np.float64] | None = None,
        keep_ties: bool = False,
        owners: NDArray[np.int64] | None = None,
    ) -> Hits:
        """Return the ``k`` best documents of each query, scoring the documents block by block.

        Args:
            queries: their texts.
            documents: their texts.
            k: documents per query.
            boosts: a positive factor per document (N,).
            keep_ties: return every document that ties with the k-th, too.
            owners: the document of each text (N,), rising, if texts are chunks of documents,
                which then score by their best one.
        """
        started = time.perf_counter()
        check_texts(queries)
        prepared = self.prepared(queries)
        best = BestDocuments(len(queries), k, keep_ties=keep_ties, repeats=owners is not None)
        scored = 0  # documents, whose positions continue from block to block
        with self._progress() as bar:
            for block in text_blocks(documents, self.block_size):
                check_texts(block, scored)
                scores = self.block_scores(prepared, block)
                if boosts is not None:
                    block_boosts = boosts[scored : scored + len(block)]
                    scores = boosted(scores, block_boosts)
                ids = np.arange(scored, scored + len(block))
                if owners is not None:
                    ids = owners[ids]
                best.add_block(np.asarray(scores, dtype=np.float32), ids)
                scored += len(block)
                bar.update(len(block))
        self._count(len(queries) + scored, started)
        number_of_documents = scored if owners is None else len(np.unique(owners))
        return best.hits(min(k, number_of_documents))

    def _progress(self) -> tqdm:
        """Return a progress bar of a search, which counts documents."""
        return tqdm(
            desc=f"{self.label}: searching",
            unit=" documents",
            delay=_DELAY,
            leave=False,
            disable=not self.show_progress,
        )

    def score_documents(self, query: str, documents: Sequence[str]) -> NDArray[np.float64]:
        """Return the scores (N,) of the texts of N documents for one query."""
        started = time.perf_counter()
        check_texts([query])
        check_texts(documents)
        prepared_query = self.prepared([query])
        scores = np.empty(len(documents))
        for start in range(0, len(documents), self.block_size):
            block = documents[start : start + self.block_size]
            (block_scores,) = self.block_scores(prepared_query, block)  # of (1, n), the only row
            scores[start : start + len(block)] = block_scores
        self._count(1 + len(documents), started)
        return scores

    def seconds_per_query(self, queries: Sequence[str]) -> float:
        """Return the median time to prepare a query in seconds, such as to encode it."""
        return median_seconds(lambda query: self.prepared([query]), queries)

    def index_texts(self, texts: Sequence[str]) -> None:
        """Score texts for one query, to time it."""
        self.best_documents(texts[:1], texts, k=1)

    def is_quick(self, documents: int) -> bool:
        """Return False: a search encodes the documents again."""
        return False

    def _search_candidates(
        self, candidates: Mapping[str, Sequence[str]], texts: Sequence[str], k: int
    ) -> Run:
        """Return the ``k`` best candidates of each query."""
        documents = candidate_texts(self._corpus, candidates)
        run: Run = {}
        for query, text in zip(candidates, texts, strict=True):
            names = candidates[query]
            scores = self.score_documents(text, [documents[name] for name in names])
            best_first = np.argsort(-scores, kind="stable").tolist()
            run[query] = {}
            for row in best_first[:k]:
                if scores[row] > -np.inf:  # otherwise the searcher has not found it
                    run[query][names[row]] = float(scores[row])
        return run


def distinct_candidates(
    queries: Sequence[str], top_ranked: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    """Return the candidates of each query in their order, each once; none for some queries."""
    return {query: list(dict.fromkeys(top_ranked.get(query, ()))) for query in queries}


def candidate_texts(corpus: MtebRows, candidates: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the texts of candidates in MTEB's corpus, by id.

    Raises:
        ValueError: one of them is not in the corpus.
    """
    candidate_ids: set[str] = set().union(*candidates.values())
    ids = document_ids(corpus, range(len(corpus)))
    texts = {}
    for document_id, text in zip(ids, joined_documents(corpus), strict=True):
        if document_id in candidate_ids:
            texts[document_id] = text
    check_candidates(candidate_ids, texts)
    return texts


def check_candidates(candidates: set[str], corpus: Mapping[str, object]) -> None:
    """Raise ValueError if a candidate is not in the corpus; names the first."""
    missing_ids = sorted(candidates - corpus.keys())
    if missing_ids:
        raise ValueError(
            f"candidate {missing_ids[0]!r} is not in the corpus ({len(missing_ids)} in total); are "
            "the candidates those of this corpus?"
        )


def document_rows(texts: SearchTexts) -> list[dict[str, str]]:
    """Return the documents as rows of MTEB's corpus."""
    return [{"id": name, "text": text} for name, text in texts.documents.items()]


def named_hits(hits: Hits, queries: Sequence[str], corpus: MtebRows) -> Run:
    """Return hits as a run, reading the ids of those documents alone from MTEB's corpus."""
    rows = np.unique(hits.ids[hits.ids >= 0]).tolist()
    return hits.run(queries, dict(zip(rows, document_ids(corpus, rows), strict=True)))


def text_blocks(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    """Yield lists of at most ``size`` texts.

    >>> list(text_blocks("abcde", 2))
    [['a', 'b'], ['c', 'd'], ['e']]
    """
    iterator = iter(texts)
    block = list(islice(iterator, size))
    while block:
        yield block
        block = list(islice(iterator, size))


def rankings(hits: Hits, queries: Sequence[str], documents: Sequence[str]) -> Iterator[Ranking]:
    """Yield each query with the scores of its hits, without naming all of them at once."""
    for start in range(0, len(queries), QUERIES_AT_ONCE):
        rows = slice(start, start + QUERIES_AT_ONCE)
        part = Hits(hits.ids[rows], hits.scores[rows])
        yield from part.run(queries[rows], documents).items()


def median_seconds(answer: Callable[[str], object], queries: Sequence[str]) -> float:
    """Return the median seconds that ``answer`` takes for a query, after a warm-up."""
    seconds: list[float] = []
    answer(queries[0])
    for query in queries[:_TIMED_QUERIES]:
        started = time.perf_counter()
        answer(query)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)
