"""Damage to a record or to a file of it is named, or changes nothing; it stops nothing else.

`FLIPS=400 pytest tests/records/test_damage.py` flips more bytes.
"""

import copy
import hashlib
import json
import os
import random

import pytest
from helpers.records import RERANKING, RETRIEVAL, amend, make, noisy, own, signed

import qwen3nb as q
from qwen3nb import paths
from qwen3nb.book.build import page_links, write_card_page
from qwen3nb.book.sphinx_ext import toy_labels
from qwen3nb.book.status import (
    failed_runs_table,
    status_conclusion,
    verification_table,
)
from qwen3nb.evaluation.mteb.evaluate import keep_results
from qwen3nb.metrics.aggregate import aggregate
from qwen3nb.records.errors import ResultError
from qwen3nb.records.record import MTEBScore, Part, Result
from qwen3nb.records.side_files import first_stage_file, run_path
from qwen3nb.records.store import load_results, verify, verify_files
from qwen3nb.report.comparison.explorer import explore
from qwen3nb.report.leaderboard.board import headline_task, standings
from qwen3nb.report.render.home import command_again

FLIPS = int(os.environ.get("FLIPS", "60"))
SAMPLE = 100  # of about 1,500 cases of each kind
RUN = "".join(f"q{i} Q0 d{i} 1 {i / 7!r} m\n" for i in range(40))
LONG = "x" * 10_000
ABSURD = {
    "nothing": None,
    "a long text": LONG,
    "a long path": "/".join(["y" * 200] * 50),
    "a long name": "z" * 300,
    "empty": "",
    "NaN as text": "NaN",
    "a lone surrogate": "\ud800",
    "control characters": "\x1b[31m\x00\n",
    "out of the folder": "../../../etc/passwd",
    "negative": -5,
    "huge": 1e308,
    "an endless integer": 10**400,
    "a fraction": 0.5,
    "truth": True,
    "a list": [[]],
    "a mapping": {"a": {"b": [1]}},
    "deep": json.loads("[" * 300 + "]" * 300),
    "wide": {LONG: 1},
}


def of_many_kinds():
    """Records of a retrieval with parts, of data of one's own, of a reranking, of an STS task."""
    retrieval = make("bad", noisy(0.5, seed=1), task=RETRIEVAL, config={"tier": "smoke"})
    amend(
        retrieval,
        "task",
        mteb=MTEBScore("ndcg_at_10", retrieval.main.value),
        size={"documents": 90, "queries": 40},
        counts={"empty texts": 2},
        splits=("test",),
        subsets=("default",),
        languages=("eng-Latn",),
    )
    part = Part("test", "default", ("eng-Latn",), retrieval.main, retrieval.main.value)
    object.__setattr__(retrieval, "parts", (part,))
    retrieval.config["checkpoint"] = "bad"
    retrieval.config["top"] = {f"q{i}": ["d1", "d2"] for i in range(40)}
    first = {"kind": "bm25", "depth": 20, "data": "r"}
    config = {"collection": "PyDocs", "group": "", "parts": 1, "limit": 0, "longest_query": None}
    config |= {"counts": {"scored": 3}, "first": first}
    reranking = make("bad", noisy(0.5, seed=2), task="PyDocs.bm25-20", config=config)
    amend(reranking, "task", type="Reranking")
    pairs = {f"p{i}": i / 30 for i in range(30)}
    columns = {"gold": pairs, "cosine": {name: value**2 for name, value in pairs.items()}}
    spearman = aggregate(columns, how="spearman", columns=("gold", "cosine"))
    named = {"task": "AuthorSTS", "metric": "cosine_spearman"}
    metrics = {"cosine_spearman": spearman}
    sts = make("bad", pairs, metrics=metrics, per_query=columns, **named)
    amend(sts, "task", type="STS", unit="pairs")
    return {"retrieval": retrieval, "own": own("bad", 0.5), "reranking": reranking, "sts": sts}


def field_paths(value, at=()):
    """Yield the path of every field of a record's JSON."""
    for name in value:
        yield (*at, name)
        if isinstance(value[name], dict):
            yield from field_paths(value[name], (*at, name))
        elif isinstance(value[name], list) and value[name] and isinstance(value[name][0], dict):
            yield (*at, name, 0)
            yield from field_paths(value[name][0], (*at, name, 0))


def spoiled(value, keys, absurd):
    """A record's JSON with ``absurd`` at ``keys``, signed as if it had been written so."""
    changed = copy.deepcopy(value)
    inner = changed
    for name in keys[:-1]:
        inner = inner[name]
    inner[keys[-1]] = absurd
    return signed(changed)


def drawn_cases(count, *, kinds, seed):
    """Yield a record's file, what is absurd in it, and its JSON with that, ``count`` times."""
    files = [of_many_kinds()[kind].save() for kind in kinds]
    values = [(file, json.loads(file.read_text())) for file in files]
    every = [
        (file, value, keys, name)
        for file, value in values
        for keys in field_paths(value)
        for name in ABSURD
        if keys != ("checksum",)
    ]
    for file, value, keys, name in random.Random(seed).sample(every, count):
        yield file, (keys, name), spoiled(value, keys, ABSURD[name])


def is_readable(file):
    try:
        return Result.load(file) is not None
    except ResultError:
        return False


KINDS = ("retrieval", "own", "reranking", "sts")


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_with_an_absurd_field_loads_or_is_named(home, kind):
    for file, what, value in drawn_cases(SAMPLE, kinds=[kind], seed=1):
        file.write_text(json.dumps(value))
        results = load_results()
        if reason := "".join(results.unreadable.values()):
            assert file.stem in reason, what
            assert len(reason) < len(str(file)) + 400, what
        else:
            assert is_readable(file), what
        assert len(results) == (not reason), what


def show_everything():
    """Make what the pages, the commands and the card show of the records; return them."""
    results = q.load_results(adapters=False)
    links = page_links(results)
    tier = "smoke"
    comparison = q.compare(results, tier=tier)
    tables = [
        q.leaderboard(results, tier=tier, comparison=comparison, links=links),
        q.tables.task_tables(results, tier=tier, links=links),
        q.tables.rank_table(standings(results, tier=tier)),
        q.tables.sts_and_msmarco_table(results),
        q.tables.expected_table(results),
        q.tables.cost_table(results),
        q.tables.headline_table(results, tier=tier, links=links, most=10),
        q.tables.power_table(comparison),
        failed_runs_table(),
        verification_table(),
    ]
    for table in tables:
        if table is not None:
            getattr(table, "to_html", table.__str__)()
    str(status_conclusion(results))
    explorer = explore(results, task=headline_task(results, tier=tier), metric="nDCG@10")
    explorer.to_frame()
    toy_labels(results)
    write_card_page(results)
    [(command_again(result), repr(result)) for result in results]
    results.to_frame(all_metrics=True)
    repr(results)
    return results


@pytest.mark.integration
def test_pages_show_the_others_beside_an_absurd_record(checkout):
    for number, label in enumerate(("one", "two", "three")):
        make(label, noisy(0.5 + number / 20, seed=number), task=RETRIEVAL).save()
        make(label, noisy(0.4 + number / 20, seed=number), task=RERANKING).save()
    own("one", 0.4).save()
    before = len(show_everything())
    shown = 0
    for file, what, value in drawn_cases(60, kinds=KINDS, seed=3):
        file.write_text(json.dumps(value))
        if shown < 3 and is_readable(file):
            shown += 1
            assert len(show_everything()) >= before, what
        file.unlink()
    assert shown == 3


# Each damages a record that has scores and best documents beside it.


def field(*keys, to, sign=True):
    def damage(file):
        value = json.loads(file.read_text())
        changed = spoiled(value, keys, to)
        file.write_text(json.dumps(changed if sign else changed | {"checksum": value["checksum"]}))

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


def link_out(file):
    file.rename(file.parents[3] / "elsewhere.json")
    file.symlink_to(file.parents[3] / "elsewhere.json")


def bytes_changed(data):
    return data[:50] + bytes([data[50] ^ 4]) + data[51:]


DAMAGES = [
    ("a folder", in_its_place(lambda file: file.mkdir()), "a file in"),
    ("a pipe", in_its_place(os.mkfifo), "a file in"),
    ("a link to a file elsewhere", link_out, "a file in"),
    ("a link to nothing", in_its_place(lambda file: file.symlink_to("nothing")), "cannot be read"),
    ("nested brackets", lambda file: file.write_text("[" * 100_000), "not a result record"),
    ("an empty file", lambda file: file.write_text(""), "not a result record"),
    ("an unknown schema", field("schema", to="qwen3nb.result/99"), "schema is"),
    (
        "a model without an identity",
        field("model", to={"label": "m"}),
        "model.identity: is missing",
    ),
    ("a task without a metric", field("task", to={"name": "t"}), "task.type: is missing"),
    ("an unknown cost", field("cost", to={"minutes": 1}), "cost.minutes"),
    ("a value that is a word", field("metrics", "MRR@10", "value", to="high"), "MRR@10.value"),
    ("a changed value", field("metrics", "MRR@10", "value", to=0.9, sign=False), "after it was"),
    ("a run elsewhere", field("config", "runs", to={"../a.trec": "0" * 64}), "config.runs"),
    ("a table elsewhere", field("scores", "file", to="../../secret.parquet"), "scores.file"),
    *(
        row
        for kind in ("scores", "top")
        for row in (
            (f"{kind}: cut", beside(kind, lambda data: data[:-1]), "changed after it was"),
            (f"{kind}: empty", beside(kind, lambda _: b""), "changed after it was"),
            (f"{kind}: longer", beside(kind, lambda data: data + b"x"), "changed after it was"),
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


@pytest.fixture
def files(home, tmp_path):
    """Records of four kinds with their scores, best documents, runs and MTEB's results."""
    digest = hashlib.sha256(RUN.encode()).hexdigest()
    kinds = of_many_kinds()
    record = kinds["reranking"].path()
    kinds["reranking"].config["runs"] = {run_path(record, digest).name: digest}
    kinds["reranking"].config["first_run"] = {"name": "words.trec", "sha256": digest}
    for result in kinds.values():
        result.save()
    first = first_stage_file(paths.results(), "words.trec")
    first.parent.mkdir()
    for run in (run_path(record, digest), first):
        run.write_text(RUN)
    retrieval = kinds["retrieval"]
    written = tmp_path / "mteb" / "results" / "bad" / retrieval.model.identity[:40]
    written.mkdir(parents=True)
    scores = {"test": [{"main_score": retrieval.main.value, "ndcg_at_1": 0.25}]}
    (written / f"{retrieval.task.name}.json").write_text(json.dumps({"scores": scores}))
    (written / "model_meta.json").write_text(json.dumps({"name": "bad"}))
    keep_results(tmp_path / "mteb", paths.results() / "mteb")
    assert verify() == []
    return sorted(each for each in paths.results().rglob("*") if each.is_file())


def is_harmless(file, before, after):
    """A record's JSON may say the same in other bytes; a checksum of older content may go."""
    if file.name == "checksums.jsonl":
        return True  # its lines are checked, each by itself
    try:
        return json.loads(after) == json.loads(before)
    except ValueError:
        return False


def test_a_flipped_byte_is_noticed(files):
    draw = random.Random(17)
    unseen = []
    for _ in range(FLIPS):
        file = draw.choice(files)
        before = file.read_bytes()
        after = bytearray(before)
        after[draw.randrange(len(after))] ^= 1 << draw.randrange(8)
        file.write_bytes(after)
        if not verify() and not is_harmless(file, before, bytes(after)):
            unseen.append(file.name)
        file.write_bytes(before)
    assert unseen == []
    assert verify() == []


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
