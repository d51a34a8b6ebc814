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
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING

from qwen3nb import paths
from qwen3nb.execution.parameters import (
    Declared,
    Notebook,
    cached_call,
    declared_parameters,
    model_of,
)
from qwen3nb.execution.study_paths import Values, path_from_root
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

    from qwen3nb.answers.run_trace import RunTrace

# Parameters for locations and computation, without effect on the page.
_UNNAMED = ("cache", "map_file", "output_dir", "fresh", "verify", "runs")
# Parameters that select tasks instead of the tier's.
_SELECTIONS = ("task", "tasks", "benchmark", "data")
_OF_MIGRATION = ("old", "new", "documents")  # what the title of a migration says
_SUBJECTS = ("checkpoint", "training")  # with them, a title begins
_LONGEST = 120  # characters of a name; file systems allow 255 bytes, with the suffix
_DIGITS = 8  # of the digest in a name that would be too long
_MOST_ENTRIES = 3  # entries of a list shown in a title
_LISTS = (
    *_SELECTIONS,
    "models",
    "candidates",
    "words",
    "questions",
    "documents",
    "outputs",
    "adapter",
    "query_file",
)  # names or paths
# How a title says an option that differs from its default; others by their names.
_PHRASES = {
    "baseline": "against {}",
    "batch_size": "batches of {}",
    "collection": "{}",
    "correction": "{} correction",
    "depth": "top {}",
    "device": "on {}",
    "dtype": "{}",
    "first_stage": "after {}",
    "k": "top {}",
    "languages": "{}",
    "max_length": "at most {} tokens",
    "metric": "{}",
    "new": "to {}",
    "old": "from {}",
    "pooling": "{} pooling",
    "poolings": "{} pooling",
    "relevance_threshold": "relevant from grade {}",
    "splits": "split {}",
    "types": "{}",
    "where": "{}",
}


def page_name(notebook: str, values: Values, declared: Declared) -> str:
    """Return the page name of a run: notebook, model or training, non-default parameters.

    Equal parameters give equal names, different ones different names. A page without a model or
    training names its tier only if it is not the largest with results, which the book shows.
    """
    parts = [notebook]
    for name in values:
        part = _addition_to_name(name, values, declared)
        if part:
            parts.append(part)
    slugs = [_slug(part) for part in parts]
    page = "-".join(slug for slug in slugs if slug)
    if len(page) <= _LONGEST:
        return page
    # Tells long names with the same beginning apart.
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:_DIGITS]
    beginning = page[: _LONGEST - len("-") - _DIGITS].rstrip("-.")
    return f"{beginning}-{digest}"


def _slug(text: str) -> str:
    """Return a text with a hyphen for all between letters, digits and points."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-")


def _addition_to_name(name: str, values: Values, declared: Declared) -> str:
    """Return what a parameter adds to the name of a page; empty for nothing."""
    value = values[name]
    if name == "checkpoint":
        return _model_slug(values)
    if name == "training":
        return _training_slug(value)
    if name == "tier":
        if _is_tier_named(values):
            return str(value)
        return ""
    if not _is_distinctive(name, value, declared):
        return ""
    if name == "task":
        return str(value)
    if name == "outputs":
        return f"outputs-{_folder_slug(path_from_root(value))}"
    if name == "prompts" and not names_prompt_set(value):
        # Prompts may differ in white space only, which a name does not show.
        digest = sha256_json(parse_prompts(value))[:6]
        return f"prompts-{digest}"
    return f"{name}-{value}"


def _is_tier_named(values: Values) -> bool:
    """Return whether a page is named after its tier."""
    if "checkpoint" in values or "training" in values:
        return True
    if _selects_tasks(values):
        return False
    return bool(values["tier"] != cached_call(_tier_of_book))


def _selects_tasks(values: Values) -> bool:
    """Return whether a run is on tasks or data that are named one by one."""
    return any(values.get(name) for name in _SELECTIONS)


def _tier_of_book() -> str:
    return richest_tier(load_results(adapters=False, whole=False))


def _is_distinctive(name: str, value: object, declared: Declared) -> bool:
    """Return whether the value of a parameter makes another page."""
    return name not in _UNNAMED and name in declared and value != declared[name].default


def _training_slug(training: str) -> str:
    folder = None
    if training != "demo":
        folder = cached_call(find_training, training)
    if folder is None:
        return training
    return _folder_slug(folder)


def _model_slug(values: Values) -> str:
    """Return a readable, unique name: the end of a path, with a digest outside the root."""
    spec = str(values["checkpoint"])
    try:
        folder = model_of(values).folder
    except SpecError:
        return spec
    is_path = False
    for path in (Path(spec), paths.root() / spec):
        is_path = is_path or path.exists() or paths.kept_copy(path) is not None
    if folder is None or not is_path:  # a name, such as bm25
        return spec
    return _folder_slug(folder.path)


def _folder_slug(folder: Path) -> str:
    """Return the path of a folder in the study; outside, its last parts and a digest."""
    shown = Path(paths.shown(folder))
    if not shown.is_absolute():
        short = str(shown).removeprefix("runs/")
        return short.removesuffix("/checkpoints/final")  # a training's adapters
    digest = hashlib.sha256(str(shown).encode()).hexdigest()[:6]
    return f"{shown.parent.name}-{shown.name}-{digest}"


def page_title(notebook: NotebookNode, values: Values) -> str | None:
    """Return the title of a run's page, escaped; None if nothing distinguishes it.

    ``label · tier`` for a run on a checkpoint and a tier, else ``heading · label``; then what
    differs from the defaults, as in ``e5-base · fast, at most 256 tokens``. Tasks and folders
    replace the tier.
    """
    declared = declared_parameters(notebook)
    details = []
    for name in values:
        detail = _addition_to_title(name, values, declared)
        if detail:
            details.append(detail)
    has_subject = any(name in values for name in _SUBJECTS)
    if not has_subject and not details:
        return None
    parts = _subject(notebook, values)
    if details:
        parts.append(", ".join(details))
    return " · ".join(escaped(part) for part in parts)


def _addition_to_title(name: str, values: Values, declared: Declared) -> str:
    """Return what a parameter adds to the title of a page; empty for nothing."""
    value = values[name]
    if name == "tier":
        if _is_tier_named(values) and not _selects_tasks(values):
            return str(value)
        return ""
    if name == "data":
        return _entries_text(value)
    if "old" in values and name not in _OF_MIGRATION:
        return ""
    # The subject begins the title; see `_subject`.
    if name in _SUBJECTS or not _is_distinctive(name, value, declared):
        return ""
    if name in _LISTS:
        return _entries_text(value)
    return _option_text(name, value)


def _option_text(name: str, value: object) -> str:
    """Return an option as one would say it: ``append EOS off``, ``at most 256 tokens``."""
    words = name.replace("_", " ").replace("eos", "EOS")
    if isinstance(value, bool):
        return f"{words} {'on' if value else 'off'}"
    if value == "":
        return f"no {words}"
    phrase = _PHRASES.get(name, f"{words} {{}}")
    return phrase.format(shorten(str(value), 60, placeholder="…"))


def _subject(notebook: NotebookNode, values: Values) -> list[str]:
    """Return the heading of a notebook, and its model or training; for `eval`, only the model."""
    heading = _heading(notebook)
    if "checkpoint" in values:
        label = model_of(values).label
        if "tier" in values:
            # An evaluation: "Evaluation" in each title would say nothing.
            return [label]
        return [heading, label]
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
    names = [Path(entry.strip()).name for entry in value.split(",")]
    # Those of the smoke tier are shortened as on all pages; the whole of PyDocs keeps its name.
    entries = [name.removeprefix("PyDocsSample") or name for name in names]
    text = ", ".join(entries[:_MOST_ENTRIES])
    if len(entries) > _MOST_ENTRIES:
        text += f" and {len(entries) - _MOST_ENTRIES} more"
    return text


def page_command(notebook: str, values: Values, declared: Declared) -> str:
    """Return the command that creates a page: ``qwen3nb eval --checkpoint bm25``.

    Default values and parameters that the notebook no longer has are left out.
    """
    words = ["qwen3nb", "run", notebook]
    if notebook == "eval":
        words = ["qwen3nb", "eval"]
    for name, value in values.items():
        # Always named, whatever the default is: a page is of a model or a training.
        is_always_named = name in ("checkpoint", "training")
        if name in declared and (is_always_named or value != declared[name].default):
            words += option_words(name, value)
    return shlex.join(words)


def _records(values: Values) -> list[Result]:
    """Return the records in a run's folder of results."""
    folder = None
    if values.get("output_dir"):
        folder = path_from_root(values["output_dir"])
    return list(cached_call(load_results, folder, adapters=False, whole=False))


def baselines_now(trace: RunTrace, values: Values) -> list[list[str]]:
    """Return the baselines that a run's page would have now; see `RunTrace.baselines_among`."""
    baseline = values.get("baseline") or cached_call(book_settings).baseline
    return trace.baselines_among(_records(values), named=baseline)


def is_old(page: Notebook) -> bool:
    """Return whether a page (as JSON) would now have other baselines, or newer records of them."""
    from qwen3nb.answers.run_trace import read_trace  # with all comparisons, half a second

    trace = read_trace(page)
    if trace is None:  # a page without scores
        return False
    facts = page["metadata"]["qwen3nb"]
    baselines = trace.baselines
    if baselines is None:  # a page of an older release
        baselines = facts.get("baselines", [])
    return bool(baselines != baselines_now(trace, facts["parameters"]))


def is_measured(page: Notebook) -> bool:
    """Return whether another run would reuse every record, by their versions."""
    from qwen3nb.answers.run_trace import read_trace  # with all comparisons, half a second

    trace = read_trace(page)
    if trace is None:  # a page without scores
        return True
    tasks_of_page = {(score.model, score.task) for score in trace.scores}
    versions_now = Environment.current().versions
    for record in _records(page["metadata"]["qwen3nb"]["parameters"]):
        is_on_page = (record.model.label, record.task.key) in tasks_of_page
        # Under other versions of the libraries, it would be computed again.
        if is_on_page and record.environment.versions != versions_now:
            return False
    return True
