"""Pages of runs: name, title and command, and whether a page is out of date.

Name, title and command contain the parameters that differ from their defaults, so that runs do not
overwrite each other's pages and are distinct in the sidebar. The page of an evaluation names its
baseline. It is not run again for every new record, but only when another baseline would be chosen,
or the chosen one was evaluated again.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from qwen3nb import paths
from qwen3nb.answers.run_trace import RunTrace, read_trace
from qwen3nb.execution.parameters import Parameter, declared_parameters, model_of, once
from qwen3nb.execution.study_paths import at_root
from qwen3nb.models.kinds.prompts import names_prompt_set, parse_prompts
from qwen3nb.models.kinds.resolve import find_training
from qwen3nb.models.types import SpecError
from qwen3nb.records.record import Environment, Result
from qwen3nb.records.results import richest_tier
from qwen3nb.records.store import load_results
from qwen3nb.utils.atomic_files import sha256_json
from qwen3nb.utils.book_settings import book_settings
from qwen3nb.utils.format import escaped, option_words

if TYPE_CHECKING:
    from nbformat import NotebookNode

# Parameters for locations and computation, without effect on the page.
_UNNAMED = ("cache", "output_dir", "fresh", "verify", "runs")
# Parameters that select tasks instead of the tier's.
_SELECTIONS = ("task", "tasks", "benchmark", "data")
_TITLED = ("checkpoint", "training", "tier", *_SELECTIONS)
_LONGEST = 120  # characters of a name; file systems allow 255 bytes, with the suffix
_MOST_ENTRIES = 3  # entries of a list shown in a title


def page_name(notebook: str, values: Mapping[str, Any], declared: Mapping[str, Parameter]) -> str:
    """Return the page name of a run: notebook, model or training, non-default parameters.

    Equal parameters give equal names, different ones different names. A page without a model or
    training names its tier only if it is not the largest with results, which the book shows.
    """
    parts = [notebook]
    for name in values:
        part = _name_part(name, values, declared)
        if part:
            parts.append(part)
    slugs = [re.sub(r"[^A-Za-z0-9.]+", "-", part).strip("-") for part in parts]
    page = "-".join(slug for slug in slugs if slug)
    if len(page) <= _LONGEST:
        return page
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]
    return f"{page[: _LONGEST - 9].rstrip('-.')}-{digest}"


def _name_part(name: str, values: Mapping[str, Any], declared: Mapping[str, Parameter]) -> str:
    """Return what a parameter adds to the name of a page; empty for nothing."""
    value = values[name]
    if name == "checkpoint":
        return _model_slug(values)
    if name == "training":
        return _training_slug(value)
    if name == "tier":
        return str(value) if _names_tier(values) else ""
    if not _distinguishes(name, value, declared):
        return ""
    if name == "task":
        return str(value)
    if name == "outputs":
        return f"outputs-{_folder_slug(at_root(value))}"
    if name == "prompts" and not names_prompt_set(value):  # may differ only in white space
        return f"prompts-{sha256_json(parse_prompts(value))[:6]}"
    return f"{name}-{value}"


def _names_tier(values: Mapping[str, Any]) -> bool:
    """Return whether a page is named after its tier."""
    if "checkpoint" in values or "training" in values:
        return True
    if _selects_tasks(values):
        return False
    return bool(values["tier"] != once(_tier_of_book))


def _selects_tasks(values: Mapping[str, Any]) -> bool:
    """Return whether a run is on tasks or data that are named one by one."""
    return any(values.get(name) for name in _SELECTIONS)


def _tier_of_book() -> str:
    return richest_tier(load_results(adapters=False, whole=False))


def _distinguishes(name: str, value: Any, declared: Mapping[str, Parameter]) -> bool:
    """Return whether the value of a parameter makes another page."""
    return name not in _UNNAMED and name in declared and value != declared[name].default


def _training_slug(training: str) -> str:
    folder = None
    if training != "demo":
        folder = once(find_training, training)
    if folder is None:
        return training
    return _folder_slug(folder)


def _model_slug(values: Mapping[str, Any]) -> str:
    """Return a readable, unique name: the end of a path, with a digest outside the root."""
    spec = str(values["checkpoint"])
    try:
        folder = model_of(values).folder
    except SpecError:
        return spec
    is_path = Path(spec).exists() or (paths.root() / spec).exists()
    if folder is None or not is_path:
        return spec
    return _folder_slug(folder.path)


def _folder_slug(folder: Path) -> str:
    """Return the path of a folder in the study; outside, its last parts and a digest."""
    resolved = folder.resolve()
    if resolved.is_relative_to(paths.root()):
        short = str(resolved.relative_to(paths.root())).removeprefix("runs/")
        return short.removesuffix("/checkpoints/final")  # a training's adapters
    digest = hashlib.sha256(str(resolved).encode()).hexdigest()[:6]
    return f"{resolved.parent.name}-{resolved.name}-{digest}"


def page_title(notebook: NotebookNode, values: Mapping[str, Any]) -> str | None:
    """Return the title of a run's page, escaped; None if nothing distinguishes it.

    ``label · tier`` for a run on a checkpoint and a tier, else ``heading · label``; then the
    parameters that differ from their defaults. Tasks and folders replace the tier.
    """
    declared = declared_parameters(notebook)
    details = []
    for name in values:
        detail = _title_part(name, values, declared)
        if detail:
            details.append(detail)
    subject = _subject(notebook, values)
    if len(subject) == 1 and not details and "checkpoint" not in values:
        return None
    return " · ".join(escaped(part) for part in [*subject, *details])


def _title_part(name: str, values: Mapping[str, Any], declared: Mapping[str, Parameter]) -> str:
    """Return what a parameter adds to the title of a page; empty for nothing."""
    value = values[name]
    if name == "tier":
        if _names_tier(values) and not _selects_tasks(values):
            return str(value)
        return ""
    if name == "data":
        return _entries_text(value)
    if not _distinguishes(name, value, declared):
        return ""
    if name in _SELECTIONS:
        return _entries_text(value)
    if name in _TITLED:
        return ""
    return f"{name.replace('_', ' ')} {shorten(str(value), 60, placeholder='…')}"


def _subject(notebook: NotebookNode, values: Mapping[str, Any]) -> list[str]:
    """Return the heading of a notebook, and its model or training; for `eval`, only the model."""
    heading = _heading(notebook)
    if "checkpoint" in values:
        label = model_of(values).label
        return [label] if "tier" in values else [heading, label]
    if "training" in values:
        return [heading, Path(values["training"]).name]
    return [heading]


def _heading(notebook: NotebookNode) -> str:
    """Return the first line of the first text in a notebook."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            first_line: str = cell.source.split("\n")[0]
            return first_line.removeprefix("# ")
    return "Run"


def _entries_text(value: str) -> str:
    """Return the entries of a list; paths by their last part, long lists counted."""
    if not value:
        return ""
    entries = [Path(entry.strip()).name for entry in value.split(",")]
    text = ", ".join(entries[:_MOST_ENTRIES])
    if len(entries) > _MOST_ENTRIES:
        text += f" and {len(entries) - _MOST_ENTRIES} more"
    return text


def page_command(
    notebook: str, values: Mapping[str, Any], declared: Mapping[str, Parameter]
) -> str:
    """Return the command that creates a page: ``qwen3nb eval --checkpoint bm25``.

    Default values and parameters that the notebook no longer has are left out.
    """
    words = ["qwen3nb", "run", notebook]
    if notebook == "eval":
        words = ["qwen3nb", "eval"]
    for name, value in values.items():
        required = name in ("checkpoint", "training")
        if name in declared and (required or value != declared[name].default):
            words += option_words(name, value)
    return shlex.join(words)


def _records(values: Mapping[str, Any]) -> list[Result]:
    """Return the records in a run's folder of results."""
    folder = None
    if values.get("output_dir"):
        folder = at_root(values["output_dir"])
    return list(once(load_results, folder, adapters=False, whole=False))


def baselines_now(trace: RunTrace, values: Mapping[str, Any]) -> list[list[str]]:
    """Return the baselines that a run's page would have now; see `RunTrace.baselines_among`."""
    baseline = values.get("baseline") or once(book_settings).baseline
    return trace.baselines_among(_records(values), named=baseline)


def is_old(page: Mapping[str, Any]) -> bool:
    """Return whether a page (as JSON) would now have other baselines, or newer records of them."""
    trace = read_trace(page)
    if trace is None:
        return False
    facts = page["metadata"]["qwen3nb"]
    baselines = trace.baselines
    if baselines is None:  # a page of an older release
        baselines = facts.get("baselines", [])
    return bool(baselines != baselines_now(trace, facts["parameters"]))


def is_measured(page: Mapping[str, Any]) -> bool:
    """Return whether another run would reuse every record, by their versions."""
    trace = read_trace(page)
    if trace is None:
        return True
    scored = {(score.model, score.task) for score in trace.scores}
    versions = Environment.current().versions
    for record in _records(page["metadata"]["qwen3nb"]["parameters"]):
        of_page = (record.model.label, record.task.key) in scored
        if of_page and record.environment.versions != versions:
            return False
    return True
