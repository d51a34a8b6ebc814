import subprocess
import sys

import pytest

from qwen3nb.datasets.pydocs import build as pydocs_module
from qwen3nb.datasets.pydocs.build import MASK, MODULES, OWN, RELATED, Entry, PyDocs, load_pydocs
from qwen3nb.datasets.pydocs.mteb_tasks import pydocs_sample

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
    summary, text, related = pydocs_module.split_docstring(DOC.strip(), "cumsum")
    assert summary == "Return the cumulative sum of the elements."
    assert text == (
        f"Adds up as it goes, and {MASK} keeps every step of the way in the array that it gives "
        f"back. a : array_like The input. See numpy_{MASK} or cumsums for others."
    )
    assert related == ["trapezoid", "diff", "numpy.gradient"]

    assert pydocs_module.split_docstring("Do it.\n\n" + "word " * 30, "f") is None
    assert pydocs_module.split_docstring("Do it right now.\n\nToo short.", "f") is None
    assert pydocs_module.split_docstring("Do it right now.\n\n" + "word " * 30, "f") is not None


def test_names_are_resolved_to_the_nearest_module():
    known = {"numpy.diff", "numpy.ma.diff", "numpy.sum"}
    resolve = pydocs_module._resolve
    assert resolve(["diff", "sum"], "numpy.ma.cumsum", known) == ["numpy.ma.diff", "numpy.sum"]
    assert resolve(["numpy.diff", "nowhere"], "numpy.cumsum", known) == ["numpy.diff"]
    assert resolve(["diff"], "numpy.diff", known) == []


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
def test_pydocs_is_what_it_says():
    whole, sample = load_pydocs(), pydocs_sample()
    assert 2000 <= len(whole.entries) <= 4500
    assert {each.package for each in whole.entries} == set(MODULES)
    assert len(sample.entries) == 800
    assert len(sample.query_names) == 200
    assert all(set(grades) <= set(sample.corpus) for grades in sample.qrels.values())
    assert all(grades[query] == OWN for query, grades in whole.qrels.items())
    assert len(set(whole.queries.values())) == len(whole.query_names)
    for each in whole.entries:
        name = each.name.rpartition(".")[2]
        assert f" {name.lower()} " not in f" {each.text.lower()} "
        assert len(each.text.split()) <= 100
    assert whole.identity != sample.identity


@pytest.mark.integration
def test_pydocs_is_the_same_built_again_whatever_else_is_loaded():
    """pytest itself replaces sys.unraisablehook; a kernel replaces input and more."""
    code = (
        "import builtins, mteb, torch; builtins.input = len\n"
        "from qwen3nb.datasets.pydocs.build import cache_file, load_pydocs\n"
        "cache_file().unlink(); print(load_pydocs().identity)"
    )
    before = load_pydocs().identity
    command = [sys.executable, "-W", "ignore", "-c", code]
    identity = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert identity == before
