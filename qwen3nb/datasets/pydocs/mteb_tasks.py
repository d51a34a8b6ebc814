"""MTEB task classes that need no download.

MTEB runs them unchanged: ``mteb.evaluate(model, embedded_task("PyDocsRetrieval"))``.
The dataset revision of each class is the digest of its data, which keeps results on different
library versions apart.

The ``smoke`` tier runs the sample of PyDocs; tasks on all of PyDocs have different names.
"""

import hashlib
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import bm25s
from datasets import Dataset, DatasetDict
from mteb.abstasks import AbsTask, AbsTaskClassification, AbsTaskClustering, AbsTaskRetrieval
from mteb.abstasks.sts import AbsTaskSTS
from mteb.abstasks.task_metadata import TaskMetadata

from qwen3nb.datasets.pydocs.build import PyDocs, load_pydocs, module_of

SAMPLE = {"documents": 800, "queries": 200}
RERANKED = 100
LABEL_SHARE = 16  # minimum number of functions per class
AUTHOR_STS = Path(__file__).with_name("author_sts.tsv")


def pydocs_sample() -> PyDocs:
    """Return the fixed sample of the ``smoke`` tier."""
    return load_pydocs().sample(**SAMPLE)


def author_sts() -> list[tuple[str, str, float]]:
    """Return the AuthorSTS pairs: two sentences and a gold score of 0 to 5.

    Written for this project, 20 pairs per grade, half everyday, half computing:
    5 the same meaning; 4 the same except for an unimportant detail; 3 roughly the same,
    but something important differs or is missing; 2 different, but about a common event or
    thing; 1 only the subject is the same; 0 unrelated. Pairs with a high grade share few
    words where English allows it; pairs with a low grade often share many (swapped roles,
    a negation, an ambiguous word).
    """
    rows = (line.split("\t") for line in AUTHOR_STS.read_text(encoding="utf-8").splitlines())
    return [(first, second, float(gold)) for gold, first, second in rows]


def embedded_task(name: str) -> AbsTask:
    """Return a new instance of the embedded task ``name``; raise KeyError with the choices."""
    classes = _classes()
    if name not in classes:
        raise KeyError(f"unknown task {name!r}; choose one of: {', '.join(sorted(classes))}")
    return classes[name]()


class _Embedded(AbsTask):
    """A task whose data are built once, by ``_data``."""

    data_loaded: bool
    pydocs: PyDocs
    main: str  # the main score

    def load_data(self, num_proc: int | None = None, **_: Any) -> None:
        if not self.data_loaded:
            self.dataset = self._data()
            self.data_loaded = True

    def _data(self) -> Any:
        raise NotImplementedError


class _Retrieval(_Embedded, AbsTaskRetrieval):
    main = "ndcg_at_10"
    reranked: int | None = None

    @staticmethod
    def clusters(query: str) -> str:
        """The module of a query, whose id is the name of its function."""
        return module_of(query)

    def _data(self) -> Any:
        corpus, queries = self.pydocs.corpus, self.pydocs.queries
        split = {
            "corpus": Dataset.from_dict(
                {"id": list(corpus), "title": [""] * len(corpus), "text": list(corpus.values())}
            ),
            "queries": Dataset.from_dict({"id": list(queries), "text": list(queries.values())}),
            "relevant_docs": {query: dict(grades) for query, grades in self.pydocs.qrels.items()},
            "top_ranked": _first_stage(corpus, queries, self.reranked) if self.reranked else None,
        }
        return {"default": {"test": split}}


class _Reranking(_Retrieval):
    reranked = RERANKED


class _Classification(_Embedded, AbsTaskClassification):
    main = "accuracy"

    def _data(self) -> Any:
        sides: dict[str, Any] = {side: {"text": [], "label": []} for side in ("train", "test")}
        labels = _labels(self.pydocs)
        for entry in self.pydocs.entries:
            if entry.label in labels:
                odd = hashlib.sha256(entry.name.encode()).digest()[-1] % 2
                side = sides["train" if odd else "test"]
                side["text"].append(entry.summary)
                side["label"].append(labels[entry.label])
        return DatasetDict({side: Dataset.from_dict(rows) for side, rows in sides.items()})


class _Clustering(_Embedded, AbsTaskClustering):
    main = "v_measure"
    max_fraction_of_documents_to_embed = None
    max_documents_per_cluster = 512

    def _data(self) -> Any:
        labels = _labels(self.pydocs)
        kept = [entry for entry in self.pydocs.entries if entry.label in labels]
        rows = {
            "sentences": [entry.text for entry in kept],
            "labels": [labels[entry.label] for entry in kept],
        }
        return DatasetDict({"test": Dataset.from_dict(rows)})


class _AuthorSTS(_Embedded, AbsTaskSTS):
    def _data(self) -> Any:
        first, second, gold = zip(*author_sts(), strict=True)
        rows = {"sentence1": first, "sentence2": second, "score": gold}
        return DatasetDict({"test": Dataset.from_dict(rows)})


def _labels(pydocs: PyDocs) -> dict[str, int]:
    """Class number of each label with enough functions."""
    sizes = Counter(entry.label for entry in pydocs.entries)
    labels = sorted(label for label, count in sizes.items() if count >= LABEL_SHARE)
    return {label: number for number, label in enumerate(labels)}


def _first_stage(
    corpus: dict[str, str], queries: dict[str, str], depth: int
) -> dict[str, list[str]]:
    """The ``depth`` best documents of each query by BM25 (Lucene's, k1 1.5, b 0.75)."""
    index = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
    index.index(bm25s.tokenize(list(corpus.values()), show_progress=False), show_progress=False)
    retrieved, _ = index.retrieve(
        bm25s.tokenize(list(queries.values()), show_progress=False),
        corpus=list(corpus),
        k=min(depth, len(corpus)),
        show_progress=False,
    )
    rows = zip(queries, retrieved, strict=True)
    return {query: [str(name) for name in row] for query, row in rows}


# Type of task: base class, description.
_KINDS: dict[str, tuple[type[_Embedded], str]] = {
    "Retrieval": (_Retrieval, "find a function by what it does"),
    "Reranking": (_Reranking, f"re-order the {RERANKED} best functions by BM25"),
    "Classification": (_Classification, "tell a function's sub-package from its summary"),
    "Clustering": (_Clustering, "group functions by sub-package from their descriptions"),
}


@cache
def _classes() -> dict[str, type[AbsTask]]:
    whole = load_pydocs()
    classes: dict[str, type[AbsTask]] = {}
    for prefix, pydocs in (("PyDocs", whole), ("PyDocsSample", whole.sample(**SAMPLE))):
        for kind, (base, about) in _KINDS.items():
            metadata = _metadata(
                name=prefix + kind,
                type=kind,
                main_score=base.main,
                description=f"Docstrings of installed Python libraries: {about}.",
                dataset={"path": "qwen3nb/pydocs", "revision": pydocs.identity},
                domains=["Programming"],
                annotations_creators="derived",
                sample_creation="found",
            )
            attributes = {"metadata": metadata, "pydocs": pydocs, "__module__": __name__}
            classes[prefix + kind] = type(prefix + kind, (base,), attributes)
    digest = hashlib.sha256(AUTHOR_STS.read_bytes()).hexdigest()
    metadata = _metadata(
        name="AuthorSTS",
        type="STS",
        main_score="cosine_spearman",
        description="120 sentence pairs written for qwen3nb, 20 per grade of similarity.",
        dataset={"path": "qwen3nb/author-sts", "revision": digest},
        domains=["Programming", "Written"],
        annotations_creators="expert-annotated",
        sample_creation="created",
    )
    attributes = {"metadata": metadata, "__module__": __name__}
    return classes | {"AuthorSTS": type("AuthorSTS", (_AuthorSTS,), attributes)}


def _metadata(**fields: Any) -> TaskMetadata:
    return TaskMetadata(category="t2t", eval_langs=["eng-Latn"], license="not specified", **fields)
