"""PyDocs, its MTEB tasks, and pairs to train on that share no text with it."""

import re

import pytest

from qwen3nb.datasets.pydocs import build, training_pairs
from qwen3nb.datasets.pydocs.build import MASK, MODULES, OWN, RELATED, Entry, PyDocs, load_pydocs
from qwen3nb.datasets.pydocs.mteb_tasks import author_sts, embedded_task, pydocs_sample
from qwen3nb.datasets.pydocs.training_pairs import DEVELOPMENT, RUN, BenchmarkTexts

DOC = """
cumsum(a, axis=None,
       out=None) -> array

Return the cumulative
sum of the elements.

Adds up as it goes, and Cumsum keeps every step of the way in the array that it gives back.

Parameters
----------
a : array_like
    The input. See numpy_cumsum or cumsums for others.

See Also
--------
trapezoid : Integrate with the composite rule.
diff, :func:`numpy.gradient` : Differences.

Examples
--------
>>> cumsum([1, 2])
array([1, 3])
"""


def test_a_docstring_by_hand():
    summary, text, related = build.split_docstring(DOC.strip(), "cumsum")
    assert summary == "Return the cumulative sum of the elements."
    assert text == (
        f"Adds up as it goes, and {MASK} keeps every step of the way in the array that it gives "
        f"back. a : array_like The input. See numpy_{MASK} or cumsums for others."
    )
    assert related == ["trapezoid", "diff", "numpy.gradient"]

    assert build.split_docstring("Do it.\n\n" + "word " * 30, "f") is None
    assert build.split_docstring("Do it right now.\n\nToo short.", "f") is None
    assert build.split_docstring("Do it right now.\n\n" + "word " * 30, "f") is not None


def entry(name, summary, *related):
    return Entry(name, "numpy", "numpy", summary, f"text of {name}", related)


def test_judgements_by_hand():
    """b and c share a summary: one query, for which both are the document."""
    entries = (
        entry("a", "does a", "b"),
        entry("b", "does both", "a"),
        entry("c", "does both", "z"),
    )
    made = PyDocs(entries, ("a", "b"), {})
    assert made.qrels == {"a": {"a": OWN, "b": RELATED}, "b": {"b": OWN, "c": OWN, "a": RELATED}}
    small = made.sample(documents=3, queries=1)
    assert set(small.qrels[small.query_names[0]]) <= set(small.corpus)
    with pytest.raises(ValueError, match="cannot hold them"):
        made.sample(documents=1, queries=2)


@pytest.mark.integration
def test_pydocs_is_what_it_says_and_the_same_built_again_whatever_else_is_loaded(
    monkeypatch, tmp_path
):
    """pytest itself replaces sys.unraisablehook; a kernel replaces input and more."""
    whole, sample = load_pydocs(), pydocs_sample()
    assert 2000 <= len(whole.entries) <= 4500
    assert {each.package for each in whole.entries} == set(MODULES)
    assert (len(sample.entries), len(sample.query_names)) == (800, 200)
    assert all(set(grades) <= set(sample.corpus) for grades in sample.qrels.values())
    assert all(grades[query] == OWN for query, grades in whole.qrels.items())
    assert len(set(whole.queries.values())) == len(whole.query_names)
    for each in whole.entries:
        name = each.name.rpartition(".")[2]
        assert f" {name.lower()} " not in f" {each.text.lower()} "
        assert len(each.text.split()) <= 100
    assert whole.identity != sample.identity
    monkeypatch.setattr("builtins.input", len)
    monkeypatch.setenv("QWEN3NB_CACHE", str(tmp_path))
    assert load_pydocs().identity == whole.identity


def test_first_stage_of_the_reranking_task_is_bm25s_best_hundred():
    task = embedded_task("PyDocsSampleReranking")
    task.load_data()
    ranked = task.dataset["default"]["test"]["top_ranked"]
    assert {len(set(candidates)) for candidates in ranked.values()} == {100}


def words(text):
    return re.sub(r"[\W_]+", " ", text.casefold()).split()


@pytest.mark.integration
def test_no_pair_holds_a_text_of_the_benchmark(monkeypatch):
    monkeypatch.setattr(training_pairs, "LIBRARIES", ("joblib", "tornado"))
    pairs = training_pairs.load_training_pairs()
    entries = load_pydocs().entries
    texts = {text for entry in entries for text in (entry.summary, entry.text)}
    texts |= {text for row in author_sts() for text in row[:2]}
    runs, short = set(), {}
    for each in filter(None, map(words, texts)):
        runs |= {" ".join(each[at : at + RUN]) for at in range(len(each) - RUN + 1)}
        if len(each) < RUN:
            short.setdefault(each[0], []).append(each)
    for pair in pairs.pairs[::4]:
        for text in (pair.summary, pair.text):
            assert text not in texts
            held = words(text)
            for at, word in enumerate(held):
                assert " ".join(held[at : at + RUN]) not in runs, pair
                for each in short.get(word, ()):
                    assert held[at : at + len(each)] != each, pair
    assert {pair.library for pair in pairs.train} == {"joblib"}
    assert {pair.library for pair in pairs.development} == {"tornado"} <= {*DEVELOPMENT}
    for side in ("summary", "text"):
        assert len({getattr(pair, side) for pair in pairs.pairs}) == len(pairs.pairs)
    assert pairs.dropped["repeats the benchmark"] > 0


def test_texts_that_repeat_a_benchmark_are_recognised():
    benchmark = BenchmarkTexts(
        ["Return the sum.", "Compute the weighted mean of all values along an axis.", "..."]
    )
    assert benchmark.repeated("First,  RETURN the\nsum; then print it")
    assert benchmark.repeated("return the_sum")
    assert benchmark.repeated("It can compute the weighted mean of all values along it.")
    assert not benchmark.repeated("Compute the weighted mean of all rows along an axis.")
    assert not benchmark.repeated("Return the sums.")
    assert not benchmark.repeated("")
