"""What a shell completes: models, labels, tasks, tiers and notebooks.

Names come from small files and folders, so that a key press costs no import of a heavy library.
Of MTEB's tasks, those of the tiers are offered. Entries of a list are completed one by one.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from qwen3nb import paths
from qwen3nb.tiers import GROUPS, TIERS

Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

_REGISTRY = Path(__file__).parents[1] / "models" / "kinds" / "registry.toml"
_OTHER_MODELS = ("bm25", "random")
_IDENTITY = re.compile(r"-[0-9a-f]{8}$")


def complete_models(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a model: a name of the registry, bm25, random, or a folder here or in the study."""
    if _is_path(incomplete):
        return [CompletionItem(incomplete, type="dir")]
    names = tomllib.loads(_REGISTRY.read_text(encoding="utf-8"))
    return _listed(incomplete, [*names, *_OTHER_MODELS, *_folders()])


def complete_paths(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a path, as the shell does."""
    return [CompletionItem(incomplete, type="file")]


def complete_labels(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the label of a model that has records."""
    return _listed(incomplete, _labels())


def complete_tasks(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a task of a tier, or a folder of data."""
    if _is_path(incomplete):
        return [CompletionItem(incomplete, type="dir")]
    names = dict.fromkeys([*(task for tier in TIERS.values() for task in tier.tasks), *GROUPS])
    return _listed(incomplete, names)


def complete_tiers(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a tier."""
    return _listed(incomplete, TIERS)


def complete_notebooks(
    _: click.Context, __: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the name of a notebook of the study."""
    return _listed(incomplete, paths.notebook_names() if paths.find_root() else ())


def complete_notebook_value(parameter: str) -> Completion | None:
    """Return what completes a notebook's parameter, by its name, if anything does."""
    return _BY_PARAMETER.get(parameter)


_BY_PARAMETER: dict[str, Completion] = {
    "baseline": complete_labels,
    "checkpoint": complete_models,
    "model": complete_models,
    "models": complete_models,
    "task": complete_tasks,
    "tasks": complete_tasks,
}


def _listed(incomplete: str, names: Iterable[str]) -> list[CompletionItem]:
    """Return the names that continue the last entry of a list; names a shell can show."""
    before, comma, last = incomplete.rpartition(",")
    return [
        CompletionItem(f"{before}{comma}{name}")
        for name in names
        if name.startswith(last) and name.isprintable()
    ]


def _is_path(incomplete: str) -> bool:
    return "/" in incomplete or incomplete.startswith((".", "~"))


def _folders() -> Iterator[str]:
    """Names of folders here, and of those at the top of the study."""
    bases = dict.fromkeys((Path.cwd(), paths.root()))
    names = {each.name for base in bases for each in base.iterdir() if each.is_dir()}
    yield from sorted(name for name in names if not name.startswith((".", "_")))


def _labels() -> list[str]:
    try:
        folders = list(paths.results().glob("*/seed_*"))
    except paths.NoStudyError:
        return []
    return sorted({_IDENTITY.sub("", folder.parent.name) for folder in folders})
