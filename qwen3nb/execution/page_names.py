"""Pages of runs: name, title and command, and whether a page is out of date.

Name, title and command contain the parameters that differ from their defaults, so that runs do not
overwrite each other's pages and are distinct in the sidebar. The page of an evaluation names its
baseline. It is not run again for every new record, but only when another baseline would be chosen,
or the chosen one was evaluated again.
"""

import hashlib
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from textwrap import shorten
from typing import Any

from qwen3nb import paths
from qwen3nb.execution.parameters import Parameter, declared_parameters, model_of, once
from qwen3nb.execution.study_paths import at_root
from qwen3nb.models.kinds.prompts import names_prompt_set, parse_prompts
from qwen3nb.models.kinds.resolve import find_training
from qwen3nb.models.types import SpecError
from qwen3nb.records.record import Environment, Result
from qwen3nb.records.results import richest_tier
from qwen3nb.records.store import load_results
from qwen3nb.report.evaluation.run_trace import RunTrace, read_trace
from qwen3nb.utils.atomic_files import sha256_json
from qwen3nb.utils.book_settings import book_settings
from qwen3nb.utils.format import escaped, option_words

# Parameters for locations and computation, without effect on the page.
_UNNAMED = ("cache", "output_dir", "fresh", "verify", "runs")
# Parameters that select tasks instead of the tier's.
_SELECTIONS = ("task", "tasks", "benchmark", "data")
_TITLED = ("checkpoint", "training", "tier", *_SELECTIONS)
_LONGEST = 120  # characters of a name; file systems allow 255 bytes, with the suffix
_MOST = 3  # entries of a list shown in a title


def page_name(notebook: str, values: Mapping[str, Any], declared: Mapping[str, Parameter]) -> str:
    """Return the page name of a run: notebook, model or training, non-default parameters.

    Equal parameters give equal names, different ones different names. A page without a model or
    training names its tier only if it is not the largest with results, which the book shows.
    """
    parts = [notebook]
    for name, value in values.items():
        if name == "checkpoint":
            parts.append(_model_slug(values))
        elif name == "training":
            folder = None if value == "demo" else once(find_training, value)
            parts.append(_folder_slug(folder) if folder else value)
        elif name == "tier":
            parts += [str(value)] if _names_tier(values) else []
        elif name == "task" and _distinguishes(name, value, declared):
            parts.append(str(value))
        elif _distinguishes(name, value, declared):
            shown = _folder_slug(at_root(value)) if name == "outputs" else value
            if name == "prompts" and not names_prompt_set(value):  # may differ only in white space
                shown = sha256_json(parse_prompts(value))[:6]
            parts.append(f"{name}-{shown}")
    slugs = (re.sub(r"[^A-Za-z0-9.]+", "-", part).strip("-") for part in parts)
    page = "-".join(filter(None, slugs))
    if len(page) <= _LONGEST:
        return page
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]
    return f"{page[: _LONGEST - 9].rstrip('-.')}-{digest}"


def _names_tier(values: Mapping[str, Any]) -> bool:
    if "checkpoint" in values or "training" in values:
        return True
    if any(values.get(name) for name in _SELECTIONS):
        return False
    return bool(values["tier"] != once(_shown_tier))


def _shown_tier() -> str:
    return richest_tier(load_results(adapters=False, whole=False))


def _distinguishes(name: str, value: Any, declared: Mapping[str, Parameter]) -> bool:
    return name not in _UNNAMED and name in declared and value != declared[name].default


def _model_slug(values: Mapping[str, Any]) -> str:
    """Return a readable, unique name: the end of a path, with a digest outside the root."""
    spec = str(values["checkpoint"])
    try:
        folder = model_of(values).folder
    except SpecError:
        return spec
    if folder is None or (not Path(spec).exists() and not (paths.root() / spec).exists()):
        return spec
    return _folder_slug(folder.path)


def _folder_slug(folder: Path) -> str:
    resolved = folder.resolve()
    if resolved.is_relative_to(paths.root()):
        short = str(resolved.relative_to(paths.root())).removeprefix("runs/")
        return short.removesuffix("/checkpoints/final")  # a training's adapters
    digest = hashlib.sha256(str(resolved).encode()).hexdigest()[:6]
    return f"{resolved.parent.name}-{resolved.name}-{digest}"


def page_title(nb: Any, values: Mapping[str, Any]) -> str | None:
    """Return the title of a run's page, escaped; None if nothing distinguishes it.

    ``label · tier`` for a run on a checkpoint and a tier, else ``heading · label``; then the
    parameters that differ from their defaults. Tasks and folders replace the tier.
    """
    declared = declared_parameters(nb)
    parts, more = _subject(nb, values), []
    selected = any(values.get(name) for name in _SELECTIONS)
    for name, value in values.items():
        if name == "tier":
            more += [value] if not selected and _names_tier(values) else []
        elif name == "data" or (name in _SELECTIONS and _distinguishes(name, value, declared)):
            more += [_listed(value)] if value else []
        elif name not in _TITLED and _distinguishes(name, value, declared):
            shown = shorten(str(value), 60, placeholder="…")
            more.append(f"{name.replace('_', ' ')} {shown}")
    plain = len(parts) == 1 and not more and "checkpoint" not in values
    return None if plain else " · ".join(escaped(str(part)) for part in (*parts, *more))


def _subject(nb: Any, values: Mapping[str, Any]) -> list[str]:
    """Return the heading of a notebook, and its model or training; for `eval`, only the model."""
    first: str = next((cell.source for cell in nb.cells if cell.cell_type == "markdown"), "# Run")
    heading = first.split("\n")[0].removeprefix("# ")
    if "checkpoint" in values:
        label = model_of(values).label
        return [label] if "tier" in values else [heading, label]
    return [heading, Path(values["training"]).name] if "training" in values else [heading]


def _listed(value: str) -> str:
    """Return the entries of a list; paths by their last part, long lists counted."""
    entries = [Path(each.strip()).name for each in value.split(",")]
    rest = f" and {len(entries) - _MOST} more" if len(entries) > _MOST else ""
    return ", ".join(entries[:_MOST]) + rest


def page_command(
    notebook: str, values: Mapping[str, Any], declared: Mapping[str, Parameter]
) -> str:
    """Return the command that creates a page: ``qwen3nb eval --checkpoint bm25``.

    Default values and parameters that the notebook no longer has are left out.
    """
    words = ["qwen3nb", "eval"] if notebook == "eval" else ["qwen3nb", "run", notebook]
    for name, value in values.items():
        required = name in ("checkpoint", "training")
        if name in declared and (required or value != declared[name].default):
            words += option_words(name, value)
    return shlex.join(words)


def _records(values: Mapping[str, Any]) -> list[Result]:
    folder = at_root(values["output_dir"]) if values.get("output_dir") else None
    return list(once(load_results, folder, adapters=False, whole=False))


def baselines_now(trace: RunTrace, values: Mapping[str, Any]) -> list[list[str]]:
    """Return the baselines that a run's page would have now; see `RunTrace.baselines`."""
    named = values.get("baseline") or once(book_settings).baseline
    return trace.baselines(_records(values), named=named)


def is_old(page: Mapping[str, Any]) -> bool:
    """Return whether a page (as JSON) would now have other baselines, or newer records of them."""
    made = page["metadata"]["qwen3nb"]
    trace = read_trace(page)
    return trace is not None and made.get("baselines", []) != baselines_now(
        trace, made["parameters"]
    )


def is_measured(page: Mapping[str, Any]) -> bool:
    """Return whether another run would reuse every record, by their versions."""
    trace, values = read_trace(page), page["metadata"]["qwen3nb"]["parameters"]
    if trace is None:
        return True
    made = {(each.model, each.task) for each in trace.scores}
    current = Environment.current().versions
    records = (each for each in _records(values) if (each.model.label, each.task.key) in made)
    return all(each.environment.versions == current for each in records)
