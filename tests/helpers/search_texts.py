"""Texts of a search task, made up."""

from datasets import Dataset

from qwen3nb.evaluation.mteb.per_query import SearchTexts, Slice


def search_part(queries, documents=(), qrels=None, *, prefix=""):
    """A slice with texts by id; a document is a text, or a title and a text."""
    rows = [
        {"id": name, "title": text[0], "text": text[1]}
        if isinstance(text, tuple)
        else {"id": name, "title": "", "text": text}
        for name, text in dict(documents).items()
    ]
    data = {
        "corpus": Dataset.from_list(rows or [{"id": "none", "title": "", "text": ""}]),
        "queries": Dataset.from_list([{"id": q, "text": text} for q, text in queries.items()]),
        "relevant_docs": qrels or {},
    }
    return Slice("test", "default", prefix, data)


def search_texts(queries, documents=(), qrels=None):
    """The texts of a task with one split and one subset."""
    return SearchTexts([search_part(queries, documents, qrels)])
