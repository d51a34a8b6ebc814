"""What models did with own documents that are longer than they take: in chunks, cut or whole."""

from collections.abc import Iterable

from qwen3nb.evaluation.run import TEXTS_CUT
from qwen3nb.records.record import Result
from qwen3nb.report.render.table import Table


def long_documents(record: Result) -> list[str]:
    """Return sentences on the documents that were longer than a model takes; none if all fit.

    They name the rule, of which `qwen3nb.models.search.chunks` has the details.
    """
    sentences = []
    for split in record.search.split or ():
        whose = ""
        if split["model"] != record.model.label:  # a part of a fusion
            whose = f"{split['model']}: "
        sentences.append(
            f"{whose}{split['documents']:,} of {record.task.size['documents']:,} documents were "
            f"longer than {split['size']:,} {split['unit']}; split into {split['chunks']:,} "
            "chunks, the best counts."
        )
    cut = record.task.counts.get(TEXTS_CUT, 0)
    if cut:
        sentences.append(f"{cut:,} texts were {_limit(record)}; only their beginning was read.")
    return sentences


def _limit(record: Result) -> str:
    """Say that texts were too long, with the limit if the record states it."""
    tokens = record.model.settings.get("max_length")
    if isinstance(tokens, int):
        return f"longer than {tokens:,} tokens"
    return "longer than the model takes"


def long_documents_table(records: Iterable[Result]) -> Table | None:
    """Return a row for each model that splits or cuts documents; None if all documents fit."""
    rows = []
    for record in records:
        sentences = long_documents(record)
        if sentences:
            rows.append({"model": record.model.label, "long documents": " ".join(sentences)})
    if not rows:
        return None
    return Table.of(
        rows,
        kind="facts",
        name="long-documents",
        caption="Documents longer than a model takes.",
        note="BM25 reads whole documents.",
    )
