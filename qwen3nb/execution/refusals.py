"""Refuse values of parameters that the study does not have, before a kernel starts.

Such as a model that no record has, a metric that was not measured, or more dimensions than a
vector's. A run would find out too, but only after seconds, and would leave a page of its failure.
"""

from collections.abc import Sequence
from pathlib import Path

from qwen3nb import paths
from qwen3nb.execution.study_paths import READ_FILES, Values, path_from_root
from qwen3nb.metrics.retrieval import Measure
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.kinds.source import Source
from qwen3nb.models.types import RANDOM_QWEN3, SpecError
from qwen3nb.records.results import Results
from qwen3nb.records.store import records_under
from qwen3nb.utils.choices import check_choice, split_names


def refuse_missing_files(values: Values) -> None:
    """Raise ValueError if a file or a folder that a notebook reads is not there."""
    for name in READ_FILES:
        for entry in split_names(str(values.get(name, ""))):
            if not path_from_root(entry).exists():
                raise ValueError(f"{name} {entry!r}: no such file or folder")


def refuse_unknown_names(values: Values) -> None:
    """Raise ValueError for a collection, model, metric or other copy that is not known."""
    if values.get("where"):
        _refuse_unknown_copy(values["where"])
    is_of_records = any(values.get(name) for name in ("collection", "current", "metric", "models"))
    if not is_of_records:
        return
    records = records_under(paths.results(), whole=False)
    labels = sorted({record.model.label for record in records})
    if values.get("collection"):
        _refuse_unknown_collection(values["collection"], records)
    if values.get("current"):
        check_choice("model in use", values["current"], labels)
    for model in split_names(values.get("models", "")):
        _refuse_unknown_model(model, labels)
    # A metric of a training is looked up in its log.
    if values.get("metric") and "training" not in values:
        _refuse_unknown_metric(values["metric"], records)


def refuse_too_many_dimensions(source: Source, dimensions: int) -> None:
    """Raise ValueError if more dimensions are to be kept than the vectors of a model have."""
    width = _width(source)
    if width is not None and dimensions > width:
        raise ValueError(
            f"{source.label}: dimensions is {dimensions}; expected 1 to {width}, the dimensions of "
            "its vectors"
        )


def _refuse_unknown_copy(where: str) -> None:
    is_address = "://" in where
    is_file = path_from_root(where).exists() or Path(where).expanduser().exists()
    if not is_address and not is_file:
        find_source(where)  # raises if there is no such model


def _refuse_unknown_collection(name: str, records: Results) -> None:
    from qwen3nb.answers.own_data import collections

    names = collections(records)
    if not names:
        raise ValueError(f"collection {name!r}: no own data yet; `qwen3nb domain` evaluates them")
    check_choice("collection", name, names)


def _refuse_unknown_model(model: str, labels: Sequence[str]) -> None:
    """Accept a label, or any model that there is."""
    if model in (*labels, RANDOM_QWEN3):
        return
    try:
        find_source(model)
    except SpecError as error:
        known = ", ".join(labels) or "none"
        raise ValueError(f"{error} Models with records: {known}") from None


def _refuse_unknown_metric(metric: str, records: Results) -> None:
    """Accept what records have, and what can be computed for each query of a search."""
    measured = {name for record in records for name in record.metrics}
    if metric in measured or not measured:
        return
    try:
        Measure(metric)
    except ValueError:
        check_choice("metric", metric, sorted(measured))


def _width(source: Source) -> int | None:
    """Return the length of a model's vectors, as its files state it; None if they do not."""
    if source.folder is None or source.kind.searches:
        return None
    folder = source.model_folder
    layers = {module.name for module in folder.modules}
    if "Dense" in layers:  # which changes the length
        return None
    width = folder.config.get("hidden_size")
    if type(width) is not int:
        return None
    return width
