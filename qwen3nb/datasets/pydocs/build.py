"""Build PyDocs, a benchmark of API search, from the docstrings of installed libraries.

The summary of a public function's docstring is a query; the rest of the docstring, with the
function's own name masked, is its document. Nothing is downloaded, so the benchmark also works
offline.

Rules
-----
- Functions (including ufuncs and built-ins) of the modules in `MODULES`, under the first
  module that lists them, so that an alias does not become a second document.
- A query is the first paragraph of a docstring on one line, 3 to 40 words.
- A document is the rest, at most 100 words: the length of a search passage, and short
  enough that hardly any model truncates it. "See Also", "References", "Examples", doctest
  lines (they name or print the answer) and signatures are removed. At least 15 words must
  remain.
- Qrels: a function's own document has grade 2, documents of functions in its "See Also"
  section have grade 1. Functions with the same summary share one query, for which each of
  their documents has grade 2.
- The label for classification and clustering is the sub-package, if at least 40 functions
  have it, else the package.
- A sample takes functions in the order of the SHA-256 of their names, so that it hardly
  changes when a library adds a function, and includes every judged document.

The identity of the benchmark is a digest of its content; the library versions it was built
from are stored with it.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import inspect
import platform
import re
import subprocess
import sys
import tomllib
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.utils.atomic_files import read_json, sha256_json, write_json
from qwen3nb.utils.signals import heed_children

CACHE_VERSION = 2  # increase when a rule above or the format of the file changes
MASK = "[name]"
QUERY_WORDS = (3, 40)
DOCUMENT_WORDS = (15, 100)
LABEL_SIZE = 40
OWN, RELATED = 2, 1

_DISTRIBUTIONS = {"sklearn": "scikit-learn"}
_UNWANTED = {"See Also", "References", "Examples", "Example"}
_UNDERLINE = re.compile(r"\s*[-=~]{3,}\s*")

LISTS = tomllib.loads(Path(__file__).with_name("libraries.toml").read_text(encoding="utf-8"))
MODULES = {package: tuple(names.split()) for package, names in LISTS["modules"].items()}


@dataclass(frozen=True)
class Entry:
    """One function."""

    name: str  # the qualified name, which is also the id of its document
    package: str  # ``numpy``, ``pandas``, ``python``, ``scipy`` or ``sklearn``
    label: str  # sub-package or package, for classification and clustering
    summary: str  # the query
    text: str  # the document
    related: tuple[str, ...]  # names of the functions in its "See Also" section


def module_of(function: str) -> str:
    """Return the module of a function, whose full name is the id of its query.

    >>> module_of("os.path.join")
    'os.path'
    """
    return function.rpartition(".")[0]


@dataclass(frozen=True)
class PyDocs:
    """The benchmark or a sample of it: entries by name, and the names of the queries."""

    entries: tuple[Entry, ...]
    query_names: tuple[str, ...]
    versions: dict[str, str]

    @cached_property
    def identity(self) -> str:
        """Digest of the content."""
        return sha256_json([[asdict(entry) for entry in self.entries], self.query_names])

    @cached_property
    def qrels(self) -> dict[str, dict[str, int]]:
        """Grades per query id and document id; a query's id is its function's name."""
        here = {entry.name: entry for entry in self.entries}
        twins: dict[str, list[Entry]] = {}
        for entry in self.entries:
            twins.setdefault(entry.summary, []).append(entry)
        qrels: dict[str, dict[str, int]] = {}
        for name in self.query_names:
            same = twins[here[name].summary]
            grades = {other: RELATED for entry in same for other in entry.related if other in here}
            qrels[name] = grades | {entry.name: OWN for entry in same}
        return qrels

    @property
    def queries(self) -> dict[str, str]:
        """Text per query id."""
        here = {entry.name: entry for entry in self.entries}
        return {name: here[name].summary for name in self.query_names}

    @property
    def clusters(self) -> dict[str, str]:
        """Cluster per query id: the module of its function."""
        return {name: module_of(name) for name in self.query_names}

    @property
    def corpus(self) -> dict[str, str]:
        """Text per document id."""
        return {entry.name: entry.text for entry in self.entries}

    def sample(self, *, documents: int, queries: int) -> PyDocs:
        """Sample ``queries`` queries with their judged documents, filled up to ``documents``.

        Raises ValueError if the queries have more judged documents.
        """
        names = tuple(sorted(sorted(self.query_names, key=_shuffled)[:queries]))
        judged = {name for query in names for name in self.qrels[query]}
        if len(judged) > documents:
            raise ValueError(
                f"{queries} queries have {len(judged)} judged documents; "
                f"a sample of {documents} cannot hold them"
            )
        others = sorted((e.name for e in self.entries if e.name not in judged), key=_shuffled)
        sampled = judged.union(others[: documents - len(judged)])
        entries = tuple(entry for entry in self.entries if entry.name in sampled)
        return PyDocs(entries, names, self.versions)


def load_pydocs() -> PyDocs:
    """Load the benchmark for the installed libraries, built once and kept in the cache.

    It is built in a separate process, because notebook kernels and test runners replace
    some functions of the standard library.
    """
    file = paths.cache() / "pydocs" / f"{sha256_json([CACHE_VERSION, _versions()])[:16]}.json"
    if not file.is_file():
        # -P: do not import files of the working directory.
        options = ("-P", "-W", "ignore", "-m", "qwen3nb.datasets.pydocs.build")
        command = [sys.executable, *options, str(file)]
        heed_children()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"PyDocs could not be built: {done.stderr.strip().splitlines()[-1]}")
    value = read_json(file)
    rows = ({**fields, "related": tuple(fields["related"])} for fields in value["entries"])
    entries = tuple(Entry(**fields) for fields in rows)
    return PyDocs(entries, tuple(value["query_names"]), value["versions"])


def build_pydocs() -> PyDocs:
    """Build the benchmark from the docstrings of the installed libraries."""
    docstrings = {
        name: (package, inspect.getdoc(function) or "", name.rpartition(".")[2])
        for package, modules in MODULES.items()
        for name, function in _functions(modules)
    }
    parsed = {
        name: (package, parts)
        for name, (package, doc, own) in docstrings.items()
        if (parts := split_docstring(doc, own)) is not None
    }
    known = set(parsed)
    sizes = Counter(_subpackage(name, package) for name, (package, _) in parsed.items())
    entries = []
    for name, (package, (summary, text, related)) in sorted(parsed.items()):
        label = _subpackage(name, package)
        entries.append(
            Entry(
                name=name,
                package=package,
                label=label if sizes[label] >= LABEL_SIZE else package,
                summary=summary,
                text=text,
                related=tuple(_resolve(related, name, known)),
            )
        )
    # The first of several functions with the same summary names the query.
    named = {entry.summary: entry.name for entry in reversed(entries)}
    return PyDocs(tuple(entries), tuple(sorted(named.values())), _versions())


def _versions() -> dict[str, str]:
    versions = {
        package: importlib.metadata.version(_DISTRIBUTIONS.get(package, package))
        for package in MODULES
        if package != "python"
    }
    return versions | {"python": platform.python_version(), "system": platform.system()}


def _functions(modules: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Yield the qualified name and the object of each public function, each object once."""
    seen: set[int] = set()
    for path in modules:
        with warnings.catch_warnings():
            # A deprecated module warns when it is imported; its docstrings are still text.
            warnings.simplefilter("ignore")
            try:
                module = importlib.import_module(path)
            except ImportError:  # not in this release, or not on this system
                continue
            public = getattr(module, "__all__", None) or [n for n in dir(module) if n[0] != "_"]
            members = {}
            for name in sorted(public):
                with suppress(AttributeError, ImportError):  # experimental
                    members[name] = getattr(module, name)
        home = path.split(".")[0]
        for name, member in members.items():
            is_function = inspect.isroutine(member) or type(member).__name__ == "ufunc"
            if not is_function or id(member) in seen or not _at_home(member, home):
                continue
            seen.add(id(member))
            yield f"{path}.{name}", member


def _at_home(function: Any, home: str) -> bool:
    """Return whether a function is defined in the package, not imported by it.

    The module of ``os.getcwd`` is ``posix``: C modules of built-ins count as the package.
    """
    module = getattr(function, "__module__", None)
    if not isinstance(module, str) or inspect.isbuiltin(function):
        return True
    return module.split(".")[0].lstrip("_") == home.lstrip("_")


def split_docstring(
    doc: str, own: str, *, shortest: int = DOCUMENT_WORDS[0]
) -> tuple[str, str, list[str]] | None:
    """Return summary, document and "See Also" names of a docstring; None if it is too short.

    The function's ``own`` name is masked in the document, of at least ``shortest`` words.
    """
    tidy = doc.replace("\r\n", "\n").expandtabs().strip()
    summary, _, rest = _without_signature(tidy, own).partition("\n\n")
    summary = " ".join(summary.split())
    sections = list(_sections(rest))
    kept = "\n".join(body for title, body in sections if title not in _UNWANTED)
    words = _mask(kept, own).split()[: DOCUMENT_WORDS[1]]
    if not QUERY_WORDS[0] <= len(summary.split()) <= QUERY_WORDS[1]:
        return None
    if len(words) < shortest or _UNDERLINE.search(summary):
        return None
    related = [name for title, body in sections if title == "See Also" for name in _names(body)]
    return summary, " ".join(words), related


def _without_signature(doc: str, own: str) -> str:
    """Drop leading ``name(...)`` and ``name(...) -> ...`` lines, including wrapped ones."""
    if f"{own}(" not in doc:  # avoids compiling a pattern for most names
        return doc
    lines = doc.split("\n")
    call = re.compile(rf"(?:[\w, ()]+ = )?(?:\w+\.)*{re.escape(own)}\(")
    while lines and (not lines[0].strip() or call.match(lines[0].strip())):
        depth = 0
        while lines:
            line = lines.pop(0)
            depth += line.count("(") - line.count(")")
            if depth <= 0:
                break
    return "\n".join(lines).strip()


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """Yield title and body of numpydoc sections; the text before them has an empty title."""
    title, body = "", list[str]()
    lines = [line for line in text.split("\n") if not line.lstrip().startswith((">>>", "..."))]
    for line, following in zip_longest(lines, lines[1:], fillvalue=""):
        if line.strip() and _UNDERLINE.fullmatch(following):
            yield title, "\n".join(body)
            title, body = line.strip(), []
        elif not _UNDERLINE.fullmatch(line):
            body.append(line)
    yield title, "\n".join(body)


def _mask(text: str, own: str) -> str:
    """Replace the function's own name where it is a whole word, ignoring case."""
    if own.casefold() not in text.casefold():
        return text
    return re.sub(rf"(?<![A-Za-z0-9]){re.escape(own)}(?![A-Za-z0-9])", MASK, text, flags=re.I)


def _names(body: str) -> Iterator[str]:
    """Yield the names at the left edge of a "See Also" section: ``a, b : description``."""
    for line in body.split("\n"):
        if line[:1].strip():
            for part in line.split(" : ")[0].split(","):
                if match := re.fullmatch(r"(?::\w+:)?`{0,2}~?\.?([\w.]+)`{0,2}:?", part.strip()):
                    yield match[1]


def _resolve(names: Iterable[str], asker: str, known: set[str]) -> list[str]:
    """Return the qualified names of those ``names`` that are documents, nearest module first."""
    module = asker.split(".")[:-1]
    resolved = set()
    for name in names:
        candidates = [".".join([*module[:depth], name]) for depth in range(len(module), -1, -1)]
        if match := next((c for c in candidates if c in known and c != asker), None):
            resolved.add(match)
    return sorted(resolved)


def _subpackage(name: str, package: str) -> str:
    """Return ``scipy.special`` for ``scipy.special.erf``, ``numpy`` for ``numpy.dot``."""
    parts = name.split(".")
    return package if package == "python" or len(parts) < 3 else ".".join(parts[:2])


def _shuffled(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


if __name__ == "__main__":
    write_json(Path(sys.argv[1]), asdict(build_pydocs()))
