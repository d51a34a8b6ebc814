import re
from types import SimpleNamespace

import pytest

from qwen3nb.datasets.pydocs import training_pairs as module
from qwen3nb.datasets.pydocs.build import MODULES, load_pydocs
from qwen3nb.datasets.pydocs.mteb_tasks import author_sts
from qwen3nb.datasets.pydocs.training_pairs import (
    DEVELOPMENT,
    LIBRARIES,
    RUN,
    BenchmarkTexts,
    load_training_pairs,
)

SOURCE = '''
class Table:
    """Hold rows of numbers.

    A table keeps its rows in memory and writes them when it is closed.
    """

    if True:
        def close(self):
            """Write all rows and close the file.

            After close() nothing can be added to this table any more.
            """

    def _private(self):
        """Not public at all."""

def short():
    """One line."""
'''


def words(text):
    return re.sub(r"[\W_]+", " ", text.casefold()).split()


@pytest.mark.integration
def test_no_pair_holds_a_text_of_the_benchmark(monkeypatch):
    for name in ("QWEN3NB_HOME", "QWEN3NB_CACHE"):
        monkeypatch.delenv(name)  # the cache of the demo: collecting takes half a minute
    pairs = load_training_pairs()
    entries = load_pydocs().entries
    texts = {text for entry in entries for text in (entry.summary, entry.text)}
    texts |= {text for row in author_sts() for text in row[:2]}
    runs, short = set(), {}
    for each in filter(None, map(words, texts)):
        runs |= {" ".join(each[at : at + RUN]) for at in range(len(each) - RUN + 1)}
        if len(each) < RUN:
            short.setdefault(each[0], []).append(each)
    for pair in pairs.pairs[::20]:
        for text in (pair.summary, pair.text):
            assert text not in texts
            held = words(text)
            for at, word in enumerate(held):
                assert " ".join(held[at : at + RUN]) not in runs, pair
                for each in short.get(word, ()):
                    assert held[at : at + len(each)] != each, pair
    assert not set(LIBRARIES) & set(MODULES)
    assert len(pairs.train) > 10_000
    assert len(pairs.development) > 800
    assert not {pair.library for pair in pairs.train} & set(DEVELOPMENT)
    for side in ("summary", "text"):
        assert len({getattr(pair, side) for pair in pairs.pairs}) == len(pairs.pairs)
    assert pairs.dropped["repeats the benchmark"] > 0


def test_texts_that_repeat_a_benchmark_are_recognised():
    benchmark = BenchmarkTexts(
        ["Return the sum.", "Compute the weighted mean of all values along an axis.", "..."]
    )
    assert benchmark.repeated("First,  RETURN the\nsum; then print it") == "return the sum"
    assert benchmark.repeated("return the_sum") == "return the sum"
    assert benchmark.repeated(
        "It can compute the weighted mean of all values along it."
    ).startswith("compute the weighted mean")
    assert not benchmark.repeated("Compute the weighted mean of all rows along an axis.")
    assert not benchmark.repeated("Return the sums.")
    assert not benchmark.repeated("")


def test_public_definitions_are_read_without_an_import():
    definitions = [(name, doc.split("\n")[0]) for doc, name in module._definitions(SOURCE)]
    assert definitions == [
        ("Table", "Hold rows of numbers."),
        ("close", "Write all rows and close the file."),
        ("short", "One line."),
    ]
    assert list(module._definitions("def broken(:")) == []


def test_what_is_dropped_is_counted(monkeypatch):
    monkeypatch.setattr(module, "benchmark_texts", lambda: BenchmarkTexts(["close the file"]))
    monkeypatch.setattr(module, "_docstrings", lambda library: module._definitions(SOURCE * 2))
    collected = module._collect({"one": "1"})
    assert [pair.summary for pair in collected.pairs] == ["Hold rows of numbers."]
    assert "[name] keeps its rows" in collected.pairs[0].text
    assert collected.dropped == {
        "repeats the benchmark": 2,
        "summary or body of another pair": 1,
        "too short or too long": 2,
    }


def test_the_pairs_are_collected_again_for_other_versions(tmp_path, monkeypatch):
    collected = []
    monkeypatch.setenv("QWEN3NB_CACHE", str(tmp_path))
    monkeypatch.setattr(module, "load_pydocs", lambda: SimpleNamespace(identity="x"))

    def collect(versions):
        collected.append(versions)
        return module.TrainingPairs((), {}, versions)

    monkeypatch.setattr(module, "_collect", collect)
    for version in ("1", "1", "2"):
        monkeypatch.setattr(module, "_versions", lambda version=version: {"torch": version})
        assert module.load_training_pairs().versions == {"torch": version}
    assert collected == [{"torch": "1"}, {"torch": "2"}]
