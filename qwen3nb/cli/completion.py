"""Completion in the shell: models, labels, tasks, tiers and notebooks.

Names come from small files and folders, so that a key press costs no import of a heavy library.
Of MTEB's tasks, those of the tiers are offered. Entries of a list are completed one by one.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from qwen3nb import paths
from qwen3nb.tiers import GROUPS, TIERS

Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

_REGISTRY = Path(__file__).parents[1] / "models" / "kinds" / "registry.toml"
_IDENTITY = re.compile(r"-[0-9a-f]{8}$")


def _completion(names: Callable[[], Iterable[str]], *, paths_too: bool = False) -> Completion:
    """Return what continues the last entry of a list with one of ``names``, or with a folder."""

    def complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
        if paths_too and ("/" in incomplete or incomplete.startswith((".", "~"))):
            return [CompletionItem(incomplete, type="dir")]
        before, comma, last = incomplete.rpartition(",")
        return [
            CompletionItem(f"{before}{comma}{name}")
            for name in names()
            if name.startswith(last) and name.isprintable()
        ]

    return complete


def _models() -> list[str]:
    """Names of the registry, bm25, random, and the folders here and at the top of the study."""
    bases = dict.fromkeys((Path.cwd(), paths.root()))
    folders = {each.name for base in bases for each in base.iterdir() if each.is_dir()}
    files = [each for each in (_REGISTRY, paths.root() / "models.toml") if each.is_file()]
    registry = [name for each in files for name in tomllib.loads(each.read_text(encoding="utf-8"))]
    own = sorted(name for name in folders if not name.startswith((".", "_")))
    return [*registry, "bm25", "random", *own]


def _labels() -> list[str]:
    """Labels of the models that have records."""
    try:
        folders = list(paths.results().glob("*/seed_*"))
    except paths.NoStudyError:
        return []
    return sorted({_IDENTITY.sub("", folder.parent.name) for folder in folders})


def _tasks() -> Iterable[str]:
    return dict.fromkeys([*(task for tier in TIERS.values() for task in tier.tasks), *GROUPS])


complete_models = _completion(_models, paths_too=True)
complete_labels = _completion(_labels)
complete_tasks = _completion(_tasks, paths_too=True)
complete_tiers = _completion(lambda: TIERS)
complete_notebooks = _completion(lambda: paths.notebook_names() if paths.find_root() else ())

# What completes a notebook's parameter, by its name.
BY_PARAMETER = {
    "baseline": complete_labels,
    "checkpoint": complete_models,
    "model": complete_models,
    "models": complete_models,
    "task": complete_tasks,
    "tasks": complete_tasks,
}


def complete_paths(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a path, as the shell does."""
    return [CompletionItem(incomplete, type="file")]
