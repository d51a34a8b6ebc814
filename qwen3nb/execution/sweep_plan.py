"""The plan of a sweep: model × tier × notebook, from a TOML file or from options.

    models = ["runs/ul2/checkpoint-*", "all-MiniLM-L6-v2"]   # globs, by step
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
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import ConfigDict, Field, Strict, StrictBool, StrictStr, TypeAdapter, ValidationError

from qwen3nb import paths
from qwen3nb.execution.parameters import (
    Parameter,
    ParameterError,
    read_parameters,
    typed_parameters,
)
from qwen3nb.execution.sweep import Job
from qwen3nb.utils.schema import field_problem

_Names = tuple[Annotated[str, Strict(), Field(min_length=1)], ...]


class PlannedRun(NamedTuple):
    """One more run: a notebook, with its own parameters."""

    notebook: StrictStr
    parameters: dict[str, Any] = {}  # noqa: RUF012 - never changed


@dataclass(frozen=True)
class SweepPlan:
    """The runs of a sweep and how to run them."""

    __pydantic_config__ = ConfigDict(extra="forbid")
    models: _Names = ()  # for the notebooks that declare ``checkpoint``; globs are expanded
    tiers: _Names = ()  # for the notebooks that declare ``tier``
    notebooks: _Names = ()  # names; ``eval`` if these and ``runs`` are empty
    # for every notebook that declares them
    parameters: dict[str, Any] = field(default_factory=dict)
    runs: tuple[PlannedRun, ...] = ()  # further notebooks with their own parameters
    at_once: Annotated[int, Strict(), Field(ge=0)] = 0  # parallel processes; 0: as many as fit
    book: StrictBool = True  # whether to build the book afterwards
    ray: StrictStr = ""  # address of a Ray cluster; empty: runs on this machine
    # GPUs of a run on a cluster that has any
    gpus_each: Annotated[float, Strict(), Field(gt=0)] = 1.0
    pass_env: _Names = ()  # names of secret variables that kernels get all the same
    # as ``parameters``, but strings from the command line
    typed: dict[str, str] = field(default_factory=dict)

    def jobs(self) -> list[Job]:
        """Return all runs, without duplicates.

        Raises:
            ParameterError: a value that no notebook uses, or a glob without a match.
            FileNotFoundError: no such notebook.
        """
        notebooks = self.notebooks
        if not notebooks and (self.models or self.tiers or not self.runs):
            notebooks = ("eval",)
        declared = {
            name: read_parameters(paths.find_notebook(name))
            for name in dict.fromkeys((*notebooks, *(n for n, _ in self.runs)))
        }
        shared = {name: self._shared(known) for name, known in declared.items()}
        self._refuse_unused(declared)
        models = [path for each in self.models for path in expanded(each)]
        jobs: list[Job] = []
        for name in notebooks:
            axes: list[list[dict[str, str]]] = [
                [{axis: value} for value in values] if axis in declared[name] and values else [{}]
                for axis, values in (("checkpoint", models), ("tier", self.tiers))
            ]
            for point in itertools.product(*axes):
                own = {k: v for part in point for k, v in part.items()}
                jobs.append(Job(name, {**shared[name], **own}))
        jobs += [Job(name, {**shared[name], **own}) for name, own in self.runs]
        unique: dict[tuple[str, str], Job] = {}
        for job in jobs:
            unique.setdefault((job.notebook, repr(sorted(job.parameters.items()))), job)
        return list(unique.values())

    def _shared(self, declared: Mapping[str, Parameter]) -> dict[str, Any]:
        """Return the values for every notebook that one of them declares."""
        shared = {name: value for name, value in self.parameters.items() if name in declared}
        texts = {name: value for name, value in self.typed.items() if name in declared}
        return {**shared, **typed_parameters(declared, texts)}

    def _refuse_unused(self, declared: Mapping[str, Mapping[str, Parameter]]) -> None:
        """Raise if a given value is not a parameter of any notebook."""
        problems = []
        known = sorted({name for own in declared.values() for name in own})
        none = f"none of {', '.join(declared)}"
        given = (*self.parameters, *self.typed)
        for axis, key in (("checkpoint", "models"), ("tier", "tiers")):
            if axis in given:
                problems.append(f"{axis} is not a shared parameter; list it under {key}")
            if getattr(self, key) and axis not in known:
                problems.append(f"{key} are given, but {none} takes them")
        problems += [
            f"unknown parameter {name!r}: {none} declares it. Known parameters: {', '.join(known)}"
            for name in given
            if name not in known
        ]
        if problems:
            raise ParameterError("\n".join(problems))


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


def _by_number(path: Path) -> list[str]:
    """Sort key that puts ``checkpoint-900`` before ``checkpoint-1000``."""
    return [part.zfill(20) if part.isdigit() else part for part in re.split(r"(\d+)", str(path))]


def read_plan(file: Path) -> SweepPlan:
    """Read the plan in a TOML file.

    Raises:
        ParameterError: not TOML, an unknown key, or a value of the wrong type.
    """
    try:
        given = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ParameterError(f"{file}: not TOML ({error})") from None
    known = [name for name in SweepPlan.__dataclass_fields__ if name != "typed"]
    if unknown := [name for name in given if name not in known]:
        raise ParameterError(
            f"{file}: unknown key {', '.join(map(repr, unknown))}; known keys: {', '.join(known)}"
        )
    try:
        plan: SweepPlan = TypeAdapter(SweepPlan).validate_python(given)
    except ValidationError as error:
        raise ParameterError(f"{file}: {field_problem(error, given)}") from None
    return plan
