"""Damage to a record or to a file of it is named, or changes nothing; it stops nothing else."""

import hashlib
import json
import os
from pathlib import Path

import pyarrow as pa
import pytest
from helpers.records import RETRIEVAL, amend, make, noisy, own, signed, state
from pyarrow import parquet

from qwen3nb import paths
from qwen3nb.evaluation.mteb.evaluate import keep_results
from qwen3nb.records import side_files
from qwen3nb.records.record import CHECKSUMS, MTEBScore, Result
from qwen3nb.records.side_files import ResultError, first_stage_file, run_path
from qwen3nb.records.store import load_results, verify, verify_files

RUN = "".join(f"q{i} Q0 d{i} 1 {i / 7!r} m\n" for i in range(40))


# Each damages a record that has scores and best documents beside it.


def field(*keys, to, sign=True):
    """Put something else at ``keys``, signed as if it had been written so."""

    def damage(file):
        value = json.loads(file.read_text())
        inner = value
        for name in keys[:-1]:
            inner = inner[name]
        inner[keys[-1]] = to
        file.write_text(json.dumps(signed(value) if sign else value))

    return damage


def in_its_place(make_other):
    return lambda file: (file.unlink(), make_other(file))


def beside(kind, change):
    def damage(file):
        (table,) = file.parent.glob(f"*.{kind}.parquet")
        table.write_bytes(change(table.read_bytes()))

    return damage


def without_table(kind):
    return lambda file: [each.unlink() for each in file.parent.glob(f"*.{kind}.parquet")]


def table_replaced(make_other):
    def damage(file):
        (table,) = file.parent.glob("*.scores.parquet")
        table.unlink()
        make_other(table)

    return damage


def link_out(file):
    file.rename(file.parents[3] / "elsewhere.json")
    file.symlink_to(file.parents[3] / "elsewhere.json")


def bytes_changed(data):
    return data[:50] + bytes([data[50] ^ 4]) + data[51:]


DAMAGES = [
    ("a pipe of scores", table_replaced(os.mkfifo), "got a folder, a pipe"),
    ("a folder of scores", table_replaced(lambda file: file.mkdir()), "got a folder, a pipe"),
    ("a folder", in_its_place(lambda file: file.mkdir()), "a file in"),
    ("a pipe", in_its_place(os.mkfifo), "a file in"),
    ("a link to a file elsewhere", link_out, "a file in"),
    ("a link to nothing", in_its_place(lambda file: file.symlink_to("nothing")), "cannot be read"),
    ("a link to itself", in_its_place(lambda file: file.symlink_to(file)), "cannot be read"),
    # It takes no space: a file with a hole.
    ("three gibibytes", lambda file: os.truncate(file, 3 << 30), "at most 512 MiB; it has 3072"),
    (
        "nested brackets",
        lambda file: file.write_text("[" * 100_000),
        "not a result record (invalid JSON",
    ),
    (
        "a thousand metrics and one",
        field("metrics", to={f"a{i}": {} for i in range(1001)}),
        "expected at most 1,000 metrics",
    ),
    ("an unknown schema", field("schema", to="qwen3nb.result/99"), "schema is"),
    (
        "a model without an identity",
        field("model", to={"label": "m"}),
        "model.identity: is missing",
    ),
    ("a surrogate", field("model", "label", to="\ud800"), "model.label"),
    ("control characters", field("task", "dataset", to="\x1b[31m"), "task.dataset"),
    ("a long name", field("task", "name", to="z" * 300), "task.name"),
    ("a negative count", field("seed", to=-5), "seed"),
    ("an endless number", field("task", "size", to={"queries": 10**400}), "task.size.queries"),
    ("deep settings", field("model", "settings", to=json.loads("[" * 99 + "]" * 99)), "settings"),
    ("a value that is a word", field("metrics", "MRR@10", "value", to="high"), "MRR@10.value"),
    ("a changed value", field("metrics", "MRR@10", "value", to=0.9, sign=False), "after it was"),
    ("a run elsewhere", field("files", "runs", to={"../a.trec": "0" * 64}), "files.runs"),
    ("a table elsewhere", field("scores", "file", to="../../secret.parquet"), "scores.file"),
    *(
        row
        for kind in ("scores", "top")
        for row in (
            (f"{kind}: cut", beside(kind, lambda data: data[:-1]), "changed after it was"),
            (f"{kind}: a bit", beside(kind, bytes_changed), "changed after it was"),
            (f"{kind}: missing", without_table(kind), "is missing"),
        )
    ),
]


@pytest.mark.parametrize(
    ("damage", "words"), [row[1:] for row in DAMAGES], ids=[d[0] for d in DAMAGES]
)
def test_a_damaged_record_is_left_out_and_named(home, damage, words):
    make("good", scores=(0.1, 0.4)).save()
    file = own("bad", 0.4).save()
    damage(file)
    results = load_results()
    assert [each.model.label for each in results] == ["good"]
    assert "1 unreadable" in repr(results)
    (reason,) = results.unreadable.values()
    assert words in reason
    assert file.stem in reason
    (wrong,) = verify_files([file]).values()
    assert wrong


def scores_as_top(file):
    scores = json.loads(file.read_text())["scores"]
    field("top", "file", to=scores["file"])(file)
    field("top", "sha256", to=scores["sha256"])(file)


@pytest.mark.parametrize(
    "damage",
    [
        field("scores", "ids", to="0" * 64),
        field("scores", "queries", to=41),
        field("scores", "columns", to={"MRR@10": 40}),
        field("top", "queries", to=39),
        scores_as_top,
    ],
)
def test_a_record_that_names_another_table_is_found(home, damage):
    file = own("bad", 0.4).save()
    damage(file)
    ((*_, wrong),) = verify_files([file]).values()
    assert "parquet: it" in wrong


def test_ids_of_other_queries_are_refused_with_what_to_do(home):
    file = own("bad", 0.4).save()
    field("scores", "ids", to="0" * 64)(file)
    scores = Result.load(file).scores
    with pytest.raises(ResultError, match="scores.parquet: .* run the task again with --fresh"):
        list(scores.queries)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: None, "is missing; copy it with them"),
        (lambda text: "", "is empty; restore it from a copy"),
        (
            lambda text: text.replace("bad-", "bat-", 1),
            "line 2 is damaged, so changes may not be detected; restore the list from a copy, "
            "or delete what is damaged",
        ),
    ],
)
def test_a_list_of_records_that_is_not_whole_is_named_with_what_to_do(home, change, words):
    own("bad", 0.4).save()
    checksums = paths.results() / CHECKSUMS
    text = change(checksums.read_text())
    checksums.unlink()
    if text is not None:
        checksums.write_text(text)
    assert any(f"{CHECKSUMS}: " in line and words in line for line in verify())


@pytest.mark.parametrize(
    ("dictionary", "documents", "words"),
    [
        (False, ["a" * 60_000], "bytes of memory; expected at most 1,048,576"),
        (False, [None] * 10_000, "bytes of memory; expected at most 1,048,576"),
        (True, ["a" * 60_000], "expected plain columns, as records have; got"),
    ],
)
def test_a_table_that_grows_in_memory_is_refused_by_its_footer(
    home, monkeypatch, dictionary, documents, words
):
    monkeypatch.setattr(side_files, "_LARGEST", 1 << 20)
    file = own("bad", 0.4).save()
    entry = json.loads(file.read_text())["top"]
    ids = [str(query) for query in range(entry["queries"])]
    table = {"query_id": ids, "documents": pa.array([documents] * len(ids), pa.list_(pa.string()))}
    top = file.parent / entry["file"]
    parquet.write_table(pa.table(table), top, compression="zstd", use_dictionary=dictionary)
    data = top.read_bytes()
    field("top", "sha256", to=hashlib.sha256(data).hexdigest())(file)
    ((*_, wrong),) = verify_files([file]).values()
    assert len(data) < 1 << 20
    assert words in wrong


def with_documents(file, ids, documents, change=lambda table: table):
    """Give a record other best documents, whose file is changed besides."""
    top = file.parent / json.loads(file.read_text())["top"]["file"]
    column = pa.array([documents] * len(ids), pa.large_list(pa.large_string()))
    names = pa.array(ids, pa.large_string())
    parquet.write_table(
        pa.table({"query_id": names, "documents": column}),
        top,
        compression="zstd",
        use_dictionary=False,
        write_statistics=False,
    )
    top.write_bytes(change(top.read_bytes()))
    field("top", "sha256", to=hashlib.sha256(top.read_bytes()).hexdigest())(file)


def whole_number(value):
    """A whole number that is not negative, as Thrift's compact protocol writes it."""
    value *= 2
    data = []
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*data, value])


def with_number(old, new, *, last=False):
    """Replace a number in the footer of a file; optionally where it stands last."""

    def change(data):
        assert len(whole_number(old)) == len(whole_number(new))
        start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        if last:
            start = data.rindex(whole_number(old))
        footer = data[start:]
        assert whole_number(old) in footer
        return data[:start] + footer.replace(whole_number(old), whole_number(new))

    return change


LIES = [
    (
        lambda size: with_number(size, 2_000_000),
        "bytes of memory; expected at most",
    ),
    (lambda size: with_number(200, 170), "its pages have "),
    (lambda size: with_number(100, 101, last=True), "its groups have [101] rows; its footer"),
]


@pytest.mark.parametrize(("lie", "words"), LIES, ids=["size", "values", "rows"])
def test_what_a_footer_says_is_compared_with_the_pages(home, monkeypatch, lie, words):
    monkeypatch.setattr(side_files, "_LARGEST", 3 << 20)
    file = own("bad", 0.4).save()
    ids = [f"q{query}" for query in range(100)]
    with_documents(file, ids, ["a" * 60_000] * 2)
    top = file.parent / json.loads(file.read_text())["top"]["file"]
    size = parquet.read_metadata(top).row_group(0).column(1).total_uncompressed_size
    assert size > 3 << 20
    with_documents(file, ids, ["a" * 60_000] * 2, lie(size))
    ((*_, wrong),) = verify_files([file]).values()
    assert words in wrong


@pytest.mark.parametrize(
    ("name", "values"),
    [("query_id", pa.nulls(40)), ("query_id", pa.array([b"q"] * 40)), ("MRR@10", ["0.5"] * 40)],
)
def test_a_column_of_another_type_is_refused(home, name, values):
    file = own("bad", 0.4).save()
    scores = file.parent / json.loads(file.read_text())["scores"]["file"]
    table = parquet.read_table(scores)
    table = table.set_column(table.column_names.index(name), name, pa.array(values))
    parquet.write_table(table, scores, use_dictionary=False)
    field("scores", "sha256", to=hashlib.sha256(scores.read_bytes()).hexdigest())(file)
    ((*_, wrong),) = verify_files([file]).values()
    assert f"parquet: column '{name}' is " in wrong


@pytest.fixture
def files(home, tmp_path):
    """Records with their scores, best documents, runs and MTEB's results."""
    digest = hashlib.sha256(RUN.encode()).hexdigest()
    retrieval = make("bad", noisy(0.5, seed=1), task=RETRIEVAL)
    amend(retrieval, "task", mteb=MTEBScore("ndcg_at_10", retrieval.main.value))
    record = retrieval.path()
    state(retrieval, runs={run_path(record, digest).name: digest})
    state(retrieval, first_run={"name": "words.trec", "sha256": digest})
    for result in (retrieval, own("bad", 0.5)):
        result.save()
    first = first_stage_file(paths.results(), "words.trec")
    first.parent.mkdir()
    for run in (run_path(record, digest), first):
        run.write_text(RUN)
    written = tmp_path / "mteb" / "results" / "bad" / retrieval.model.identity[:40]
    written.mkdir(parents=True)
    scores = {"test": [{"main_score": retrieval.main.value, "ndcg_at_1": 0.25}]}
    (written / f"{retrieval.task.name}.json").write_text(json.dumps({"scores": scores}))
    (written / "model_meta.json").write_text(json.dumps({"name": "bad"}))
    keep_results(tmp_path / "mteb", paths.results() / "mteb")
    assert verify() == []
    return sorted(each for each in paths.results().rglob("*") if each.is_file())


def test_a_cut_longer_swapped_or_missing_file_is_noticed(files):
    checked = [file for file in files if file.name != "checksums.jsonl"]
    for file in checked:
        before = file.read_bytes()
        lines = before.splitlines(keepends=True)
        ways = [before[:size] for size in (0, 1, len(before) // 2, len(before) - 2)]
        if file.suffix == ".trec":
            ways += [before + lines[-1], before.replace(b" ", b"  ", 1)]
        for damaged in ways:
            file.write_bytes(damaged)
            assert verify(), (file.name, len(damaged))
        file.unlink()
        assert verify(), file.name
        file.write_bytes(before)
    parquet = [file for file in checked if file.suffix == ".parquet"]
    one, other = parquet[0].read_bytes(), parquet[-1].read_bytes()
    parquet[0].write_bytes(other)
    parquet[-1].write_bytes(one)
    assert len(verify()) == 2


@pytest.mark.parametrize(
    ("kind", "line", "words"),
    [
        ("trec", "q0 Q0 d0 1 0.5", "line 2 has 5 fields; expected 6"),
        ("trec", "q0 Q0 d0 1 high m", "could not convert string to float: 'high'"),
        ("qrels", "q0 0 d0", "line 2 has 3 fields; expected 4"),
    ],
)
def test_a_line_of_another_form_in_a_run_or_qrels_is_named(home, kind, line, words):
    result = make("m", scores={"q0": 1.0})
    texts = {"trec": "q0 Q0 d1 1 0.5 m\n", "qrels": "q0 0 d1 1\n"}
    texts[kind] += f"{line}\n"
    files = {}
    for suffix, text in texts.items():
        digest = hashlib.sha256(text.encode()).hexdigest()
        file = run_path(result.path(), digest, kind=suffix)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        files[suffix] = {file.name: digest}
    state(result, runs=files["trec"], qrels=files["qrels"])
    ((problem,),) = verify_files([result.save()]).values()
    assert "its run or its qrels cannot be read" in problem
    assert words in problem


def test_a_file_less_deep_than_a_record_is_no_record(home):
    ((problem,),) = verify_files([Path("/dev/null")]).values()
    assert "expected a record" in problem
