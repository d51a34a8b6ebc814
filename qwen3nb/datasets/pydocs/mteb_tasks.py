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

from qwen3nb.datasets.pydocs.build import Entry, PyDocs, load_pydocs, module_of

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
    pairs: list[tuple[str, str, float]] = []
    for line in AUTHOR_STS.read_text(encoding="utf-8").splitlines():
        gold, sentence1, sentence2 = line.split("\t")
        pairs.append((sentence1, sentence2, float(gold)))
    return pairs


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

    def load_data(self, num_proc: int | None = None, **_: object) -> None:
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
        documents = self.pydocs.corpus
        queries = self.pydocs.queries
        corpus_rows = {
            "id": list(documents),
            "title": [""] * len(documents),
            "text": list(documents.values()),
        }
        query_rows = {"id": list(queries), "text": list(queries.values())}
        data = {
            "corpus": Dataset.from_dict(corpus_rows),
            "queries": Dataset.from_dict(query_rows),
            "relevant_docs": {query: dict(grades) for query, grades in self.pydocs.qrels.items()},
            "top_ranked": None,
        }
        if self.reranked:
            data["top_ranked"] = _best_by_bm25(documents, queries, self.reranked)
        return {"default": {"test": data}}  # by MTEB's subset and split


class _Reranking(_Retrieval):
    reranked = RERANKED


class _Classification(_Embedded, AbsTaskClassification):
    main = "accuracy"

    def _data(self) -> Any:
        entries_by_split: dict[str, list[Entry]] = {"train": [], "test": []}
        class_numbers = _class_numbers(self.pydocs)
        for entry in self.pydocs.entries:
            # Labels of few functions are not classes.
            if entry.label in class_numbers:
                entries_by_split[_split_of(entry)].append(entry)
        data = DatasetDict()
        for split, entries in entries_by_split.items():
            texts = [entry.summary for entry in entries]
            labels = [class_numbers[entry.label] for entry in entries]
            data[split] = Dataset.from_dict({"text": texts, "label": labels})
        return data


def _split_of(entry: Entry) -> str:
    """Return the split of a function, by the last bit of the digest of its name."""
    digest = hashlib.sha256(entry.name.encode()).digest()
    if digest[-1] % 2:
        return "train"
    return "test"


class _Clustering(_Embedded, AbsTaskClustering):
    main = "v_measure"
    max_fraction_of_documents_to_embed = None
    max_documents_per_cluster = 512

    def _data(self) -> Any:
        numbers = _class_numbers(self.pydocs)
        entries = [entry for entry in self.pydocs.entries if entry.label in numbers]
        rows = {
            "sentences": [entry.text for entry in entries],
            "labels": [numbers[entry.label] for entry in entries],
        }
        return DatasetDict({"test": Dataset.from_dict(rows)})


class _AuthorSTS(_Embedded, AbsTaskSTS):
    def _data(self) -> Any:
        sentence1, sentence2, gold = zip(*author_sts(), strict=True)
        rows = {"sentence1": sentence1, "sentence2": sentence2, "score": gold}
        return DatasetDict({"test": Dataset.from_dict(rows)})


def _class_numbers(pydocs: PyDocs) -> dict[str, int]:
    """Class number of each label with enough functions."""
    sizes = Counter(entry.label for entry in pydocs.entries)
    labels = sorted(label for label, count in sizes.items() if count >= LABEL_SHARE)
    return {label: number for number, label in enumerate(labels)}


def _best_by_bm25(
    documents: dict[str, str],
    queries: dict[str, str],
    depth: int,
) -> dict[str, list[str]]:
    """The ``depth`` best documents of each query by BM25 (Lucene's, k1 1.5, b 0.75)."""
    document_tokens = bm25s.tokenize(list(documents.values()), show_progress=False)
    query_tokens = bm25s.tokenize(list(queries.values()), show_progress=False)
    index = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
    index.index(document_tokens, show_progress=False)
    retrieved_names, _ = index.retrieve(
        query_tokens,
        corpus=list(documents),
        k=min(depth, len(documents)),
        show_progress=False,
    )
    best: dict[str, list[str]] = {}
    for query, names in zip(queries, retrieved_names, strict=True):
        best[query] = [str(name) for name in names]
    return best


# Type of task: base class, description.
_KINDS: dict[str, tuple[type[_Embedded], str]] = {
    "Retrieval": (_Retrieval, "find a function by what it does"),
    "Reranking": (_Reranking, f"re-order the {RERANKED} best functions by BM25"),
    "Classification": (_Classification, "tell a function's sub-package from its summary"),
    "Clustering": (_Clustering, "group functions by sub-package from their descriptions"),
}


@cache
def _classes() -> dict[str, type[AbsTask]]:
    """Return the classes of all embedded tasks by name."""
    pydocs = load_pydocs()
    sample = pydocs.sample(**SAMPLE)
    classes = {"AuthorSTS": _author_sts_class()}
    for kind in _KINDS:
        classes[f"PyDocs{kind}"] = _pydocs_class(f"PyDocs{kind}", kind, pydocs)
    for kind in _KINDS:
        classes[f"PyDocsSample{kind}"] = _pydocs_class(f"PyDocsSample{kind}", kind, sample)
    return classes


def _pydocs_class(name: str, kind: str, pydocs: PyDocs) -> type[AbsTask]:
    """Return the class of a task on PyDocs or its sample; the kind is MTEB's type of task."""
    base_class, purpose = _KINDS[kind]
    metadata = _metadata(
        name=name,
        type=kind,
        main_score=base_class.main,
        description=f"Docstrings of installed Python libraries: {purpose}.",
        dataset={"path": "qwen3nb/pydocs", "revision": pydocs.identity},
        domains=["Programming"],
        annotations_creators="derived",
        sample_creation="found",
    )
    return _class_with_metadata(base_class, metadata, pydocs=pydocs)


def _author_sts_class() -> type[AbsTask]:
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
    return _class_with_metadata(_AuthorSTS, metadata)


def _class_with_metadata(
    base_class: type[AbsTask],
    metadata: TaskMetadata,
    **attributes: object,
) -> type[AbsTask]:
    """Return a class of tasks with its metadata, as MTEB expects them."""
    attributes |= {"metadata": metadata, "__module__": __name__}
    return type(metadata.name, (base_class,), attributes)


def _metadata(**fields: Any) -> TaskMetadata:
    return TaskMetadata(category="t2t", eval_langs=["eng-Latn"], license="not specified", **fields)
