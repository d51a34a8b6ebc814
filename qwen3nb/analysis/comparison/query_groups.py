"""Groups of queries: by topic, word, beginning, length, language, script and category.

Groups are made from the queries' texts, and from what the records say of them. They never depend
on a score, so that no difference between two models chooses the groups in which it is tested.

Nobody knows how wide a topic is that a training drops. So there are half and twice as many topics,
too, and a group for each word that ten queries have, and for each word that ten of them begin with
(as questions do). These are listed only if they are named.

Topics are clusters of vectors of the queries, by k-means on directions. Without given vectors, a
query is its words: (1 + log tf) · log(N / df), of stems that two queries have and that are no
function words, reduced to 50 dimensions (latent semantic analysis; Deerwester and others 1990). A
topic is named by the three words whose log-odds, inside it against outside, have the largest
z-score (Monroe, Colaresi and Quinn 2008, equations 16, 20 and 22):

    z = (log (y + a) / (n + A − y − a) − log (y' + a) / (n' + A − y' − a))
        / √(1 / (y + a) + 1 / (y' + a)),

with y queries that have the word, of n such counts of all words in the topic, y' and n' outside
it, and a prior of A = 10 counts that are spread over words as in all queries, a for this one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from qwen3nb.analysis.comparison.group_changes import FEWEST_QUERIES, QueryGroup
from qwen3nb.datasets.generated.languages import function_words, language_of, script_of
from qwen3nb.datasets.generated.terms import Terms
from qwen3nb.metrics.intervals import Array
from qwen3nb.models.search.words import is_without_blanks, words_of_texts

if TYPE_CHECKING:
    from scipy.sparse import csr_array

QUERIES_PER_TOPIC = 30  # that decide how many topics there are
MOST_TOPICS = 20
_FEWEST_TOPICS = 2
_DIMENSIONS = 50  # of vectors of words
_FEWEST_WITH_WORD = 2  # queries, of a word that counts
_NAMING_WORDS = 3
_PRIOR = 10.0  # counts
_STARTS = 10  # of k-means, of which the best stays
_FIRST_WORD = re.compile(r"\w+")


def usual_topics(queries: int) -> int:
    """Return how many topics so many queries have by default; 0 for too few.

    >>> usual_topics(225), usual_topics(15), usual_topics(100_000)
    (7, 0, 20)
    """
    if queries < _FEWEST_TOPICS * FEWEST_QUERIES:
        return 0
    return min(max(queries // QUERIES_PER_TOPIC, _FEWEST_TOPICS), MOST_TOPICS)


def topic_groups(
    texts: Sequence[str], *, vectors: Array | None = None, topics: int = 0, seed: int = 0
) -> list[QueryGroup]:
    """Group queries by their vectors; name each group by its most telling words.

    Args:
        texts: of the queries (N); an empty one is in no topic.
        vectors: of the queries (N, D); by default made from their words.
        topics: how many; by default `usual_topics`.
        seed: of the clustering.

    Returns:
        The topics, the largest first; none if there are too few queries.
    """
    count = topics or usual_topics(len(texts))
    if not count:
        return []
    return _Queries.of(texts, vectors, seed).topics(count)


def topics_and_words(
    texts: Sequence[str], *, vectors: Array | None = None, topics: int = 0, seed: int = 0
) -> list[QueryGroup]:
    """Return topics, then broad and narrow ones, words and beginnings, which are not listed.

    A group with the queries of one before it is left out.

    Args:
        texts: of the queries (N); an empty one is in no group.
        vectors: of the queries (N, D), which make the topics; by default their words do.
        topics: how many; by default `usual_topics`. There are half as many broad topics, and
            twice as many narrow ones.
        seed: of the clustering.
    """
    count = topics or usual_topics(len(texts))
    if not count:
        return []
    queries = _Queries.of(texts, vectors, seed)
    groups = queries.topics(count)
    others: list[QueryGroup] = []
    if count // 2 >= _FEWEST_TOPICS:
        others += queries.topics(count // 2, facet="broad topic")
    others += queries.topics(2 * count, facet="narrow topic")
    others += queries.words()
    others += beginning_groups(texts)
    seen = {group.members for group in groups}
    for group in others:
        is_compared = FEWEST_QUERIES <= len(group.members) <= len(texts) - FEWEST_QUERIES
        if is_compared and group.members not in seen:
            seen.add(group.members)
            groups.append(replace(group, is_listed=False))
    return groups


@dataclass(frozen=True)
class _Queries:
    """Queries with their words and vectors."""

    terms: Terms
    names: Mapping[int, str]  # of the words that say something, by column
    vectors: Array
    seed: int

    @classmethod
    def of(cls, texts: Sequence[str], vectors: Array | None, seed: int) -> Self:
        """Read the words; make vectors of them if none are given."""
        terms = Terms(texts, words_of_texts([], texts))
        names = _shown_words(terms, texts)
        if vectors is None:
            vectors = _vectors_of_words(terms, names, seed)
        return cls(terms, names, vectors, seed)

    def topics(self, count: int, *, facet: str = "topic") -> list[QueryGroup]:
        """Return clusters of the vectors, the largest first."""
        from scipy.sparse import csr_array

        has_word = csr_array(self.terms.counts > 0)
        labels = _clusters(self.vectors, count, self.seed)
        groups = []
        for label in sorted(set(labels.tolist()) - {-1}):
            is_inside = labels == label
            members = tuple(np.flatnonzero(is_inside).tolist())
            telling = ", ".join(_telling_words(has_word, is_inside, self.names))
            groups.append(QueryGroup(facet, telling or f"topic {label + 1}", members))
        return sorted(groups, key=_largest_first)

    def words(self) -> list[QueryGroup]:
        """Return the queries with each word that enough of them have, and not most."""
        matrix = self.terms.counts
        groups = []
        for column, name in self.names.items():
            rows = matrix.indices[matrix.indptr[column] : matrix.indptr[column + 1]]
            if FEWEST_QUERIES <= len(rows) <= self.terms.size / 2:
                groups.append(QueryGroup("word", name, tuple(sorted(rows.tolist()))))
        return sorted(groups, key=_largest_first)


def _largest_first(group: QueryGroup) -> tuple[int, str]:
    return -len(group.members), group.name


def beginning_groups(texts: Sequence[str]) -> list[QueryGroup]:
    """Return the queries by the word that they begin with, in scripts with blanks."""
    beginnings = []
    for text in texts:
        word = _FIRST_WORD.search(text.lower())
        is_word = word is not None and not is_without_blanks(word[0])
        beginnings.append(word[0] if word and is_word else "")
    return groups_by_value("beginning", beginnings)


def _shown_words(terms: Terms, texts: Sequence[str]) -> dict[int, str]:
    """Return the usual form of each stem that says something, by its column."""
    forms: dict[str, Counter[str]] = {}
    left_out: set[str] = set()
    for text in texts:
        little = function_words(language_of(text) or "eng")
        for token in terms.tokens(text):
            if token.text in little or not _can_name(token.text):
                left_out.add(token.stem)
            forms.setdefault(token.stem, Counter())[token.text] += 1
    shown = {}
    for stem, counts in forms.items():
        if stem not in left_out and terms.frequency(stem) >= _FEWEST_WITH_WORD:
            shown[terms.column(stem)] = min(counts, key=lambda form: (-counts[form], form))
    return shown


def _can_name(word: str) -> bool:
    """Whether a word has letters, and more than one where words have blanks between them."""
    if not any(map(str.isalpha, word)):
        return False
    return len(word) > 1 or is_without_blanks(word)


def _vectors_of_words(terms: Terms, names: Mapping[int, str], seed: int) -> Array:
    """Return a vector per query, of its words (N, D); zeros for one without a word that counts."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.preprocessing import normalize

    columns = sorted(names)
    if len(columns) <= 1:
        return np.zeros((terms.size, 1))
    counts = terms.counts.tocsr()[:, columns].astype(np.float64)
    frequencies = np.asarray((counts > 0).sum(axis=0)).ravel()
    counts.data = 1 + np.log(counts.data)
    weighted = normalize(counts.multiply(np.log(terms.size / frequencies)).tocsr())
    dimensions = min(_DIMENSIONS, len(columns) - 1, terms.size - 1)
    return np.asarray(TruncatedSVD(dimensions, random_state=seed).fit_transform(weighted))


def _clusters(vectors: Array, count: int, seed: int) -> NDArray[np.intp]:
    """Return the cluster of each vector by its direction; −1 for one of zeros."""
    from sklearn.cluster import KMeans

    lengths = np.linalg.norm(vectors, axis=1)
    has_direction = lengths > 0
    labels = np.full(len(vectors), -1, dtype=np.intp)
    directions = vectors[has_direction] / lengths[has_direction, None]
    different = len(np.unique(directions, axis=0))
    if different < _FEWEST_TOPICS:
        return labels
    clustering = KMeans(min(count, different), n_init=_STARTS, random_state=seed)
    labels[has_direction] = clustering.fit_predict(directions)
    return labels


def _telling_words(
    has_word: csr_array, is_inside: NDArray[np.bool_], names: Mapping[int, str]
) -> list[str]:
    """Return the words that tell queries inside from those outside, the most telling first."""
    inside = np.asarray(has_word[is_inside].sum(axis=0), dtype=np.float64).ravel()
    outside = np.asarray(has_word[~is_inside].sum(axis=0), dtype=np.float64).ravel()
    scores = log_odds(inside, outside)
    telling = [column for column in names if scores[column] > 0]
    telling.sort(key=lambda column: (-scores[column], names[column]))
    return [names[column] for column in telling[:_NAMING_WORDS]]


def log_odds(inside: Array, outside: Array) -> Array:
    """Return the z-score of each word's log-odds ratio (V,), with an informative prior.

    ``inside`` and ``outside`` are counts of each word (V,); see the module for the formula.
    """
    both = inside + outside
    prior = _PRIOR * both / both.sum()
    inside_counts = inside + prior
    outside_counts = outside + prior
    inside_odds = inside_counts / (inside.sum() + _PRIOR - inside_counts)
    outside_odds = outside_counts / (outside.sum() + _PRIOR - outside_counts)
    error = np.sqrt(1 / inside_counts + 1 / outside_counts)
    return np.asarray((np.log(inside_odds) - np.log(outside_odds)) / error)


def length_groups(texts: Sequence[str]) -> list[QueryGroup]:
    """Return thirds of the queries by length: words, or letters in scripts without blanks."""
    known = [text for text in texts if text]
    packed = sum(is_without_blanks(text[len(text) // 2]) for text in known)
    unit = "words"
    lengths = [len(text.split()) for text in texts]
    if packed > len(known) / 2:
        unit = "letters"
        lengths = [len(text) for text in texts]
    groups = []
    for smallest, largest in thirds(sorted(length for length in lengths if length)):
        members = [place for place, length in enumerate(lengths) if smallest <= length <= largest]
        name = f"{smallest} to {largest} {unit}"
        if smallest == largest:
            name = f"{smallest} {unit}"
        groups.append(QueryGroup("length", name, tuple(members)))
    return groups


def thirds(values: Sequence[int]) -> list[tuple[int, int]]:
    """Return the ends of thirds of sorted whole numbers that do not overlap, at most three.

    >>> thirds([1, 2, 3, 4, 5, 6]), thirds([2, 2, 2])
    ([(1, 2), (3, 4), (5, 6)], [])
    """
    if not values or values[0] == values[-1]:
        return []
    ends = []
    smallest = values[0]
    for share in (1, 2, 3):
        largest = values[len(values) * share // 3 - 1]
        if largest >= smallest:
            ends.append((smallest, largest))
            smallest = largest + 1
    return ends


def language_groups(texts: Sequence[str], languages: Sequence[str] = ()) -> list[QueryGroup]:
    """Return the queries of each language: of the records, else as far as texts show it."""
    stated = languages or [language_of(text) for text in texts]
    return groups_by_value("language", stated)


def script_groups(texts: Sequence[str]) -> list[QueryGroup]:
    """Return the queries of each script, such as ``Latin``."""
    return groups_by_value("script", [script_of(text).capitalize() for text in texts])


def groups_by_value(facet: str, values: Sequence[str]) -> list[QueryGroup]:
    """Return the queries of each value, the most frequent first; none unless two have enough.

    An empty value is in no group.
    """
    members: dict[str, list[int]] = {}
    for position, value in enumerate(values):
        if value:
            members.setdefault(value, []).append(position)
    large_enough = [value for value in members if len(members[value]) >= FEWEST_QUERIES]
    if len(large_enough) < 2:
        return []
    by_size = sorted(members, key=lambda value: (-len(members[value]), value))
    return [QueryGroup(facet, value, tuple(members[value])) for value in by_size]
