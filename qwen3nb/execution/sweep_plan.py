"""The plan of a sweep: checkpoint × tier × notebook, from a TOML file or from options.

    checkpoints = ["runs/ul2/checkpoint-*", "all-MiniLM-L6-v2"]   # globs, by step
    tiers = ["smoke"]
    notebooks = ["eval"]
    at_once = 0      # 0: as many as fit
    book = true      # build the book afterwards
    ray = "auto"     # a Ray cluster, as --ray; "local": a Ray of this machine; "": none
    gpus_each = 1.0  # GPUs of a run on a cluster that has any
    pass_env = []    # secret variables of the environment that notebooks may see

    [parameters]     # for every notebook that declares them
    batch_size = 64

    [[runs]]         # one more run, with its own parameters
    notebook = "ablation"
    parameters = { training = "demo" }

Relative paths are resolved against the working directory, then the project root.
"""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.execution.parameters import (
    Parameter,
    ParameterError,
    read_parameters,
    typed_parameters,
)
from qwen3nb.execution.sweep import Job

__all__ = ["SweepPlan", "read_plan"]


@dataclass(frozen=True)
class SweepPlan:
    """The runs of a sweep and how to run them.

    Attributes:
        checkpoints: for the notebooks that declare ``checkpoint``; globs are expanded.
        tiers: for the notebooks that declare ``tier``.
        notebooks: names; ``eval`` if these and ``runs`` are empty.
        parameters: for every notebook that declares them.
        typed: the same, as strings from the command line.
        runs: further notebooks with their own parameters.
        at_once: parallel processes; 0: as many as fit.
        book: whether to build the book afterwards.
        ray: address of a Ray cluster; empty: runs on this machine.
        gpus_each: GPUs of a run on a cluster that has any.
        pass_env: names of secret variables that kernels get all the same.
    """

    checkpoints: tuple[str, ...] = ()
    tiers: tuple[str, ...] = ()
    notebooks: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    typed: Mapping[str, str] = field(default_factory=dict)
    runs: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    at_once: int = 0
    book: bool = True
    ray: str = ""
    gpus_each: float = 1.0
    pass_env: tuple[str, ...] = ()

    def jobs(self) -> list[Job]:
        """Return all runs, without duplicates.

        Raises:
            ParameterError: a value that no notebook uses, or a glob without a match.
            FileNotFoundError: no such notebook.
        """
        notebooks = self.notebooks
        if not notebooks and (self.checkpoints or self.tiers or not self.runs):
            notebooks = ("eval",)
        declared = {
            name: read_parameters(paths.find_notebook(name))
            for name in dict.fromkeys((*notebooks, *(n for n, _ in self.runs)))
        }
        shared = {name: self._shared(known) for name, known in declared.items()}
        self._refuse_unused(declared)
        checkpoints = [path for each in self.checkpoints for path in expanded(each)]
        jobs: list[Job] = []
        for name in notebooks:
            axes: list[list[dict[str, str]]] = [
                [{axis: value} for value in values] if axis in declared[name] and values else [{}]
                for axis, values in (("checkpoint", checkpoints), ("tier", self.tiers))
            ]
            for point in itertools.product(*axes):
                own = {k: v for part in point for k, v in part.items()}
                jobs.append(Job(name, {**shared[name], **own}))
        jobs += [Job(name, {**shared[name], **own}) for name, own in self.runs]
        unique: dict[Any, Job] = {}
        for job in jobs:
            unique.setdefault(_key(job), job)
        return list(unique.values())

    def _shared(self, declared: Mapping[str, Parameter]) -> dict[str, Any]:
        """Return the values for every notebook that one of them declares."""
        shared = {name: value for name, value in self.parameters.items() if name in declared}
        texts = {name: value for name, value in self.typed.items() if name in declared}
        return {**shared, **typed_parameters(declared, texts)}

    def _refuse_unused(self, declared: Mapping[str, Mapping[str, Parameter]]) -> None:
        """Raise if a given value is not a parameter of any notebook."""
        problems = []
        for axis, values in (("checkpoint", self.checkpoints), ("tier", self.tiers)):
            if axis in self.parameters or axis in self.typed:
                problems.append(f"{axis} is not a shared parameter; list it under {axis}s")
            if values and not any(axis in each for each in declared.values()):
                problems.append(f"{axis}s are given, but none of {', '.join(declared)} takes them")
        for name in (*self.parameters, *self.typed):
            if not any(name in each for each in declared.values()):
                names = sorted({known for each in declared.values() for known in each})
                problems.append(
                    f"unknown parameter {name!r}: none of {', '.join(declared)} declares it. "
                    f"Known parameters: {', '.join(names)}"
                )
        if problems:
            raise ParameterError("\n".join(problems))


def _key(job: Job) -> tuple[str, frozenset[tuple[str, Any]]]:
    """Return what two equal runs have in common; a list or table is refused later, by its type."""
    return job.notebook, frozenset(
        (name, value if isinstance(value, Hashable) else repr(value))
        for name, value in job.parameters.items()
    )


def expanded(spec: str) -> list[str]:
    """Return the folders that a glob matches, in numerical order; any other ``spec`` as it is.

    Raises:
        ParameterError: a glob that matches no folder.
    """
    if not re.search(r"[*?\[]", spec):
        return [spec]
    pattern = Path(spec).expanduser()
    if pattern.is_absolute():
        bases, pattern = [Path(pattern.anchor)], pattern.relative_to(pattern.anchor)
    else:
        bases = [Path.cwd(), paths.root()]
    for base in bases:
        folders = [path for path in base.glob(str(pattern)) if path.is_dir()]
        if folders:
            return [paths.shown(path) for path in sorted(folders, key=_by_number)]
    where = " or ".join(map(str, dict.fromkeys(bases)))
    raise ParameterError(f"no folder matches {spec!r} in {where}")


def _by_number(path: Path) -> list[tuple[int, str]]:
    """Sort key that puts ``checkpoint-900`` before ``checkpoint-1000``."""
    parts = re.split(r"(\d+)", str(path))
    return [(int(part), "") if part.isdigit() else (0, part) for part in parts]


def _strings(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        raise ValueError("a list of strings")
    return tuple(value)


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("a table")
    return value


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("an integer of 0 or more")
    return value


def _yes_or_no(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("a string")
    return value


def _share(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ValueError("a number above 0")
    return float(value)


def _runs(value: Any) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    wanted = "[[runs]] tables with `notebook`, a name, and optionally `parameters`, a table"
    if not isinstance(value, list):
        raise ValueError(wanted)
    runs = []
    for each in value:
        if not isinstance(each, dict) or not {"notebook"} <= set(each) <= {
            "notebook",
            "parameters",
        }:
            raise ValueError(wanted)
        name, own = each["notebook"], each.get("parameters", {})
        if not isinstance(name, str) or not isinstance(own, dict):
            raise ValueError(wanted)
        runs.append((name, own))
    return tuple(runs)


# Reader of each key of the file; its error says what is expected.
KEYS: dict[str, Callable[[Any], Any]] = {
    "checkpoints": _strings,
    "tiers": _strings,
    "notebooks": _strings,
    "parameters": _table,
    "runs": _runs,
    "at_once": _count,
    "book": _yes_or_no,
    "ray": _string,
    "gpus_each": _share,
    "pass_env": _strings,
}


def read_plan(file: Path) -> SweepPlan:
    """Read the plan in a TOML file.

    Raises:
        ParameterError: not TOML, an unknown key, or a value of the wrong type.
    """
    try:
        given = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ParameterError(f"{file}: not TOML ({error})") from None
    if unknown := [name for name in given if name not in KEYS]:
        raise ParameterError(
            f"{file}: unknown key {', '.join(map(repr, unknown))}; known keys: {', '.join(KEYS)}"
        )
    read = {}
    for name, value in given.items():
        try:
            read[name] = KEYS[name](value)
        except ValueError as error:
            raise ParameterError(f"{file}: {name} is {value!r}; expected {error}") from None
    return SweepPlan(**read)
