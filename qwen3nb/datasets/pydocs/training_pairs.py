"""Training pairs of summary and body, from docstrings that are not in the benchmarks.

Rules
-----
- Public functions, methods and classes in the sources of `LIBRARIES`, which PyDocs does not use.
  The files are parsed, not imported. Libraries that are not installed are left out.
- Summary and body are cut as in PyDocs; a body has at least 8 words.
- A pair that repeats a text of PyDocs or AuthorSTS is dropped (`BenchmarkTexts`): libraries
  copy docstrings from numpy and the standard library.
- A pair that shares its summary or body with another is dropped: within a batch, the other's body
  would count as a negative.
- The libraries in `DEVELOPMENT` form the development set.
"""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import platform
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from qwen3nb import paths
from qwen3nb.datasets.pydocs.build import LISTS, QUERY_WORDS, load_pydocs, split_docstring
from qwen3nb.utils.atomic_files import read_json, sha256_json, write_json

CACHE_VERSION = 1  # increase when a rule above changes
SHORTEST = 8
DEVELOPMENT = ("huggingface_hub", "networkx", "tornado")
LIBRARIES = tuple(LISTS["training"]["libraries"].split())
# Tests, copies of other libraries, and the architectures of transformers, which copy each other.
_SKIPPED = {"_numpy", "_vendor", "models", "test", "testing", "tests", "vendor"}
_DISTRIBUTIONS = {
    "PIL": "pillow",
    "bs4": "beautifulsoup4",
    "fontTools": "fonttools",
    "zmq": "pyzmq",
}
RUN = 8  # consecutive words that two texts may not share
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class DocstringPair:
    """A docstring in ``library``: its first paragraph, and the rest with the name masked."""

    library: str
    summary: str
    text: str


@dataclass(frozen=True)
class TrainingPairs:
    """All pairs by library, file and line; numbers of dropped pairs by reason; versions."""

    pairs: tuple[DocstringPair, ...]
    dropped: dict[str, int]
    versions: dict[str, str]

    @cached_property
    def identity(self) -> str:
        """Digest of the content."""
        return sha256_json([asdict(pair) for pair in self.pairs])

    @property
    def train(self) -> list[DocstringPair]:
        """The training pairs."""
        return [pair for pair in self.pairs if pair.library not in DEVELOPMENT]

    @property
    def development(self) -> list[DocstringPair]:
        """The development pairs."""
        return [pair for pair in self.pairs if pair.library in DEVELOPMENT]


def load_training_pairs() -> TrainingPairs:
    """Load the pairs of the installed libraries, collected once and kept in the cache."""
    versions = _versions()
    benchmark = load_pydocs().identity
    key = sha256_json([CACHE_VERSION, versions, platform.python_version(), benchmark])
    file = paths.cache_to_write() / "pydocs" / f"pairs-{key[:16]}.json"
    if not file.is_file():
        write_json(file, asdict(_collect(versions)))
    # Also read back if it was just written, so that both ways give the same.
    stored_data = read_json(file)
    pairs = tuple(DocstringPair(**fields) for fields in stored_data["pairs"])
    return TrainingPairs(pairs, stored_data["dropped"], stored_data["versions"])


def _versions() -> dict[str, str]:
    versions: dict[str, str] = {}
    for library in LIBRARIES:
        if importlib.util.find_spec(library) is not None:
            distribution = _DISTRIBUTIONS.get(library, library)
            versions[library] = importlib.metadata.version(distribution)
    return versions


def _collect(versions: dict[str, str]) -> TrainingPairs:
    """Return the pairs of the libraries that are installed."""
    benchmark = _benchmark_texts()
    pairs: list[DocstringPair] = []
    dropped_counts: Counter[str] = Counter()
    texts_of_pairs: set[str] = set()
    for library in versions:
        for text, name in _docstrings(library):
            docstring = None
            # Too few words for a summary and a body, as most have: faster to see than to parse.
            may_be_long_enough = len(text.split()) >= QUERY_WORDS[0] + SHORTEST
            if may_be_long_enough:
                docstring = split_docstring(text, name, shortest=SHORTEST)
            if docstring is None:
                dropped_counts["too short or too long"] += 1
                continue
            summary_and_body = {docstring.summary, docstring.text}
            # Within a batch, a copy would count as a negative.
            if texts_of_pairs & summary_and_body:
                dropped_counts["summary or body of another pair"] += 1
            elif any(map(benchmark.repeated, summary_and_body)):
                dropped_counts["repeats the benchmark"] += 1
            else:
                pairs.append(DocstringPair(library, docstring.summary, docstring.text))
                texts_of_pairs |= summary_and_body
    return TrainingPairs(tuple(pairs), dict(dropped_counts), versions)


def _benchmark_texts() -> BenchmarkTexts:
    """Return the texts of PyDocs and AuthorSTS, which no pair may repeat."""
    from qwen3nb.datasets.pydocs.mteb_tasks import author_sts

    texts: list[str] = []
    for entry in load_pydocs().entries:
        texts += [entry.summary, entry.text]
    for sentence1, sentence2, _ in author_sts():
        texts += [sentence1, sentence2]
    return BenchmarkTexts(texts)


def _docstrings(library: str) -> Iterator[tuple[str, str]]:
    """Yield docstring and name of all public definitions in a library's files."""
    spec = importlib.util.find_spec(library)
    if spec is None:
        return
    for folder in spec.submodule_search_locations or ():
        for file in sorted(Path(folder).rglob("*.py")):
            if _SKIPPED.isdisjoint(file.relative_to(folder).parts):
                yield from _definitions(file.read_text(encoding="utf-8", errors="replace"))


def _definitions(source: str) -> Iterator[tuple[str, str]]:
    """Yield docstring and name of each public definition in a source, from top to bottom."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in other libraries' sources
        try:
            module = ast.parse(source)
        except (SyntaxError, ValueError):  # a file for another version of Python
            return
    yield from _definitions_in(module)


def _definitions_in(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield docstring and name of a public definition and of those inside of it."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        is_public = not node.name.startswith("_")
        docstring = ast.get_docstring(node)
        if is_public and docstring:
            yield docstring, node.name
    for inner_node in getattr(node, "body", []):
        yield from _definitions_in(inner_node)


class BenchmarkTexts:
    """The texts of a benchmark, for detecting texts that repeat them.

    Texts are compared as words: case, white space and punctuation do not count. A text repeats the
    benchmark if it contains eight consecutive words of a benchmark text, or all words of a shorter
    one.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        """Index ``texts``; those without any word are left out."""
        self._runs: set[tuple[str, ...]] = set()
        for text in texts:
            words = _words(text)
            if words:
                self._runs.update(_runs(words, min(RUN, len(words))))
        self._sizes = {len(run) for run in self._runs}

    def repeated(self, text: str) -> bool:
        """Return whether ``text`` repeats the benchmark."""
        words = _words(text)
        return any(not self._runs.isdisjoint(_runs(words, size)) for size in self._sizes)


def _words(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(text.casefold()))


def _runs(words: Sequence[str], size: int) -> Iterable[tuple[str, ...]]:
    """All runs of ``size`` consecutive words."""
    shifted_words = [words[start:] for start in range(size)]
    return zip(*shifted_words, strict=False)
