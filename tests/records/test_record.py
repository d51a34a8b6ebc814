"""A record and its per-query scores: exact, shared, loaded when needed, never those of another."""

import copy
import json
import os
import pickle
import sys
import time
from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest
from helpers.records import amend, make, own, signed
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3nb.metrics.query_scores import SHARED_QUERIES, QueryScores, SharedQueries
from qwen3nb.records import side_files
from qwen3nb.records.record import Environment, MTEBScore, Result, checksum, in_checksums
from qwen3nb.records.side_files import (
    EVALUATES,
    ResultError,
    ScoresEntry,
    SideFile,
    StoredScores,
    encode_scores,
    named_files,
)
from qwen3nb.records.store import load_results, verify_files
from qwen3nb.utils.atomic_files import _temporary_path, exclusive_lock, sha256_file


def test_a_record_is_read_back_as_it_was_written(tmp_path):
    result = make(scores=(0.1, 0.2, 0.4))
    amend(result, "task", size={"documents": 5, "queries": 3}, mteb=MTEBScore("ndcg_at_10", 0.25))
    amend(result, "task", splits=("test",), subsets=("en",), languages=("eng-Latn",))
    assert Result.load(result.save(tmp_path)) == result


@pytest.mark.parametrize("name", ["../../../out", "a/b", "/out", "..", ".hidden", ""])
@pytest.mark.parametrize("part", ["label", "task"])
def test_no_label_and_no_task_leaves_the_folder_of_results(tmp_path, part, name):
    folder, before = tmp_path / "study" / "results", sorted(tmp_path.rglob("*"))
    result = make(name) if part == "label" else make(task=name)
    with pytest.raises(ResultError):
        result.save(folder)
    assert sorted(tmp_path.rglob("*")) == before
    file = make().save(folder)
    value = json.loads(file.read_text())
    value["files"]["runs"] = {f"{name}.trec": "0" * 64}
    file.write_text(json.dumps(value))
    with pytest.raises(ResultError, match="files.runs"):
        Result.load(file)


IDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
COLUMNS = st.dictionaries(
    IDS.filter(lambda name: name != "query_id"),
    st.dictionaries(IDS, st.floats(allow_nan=False, allow_infinity=False), max_size=6),
    max_size=4,
)


def bits(scores):
    """The scores with the bits of each number, which tell −0 from 0."""
    return {name: {q: np.float64(v).tobytes() for q, v in c.items()} for name, c in scores.items()}


def loaded(result, folder):
    return Result.load(result.save(folder))


def side_file(record, kind="scores"):
    (file,) = record.parent.glob(f"*.{kind}.parquet")
    return file


@settings(max_examples=15, deadline=None)
@given(COLUMNS)
def test_scores_are_read_back_to_the_bit(tmp_path_factory, columns):
    record = replace(make(), per_query=columns)
    again = loaded(record, tmp_path_factory.mktemp("scores"))
    assert bits(again.per_query) == bits(columns)
    if columns:
        assert bits(again.per_query.whole()) == bits(columns)
    assert again.per_query == columns
    assert columns == again.per_query
    assert again == record
    assert dict(again.scores) == columns


def test_a_loaded_record_does_all_that_a_record_does(tmp_path):
    made = own("m", 0.5)
    record = loaded(made, tmp_path)
    assert isinstance(record.per_query, StoredScores)
    for same in (
        pickle.loads(pickle.dumps(record)),  # noqa: S301 - our own
        copy.deepcopy(record),
        replace(record, seed=record.seed),
        loaded(record, tmp_path / "again"),
    ):
        assert same == made
        assert same.top["q0"] == ["m-0", *made.top["q0"][1:]]
    assert asdict(record)["per_query"] == made.per_query
    assert replace(record, per_query={"MRR@10": {"q0": 1.0}}) != made
    pd.testing.assert_frame_equal(record.scores.to_frame(), pd.DataFrame(made.per_query))
    with pytest.raises(TypeError, match="is a mapping"):  # pandas would read its keys alone
        pd.DataFrame(record.per_query)
    assert repr(record.per_query) == "<QueryScores: 40 queries; columns MRR@10, nDCG@10>"


def test_columns_may_lack_queries(tmp_path):
    scores = loaded(
        replace(make(), per_query={"a": {"x": 1.0, "y": 2.0}, "b": {"z": 3.0, "y": 0.0}}), tmp_path
    ).scores
    assert scores.queries == ("x", "y", "z")
    np.testing.assert_array_equal(scores.array("b"), [np.nan, 0.0, 3.0])
    assert dict(scores["b"]) == {"y": 0.0, "z": 3.0}
    assert (list(scores["a"].values()), len(scores["a"])) == ([1.0, 2.0], 2)
    assert "x" not in scores["b"]
    with pytest.raises(KeyError, match="x"):
        scores["b"]["x"]
    with pytest.raises(KeyError, match="c"):
        scores.array("c")
    with pytest.raises(ValueError, match="read-only"):
        scores.array("a")[0] = 1


def test_loading_ranking_and_counting_read_no_scores(home):
    file = make(scores=(0.1, 0.4)).save()
    side_file(file).unlink()
    (record,) = load_results(whole=False)
    assert (record.main.n, list(record.per_query)) == (2, ["nDCG@10"])
    assert record.scores.counts == {"nDCG@10": 2}
    assert "nDCG@10" in record.per_query
    assert len(load_results(whole=False).to_frame()) == 1
    with pytest.raises(ResultError, match="missing"):
        dict(record.per_query["nDCG@10"])


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({"c": {"a\ud800": 1.0}}, "surrogate"),
        ({"c\udfff": {"a": 1.0}}, "surrogate"),
        ({"c": {3: 1.0}}, "expected strings, got 3"),
        ({"c": {"a": "half"}}, "column 'c': expected numbers .*half"),
        ({"c": {"a": None}}, "column 'c': query 'a' has the value None"),
        ({"c": {"b": 0.5, "a": float("nan")}}, "column 'c': query 'a' has the value nan"),
        ({"c": {"b": 0.5, "a": float("inf")}}, "column 'c': query 'a' has the value inf"),
        ({"query_id": {"a": 1.0}}, "query_id"),
    ],
)
def test_what_cannot_be_stored_is_refused_by_name(tmp_path, columns, named):
    record = replace(make(), per_query=columns)
    with pytest.raises(ResultError, match=named):
        record.save(tmp_path)
    assert not list(tmp_path.rglob("*.json"))


def test_a_record_as_one_file_is_a_record(tmp_path):
    record = loaded(own("m", 0.5), tmp_path)
    one = tmp_path / "one.json"
    one.write_text(json.dumps(record.in_one_file()))
    assert json.loads(one.read_text())["top"]["q0"][0] == "m-0"
    assert Result.load(one) == record
    assert verify_files([one], checksums_only=True) == {}


def test_files_that_no_record_names_go_once_they_are_old(tmp_path):
    file = make(task="A").save(tmp_path)
    hour = time.time() - 3700
    names = ("A.0123456789ab.scores.parquet", "A.0123456789ab.top.parquet", ".A.json.x1.tmp")
    kept = ("A.bm25-9.0123456789ab.scores.parquet", "A.mine.parquet")
    for name in (*names, *kept):
        file.with_name(name).touch()
        os.utime(file.with_name(name), (hour, hour))
    fresh = file.with_name("A.ba9876543210.scores.parquet")  # of a writer that is not done
    fresh.touch()
    make(task="A").save(tmp_path)
    (named,) = named_files(file)
    there = {each.name for each in file.parent.iterdir()}
    assert there == {file.name, named.name, fresh.name, *kept}
    assert len(load_results(tmp_path)) == 1


def test_files_of_a_record_that_is_evaluated_stay_when_the_clock_jumps(tmp_path):
    file = make(task="A").save(tmp_path)
    lives = _temporary_path(file.with_name("A.0123456789ab.trec"))
    names = ("A.0123456789ab.trec", "A.0123456789ab.qrels", lives.name)
    for name in names:
        file.with_name(name).touch()
        os.utime(file.with_name(name), (0, 0))  # as after a jump by decades
    with exclusive_lock(file, purpose=EVALUATES):  # it is about to name them
        make(task="A").save(tmp_path)
    assert {*names} <= {each.name for each in file.parent.iterdir()}
    make(task="A").save(tmp_path)
    (named,) = named_files(file)
    assert {each.name for each in file.parent.iterdir()} == {file.name, named.name, lives.name}


VALUES = st.dictionaries(st.text("ab/é\U0010ffff", max_size=4), st.floats(0, 1), min_size=1)


def sample_of(scores, columns, part):
    """The values (n, columns) of the queries of a part, by hand."""
    queries = sorted(query for query in scores[columns[0]] if query.startswith(part))
    return np.array([[scores[column][query] for column in columns] for query in queries])


@settings(max_examples=15, deadline=None)
@given(first=VALUES, part=st.text("ab/é\U0010ffff", max_size=2), absent=st.booleans())
def test_a_sample_of_stored_scores_is_that_of_dictionaries(first, part, absent):
    second = {query: value / 3 for query, value in reversed(first.items())}
    scores = {"one": first, "two": second}
    if absent:  # in one column only: rows that the others leave empty
        scores["three"] = {"b/only": 0.5}
    stored = QueryScores.of(scores)
    for columns in (("one",), ("two",), ("one", "two")):
        theirs = sample_of(scores, columns, part)
        ours = stored.sample(columns, part)
        assert ours.tolist() == theirs.tolist()
        assert not len(ours) or (ours.shape, ours.strides) == (theirs.shape, theirs.strides)


def test_columns_that_cover_different_queries_are_refused():
    stored = QueryScores.of({"one": {"a": 0.1, "b": 0.2}, "two": {"a": 0.3}})
    assert stored.sample(("two",)).tolist() == [[0.3]]
    with pytest.raises(ValueError, match="'one' and 'two' cover different queries"):
        stored.sample(("one", "two"))
    infinite = QueryScores(("a", "b"), {"one": np.array([0.1, np.inf])})
    with pytest.raises(ValueError, match="query 'b' has a value that is not finite"):
        infinite.sample(("one",))


def test_ids_and_numbers_keep_apart():
    one = QueryScores.of({"m": dict.fromkeys(("ab", "c"), 0.5)})
    assert one.ids != QueryScores.of({"m": dict.fromkeys(("a", "bc"), 0.5)}).ids
    scores = QueryScores.of({"c": {"a": 1, "b": np.float32(0.1), "c": True, "d": 2**70}})
    assert scores.array("c").tolist() == [1.0, float(np.float32(0.1)), 1.0, 2.0**70]


def test_query_ids_are_shared_by_a_bounded_number_of_records():
    shared = SharedQueries(2)
    first = ("a", "b")
    assert shared.share("one", first) is first
    assert shared.share("one", ("a", "b")) is first
    for digest in ("two", "three"):
        shared.share(digest, (digest,))
    assert (len(shared), shared.get("one"), shared.get("three")) == (2, None, ("three",))


def test_records_on_the_same_queries_share_their_ids_and_no_others_do(home, monkeypatch):
    for label, queries in (("a", "xy"), ("b", "xy"), ("c", "yz")):
        make(label, dict.fromkeys(queries, 0.5)).save()
    monkeypatch.setattr(side_files, "SHARED_QUERIES", SharedQueries())
    a, b, c = (record.scores.queries for record in load_results())
    assert a is b
    assert (a, c) == (("x", "y"), ("y", "z"))


@pytest.mark.parametrize("stored", ["xz", "yx", "x", "xyz"])
def test_other_ids_than_those_of_a_record_are_seen_though_its_own_are_known(tmp_path, stored):
    held = make(scores=(0.5, 0.5)).scores
    other = QueryScores.of({"nDCG@10": dict.fromkeys(stored, 0.5)})
    file = tmp_path / "other.parquet"
    file.write_bytes(encode_scores(other))
    digest = sha256_file(file)
    entry = ScoresEntry(file.name, digest, len(stored), ids=held.ids, columns=dict(other.counts))
    scores = StoredScores(SideFile.of(tmp_path / "record.json", entry), entry)
    assert SHARED_QUERIES.get(held.ids) == held.queries
    for read in (scores.check, scores.whole):
        with pytest.raises(ResultError, match="its query ids are not those in its record"):
            read()


def test_the_environment_is_that_of_this_process():
    here = Environment.current()
    assert here.versions["numpy"] == np.__version__
    assert here.python == ".".join(map(str, sys.version_info[:3]))
    # As a record that states none.
    usual = Environment()
    assert (here.device, here.precision, here.linear) == (
        usual.device,
        usual.precision,
        usual.linear,
    )


OLDER = {
    "of the command eval": {"checkpoint": "bm25", "tier": "smoke", "limit": 5, "dimensions": 0},
    "of own data": {
        "boosts": {},
        "negative_cosine": "no boosts",
        "relevance_threshold": 2,
        "dropped": ["q9"],
        "notes": ["a note"],
        "queries": {"q0": "text"},
        "dimensions": None,
        "judgements": {"q0": {"first": [1, -1], "ideal": [1]}},
        "words": "letters",
        "seconds_per_query": 0.5,
        "qrels": {"a.qrels": "0" * 64},
        "runs": {"a.trec": "0" * 64},
    },
    "of a reranker": {
        "training": {
            **dict.fromkeys(("kind", "configuration", "mode", "base"), "x"),
            **{"seed": 1, "rank": None, "data_seed": 1, "steps": None},
            **{"change": [0.5], "settings": {"lora": {"rank": 4}}},
        },
        "collection": "words",
        "group": "",
        "parts": 0,
        "limit": 0,
        "first": {"kind": "bm25", "depth": 10},
        "counts": {"pairs": 4},
        "runs": {"a.trec": "0" * 64},
        "first_run": {"name": "b.trec", "sha256": "0" * 64},
    },
    "of a prompt": {"a": 1, "prompt": {"name": "p", "text": "find: ", "of": "f" * 64}},
}


def test_each_detail_of_an_older_record_has_its_place():
    ours, own_data, reranker, prompted = (make(config=config) for config in OLDER.values())
    assert ours.options == OLDER["of the command eval"]
    assert (own_data.options, reranker.options, prompted.options) == ({}, {}, {"a": 1})
    assert (own_data.data.notes, own_data.search.words) == (["a note"], "letters")
    assert (reranker.training.rank, reranker.training.settings) == (None, {"lora": {"rank": 4}})
    assert (reranker.data.limit, reranker.search.first["depth"]) == (0, 10)
    assert (prompted.prompt.name, prompted.prompt.text) == ("p", "find: ")
    other = {"training": {"epochs": 3}, "prompt": "find: "}  # options that are called so, too
    assert make(config=other).options == other


@pytest.mark.parametrize("whole", [False, True], ids=["with files", "in one file"])
@pytest.mark.parametrize("config", OLDER.values(), ids=OLDER)
def test_an_older_record_with_all_details_in_one_mapping_is_read(tmp_path, config, whole):
    top = {"q0": ["d1"], "q1": [], "q2": ["d2"]}
    made = make(config=config | {"top": top})
    file = made.save(tmp_path)
    value, details = json.loads(file.read_text()), dict(config)
    if whole:
        value = json.loads(json.dumps(made.in_one_file()))
        details["top"] = value["top"]
        del value["top"]
    for name in ("options", "training", "prompt", "data", "search", "files"):
        del value[name]
    schema = "qwen3nb.result/2" if whole else "qwen3nb.result/3"
    older = signed(value | {"schema": schema, "config": details})
    with in_checksums(file, older["checksum"]):
        file.write_text(json.dumps(older))
    read = Result.load(file)
    assert read == made
    assert {name: value for name, value in read.config.items() if name != "top"} == config
    assert [*read.config] == [*made.config]
    assert dict(read.top) == top
    assert read.checksum == checksum(older)
    assert verify_files([file], checksums_only=True) == {}
    saved = Result.load(read.save(tmp_path))
    assert (saved, json.loads(file.read_text())["schema"]) == (made, "qwen3nb.result/5")
