import pytest
from helpers import TEXTS
from helpers.beir import write_beir

from qwen3nb.datasets.collection import TestCollection, find_collections
from qwen3nb.datasets.rows import DataError

DOCUMENTS = {f"d{index}": text for index, text in enumerate([*TEXTS, "a cat", "a dog", "rain"])}


QUERIES = {"q1": TEXTS[0], "q2": TEXTS[2], "q3": "nobody judged this"}


RELEVANT = {"q1": {"d0": 2, "d1": 1}, "q2": ["d2"]}


def test_judgements_must_be_about_something():
    with pytest.raises(ValueError, match="document 'd9' is judged but has no text"):
        TestCollection.from_texts(QUERIES, DOCUMENTS, {"q1": ["d9"]})
    with pytest.raises(ValueError, match="query 'q9' is judged but has no text"):
        TestCollection.from_texts(QUERIES, DOCUMENTS, {"q9": ["d1"]})
    with pytest.raises(ValueError, match="no query has a relevant document"):
        TestCollection.from_texts(QUERIES, DOCUMENTS, {"q1": {"d1": 0}})
    with pytest.raises(ValueError, match=r"the id 'd\\udc80' has a lone surrogate"):
        TestCollection.from_texts(QUERIES, DOCUMENTS | {"d\udc80": "x"}, RELEVANT)


def test_a_subset_keeps_all_that_is_judged_and_says_its_size():
    collection = TestCollection.from_texts(QUERIES, DOCUMENTS, RELEVANT)
    small = collection.subset(documents=4, seed=1)
    assert {"d0", "d1", "d2"} < set(small.documents)
    assert (len(small.documents), small.name) == (4, "custom-4")
    assert collection.subset(documents=4, seed=1).revision == small.revision
    assert collection.subset(documents=4, seed=2).revision != small.revision
    assert collection.subset(documents=99) is collection
    with pytest.raises(ValueError, match="3 documents are judged and must be kept"):
        collection.subset(documents=2)


def test_a_collection_shows_its_size_and_not_its_texts():
    collection = TestCollection.from_texts(QUERIES, DOCUMENTS, RELEVANT, name="own")
    assert repr(collection) == "TestCollection('own', 7 documents, 2 queries)"


def test_a_beir_folder_is_read_by_its_path(tmp_path):
    folder = write_beir(tmp_path / "words", documents=20, queries=4)
    collection = TestCollection.from_beir(str(folder))
    assert (collection.name, collection.skip_self) == ("words", True)
    assert (len(collection.documents), len(collection.queries)) == (20, 4)
    assert find_collections(folder)[0].revision == collection.revision
    with pytest.raises(DataError, match="dev.tsv"):
        TestCollection.from_beir(folder, split="dev")
