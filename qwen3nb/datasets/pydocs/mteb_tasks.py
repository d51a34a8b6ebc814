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
        documents = {
            "id": list(corpus),
            "title": [""] * len(corpus),
            "text": list(corpus.values()),
        }
        split = {
            "corpus": Dataset.from_dict(documents),
            "queries": Dataset.from_dict({"id": list(queries), "text": list(queries.values())}),
            "relevant_docs": {query: dict(grades) for query, grades in self.pydocs.qrels.items()},
            "top_ranked": None,
        }
        if self.reranked:
            split["top_ranked"] = _first_stage(corpus, queries, self.reranked)
        return {"default": {"test": split}}


class _Reranking(_Retrieval):
    reranked = RERANKED


class _Classification(_Embedded, AbsTaskClassification):
    main = "accuracy"

    def _data(self) -> Any:
        splits: dict[str, list[Entry]] = {"train": [], "test": []}
        numbers = _class_numbers(self.pydocs)
        for entry in self.pydocs.entries:
            if entry.label in numbers:
                splits[_split_of(entry)].append(entry)
        data = DatasetDict()
        for name, entries in splits.items():
            texts = [entry.summary for entry in entries]
            labels = [numbers[entry.label] for entry in entries]
            data[name] = Dataset.from_dict({"text": texts, "label": labels})
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


def _first_stage(
    corpus: dict[str, str],
    queries: dict[str, str],
    depth: int,
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
    return {
        query: list(map(str, documents))
        for query, documents in zip(queries, retrieved, strict=True)
    }


# Type of task: base class, description.
_KINDS: dict[str, tuple[type[_Embedded], str]] = {
    "Retrieval": (_Retrieval, "find a function by what it does"),
    "Reranking": (_Reranking, f"re-order the {RERANKED} best functions by BM25"),
    "Classification": (_Classification, "tell a function's sub-package from its summary"),
    "Clustering": (_Clustering, "group functions by sub-package from their descriptions"),
}


@cache
def _classes() -> dict[str, type[AbsTask]]:
    benchmark = load_pydocs()
    classes: dict[str, type[AbsTask]] = {"AuthorSTS": _author_sts_class()}
    for prefix, pydocs in (("PyDocs", benchmark), ("PyDocsSample", benchmark.sample(**SAMPLE))):
        for kind, (base, purpose) in _KINDS.items():
            metadata = _metadata(
                name=prefix + kind,
                type=kind,
                main_score=base.main,
                description=f"Docstrings of installed Python libraries: {purpose}.",
                dataset={"path": "qwen3nb/pydocs", "revision": pydocs.identity},
                domains=["Programming"],
                annotations_creators="derived",
                sample_creation="found",
            )
            classes[metadata.name] = _subclass(base, metadata, pydocs=pydocs)
    return classes


def _author_sts_class() -> type[AbsTask]:
    metadata = _metadata(
        name="AuthorSTS",
        type="STS",
        main_score="cosine_spearman",
        description="120 sentence pairs written for qwen3nb, 20 per grade of similarity.",
        dataset={
            "path": "qwen3nb/author-sts",
            "revision": hashlib.sha256(AUTHOR_STS.read_bytes()).hexdigest(),
        },
        domains=["Programming", "Written"],
        annotations_creators="expert-annotated",
        sample_creation="created",
    )
    return _subclass(_AuthorSTS, metadata)


def _subclass(base: type[AbsTask], metadata: TaskMetadata, **attributes: object) -> type[AbsTask]:
    """Return a class of tasks with its metadata, as MTEB expects them."""
    attributes |= {"metadata": metadata, "__module__": __name__}
    return type(metadata.name, (base,), attributes)


def _metadata(**fields: Any) -> TaskMetadata:
    return TaskMetadata(category="t2t", eval_langs=["eng-Latn"], license="not specified", **fields)
