"""Records on disk: verified one by one, together, by file; collected, and exported as one table."""

import copy
import csv
import math
import os
import time
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from helpers.records import amend, make, tier_records
from helpers.records import own as own_data
from helpers.search_texts import search_texts

from qwen3nb import paths
from qwen3nb.evaluation.mteb.per_query import SearchTexts
from qwen3nb.metrics.aggregate import aggregate, reported
from qwen3nb.records import store
from qwen3nb.records.record import MTEBScore, Part
from qwen3nb.records.results import Results, richest_tier
from qwen3nb.records.side_files import ResultError, named_files
from qwen3nb.records.store import (
    PROMPTS,
    check_files,
    latest,
    load_failures,
    load_results,
    verify,
    verify_files,
)
from qwen3nb.utils.journal import append
from qwen3nb.utils.secrets import SecretError


def test_a_wrong_value_is_named_whatever_is_verified(home):
    good, bad = make("good", scores=(0.1, 0.4)), make("bad", scores=(0.1, 0.4))
    file = good.save()
    for records in (good, [good], file, str(file), file.parent.parent.parent, None):
        assert verify(records) == []
    main = bad.task.main_metric
    bad = replace(bad, metrics={main: replace(bad.metrics[main], value=0.99)})
    file = bad.save()
    (line,) = verify(bad)
    assert "value is 0.99" in line
    assert verify([good, bad]) == [f"bad on {bad.task.name}: {line}"]
    for records in (None, file):
        (on_disk,) = verify(records)
        assert line in on_disk
        assert file.name in on_disk


@pytest.mark.integration
def test_processes_find_the_same_in_the_same_order(home, monkeypatch):
    files = [make(f"m{i}", scores=(0.1, i / 40)).save() for i in range(40)]
    files[3].write_text("{")
    files[30].rename(files[30].with_name("Other.json"))
    alone = list(check_files(files))
    assert [bool(wrong) for _, wrong in alone] == [i in (3, 30) for i in range(40)]
    for name, value in {
        "_SECONDS_ON_ONE_CORE": 0.0,
        "_SECONDS_TO_START": 0.0,
        "_RECORDS_AT_ONCE": 16,
        "cores": lambda: 2,
    }.items():
        monkeypatch.setattr(store, name, value)
    assert list(check_files(files)) == alone


def test_records_of_prompts_are_missed_and_belong_to_their_folder(home):
    make("m").save()
    file = make("m").save(paths.results() / PROMPTS)
    assert verify() == verify(paths.results()) == []
    file.unlink()
    for places in ((), (paths.results(),)):
        (problem,) = verify(*places)
        assert "it was removed after it was written" in problem


def test_a_link_is_seen_though_its_record_was_consistent_before(home):
    file = make("m").save()
    time.sleep(0.05)
    for _ in range(2):
        assert verify_files([file], fresh=False) == {}
    folder = file.parents[1]
    folder.rename(paths.results() / "elsewhere")
    folder.symlink_to(paths.results() / "elsewhere")
    for _ in range(2):
        ((problem,),) = verify_files([file], fresh=False).values()
        assert "it is a link" in problem


def test_only_records_whose_files_changed_are_verified_again(home):
    files = [make(f"m{i}", scores=(0.1, i / 40)).save() for i in range(3)]
    time.sleep(0.05)  # a file that has only just changed might change again at the same time

    def verified(**options):
        return {file: bool(wrong) for file, wrong in check_files(files, **options)}

    consistent = dict.fromkeys(files, False)
    assert verified(fresh=False) == consistent
    assert verified(fresh=False) == {}
    assert verified() == verified(checksums_only=True) == consistent
    (scores,) = named_files(files[1])
    times, data = scores.stat(), scores.read_bytes()
    scores.write_bytes(data[:-1] + b"?")
    os.utime(scores, ns=(times.st_atime_ns, times.st_mtime_ns))
    for _ in range(2):
        assert verified(fresh=False) == {files[1]: True}
    scores.write_bytes(data)
    name = files[2].relative_to(paths.results())
    append(paths.results() / "checksums.jsonl", f"{name} {0:064}", True)
    time.sleep(0.05)
    assert verified(fresh=False) == {files[1]: False, files[2]: False}
    assert verified(checksums_only=True) == consistent  # which forgets no whole check
    assert verified(fresh=False) == {}


def test_a_reported_value_is_mtebs(home):
    scored = make(scores=(0.1, 0.4))
    result, metric = replace(scored, per_query={}), scored.task.main_metric
    amend(result, "task", mteb=MTEBScore("ndcg_at_10", 0.5))
    assert verify(replace(result, metrics={metric: reported(0.5, n=2)})) == []
    (line,) = verify(replace(result, metrics={metric: reported(0.6, n=2)}))
    assert "value is 0.6, MTEB reported 0.5" in line
    (line,) = verify(replace(scored, task=result.task, metrics={metric: reported(0.5, n=2)}))
    assert "reported by another program" in line


@pytest.mark.parametrize("order", [1, -1])
def test_the_latest_record_of_a_model_is_kept_whatever_its_content(order):
    """Of one label, use, seed and task; another of any of these is another row."""
    settings = {"model": {"weights": "1"}, "pooling": "mean"}
    old = make("m", (0.1, 0.2), settings=settings, finished="2026-01-01T10:00:00+00:00")
    overwritten = settings | {"model": {"weights": "2"}}
    new = make("m", (0.3, 0.4), settings=overwritten, finished="2026-01-02T09:00:00+00:00")
    newest = make("m", (0.5, 0.6), settings=settings, finished="2026-01-02T09:00:01+00:00")
    assert latest([old, new, newest][::order]) == [newest]
    assert latest([old, new][::order]) == [new]
    changes = ({"pooling": "cls"}, {"dtype": "bfloat16"}, {"max_length": 64})
    others = [make("m", settings=settings | change, finished="2025") for change in changes]
    others += [
        make("m", settings=settings, finished="2025", seed=1),
        make("m", settings=settings, finished="2025", task="T"),
        make("n", settings=settings, finished="2025"),
    ]
    assert {*map(id, latest([new, *others, old][::order]))} == {*map(id, [new, *others])}
    without = make("m", (0.1, 0.2), settings=settings | {"prefix": "", "normalize": True})
    assert len(latest([without, new])) == 1  # what an older record without the setting means


@pytest.mark.parametrize(
    ("part", "name", "words"),
    [
        (0, "other.json", "contains the task"),
        (1, "seed_7", "contains the seed 0"),
        (2, "m-00000000", "is in the folder of a model with another identity"),
        (2, "other-{}", "contains the model 'm'"),
    ],
)
def test_a_record_is_where_its_content_says(home, part, name, words):
    file = make("m", (0.1, 0.4)).save()
    folder = [file, file.parent, file.parent.parent][part]
    identity = file.parent.parent.name.rpartition("-")[2]
    moved = folder.rename(folder.with_name(name.format(identity)))
    (moved_record,) = moved.rglob("*.json") if moved.is_dir() else [moved]
    assert words in " ".join(verify(moved_record))


def test_a_record_that_was_only_about_to_be_written_is_not_missed(home):
    file = make("m", (0.1, 0.4)).save()
    other = f"{file.parent.parent.name}/seed_0/Other.json"
    append(paths.results() / "checksums.jsonl", f"{other} {'0' * 64}", False)  # and killed
    assert verify() == []
    append(paths.results() / "checksums.jsonl", f"{other} {'0' * 64}", True)
    assert "Other.json: it was removed" in verify()[0]


def test_a_record_with_a_secret_is_not_written(home):
    token = "hf_" + "a1B2c3D4e5" * 4
    with pytest.raises(SecretError, match="Hugging Face token"):
        make(settings={"model": {"kind": "encoder"}, "prompt": token}).save()
    assert list(home.rglob("*.json")) == []


def test_data_and_names_of_files_may_look_like_a_secret(home):
    text = "hf_" + "a1B2c3D4e5" * 4  # no known one
    details = {
        "of": text,  # an option
        "training": {"configuration": text},
        "prompt": {"name": "p", "text": text, "of": "f" * 64},
        "notes": [text],
        "first": {"kind": text},
        "runs": {f"{text}.trec": "0" * 64},
    }
    record = make(config=details)
    amend(record, "task", clusters={"q0": text, "q1": text})
    assert record.save().is_file()


@pytest.fixture
def results():
    return Results(
        [
            make("bm25", task="PyDocsSampleRetrieval", scores=(0.0, 1.0)),
            make("mini", task="PyDocsSampleRetrieval", scores=(0.5, 1.0)),
            make("mini", task="SciFact", scores=(0.25, 0.75)),
        ]
    )


def test_it_is_a_sequence_that_names_its_models_and_tasks(results):
    assert [each.model.label for each in results] == ["bm25", "mini", "mini"]
    assert isinstance(results[1:], Results)
    assert results == list(results)
    assert not Results()
    assert results.models == ("bm25", "mini")
    assert results.tasks == ("PyDocsSampleRetrieval", "SciFact")
    assert repr(results).startswith("<Results: 3 records; models bm25, mini; tasks")
    assert repr(Results()) == "<Results: no records>"
    hostile = Results([make("<script>alert(1)</script>")])
    assert "<script>" not in hostile._repr_html_()
    assert "m3 and 2 more" in repr(Results(make(f"m{i}") for i in range(6)))


def test_filters_narrow_together(results):
    assert results.filter(model="mini").tasks == ("PyDocsSampleRetrieval", "SciFact")
    assert results.filter(model="mini", tier="smoke").tasks == ("PyDocsSampleRetrieval",)
    assert len(results.filter(task=["SciFact", "PyDocsSampleRetrieval"])) == 3
    assert len(results.filter(model=results[0].model.identity[:8])) == 1
    assert len(results.filter()) == 3
    made = replace(results[2], options={"tier": "full"})
    assert Results([made]).filter(tier="full") == [made]


@pytest.mark.parametrize(
    ("condition", "choice"),
    [({"model": "minni"}, "mini"), ({"task": "scifact"}, "SciFact"), ({"tier": "huge"}, "smoke")],
)
def test_a_mistyped_condition_lists_the_choices(results, condition, choice):
    with pytest.raises(ValueError, match=choice):
        results.filter(**condition)


def test_the_frame_has_a_row_per_record_with_its_interval(results):
    frame = results.to_frame()
    assert list(frame.model) == ["bm25", "mini", "mini"]
    assert list(frame.value) == [0.5, 0.75, 0.5]
    assert (frame.low <= frame.value).all()
    assert (frame.value <= frame.high).all()
    assert set(frame.metric) == {"nDCG@10"}
    assert list(Results().to_frame().columns) == list(frame.columns)
    undefined = replace(results[0].metrics["nDCG@10"], value=None, low=None, high=None)
    two = replace(results[0], metrics={"nDCG@10": undefined, "MRR@10": undefined})
    assert math.isnan(Results([two, results[1]]).to_frame().value[0])
    assert list(Results([two]).to_frame(all_metrics=True).metric) == ["nDCG@10", "MRR@10"]


def test_the_richest_tier_is_the_largest_with_all_of_its_tasks_or_a_run_of_it():
    assert richest_tier([]) == "smoke"
    assert richest_tier([make("m")]) == "smoke"
    assert richest_tier(tier_records("m", tier="fast")) == "fast"
    one = make("m", task="SciFact", config={"tier": "full"})
    assert richest_tier([one]) == "full"
    # Where no tier is complete, the smallest with results.
    partial = tier_records("m", tier="fast")[1:]
    assert richest_tier(partial) == "fast"
    assert richest_tier([*partial, make("m")]) == "smoke"
    named = make("m", task="SciFact", config={"tier": "full", "tasks": "SciFact"})
    assert richest_tier([named]) == "fast"  # not "full", of which it is no run
    assert richest_tier([make("m", task="no tier's")]) == "smoke"


ODD = ['a "b"', "c,d", "e\nf", "g\rh", "=1+1", "@cmd", "-x", "-3", "é 日本 \U0001f600", "", "nan"]
COLUMNS = "model identity seed task type revision split subset query metric value finished record"


@pytest.mark.parametrize("form", [str, Path])
def test_a_missing_folder_is_named_and_an_empty_one_has_no_records(home, form):
    with pytest.raises(FileNotFoundError, match="nowhere: no such folder of records"):
        load_results(form(home / "nowhere"))
    file = make("a").save()
    with pytest.raises(FileNotFoundError, match=file.name):
        load_results(folder=form(file))
    empty = home / "empty"
    empty.mkdir()
    assert load_results(form(empty)) == []
    assert len(load_results()) == 1


def test_without_a_folder_of_its_own_a_study_has_no_records(home):
    assert load_results() == []


QUERY_COLUMNS = """
    model task type metric query value text length category seed identity
""".split()  # noqa: SIM905 - a list of words reads better as a line


def test_scores_of_queries_have_text_length_and_category():
    results = Results([own_data("a", 0.5), make("b", (0.25, 0.75))])
    frame = results.to_frame(per_query=True)
    assert list(frame.columns) == QUERY_COLUMNS
    assert frame.groupby("model").size().to_dict() == {"a": 40, "b": 2}
    third = frame.iloc[2]
    assert third[["metric", "query", "text", "length", "category"]].tolist() == [
        *("MRR@10", "q2", "text of q2", 3, "odd")
    ]
    assert third["value"] == results[0].per_query["MRR@10"]["q2"]
    assert (frame["category"] == "odd").sum() == 20
    unknown = frame[frame["model"] == "b"]  # the record of no task that is known here
    assert unknown["value"].tolist() == [0.25, 0.75]
    assert unknown[["text", "length", "category"]].isna().to_numpy().all()
    every_metric = results.to_frame(all_metrics=True, per_query=True)
    assert set(every_metric["metric"]) == {"MRR@10", "nDCG@10"}
    assert len(every_metric) == 82
    assert results[1].to_frame(per_query=True)["value"].tolist() == [0.25, 0.75]
    assert list(Results([]).to_frame(per_query=True).columns) == QUERY_COLUMNS


def test_texts_of_a_task_are_read_once_if_they_are_here(monkeypatch):
    read = []

    def of_task(task):
        read.append(task.key)
        if task.key == "away":
            raise OSError("not here")
        return search_texts({"q0": "sort a list", "q1": "join"})

    monkeypatch.setattr(SearchTexts, "of_task", of_task)
    results = [make(name, (0.1, 0.2), task=task) for name in "ab" for task in ("here", "away")]
    for record in results:
        amend(record, "task", mteb=MTEBScore("ndcg_at_10", 0.15))
    frame = Results(results).to_frame(per_query=True)
    assert read == ["here", "away"]
    here = frame[frame["task"] == "here"]
    assert here["text"].tolist() == ["sort a list", "join"] * 2
    assert here["length"].tolist() == [3, 1] * 2
    assert frame[frame["task"] == "away"]["text"].isna().all()


def test_the_worst_queries_of_each_record_come_lowest_first():
    results = Results([make("b", (0.2, 0.9, 0.1, 0.2)), make("a", (0.5, 0.4))])
    for worst in (results.worst(3), results.worst(k=3)):
        rows = worst[["model", "query", "value"]].to_numpy().tolist()
        assert rows == [
            *(["b", "q2", 0.1], ["b", "q0", 0.2], ["b", "q3", 0.2]),
            *(["a", "q1", 0.4], ["a", "q0", 0.5]),
        ]
    assert results[0].worst(1)["query"].tolist() == ["q2"]
    assert results["a"].worst()["query"].tolist() == ["q1", "q0"]
    assert Results([]).worst().empty


def test_a_record_shows_itself_and_has_its_score():
    record = make("<b>", (0.25, 0.75))
    assert record.score == record.value == 0.5
    assert record.to_frame()["value"].tolist() == [0.5]
    assert "<table" in record._repr_html_()
    assert "&lt;b&gt;" in record._repr_html_()
    summary = Results([record]).summary()
    assert list(summary.columns) == ["model", "task", "metric", "value", "low", "high", "n"]
    assert summary.loc[0, ["value", "n"]].tolist() == [0.5, 2]
    difference = make("c", {"q1": 0.5, "q0": 0.5}).scores - record.scores
    assert difference["nDCG@10"].to_dict() == {"q0": 0.25, "q1": -0.25}
    assert copy.deepcopy(record) == record


@pytest.mark.parametrize(
    ("value", "name", "written"),
    [
        (make("a"), "n", "write record.main.n"),
        (make("a"), "summary", r"write record.to_frame\(\)"),
        (Results([make("a")]), "df", r"write results.to_frame\(\)"),
        (Results([make("a")]), "scores", r"write results.to_frame\(per_query=True\)"),
        (Results([make("a")]), "head", r"write .to_frame\(\).head"),
        (Results([make("a")]), "nothing", "no attribute 'nothing'$"),
    ],
)
def test_what_is_no_attribute_says_what_to_write(value, name, written):
    with pytest.raises(AttributeError, match=written):
        getattr(value, name)


def test_a_filter_takes_the_name_of_a_model_a_task_or_a_type_first():
    results = Results([make("a"), make("b"), make("a", task="other")])
    assert [len(results.filter(name)) for name in ("a", "other", "Retrieval")] == [2, 1, 3]
    assert len(results.filter("a", task="other")) == 1
    with pytest.raises(ValueError, match="unknown model or task 'c'; choose one of: a, b"):
        results.filter("c")


@pytest.fixture
def records(tmp_path):
    """Three records that are stored and loaded: odd ids, parts, and a column with gaps."""
    odd = make("=evil, model", {name: n / 7 for n, name in enumerate(ODD)}, task="odd")
    amend(odd, "model", label="evil")
    amend(odd, "task", dataset="=x", revision="=HYPERLINK(1)", splits=("test",), subsets=("en",))
    parts = {f"test/{lang}/q{n}": n / 3 for lang in ("en", "en/x", "de") for n in range(3)}
    split = make("two", parts, task="parts")
    split.per_query["MRR@10"] = {"test/de/q1": 0.1 + 0.2}
    aggregates = {
        lang: aggregate(split.per_query, how="mean", columns=("nDCG@10",))
        for lang in ("en", "en/x", "de")
    }
    of_parts = (Part("test", each, ("eng-Latn",), aggregates[each], 0.5) for each in aggregates)
    split = replace(split, parts=tuple(of_parts))
    amend(split, "task", splits=("test",), subsets=("en", "en/x", "de"))
    whole = make("three", [0.25, 1.0], task="whole")
    amend(whole, "task", splits=("dev",), subsets=("default",))
    for each in (odd, split, whole):
        each.save(tmp_path / "results")
    return load_results(tmp_path / "results")


def rows_of(file):
    """The rows of a file, as DuckDB reads Parquet and Python CSV."""
    if file.suffix == ".parquet":
        table = duckdb.sql(f"SELECT * FROM '{file}'")  # noqa: S608
        return [dict(zip(table.columns, row, strict=True)) for row in table.fetchall()]
    with file.open(newline="", encoding="utf-8") as handle:
        return list(csv.DictReader(handle))


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_table_is_what_the_records_hold_and_csv_runs_no_formula(records, tmp_path, ending):
    rows = rows_of(records.write_scores(tmp_path / f"scores.{ending}"))
    inert = {"=1+1": "'=1+1", "@cmd": "'@cmd", "-x": "'-x"} if ending == "csv" else {}
    expected = {
        (each.model.label, each.task.key, metric, inert.get(query, query)): value
        for each in records
        for metric, column in each.per_query.items()
        for query, value in column.items()
    }
    assert list(rows[0]) == COLUMNS.split()
    assert len(rows) == len(expected) == len(ODD) + 9 + 1 + 2
    for row in rows:
        part = f"{row['split']}/{row['subset']}/" if row["task"] == "parts" else ""
        query = part + row["query"]
        assert float(row["value"]) == expected[row["model"], row["task"], row["metric"], query]
    by_task = {task: [row for row in rows if row["task"] == task] for task in records.tasks}
    formula = "'=HYPERLINK(1)" if inert else "=HYPERLINK(1)"
    assert {row["revision"] for row in by_task["odd"]} == {formula}
    assert {row["subset"] for row in by_task["parts"]} == {"en", "en/x", "de"}
    whole = [(row["split"], row["subset"], row["query"]) for row in by_task["whole"]]
    assert whole == [("dev", "default", "q0"), ("dev", "default", "q1")]
    for each in records:
        own = {tmp_path / "results" / row["record"] for row in by_task[each.task.key]}
        assert own == {each.path(tmp_path / "results")}


def test_a_record_whose_label_is_no_part_of_a_path_stops_no_other(tmp_path):
    for label in ("odd", "other"):
        make(label).save(tmp_path / "results")
    odd, other = load_results(tmp_path / "results")
    amend(odd, "model", label="a b/../c")
    rows = rows_of(Results([odd, other]).write_scores(tmp_path / "scores.csv"))
    files = {row["model"]: row["record"] for row in rows}
    assert files == {"a b/../c": "", "other": other.path(Path()).as_posix()}


def test_another_ending_lists_the_two_and_a_lost_file_leaves_what_was_there(records, tmp_path):
    with pytest.raises(ValueError, match=r"'\.xlsx'.*\.parquet.*\.csv"):
        Results(records).write_scores(tmp_path / "scores.xlsx")
    stored = next((tmp_path / "results").rglob("whole.*.scores.parquet"))
    with pytest.raises(ValueError, match="the name of a record's own scores"):
        Results(records).write_scores(stored)
    file = tmp_path / "scores.csv"
    file.write_text("before")
    next((tmp_path / "results").rglob("whole.*.scores.parquet")).unlink()
    with pytest.raises(ResultError, match=r"whole\..*scores\.parquet"):
        Results(records).write_scores(file)
    assert file.read_text() == "before"


def test_no_test_rests_on_a_run_that_stopped_when_it_was_certain(home):
    make("whole", task="SciFact").save()
    make("raced", task="SciFact", config={"until_certain": "BEIR"}).save()
    results = load_results()
    assert [record.model.label for record in results] == ["whole"]
    ((file, reason),) = results.unreadable.items()
    assert "raced" in file
    assert "stopped when it was certain, so no test may rest on it" in reason
    assert "eval --tasks SciFact" in reason


def test_a_failure_is_its_last_line_whatever_its_bytes(home):
    folder = paths.results() / "m-1a" / "seed_7"
    (folder / "Folder.error.txt").mkdir(parents=True)
    (folder / "Empty.error.txt").touch()
    (folder / "T.error.txt").write_bytes(b"Traceback\nValueError: gr\xc3\xbc\xdf\n\n")
    assert load_failures() == {
        "m-1a seed_7 Empty": "",
        "m-1a seed_7 T": "ValueError: gr\u00fc\ufffd",
    }
    assert load_failures(folder) == {}
