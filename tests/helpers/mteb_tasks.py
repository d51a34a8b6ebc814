"""MTEB tasks with made-up data, for their own cannot be downloaded in a test."""

import mteb
from datasets import Dataset

WORDS = (
    "sun",
    "moon",
    "rain",
    "snow",
    "wind",
    "storm",
    "cloud",
    "frost",
    "hail",
    "mist",
    "fog",
    "thaw",
)


def loaded(name, dataset, **options):
    """The task called ``name`` on ``dataset``."""
    task = mteb.get_task(name, **options)
    task.dataset, task.data_loaded = dataset, True
    return task


def search_data(documents, queries, qrels, candidates=None):
    """One split of a search task, with texts by id."""
    rows = [{"id": name, "text": text, "title": ""} for name, text in documents.items()]
    return {
        "corpus": Dataset.from_list(rows),
        "queries": Dataset.from_list([{"id": q, "text": text} for q, text in queries.items()]),
        "relevant_docs": qrels,
        "top_ranked": candidates,
    }
