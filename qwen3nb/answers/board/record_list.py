"""A list of records, as a command shows it."""

from collections.abc import Iterable

from qwen3nb.metrics.intervals import few_queries_sentence, interval_words
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.report.render.table import Table


def record_list(results: Iterable[Result]) -> Table:
    """Return a row per record: model, task, main metric with its interval, and n."""
    records = list(results)
    rows = [
        {
            "model": (record.model.label, record.model.identity[:8]),
            "task": record.task.key,
            "metric": record.task.main_metric,
            "value": record.main,
            "n": f"{record.main.n} {record.task.unit}",
        }
        for record in records
    ]
    methods = interval_words(record.main.interval for record in records)
    few_queries = few_queries_sentence(record.main for record in records)
    return Table.of(
        rows,
        note=f"Intervals: 95 %, {methods}, over n.{few_queries}",
        empty="no records",
        kind="words",
        data=DataUsed.of(records),
    )
