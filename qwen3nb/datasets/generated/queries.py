"""Known-item queries: each is made from one document, which is the relevant one.

::

    title       the title of the document
    phrases     its most telling phrases, by tf-idf against the collection
    masked      one of its sentences without the rarest third of the words that tell something
    question    a question by a template, about its most telling phrase
    written     by a language model that the caller names

A query is left out if it is the whole document, if it is a near-copy of another query, or if it
fits another document as well: one that has each of its words at least as often, or that has the
same title. Documents that are near-copies of another one have no queries, as these would fit both.

The same documents, seed and number give the same queries. The id of a query depends on its kind,
document and text alone.

Source of the idea: Azzopardi and de Rijke, "Building simulated queries for known-item topics"
(SIGIR 2007).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

import regex

from qwen3nb.datasets.custom.generated import query_id
from qwen3nb.datasets.generated.languages import (
    FEW_WORDS,
    has_alphabet_of,
    language_of,
    most_frequent,
    question,
    script_of,
)
from qwen3nb.datasets.generated.terms import Phrase, Terms, key_phrases
from qwen3nb.datasets.generated.texts import sentences, title_of, without_markup
from qwen3nb.datasets.rows import DataError
from qwen3nb.metrics.near_copies import plain_text
from qwen3nb.models.search.words import is_without_blanks, words_of_texts
from qwen3nb.utils.atomic_files import sha256_json
from qwen3nb.utils.progress import tqdm

DEFAULT_NUMBER = 50  # queries of each kind
_LEAST_WORDS = 3  # of key phrases, if there are as many
_MOST_PHRASES = 3
_SHORTEST_SENTENCE, _LONGEST_SENTENCE = 6, 40  # words; as many bigrams of other scripts
_MASKED_SHARE = 1 / 3  # of the telling words of a sentence
_LEAST_LEFT = 2  # telling words of a masked sentence
_LONGEST_TITLE = 300  # characters
_COPY_SHARE = 0.8  # of the words of two queries that are near-copies
_SIGNATURE = 12  # the most telling words of a document, by which near-copies are found
_WORD = regex.compile(r"[\w\p{M}]+")
_SAMPLE = 300  # documents by which the usual language is told
_EMPTY_MARKS = re.compile(r"`{3,}|(?<!\S)[`'\"]{2}(?!\S)|\(\s*\)|\[\s*\]|(?<=\s)[-–—/](?=\s)")


class Kind(StrEnum):
    """How a query is made from its document."""

    TITLE = "title"
    PHRASES = "phrases"
    MASKED = "masked"
    QUESTION = "question"
    WRITTEN = "written"


BY_RULE = (Kind.TITLE, Kind.PHRASES, Kind.MASKED, Kind.QUESTION)


class Refusal(StrEnum):
    """Why a document has no query of a kind, or a query is left out."""

    EMPTY = "no text"
    COPY = "a near-copy of another document"
    NO_TITLE = "no title"
    NO_WORDS = "too few words that tell something"
    WHOLE = "the query is the whole document"
    AMBIGUOUS = "the query fits another document as well"
    REPEATED = "a near-copy of another query"
    NOT_WRITTEN = "the language model wrote nothing usable"


@dataclass(frozen=True)
class GeneratedQuery:
    """A query that was made from a document."""

    id: str
    text: str
    kind: Kind
    document: str  # id
    has_unique_word: bool  # whether it has a word that no other document has


@dataclass(frozen=True)
class KindReport:
    """What became of the documents that were tried for one kind."""

    kind: Kind
    wanted: int
    queries: tuple[GeneratedQuery, ...]
    refusals: Mapping[Refusal, int]

    @property
    def unique_share(self) -> float:
        """The share of queries with a word that no other document has."""
        if not self.queries:
            return math.nan
        return sum(query.has_unique_word for query in self.queries) / len(self.queries)

    @property
    def reasons(self) -> str:
        """Why documents that were tried have no query, in words."""
        return _reasons_text(self.refusals.items())


@dataclass(frozen=True)
class Generation:
    """The queries of a collection, by kind."""

    reports: tuple[KindReport, ...]
    seed: int
    number: int
    documents: int
    digest: str  # SHA-256 of the documents
    model: str = ""  # the language model that wrote some of them

    @property
    def queries(self) -> list[GeneratedQuery]:
        """All queries, kind by kind."""
        return [query for report in self.reports for query in report.queries]

    @property
    def reasons(self) -> str:
        """Why documents that were tried have no query, in words."""
        counts: Counter[Refusal] = Counter()
        for report in self.reports:
            counts.update(report.refusals)
        return _reasons_text(counts.most_common())


def _reasons_text(counts: Iterable[tuple[Refusal, int]]) -> str:
    return "; ".join(f"{count:,} × {reason}" for reason, count in counts)


@dataclass
class Source:
    """A document to make queries from."""

    row: int  # its position
    name: str  # id
    text: str  # without markup
    title: str
    usual_language: str  # that of most documents
    usual_script: str

    @cached_property
    def sentences(self) -> list[str]:
        """The sentences of its text."""
        return sentences(self.text)

    @cached_property
    def language(self) -> str:
        """Its language; of a few words that show none, the usual one if the letters fit."""
        language = language_of(self.text)
        if language or len(self.text.split()) >= FEW_WORDS:
            return language
        has_usual_letters = script_of(self.text) == self.usual_script and has_alphabet_of(
            self.text, self.usual_language
        )
        return self.usual_language if has_usual_letters else ""


Writer = Callable[[Source], str]


class SourceDocuments:
    """The documents of a collection, read once for all kinds of queries."""

    def __init__(
        self,
        documents: Mapping[str, str],
        titles: Mapping[str, str] | None,
        *,
        show_progress: bool = False,
    ) -> None:
        stated_titles = titles or {}
        texts = [without_markup(text) for text in documents.values()]
        sample = texts[:: max(1, len(texts) // _SAMPLE)]
        usual_language = most_frequent(map(language_of, sample))
        usual_script = most_frequent(map(script_of, sample))
        self.terms = Terms(texts, words_of_texts([], texts), show_progress=show_progress)
        self.sources = []
        for row, (name, original) in enumerate(documents.items()):
            title = stated_titles.get(name, "").strip() or title_of(original)
            source = Source(
                row=row,
                name=name,
                text=texts[row],
                title=" ".join(without_markup(title).split()),
                usual_language=usual_language,
                usual_script=usual_script,
            )
            self.sources.append(source)
        self._title_counts = Counter(plain_text(source.title) for source in self.sources)
        self._are_copies: dict[int, bool] = {}  # by position, once needed

    def is_copy(self, source: Source) -> bool:
        """Return whether another document has each of the most telling words of a document."""
        if source.row not in self._are_copies:
            counts = self.terms.row_counts(source.row)
            by_weight = sorted(
                counts, key=lambda stem: (-counts[stem] * self.terms.weight(stem), stem)
            )
            signature = dict.fromkeys(by_weight[:_SIGNATURE], 1)
            has_twin = bool(signature) and len(self.terms.rows_with(signature)) > 1
            self._are_copies[source.row] = has_twin
        return self._are_copies[source.row]

    def has_shared_title(self, source: Source) -> bool:
        """Return whether another document has the same title."""
        return self._title_counts[plain_text(source.title)] > 1

    def fits_another(self, query: str, source: Source) -> bool:
        """Return whether another document has each word of a query at least as often.

        Words that the document of the query lacks, such as those of a template, do not count.
        """
        own_counts = self.terms.row_counts(source.row)
        counts = {}
        for token in self.terms.tokens(query):
            if token.stem in own_counts:
                counts[token.stem] = own_counts[token.stem]
        return bool(counts) and len(self.terms.rows_with(counts)) > 1

    def has_unique_word(self, query: str, source: Source) -> bool:
        """Return whether a query has a word that only its document has."""
        own_counts = self.terms.row_counts(source.row)
        return any(
            token.stem in own_counts and self.terms.frequency(token.stem) == 1
            for token in self.terms.tokens(query)
        )


def generate_queries(
    documents: Mapping[str, str],
    *,
    titles: Mapping[str, str] | None = None,
    kinds: Collection[str] = BY_RULE,
    number: int = DEFAULT_NUMBER,
    seed: int = 0,
    writer: Writer | None = None,
    model: str = "",
    show_progress: bool = True,
) -> Generation:
    """Return known-item queries of some kinds.

    Args:
        documents: text by id; HTML is read without its tags.
        titles: title by id; a document without one has that of its HTML or Markdown.
        kinds: of `Kind`; ``written`` needs a ``writer``.
        number: how many of each kind, if the documents have as many.
        seed: which documents are drawn.
        writer: returns what a language model wrote for a document; empty if that is unusable.
        model: name of that language model.
        show_progress: whether to show a bar.

    Raises:
        DataError: no document has a text.
        ValueError: an unknown kind, or ``written`` without a writer.
    """
    wanted_kinds = [Kind(kind) for kind in dict.fromkeys(kinds)]
    if Kind.WRITTEN in wanted_kinds and writer is None:
        raise ValueError("queries that are written need a language model")
    if not any(text.strip() for text in documents.values()):
        raise DataError(f"expected documents with a text; got {len(documents)} without")
    sources = SourceDocuments(documents, titles, show_progress=show_progress)
    reports = []
    with tqdm(total=number * len(wanted_kinds), desc="queries", disable=not show_progress) as bar:
        for kind in wanted_kinds:
            maker = _Maker(sources, kind, number=number, seed=seed, writer=writer)
            reports.append(maker.run(bar))
    return Generation(
        reports=tuple(reports),
        seed=seed,
        number=number,
        documents=len(documents),
        digest=documents_digest(documents),
        model=model if Kind.WRITTEN in wanted_kinds else "",
    )


def documents_digest(documents: Mapping[str, str]) -> str:
    """Return the SHA-256 of documents."""
    return sha256_json(sorted(documents.items()))


@dataclass
class _Maker:
    """Makes the queries of one kind."""

    documents: SourceDocuments
    kind: Kind
    number: int
    seed: int
    writer: Writer | None
    queries: list[GeneratedQuery] = field(default_factory=list)
    refusals: Counter[Refusal] = field(default_factory=Counter)
    # Words of the queries so far, and by word the positions of queries that have it.
    _words_of_queries: list[frozenset[str]] = field(default_factory=list)
    _queries_with_word: dict[str, list[int]] = field(default_factory=dict)

    def run(self, bar: tqdm) -> KindReport:
        """Try documents in the order of the seed until there are enough queries."""
        for source in self._drawn():
            if len(self.queries) == self.number:
                break
            text = self._query_text(source)
            if isinstance(text, Refusal):
                self.refusals[text] += 1
                continue
            self.queries.append(self._query(text, source))
            bar.update()
        bar.update(self.number - len(self.queries))
        return KindReport(self.kind, self.number, tuple(self.queries), dict(self.refusals))

    def _drawn(self) -> list[Source]:
        """Return the documents in an order that depends on seed, kind and id alone.

        So most queries stay the same when documents are added.
        """
        return sorted(self.documents.sources, key=lambda source: self._draw(source))

    def _draw(self, source: Source) -> str:
        return hashlib.sha256(f"{self.seed}\0{self.kind}\0{source.name}".encode()).hexdigest()

    def _choice(self, source: Source) -> int:
        """Return a number that is drawn for a document."""
        return int(self._draw(source)[:8], 16)

    def _query(self, text: str, source: Source) -> GeneratedQuery:
        return GeneratedQuery(
            id=query_id(self.kind, source.name, text),
            text=text,
            kind=self.kind,
            document=source.name,
            has_unique_word=self.documents.has_unique_word(text, source),
        )

    def _query_text(self, source: Source) -> str | Refusal:
        """Return the query of a document, or why it has none."""
        if not source.text.strip():
            return Refusal.EMPTY
        if self.documents.is_copy(source):
            return Refusal.COPY
        text = self._made_text(source)
        if isinstance(text, Refusal):
            return text
        if plain_text(text) == plain_text(source.text):
            return Refusal.WHOLE
        if self.documents.fits_another(text, source):
            return Refusal.AMBIGUOUS
        if not self._add_words(text):
            return Refusal.REPEATED
        return text

    def _made_text(self, source: Source) -> str | Refusal:
        """Return what the kind makes of a document, unchecked."""
        if self.kind is Kind.TITLE:
            return self._title(source)
        if self.kind is Kind.PHRASES:
            return self._phrases(source)
        if self.kind is Kind.MASKED:
            return self._masked_sentence(source)
        if self.kind is Kind.QUESTION:
            return self._question(source)
        text = self.writer(source) if self.writer is not None else ""
        return text or Refusal.NOT_WRITTEN

    def _title(self, source: Source) -> str | Refusal:
        if not source.title or len(source.title) > _LONGEST_TITLE:
            return Refusal.NO_TITLE
        if not self.documents.terms.tokens(source.title):
            return Refusal.NO_WORDS
        if self.documents.has_shared_title(source):
            return Refusal.AMBIGUOUS
        return source.title

    def _phrases(self, source: Source) -> str | Refusal:
        """Return the most telling phrases, as many as are needed for a few words."""
        phrases = self._key_phrases(source)
        chosen = []
        words = 0
        for phrase in phrases[:_MOST_PHRASES]:
            if words >= _LEAST_WORDS:
                break
            chosen.append(phrase)
            words += len(phrase.tokens)
        if words < 2:
            return Refusal.NO_WORDS
        return " ".join(phrase.text for phrase in chosen)

    def _question(self, source: Source) -> str | Refusal:
        """Return a question about the most telling phrase of two words or more."""
        phrases = self._key_phrases(source)
        if not phrases:
            return Refusal.NO_WORDS
        longer = [phrase for phrase in phrases if len(phrase.tokens) > 1]
        phrase = (longer or phrases)[0]
        return question(phrase.text, source.language, choice=self._choice(source))

    def _key_phrases(self, source: Source) -> list[Phrase]:
        return key_phrases(
            source.sentences,
            self.documents.terms,
            row=source.row,
            language=source.language,
        )

    def _masked_sentence(self, source: Source) -> str | Refusal:
        """Return a sentence without its rarest telling words; which one is drawn."""
        usable = []
        for sentence in source.sentences:
            length = len(self.documents.terms.tokens(sentence))
            if _SHORTEST_SENTENCE <= length <= _LONGEST_SENTENCE:
                usable.append(sentence)
        if not usable:
            return Refusal.NO_WORDS
        first = self._choice(source) % len(usable)
        for sentence in [*usable[first:], *usable[:first]]:
            masked = self._without_rare_words(sentence, source)
            if masked:
                return masked
        return Refusal.NO_WORDS

    def _without_rare_words(self, sentence: str, source: Source) -> str:
        """Return a sentence without its rarest words; empty if too little would be left."""
        terms = self.documents.terms
        tokens = terms.tokens(sentence)
        packed = sum(is_without_blanks(token.text) for token in tokens)
        if packed > len(tokens) / 2:
            return _without_rarest_part(sentence, terms)
        telling: dict[str, int] = {}  # how many documents have each telling word
        for token in tokens:
            if not terms.is_common(token, source.language):
                telling[token.stem] = terms.frequency(token.stem)
        rarest_first = sorted(telling, key=lambda stem: (telling[stem], stem))
        unique = sum(frequency == 1 for frequency in telling.values())
        third = math.ceil(_MASKED_SHARE * len(telling))
        count = max(unique, third)
        if len(telling) - count < _LEAST_LEFT:  # as in a small collection
            count = third
        if len(telling) - count < _LEAST_LEFT:
            return ""
        return _without_words(sentence, frozenset(rarest_first[:count]), terms)

    def _add_words(self, text: str) -> bool:
        """Remember the words of a query; return False if it is a near-copy of an earlier one."""
        words = frozenset(token.stem for token in self.documents.terms.tokens(text))
        if not words:
            return False
        shared: Counter[int] = Counter()
        for word in words:
            shared.update(self._queries_with_word.get(word, ()))
        for position, count in shared.items():
            other_words = self._words_of_queries[position]
            if count >= _COPY_SHARE * len(words | other_words):
                return False
        position = len(self._words_of_queries)
        self._words_of_queries.append(words)
        for word in words:
            self._queries_with_word.setdefault(word, []).append(position)
        return True


def _without_words(sentence: str, stems: frozenset[str], terms: Terms) -> str:
    """Return a sentence without the words of some stems, and the marks that stood around them."""

    def kept(match: regex.Match[str]) -> str:
        word = str(match[0])
        goes = any(token.stem in stems for token in terms.tokens(word))
        return "" if goes else word

    text = " ".join(_EMPTY_MARKS.sub("", _WORD.sub(kept, sentence)).split())
    return re.sub(r"\s+([,.;:!?])", r"\1", text).strip(" ,;:-–—")


def _without_rarest_part(sentence: str, terms: Terms) -> str:
    """Return a sentence of a script without blanks without its most telling third.

    Its words cannot be told apart, so that letters that stand together go.
    """
    length = math.ceil(len(sentence) / 3)
    weights = []  # of the bigram that begins at each letter
    for position in range(len(sentence)):
        tokens = terms.tokens(sentence[position : position + 2])
        weights.append(sum(terms.weight(token.stem) for token in tokens))
    starts = range(len(sentence) - length + 1)
    start = max(starts, key=lambda first: sum(weights[first : first + length]))
    return f"{sentence[:start]} {sentence[start + length :]}".strip()
