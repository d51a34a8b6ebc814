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

import gc
import hashlib
import importlib
import importlib.metadata
import inspect
import platform
import re
import sys
import tomllib
import warnings
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from qwen3nb import paths
from qwen3nb.utils.atomic_files import read_json, sha256_json, write_json
from qwen3nb.utils.children import run_program

CACHE_VERSION = 2  # increase when a rule above or the format of the file changes
MASK = "[name]"
QUERY_WORDS = (3, 40)
DOCUMENT_WORDS = (15, 100)
LABEL_SIZE = 40
OWN, RELATED = 2, 1

_DISTRIBUTIONS = {"sklearn": "scikit-learn"}
_UNWANTED_SECTIONS = {"See Also", "References", "Examples", "Example"}
_UNDERLINE = re.compile(r"\s*[-=~]{3,}\s*")

# The start of a signature: ``result, error = `` before ``name(`` or ``module.name(``.
_ASSIGNMENT = re.compile(r"[\w, ()]+ = ")
_CALL = re.compile(r"(?:\w+\.)*(\w+)\(")

# A name, perhaps as a link: inv, `inv`, :func:`~scipy.linalg.inv`.
_SEE_ALSO_NAME = re.compile(r"(?::\w+:)?`{0,2}~?\.?([\w.]+)`{0,2}:?")

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
        entries_by_summary: dict[str, list[Entry]] = {}
        for entry in self.entries:
            entries_by_summary.setdefault(entry.summary, []).append(entry)
        qrels: dict[str, dict[str, int]] = {}
        for query, summary in self.queries.items():
            # Functions with the same summary answer the same query.
            answers = entries_by_summary[summary]
            grades: dict[str, int] = {}
            for entry in answers:
                for name in entry.related:
                    if name in self._by_name:
                        grades[name] = RELATED
            for entry in answers:
                grades[entry.name] = OWN  # last, so that the higher grade stays
            qrels[query] = grades
        return qrels

    @cached_property
    def _by_name(self) -> dict[str, Entry]:
        return {entry.name: entry for entry in self.entries}

    @property
    def queries(self) -> dict[str, str]:
        """Text per query id."""
        return {name: self._by_name[name].summary for name in self.query_names}

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
        # In the order of the hashes of their names: arbitrary, but stable.
        drawn_queries = sorted(self.query_names, key=_name_hash)[:queries]
        judged_names: set[str] = set()
        for query in drawn_queries:
            judged_names.update(self.qrels[query])
        if len(judged_names) > documents:
            raise ValueError(
                f"{queries} queries have {len(judged_names)} judged documents; "
                f"a sample of {documents} cannot hold them"
            )
        unjudged_names = sorted(self._by_name.keys() - judged_names, key=_name_hash)
        unjudged_in_sample = unjudged_names[: documents - len(judged_names)]
        names = judged_names.union(unjudged_in_sample)
        entries = tuple(entry for entry in self.entries if entry.name in names)
        query_names = tuple(sorted(drawn_queries))
        return PyDocs(entries, query_names, self.versions)


def load_pydocs() -> PyDocs:
    """Load the benchmark for the installed libraries, built once and kept in the cache.

    It is built in a separate process, because notebook kernels and test runners replace
    some functions of the standard library.
    """
    key = sha256_json([CACHE_VERSION, _versions()])
    file = paths.cache_to_write() / "pydocs" / f"{key[:16]}.json"
    if not file.is_file():
        _build_in_process(file)
    stored_data = read_json(file)
    entries: list[Entry] = []
    for fields in stored_data["entries"]:
        related_names = tuple(fields.pop("related"))
        entries.append(Entry(**fields, related=related_names))
    return PyDocs(tuple(entries), tuple(stored_data["query_names"]), stored_data["versions"])


def _build_in_process(file: Path) -> None:
    """Build the benchmark in a process of its own, and write it to a file."""
    # -P: do not import files of the working directory.
    options = ("-P", "-W", "ignore", "-m", "qwen3nb.datasets.pydocs.build")
    command = [sys.executable, *options, str(file)]
    process = run_program(command)
    if process.returncode != 0:
        last_line = process.stderr.strip().splitlines()[-1]
        raise RuntimeError(f"PyDocs could not be built: {last_line}")


def build_pydocs() -> PyDocs:
    """Build the benchmark from the docstrings of the installed libraries."""
    docstrings: dict[str, Docstring] = {}
    packages: dict[str, str] = {}
    for package, modules in MODULES.items():
        for name, function in _functions(modules):
            text = inspect.getdoc(function) or ""
            docstring = split_docstring(text, name.rpartition(".")[2])
            if docstring is not None:
                docstrings[name] = docstring
                packages[name] = package
            else:  # of several packages with the name, the last counts
                docstrings.pop(name, None)
    subpackages = {name: _subpackage(name, packages[name]) for name in docstrings}
    sizes = Counter(subpackages.values())
    entries: list[Entry] = []
    for name, docstring in sorted(docstrings.items()):
        label = packages[name]
        if sizes[subpackages[name]] >= LABEL_SIZE:
            label = subpackages[name]
        related_names = _qualified_names(docstring.related, name, docstrings.keys())
        entry = Entry(
            name=name,
            package=packages[name],
            label=label,
            summary=docstring.summary,
            text=docstring.text,
            related=tuple(related_names),
        )
        entries.append(entry)
    # The first of several functions with the same summary names the query.
    query_names: dict[str, str] = {}
    for entry in entries:
        query_names.setdefault(entry.summary, entry.name)
    return PyDocs(tuple(entries), tuple(sorted(query_names.values())), _versions())


def _versions() -> dict[str, str]:
    versions: dict[str, str] = {}
    for package in MODULES:
        if package != "python":
            distribution = _DISTRIBUTIONS.get(package, package)  # sklearn is of scikit-learn
            versions[package] = importlib.metadata.version(distribution)
    versions["python"] = platform.python_version()
    versions["system"] = platform.system()
    return versions


def _functions(modules: Iterable[str]) -> Iterator[tuple[str, object]]:
    """Yield the qualified name and the object of each public function, each object once."""
    seen_ids: set[int] = set()
    for module in modules:
        package = module.split(".")[0]
        for name, member in _public_members(module).items():
            is_numpy_function = type(member).__name__ == "ufunc"
            is_function = inspect.isroutine(member) or is_numpy_function
            if not is_function or not _is_defined_in(package, member):
                continue
            # Several modules may list a function; it is named by the first.
            if id(member) not in seen_ids:
                seen_ids.add(id(member))
                yield f"{module}.{name}", member


def _public_members(path: str) -> dict[str, object]:
    """Return the public members of a module by name; none if it cannot be imported."""
    members: dict[str, object] = {}
    with warnings.catch_warnings():
        # A deprecated module warns when it is imported; its docstrings are still text.
        warnings.simplefilter("ignore")
        try:
            module = importlib.import_module(path)
        except ImportError:  # not in this release, or not on this system
            return {}
        names = getattr(module, "__all__", None)
        if not names:
            names = [name for name in dir(module) if not name.startswith("_")]
        for name in sorted(names):
            with suppress(AttributeError, ImportError):  # experimental
                members[name] = getattr(module, name)
    return members


def _is_defined_in(package: str, function: object) -> bool:
    """Return whether a function is defined in the package, not imported by it.

    The module of ``os.getcwd`` is ``posix``: C modules of built-ins count as the package.
    """
    module = getattr(function, "__module__", None)
    if not isinstance(module, str) or inspect.isbuiltin(function):
        return True
    package_of_function = module.split(".")[0]
    return package_of_function.lstrip("_") == package.lstrip("_")


class Docstring(NamedTuple):
    """The parts of a docstring that the benchmark uses."""

    summary: str  # its first paragraph, on one line
    text: str  # the rest, with the function's name masked
    related: list[str]  # the names in its "See Also" section


def split_docstring(
    text: str,
    function: str,
    *,
    shortest: int = DOCUMENT_WORDS[0],
) -> Docstring | None:
    """Return the parts of a function's docstring; None if it is too short.

    The name of the ``function`` is masked in the document, of at least ``shortest`` words.
    """
    tidy_text = text.replace("\r\n", "\n").expandtabs().strip()
    first_paragraph, _, rest = _without_signature(tidy_text, function).partition("\n\n")
    summary = " ".join(first_paragraph.split())
    bodies: list[str] = []
    related_names: list[str] = []
    for title, body in _sections(rest):
        if title not in _UNWANTED_SECTIONS:
            bodies.append(body)
        if title == "See Also":
            related_names += _names(body)
    # Without the function's name, which would give the answer away.
    body_words = _mask("\n".join(bodies), function).split()
    _, longest = DOCUMENT_WORDS
    document_words = body_words[:longest]
    fewest_words, most_words = QUERY_WORDS
    is_query = fewest_words <= len(summary.split()) <= most_words
    has_title = _UNDERLINE.search(summary) is not None  # a section instead of a summary
    if not is_query or has_title or len(document_words) < shortest:
        return None
    return Docstring(summary, " ".join(document_words), related_names)


def _without_signature(text: str, function: str) -> str:
    """Drop leading ``name(...)`` and ``name(...) -> ...`` lines, including wrapped ones."""
    if f"{function}(" not in text:
        return text
    lines = deque(text.split("\n"))
    while lines:
        first_line = lines[0].strip()
        if first_line and not _is_signature(first_line, function):
            break
        _drop_signature(lines)
    return "\n".join(lines).strip()


def _is_signature(line: str, function: str) -> bool:
    """Return whether a line starts with a call of a function.

    >>> _is_signature("values, vectors = linalg.eig(a)", "eig")
    True
    """
    # One pattern for all functions: compiling thousands takes longer than all the rest.
    starts = [0]
    assignment = _ASSIGNMENT.match(line)
    if assignment:
        starts.append(assignment.end())
    calls = [_CALL.match(line, start) for start in starts]
    return any(call is not None and call[1] == function for call in calls)


def _drop_signature(lines: deque[str]) -> None:
    """Drop the first line, and those after it until its parentheses are closed."""
    open_parentheses = 0
    while lines:
        line = lines.popleft()
        open_parentheses += line.count("(") - line.count(")")
        if open_parentheses <= 0:
            return


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """Yield title and body of numpydoc sections; the text before them has an empty title."""
    title = ""
    body: list[str] = []
    lines: list[str] = []
    for line in text.split("\n"):
        # Examples name the function, or print the answer.
        is_doctest = line.lstrip().startswith((">>>", "..."))
        if not is_doctest:
            lines.append(line)
    # A title is underlined: "Parameters" above "----------".
    underlines = [_UNDERLINE.fullmatch(line) is not None for line in lines]
    for line, (is_underline, is_underlined) in zip(
        lines, pairwise([*underlines, False]), strict=True
    ):
        if line.strip() and is_underlined:
            yield title, "\n".join(body)
            title = line.strip()
            body = []
        elif not is_underline:
            body.append(line)
    yield title, "\n".join(body)


def _mask(text: str, function: str) -> str:
    """Replace the function's own name where it is a whole word, ignoring case."""
    if function.casefold() not in text.casefold():
        return text
    if text.isascii():
        return _mask_ascii(text, function)
    name = re.escape(function)
    return re.sub(rf"(?<![A-Za-z0-9]){name}(?![A-Za-z0-9])", MASK, text, flags=re.IGNORECASE)


def _mask_ascii(text: str, function: str) -> str:
    """Do what `_mask` does to an ASCII text, without a pattern for each function."""
    lower_text, lower_name = text.lower(), function.lower()
    parts: list[str] = []
    copied = 0  # the length of the text that is in `parts`
    start = lower_text.find(lower_name)
    while start >= 0:
        end = start + len(function)
        if text[start - 1 : start].isalnum() or text[end : end + 1].isalnum():  # part of a word
            start = lower_text.find(lower_name, start + 1)
            continue
        parts += [text[copied:start], MASK]
        copied = end
        start = lower_text.find(lower_name, end)
    return "".join([*parts, text[copied:]])


def _names(see_also: str) -> Iterator[str]:
    """Yield the names at the left edge of a "See Also" section: ``a, b : description``."""
    for line in see_also.split("\n"):
        is_indented = not line[:1].strip()
        if is_indented:
            continue
        # As in "inv, solve : Other functions of matrices".
        names, _, _ = line.partition(" : ")
        for name in names.split(","):
            match = _SEE_ALSO_NAME.fullmatch(name.strip())
            if match:
                yield match[1]


def _qualified_names(names: Iterable[str], function: str, documents: Collection[str]) -> list[str]:
    """Return the qualified names of those ``names`` that are documents, nearest module first."""
    qualified_names: set[str] = set()
    for name in names:
        for candidate in _candidates(name, module_of(function)):
            if candidate in documents and candidate != function:
                qualified_names.add(candidate)
                break
    return sorted(qualified_names)


def _candidates(name: str, module: str) -> Iterator[str]:
    """Yield what a name may mean in a module: there, in the modules around it, and by itself.

    >>> list(_candidates("inv", "scipy.linalg"))
    ['scipy.linalg.inv', 'scipy.inv', 'inv']
    """
    while module:
        yield f"{module}.{name}"
        module = module_of(module)
    yield name


def _subpackage(name: str, package: str) -> str:
    """Return ``scipy.special`` for ``scipy.special.erf``, ``numpy`` for ``numpy.dot``."""
    parts = name.split(".")
    if package == "python" or len(parts) < 3:
        return package
    return ".".join(parts[:2])


def _name_hash(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


if __name__ == "__main__":
    gc.disable()  # modules live as long as this process; the collector would visit them in vain
    write_json(Path(sys.argv[1]), asdict(build_pydocs()))
