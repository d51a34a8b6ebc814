"""A TOML file of queries, checked: every error says file, line and cause.

    [[queries]]
    id = "q001"                     # letters, digits, . _ -
    query = "rust grep tool"
    category = "composite"          # optional, a name like an id
    relevance_grades = { "acme/grep" = 3, "acme/tmux" = 1 }    # 0 to 3; absent means 0
    expected = ["acme/grep"]        # optional; `expected_repos` means the same

    [models.current]                # optional: what to compare, if nothing else is asked for
    model_id = "intfloat/e5-small-v2"      # or a folder: ./ is that of this file
    dimensions = 384                       # optional, compared; name: optional

    [settings]                      # optional; see `Settings`
    relevance_threshold = 2

There is one truth: the grades. Where a query has grades, its ``expected`` list is only
compared with them; where it has none, what is expected has the grade 3.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from qwen3nb.datasets.custom.toml_lines import KeyPath, deep_key_line, key_lines, line_of
from qwen3nb.datasets.rows import DataError

__all__ = ["ModelEntry", "Query", "QueryFile", "Settings", "read_queries"]

MOST = 4 << 20  # bytes
GRADES = range(4)
UNCATEGORISED = "uncategorised"
_SHOWN = 20  # errors told at once
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_TOP = ("models", "queries", "settings")
_QUERY = ("id", "query", "category", "relevance_grades", "expected", "expected_repos")
_MODEL = ("name", "model_id", "dimensions")


@dataclass(frozen=True)
class Query:
    """One query.

    Attributes:
        id: its name.
        text: what is searched for.
        category: for breakdowns.
        grades: grade per document; the truth.
        expected: the list beside the grades, or empty.
        line: where it begins.
    """

    id: str
    text: str
    category: str
    grades: Mapping[str, int]
    expected: tuple[str, ...]
    line: int


@dataclass(frozen=True)
class ModelEntry:
    """A model the file asks for: its place in the file, its spec, what is said of its size."""

    name: str
    spec: str
    dimensions: int | None = None


@dataclass(frozen=True)
class Settings:
    """What decides scores, apart from the model.

    Attributes:
        relevance_threshold: smallest grade that counts as relevant where grades do not.
        star_boost_coefficient: what a million stars add to a score, as a share.
        recency_coefficient: what ``recency_days`` without a change take from it.
        recency_days: after which it takes no more.
    """

    relevance_threshold: int = 2
    star_boost_coefficient: float = 0.1
    recency_coefficient: float = 0.2
    recency_days: int = 365


@dataclass(frozen=True)
class QueryFile:
    """All that a file of queries says."""

    file: Path
    queries: tuple[Query, ...]
    models: tuple[ModelEntry, ...] = ()
    settings: Settings = field(default_factory=Settings)


def read_queries(file: Path) -> QueryFile:
    """Read and check ``file``.

    Raises:
        DataError: it cannot be read, is not TOML, or not what it should be; one line per
            error, each with the line of the file.
    """
    text = _read(file)
    if line := deep_key_line(text):
        raise DataError(f"{file}:{line}: a key of more than 32 parts")
    try:
        raw = tomllib.loads(text)
        lines = key_lines(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file}: not TOML: {error}") from None
    checker = _Checker(file, lines)
    checker.known(raw, (), _TOP)
    models = _models(raw, checker, folder=file.parent)
    found = QueryFile(file, _queries(raw, checker), models, _settings(raw, checker))
    if not found.queries and not checker.errors:
        raise DataError(f"{file}: no [[queries]]")
    checker.done()
    return found


def _read(file: Path) -> str:
    if not file.is_file():
        raise DataError(f"{file}: no such file, or not a regular one")
    if file.stat().st_size > MOST:
        raise DataError(f"{file}: {file.stat().st_size:,} bytes; expected at most {MOST:,}")
    try:
        return file.read_bytes().decode("utf-8").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file}: cannot be read ({error})") from None


class _Checker:
    """Collects what is wrong, with lines."""

    def __init__(self, file: Path, lines: dict[KeyPath, int]) -> None:
        self._file, self._lines = file, lines
        self.errors: list[tuple[int, str]] = []

    def line(self, path: KeyPath) -> int:
        return line_of(path, self._lines)

    def error(self, path: KeyPath, cause: str) -> None:
        self.errors.append((self.line(path), cause))

    def known(self, table: Mapping[str, Any], path: KeyPath, names: tuple[str, ...]) -> None:
        for name in table:
            if name not in names:
                near = get_close_matches(name, names, n=1, cutoff=0.5)
                hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}"
                self.error((*path, name), f"unknown key {name!r}; {hint}")

    def tables(self, raw: Mapping[str, Any], name: str, kind: type) -> Any:
        """``raw[name]``, empty if it is absent or of another kind, which is an error."""
        value = raw.get(name, kind())
        wanted = f"[[{name}]]" if kind is list else f"[{name}]"
        items = value if isinstance(value, list) else [value]
        if not isinstance(value, kind) or not all(isinstance(each, dict) for each in items):
            self.error((name,), f"{name!r} is {value!r:.40}, expected tables as in {wanted}")
            return kind()
        return value

    def value(
        self,
        table: Mapping[str, Any],
        path: KeyPath,
        name: str,
        holds: Callable[[Any], bool],
        expected: str,
        *,
        default: Any = None,
    ) -> Any:
        """``table[name]`` if it holds; ``default`` (if not None, the key is optional) or None."""
        if name not in table:
            if default is None:
                self.error(path, f"no {name!r}; expected {expected}")
            return default
        value = table[name]
        if holds(value):
            return value
        self.error((*path, name), f"{name!r} is {value!r:.60}, expected {expected}")
        return default

    def done(self) -> None:
        if self.errors:
            told = [f"{self._file}:{line}: {cause}" for line, cause in sorted(self.errors)]
            more = len(told) - _SHOWN
            raise DataError("\n".join(told[:_SHOWN] + ([f"... and {more} more"] * (more > 0))))


def _queries(raw: Mapping[str, Any], checker: _Checker) -> tuple[Query, ...]:
    queries: dict[str, Query] = {}
    for index, table in enumerate(checker.tables(raw, "queries", list)):
        path: KeyPath = ("queries", index)
        query = _query(table, path, checker)
        if query is None:
            continue
        if query.id in queries:
            first = queries[query.id].line
            checker.error((*path, "id"), f"id {query.id!r} again; first in line {first}")
        queries.setdefault(query.id, query)
    return tuple(queries.values())


def _query(table: Mapping[str, Any], path: KeyPath, checker: _Checker) -> Query | None:
    before = len(checker.errors)
    checker.known(table, path, _QUERY)
    name = checker.value(table, path, "id", _is_name, "a name of letters, digits, . _ -")
    text = checker.value(table, path, "query", _is_text, "a text that is not blank")
    category = checker.value(
        table, path, "category", _is_name, "a name of letters, digits, . _ -", default=UNCATEGORISED
    )
    if "expected" in table and "expected_repos" in table:
        checker.error((*path, "expected_repos"), "the same as 'expected', which is there, too")
    key = "expected_repos" if "expected_repos" in table else "expected"
    expected = checker.value(table, path, key, _is_ids, "a list of ids, none twice", default=[])
    grades = checker.value(
        table, path, "relevance_grades", _is_table, "a table of grades", default={}
    )
    for document, grade in grades.items():
        if not _is_grade(grade):
            checker.error(
                (*path, "relevance_grades", document),
                f"the grade of {document!r} is {grade!r:.40}, expected 0, 1, 2 or 3",
            )
    if "relevance_grades" not in table and key not in table:
        checker.error(path, "neither 'relevance_grades' nor 'expected': nothing is relevant")
    if len(checker.errors) > before:
        return None
    truth = grades if "relevance_grades" in table else dict.fromkeys(expected, GRADES[-1])
    return Query(name, text, category, truth, tuple(expected), checker.line(path))


def _models(raw: Mapping[str, Any], checker: _Checker, *, folder: Path) -> tuple[ModelEntry, ...]:
    models = []
    for name, table in checker.tables(raw, "models", dict).items():
        path: KeyPath = ("models", name)
        if not isinstance(table, dict):
            checker.error(path, f"{name!r} is {table!r:.40}, expected a table [models.{name}]")
            continue
        checker.known(table, path, _MODEL)
        spec = checker.value(table, path, "model_id", _is_text, "a folder, a name or a hub id")
        label = checker.value(
            table, path, "name", _is_name, "a name of letters, digits, . _ -", default=name
        )
        size = checker.value(table, path, "dimensions", _is_size, "a whole number > 0", default=0)
        spec = str(folder / spec) if spec and spec.startswith(("./", "../")) else spec
        models.append(ModelEntry(label, spec or "", size or None))
    return tuple(models)


def _settings(raw: Mapping[str, Any], checker: _Checker) -> Settings:
    table, defaults = checker.tables(raw, "settings", dict), Settings()
    path: KeyPath = ("settings",)
    checker.known(table, path, tuple(vars(defaults)))
    rules: dict[str, tuple[Callable[[Any], bool], str]] = {
        "relevance_threshold": (lambda v: _is_grade(v) and v > 0, "1, 2 or 3"),
        "star_boost_coefficient": (lambda v: _is_number(v) and 0 <= v <= 10, "0 to 10"),
        "recency_coefficient": (lambda v: _is_number(v) and 0 <= v < 1, "0 or more, below 1"),
        "recency_days": (_is_size, "a whole number > 0"),
    }
    return Settings(
        **{
            name: checker.value(table, path, name, *rule, default=getattr(defaults, name))
            for name, rule in rules.items()
        }
    )


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and "\0" not in value


def _is_ids(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value)) and len(set(value)) == len(value)


def _is_table(value: Any) -> bool:
    return isinstance(value, dict)


def _is_grade(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value in GRADES


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**6


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
