"""The weights of fusions that the grades of own data have chosen, and what choosing flatters."""

from collections.abc import Iterator, Mapping

from qwen3nb.metrics.fusion_weights import FOLDS
from qwen3nb.records.details import FittedWeights
from qwen3nb.records.record import Result
from qwen3nb.report.render.table import Table
from qwen3nb.utils.format import names_in_words, number_text


def fitted_sentence(name: str, record: Result) -> str:
    """Say which weights a fusion has and what it scores held out, without a full stop.

    Raises:
        ValueError: the record is not of such a fusion.
    """
    fitted = _fitted(record)
    parts = names_in_words(fitted["parts"])
    if fitted["reason"]:
        return f"{name} fuses {parts} by equal weights: {fitted['reason']}"
    weights = " to ".join(f"{weight:.2f}" for weight in fitted["weights"])
    return (
        f"{name} fuses {parts}, {weights}, chosen on other queries: {fitted['metric']} "
        f"{_held_out(record):.3f} held out"
    )


def fusion_table(records: Mapping[str, Result]) -> Table | None:
    """Return a row per fusion with fitted weights; None without one.

    Args:
        records: by the name of the model.
    """
    rows = [_row(name, record) for name, record in records.items() if record.search.fitted]
    if not rows:
        return None
    note = (
        f"Fitted to these grades by {FOLDS}-fold cross-validation. Held out, which is compared: by "
        "weights that other queries chose. Same queries: by weights of their own, which flatter."
    )
    return Table.of(rows, note=note, kind="words")


def _row(name: str, record: Result) -> dict[str, object]:
    fitted = _fitted(record)
    held_out = _held_out(record)
    same_queries = fitted["same_queries"]
    flattery = None
    if same_queries is not None:
        flattery = same_queries - held_out
    return {
        "model": name,
        "weights": ", ".join(_weights(fitted)),
        "by fold": ", ".join(_weights_by_fold(fitted)) or fitted["reason"],
        f"{fitted['metric']}\nheld out": number_text(held_out),
        "same\nqueries": number_text(same_queries),
        "flatters by": number_text(flattery, sign=True),
    }


def _weights(fitted: FittedWeights) -> Iterator[str]:
    """Yield the weight of each part, such as ``bm25 0.35``."""
    for part, weight in zip(fitted["parts"], fitted["weights"], strict=True):
        yield f"{part} {weight:.2f}"


def _weights_by_fold(fitted: FittedWeights) -> Iterator[str]:
    """Yield the lowest and the highest weight of each part over the folds."""
    for weights in zip(*fitted["folds"], strict=True):
        lowest, highest = min(weights), max(weights)
        if lowest == highest:
            yield f"{lowest:.2f}"
        else:
            yield f"{lowest:.2f} to {highest:.2f}"


def _fitted(record: Result) -> FittedWeights:
    if record.search.fitted is None:
        raise ValueError(f"{record.model.label} is not a fusion with fitted weights")
    return record.search.fitted


def _held_out(record: Result) -> float:
    return float(record.metrics[_fitted(record)["metric"]].value or 0.0)
