"""What each model costs: seconds, memory and size."""

import operator
from collections.abc import Iterable, Sequence

from qwen3nb.analysis.comparison.alignment import model_names
from qwen3nb.answers.board.grid import by_model
from qwen3nb.answers.board.models import ModelFacts, facts_by_model
from qwen3nb.records.record import Result
from qwen3nb.records.store import latest
from qwen3nb.report.render.table import Cell, Table, number


def cost_table(results: Iterable[Result]) -> Table:
    """Return the cost of each model's records."""
    records = latest(results)
    names = model_names(records)
    rows = []
    records_by_model = by_model(records)
    facts = facts_by_model(records_by_model)
    for identity, records_by_task in records_by_model.items():
        row = _cost_row(names[identity], list(records_by_task.values()), facts[identity])
        rows.append(row)
    rows.sort(key=operator.itemgetter("model"))
    return Table.of(
        rows,
        note="Seconds over all tasks, with loading and scoring; peak memory of the whole process.",
        name="cost",
        caption="Cost of the results of each model.",
    )


def _cost_row(name: str, records: Sequence[Result], facts: ModelFacts) -> dict[str, object]:
    costs = [record.cost for record in records]
    # 0 stands for costs that were not measured; `or None` shows them as such.
    peak_mebibytes = max(cost.peak_memory_bytes or 0 for cost in costs) / 2**20
    speeds = [cost.texts_per_second for cost in costs if cost.texts_per_second]
    speed = Cell("none encoded")
    if speeds:
        speed = Cell(f"{min(speeds):,.0f} to {max(speeds):,.0f}", value=max(speeds))
    return {
        "model": name,
        "parameters": number(facts.parameters or None, ",", absent="none"),
        "seconds": number(sum(cost.seconds for cost in costs), ".1f"),
        "texts encoded": number(sum(cost.encoded for cost in costs), ","),
        "texts/s": speed,
        "peak MiB": number(peak_mebibytes or None, ",.0f", absent="not measured"),
        "device": records[0].environment.device,
    }
