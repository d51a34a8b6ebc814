"""The rule that makes a small set from a large one."""

from dataclasses import replace
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3nb.datasets.collection import TestCollection
from qwen3nb.datasets.nano import HARD_NEGATIVES, Sizes, drawn, drawn_queries, small_set
from qwen3nb.datasets.rows import DataError


def large(qrels, documents, **fields):
    """A collection with these judgements, and with texts that say nothing."""
    texts = {name: f"text {name}" for name in documents}
    return TestCollection("large", texts, {query: query for query in qrels}, qrels, **fields)


def order(kind, names, seed=0):
    """By the digests, as the top of the module says."""
    return sorted(names, key=lambda name: sha256(f"{seed}\0{kind}\0{name}".encode()).hexdigest())


def cut(collection, rankings=None, **options):
    queries = drawn_queries(collection, **options)
    return small_set(collection, queries, rankings or {}, **options)


def test_a_set_by_hand():
    """Two of three queries: relevant documents, judged zeros, hard ones by rank, and others."""
    qrels = {"q1": {"r1": 1, "z1": 0}, "q2": {"r2": 2}, "q3": {"r3": 1}, "q4": {"z2": 0}}
    others = [f"o{number}" for number in range(20)]
    collection = large(qrels, ["r1", "r2", "r3", "z1", "z2", "h1", "h2", "h3", *others])
    queries = order("query", ["q1", "q2", "q3"])[:2]
    rankings = {query: ["h1", "h2", "r1"] if query == queries[0] else ["h3"] for query in queries}
    part = cut(collection, rankings, sizes=Sizes(queries=2, documents=8))
    assert part.queries == set(queries)
    relevant = {document for query in queries for document in qrels[query] if document[0] == "r"}
    zeros = {document for query in queries for document in qrels[query] if document[0] == "z"}
    # By rank: the first of both queries, then the second.
    hard = {"h1", "h3", "h2"}
    if "r1" not in relevant:
        hard.add("r1")
    room = 8 - len(relevant | zeros | hard)
    rest = collection.documents.keys() - relevant - zeros - hard
    assert part.documents == relevant | zeros | hard | set(order("document", rest)[:room])
    counted = (part.relevant, part.candidates, part.judged_zeros, part.hard_negatives, part.others)
    assert counted == (len(relevant), 0, len(zeros), len(hard), room)
    assert (part.all_queries, part.all_documents) == (3, 28)


def test_a_draw_depends_on_the_ids_and_the_seed_alone():
    names = [f"d{number}" for number in range(30)]
    first = drawn(names, 10, kind="document", seed=0)
    assert drawn(names[::-1], 10, kind="document", seed=0) == first
    # What is drawn stays drawn if others go.
    assert drawn(set(names) - {first[0]}, 9, kind="document", seed=0) == first[1:]
    assert drawn(names, 10, kind="document", seed=1) != first
    assert drawn(names, 10, kind="query", seed=0) != first


def test_queries_with_many_relevant_documents_are_fewer():
    """Three relevant documents each; half of ten leaves room for one query, and says so."""
    qrels = {f"q{query}": {f"r{query}-{number}": 1 for number in range(3)} for query in range(4)}
    documents = [document for grades in qrels.values() for document in grades]
    part = cut(large(qrels, [*documents, *"abcdefgh"]), sizes=Sizes(queries=4, documents=10))
    assert part.queries == {order("query", qrels)[0]}
    assert (len(part.documents), part.relevant) == (10, 3)


def test_a_query_with_more_relevant_documents_than_the_limit_keeps_them():
    qrels = {"q": {f"r{number}": 1 for number in range(9)}}
    part = cut(large(qrels, [*qrels["q"], *(f"o{n}" for n in range(20))]), sizes=Sizes(50, 10))
    assert part.documents >= qrels["q"].keys()
    # As many that are not relevant, so that a ranking can be wrong.
    assert (part.relevant, part.others) == (9, 9)


def test_candidates_stay_together():
    """Two queries with four candidates each: eight documents hold both, seven one."""
    qrels = {"q1": {"a0": 1}, "q2": {"b0": 1}}
    candidates = {"q1": ["a0", "a1", "a2", "a3"], "q2": ["b0", "b1", "b2", "b3"]}
    collection = large(qrels, [*candidates["q1"], *candidates["q2"]], candidates=candidates)
    assert len(cut(collection, sizes=Sizes(2, 8)).queries) == 2
    part = cut(collection, sizes=Sizes(2, 7))
    (query,) = part.queries
    assert part.documents >= set(candidates[query])
    assert part.candidates == 3
    assert collection.part(part).candidates == {query: candidates[query]}


def test_no_relevant_document_is_an_error():
    with pytest.raises(DataError, match="large: no query has a relevant document in the corpus"):
        drawn_queries(large({"q": {"gone": 1, "there": 0}}, ["there"]))


def test_a_part_has_the_judgements_of_its_documents():
    """Zeros go with their documents; a judged document that nobody has stays judged."""
    qrels = {"q": {"r": 1, "gone": 1, **{f"z{number}": 0 for number in range(9)}}}
    collection = replace(
        large(qrels, ["r", *(f"z{number}" for number in range(9))], group="forums"),
        itself={"q": ["z0"]},
        clusters={"q": "one", "other": "two"},
    )
    part = collection.part(cut(collection, sizes=Sizes(1, 4)))
    zeros = part.documents.keys() - {"r"}
    assert len(zeros) == 3
    assert part.qrels == {"q": {"r": 1, "gone": 1, **dict.fromkeys(sorted(zeros), 0)}}
    assert part.clusters == {"q": "one"}
    assert part.itself == ({"q": ["z0"]} if "z0" in zeros else {})
    assert (part.key, part.group, part.source) == (
        "large-nano",
        "forums-nano",
        collection.revision,
    )


GRADES = st.dictionaries(st.sampled_from([f"d{n}" for n in range(40)]), st.integers(-1, 2))
QRELS = st.dictionaries(st.sampled_from([f"q{n}" for n in range(12)]), GRADES, min_size=1)


@settings(max_examples=25, deadline=None)
@given(QRELS, st.integers(1, 8), st.integers(2, 30), st.integers(0, 3), st.randoms())
def test_whatever_the_judgements(qrels, most_queries, most_documents, seed, random):
    documents = [f"d{number}" for number in range(35)]  # of the judged ones, five are missing
    collection = large(qrels, documents)
    options = {"seed": seed, "sizes": Sizes(most_queries, most_documents)}
    relevant = {
        query: {
            document for document, grade in grades.items() if grade > 0 and document in documents
        }
        for query, grades in qrels.items()
    }
    if not any(relevant.values()):
        return
    rankings = {query: random.sample(documents, 10) for query in qrels}
    part = cut(collection, rankings, **options)
    # The order of files does not matter.
    shuffled_qrels = dict(random.sample(sorted(qrels.items()), len(qrels)))
    shuffled = large(shuffled_qrels, random.sample(documents, len(documents)))
    assert cut(shuffled, rankings, **options) == part
    # Nothing relevant is lost.
    needed = set().union(*(relevant[query] for query in part.queries))
    assert needed <= part.documents <= set(documents)
    assert all(relevant[query] for query in part.queries)
    assert 1 <= len(part.queries) <= most_queries
    if len(part.queries) > 1:
        assert len(part.documents) <= most_documents
        assert len(needed) <= most_documents // 2
    # As large as it may be.
    limit = max(most_documents, 2 * len(needed))
    assert len(part.documents) == min(limit, len(documents))
    sources = (part.relevant, part.judged_zeros, part.hard_negatives, part.others)
    assert sum(sources) == len(part.documents)
    # A limit of one more query keeps the queries.
    more = drawn_queries(collection, seed=seed, sizes=Sizes(most_queries + 1, most_documents))
    assert part.queries <= set(more)


def test_no_more_hard_negatives_of_a_query_than_stated():
    names = [f"h{number:03}" for number in range(200)]
    collection = large({"q": {"r": 1}}, ["r", *names])
    part = cut(collection, {"q": names}, sizes=Sizes(1, 150))
    assert part.hard_negatives == HARD_NEGATIVES
    assert set(names[:HARD_NEGATIVES]) <= part.documents
