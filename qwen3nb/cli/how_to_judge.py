"""The commands that grade what is unjudged, and decide with these grades."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_GRADES = "grades.jsonl"  # where `qwen3nb judge` writes them
_CORPUS = ("corpus.jsonl", "corpus.jsonl.gz")  # documents of a folder of BEIR


@dataclass(frozen=True)
class SearchArguments:
    """Arguments of `qwen3nb domain` that name queries, documents and models."""

    queries: Path
    judgements: Path | None
    documents: Path | None
    id_column: str | None
    text: str | None
    models: Sequence[object]

    @property
    def _documents(self) -> Path | None:
        """The documents, which may have come in the folder of the queries."""
        if self.documents is not None:
            return self.documents
        for name in _CORPUS:
            if (self.queries / name).is_file():
                return self.queries / name
        return None

    @property
    def _grades(self) -> Path:
        """The file of grades: one of those that were read, else a new one."""
        from qwen3nb.datasets.custom.grades import is_grade_file

        for file in (self.queries, self.judgements):
            if file is not None and file.is_file() and is_grade_file(file):
                return file
        return Path(_GRADES)

    def commands(self) -> list[str]:
        """Return the command that grades, and the one that decides; none without documents.

        The second is left out where other judgements were read, too, as it takes one file.
        """
        if self._documents is None:
            return []
        queries = ["--queries", str(self.queries)]
        shared = ["--documents", str(self._documents)]
        for name, value in (("--id-column", self.id_column), ("--text", self.text)):
            if value:
                shared += [name, value]
        for model in self.models:
            shared += ["--model", _named(model)]
        grades = self._grades
        judge = [*queries, *shared]
        if grades != Path(_GRADES):
            judge += ["--grades", str(grades)]
        commands = [shlex.join(["qwen3nb", "judge", *judge])]
        if self.judgements in (None, grades):
            if grades != self.queries:
                queries += ["--judgements", str(grades)]
            commands.append(shlex.join(["qwen3nb", "domain", *queries, *shared]))
        return commands


def _named(model: object) -> str:
    """Return a model as the command line takes it: its spec, perhaps with a label."""
    spec = str(getattr(model, "spec", model))  # an entry of the query file, or only a spec
    label = getattr(model, "label", "")
    if label and label != spec:
        return f"{label}={spec}"
    return spec
