"""The table of the guide's page on odd data, run row by row with every reader it names.

One small collection is written in every format that is read, with one thing wrong at a time:
`CASES` change the data, `DAMAGES` a file.
"""

import csv
import gzip
import io
import json
import math
import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from helpers import REPOSITORY

from qwen3nb.cli.main import main
from qwen3nb.datasets.collection import find_collections
from qwen3nb.datasets.custom.load import load_domain
from qwen3nb.datasets.rows import LINE, RATIO
from qwen3nb.datasets.trec import load_run
from qwen3nb.evaluation.embeddings.sts import read_pairs
from qwen3nb.evaluation.retrieval.first_stage import first_stage

PAGE = REPOSITORY / "book" / "guide" / "what-is-refused.md"
WORDS = ("sort a list", "read a file", "draw a line", "sum a column", "join two paths", "wait")
DATA = {
    "documents": [(f"d{n}", text) for n, text in enumerate(WORDS)],
    "queries": [(f"q{n}", text[:6]) for n, text in enumerate(WORDS[:3])],
    "judgements": [(f"q{n}", f"d{m}", 2) for n in range(3) for m in (n, n + 3)],
    "run": [
        (f"q{n}", f"d{m}", rank, 1.0 / rank)
        for n in range(3)
        for rank, m in enumerate((n, n + 1, n + 3), start=1)
    ],
}


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def tabs(rows):
    return "".join("\t".join(map(str, row)) + "\n" for row in rows)


def cells(header, rows, mark=","):
    text = io.StringIO()
    csv.writer(text, delimiter=mark, lineterminator="\n").writerows([header, *rows])
    return text.getvalue()


def put(file, text):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode("utf-8", "surrogatepass"))


# Each writes data into a folder; nothing is checked.


def write_beir(folder, data):
    corpus = ({"_id": i, "title": "", "text": t} for i, t in data["documents"])
    put(folder / "corpus.jsonl", lines(corpus))
    put(folder / "queries.jsonl", lines({"_id": i, "text": t} for i, t in data["queries"]))
    put(folder / "qrels/test.tsv", "query-id\tcorpus-id\tscore\n" + tabs(data["judgements"]))


def write_candidates(folder, data):
    write_beir(folder, data)
    listed = {}
    for query, document, *_ in data["run"]:
        listed.setdefault(query, []).append(document)
    rows = ({"query-id": q, "corpus-ids": names} for q, names in listed.items())
    put(folder / "top_ranked" / "test.jsonl", lines(rows))


def write_msmarco(folder, data):
    put(folder / "queries.dev.small.tsv", tabs(data["queries"]))
    put(folder / "qrels.dev.small.tsv", tabs((q, 0, d, g) for q, d, g in data["judgements"]))
    put(folder / "collection.tsv", tabs(data["documents"]))


def write_top1000(folder, data):
    write_msmarco(folder, data)
    (folder / "collection.tsv").unlink()
    texts, questions = dict(data["documents"]), dict(data["queries"])
    rows = [(q, d, questions.get(q, "?"), texts.get(d, "?")) for q, d, *_ in data["run"]]
    put(folder / "top1000.dev", tabs(rows))


def toml(value):
    return str(value) if isinstance(value, float) else json.dumps(value)


def write_own(folder, data):
    """A query file, and documents in every format."""
    grades = {}
    for query, document, grade in data["judgements"]:
        grades.setdefault(query, []).append(f"{toml(document)} = {toml(grade)}")
    parts = [
        f"[[queries]]\nid = {toml(name)}\nquery = {toml(text)}\n"
        f"relevance_grades = {{ {', '.join(grades.get(name, ()))} }}\n"
        for name, text in data["queries"]
    ]
    put(folder / "queries.toml", "\n".join(parts))
    rows = data["documents"]
    put(folder / "docs.jsonl", lines({"id": i, "text": t} for i, t in rows))
    put(folder / "docs.csv", cells(("id", "text"), rows))


def write_own_sqlite(folder, data):
    write_own(folder, data)
    with closing(sqlite3.connect(folder / "docs.db")) as base, base:
        base.execute("CREATE TABLE docs (id, text)")
        base.executemany("INSERT INTO docs VALUES (?, ?)", data["documents"])


def write_trec(folder, data):
    write_beir(folder / "words", DATA)
    put(folder / "run.trec", "".join(f"{q} Q0 {d} {r} {s} tag\n" for q, d, r, s in data["run"]))


def write_ranks(folder, data):
    write_beir(folder / "words", DATA)
    put(folder / "run.trec", tabs((q, d, r) for q, d, r, _ in data["run"]))


def write_pairs(folder, data):
    names = ("sentence1", "sentence2", "score")
    rows = [(dict(data["queries"]).get(q, "x"), d, s) for q, d, r, s in data["run"]]
    put(folder / "pairs.jsonl", lines(dict(zip(names, row, strict=True)) for row in rows))
    put(folder / "pairs.csv", cells(names, rows))
    put(folder / "pairs.tsv", cells(names, rows, "\t"))


# Each returns what it read, and what it counted.


def read_collection(folder):
    (collection,) = find_collections(folder)
    return collection.revision, dict(collection.counts)


def read_own(name):
    def read(folder):
        file = next(iter(folder.glob(f"{name}*")))  # perhaps a .gz
        domain = load_domain(folder / "queries.toml", file)
        return domain.revision, dict(domain.counts)

    return read


def read_trec(folder):
    file = folder / "run.trec"
    content = {query: dict(scores) for query, scores in load_run(file).items()}
    (collection,) = find_collections(folder / "words")
    return content, dict(first_stage(collection, file, depth=10).counts)


def read_sts(name):
    return lambda folder: (read_pairs(folder / name), {})


# How to write and read a format, and the file that is damaged.
FORMATS = {
    "BEIR": (write_beir, read_collection, "corpus.jsonl"),
    "BEIR queries": (write_beir, read_collection, "queries.jsonl"),
    "BEIR qrels": (write_beir, read_collection, "qrels/test.tsv"),
    "BEIR candidates": (write_candidates, read_collection, "top_ranked/test.jsonl"),
    "MS MARCO": (write_msmarco, read_collection, "collection.tsv"),
    "MS MARCO top 1,000": (write_top1000, read_collection, "top1000.dev"),
    "own JSONL": (write_own, read_own("docs.jsonl"), "docs.jsonl"),
    "own CSV": (write_own, read_own("docs.csv"), "docs.csv"),
    "own SQLite": (write_own_sqlite, read_own("docs.db"), "docs.db"),
    "query file": (write_own, read_own("docs.jsonl"), "queries.toml"),
    "TREC run": (write_trec, read_trec, "run.trec"),
    "MS MARCO run": (write_ranks, read_trec, "run.trec"),
} | {
    f"STS {end.upper()}": (write_pairs, read_sts(f"pairs.{end}"), f"pairs.{end}")
    for end in ("jsonl", "csv", "tsv")
}


# The readers of the guide's table, and the formats that each of them reads.
READERS = {
    "BEIR": ("BEIR", "BEIR queries", "BEIR qrels"),
    "MS MARCO": ("MS MARCO",),
    "own data": ("own JSONL", "own CSV", "own SQLite", "query file"),
    "runs": ("TREC run", "MS MARCO run"),
    "TREC runs": ("TREC run",),
    "candidates": ("BEIR candidates", "MS MARCO top 1,000"),
    "pairs": tuple(name for name in FORMATS if name.startswith("STS")),
}


def more(part, *rows):
    return lambda data: dict(data, **{part: [*data[part], *rows]})


def every(part, change):
    return lambda data: dict(data, **{part: [change(*row) for row in data[part]]})


def both(first, second):
    return lambda data: second(first(data))


def queried(text):
    return lambda data: dict(data, queries=[("q0", text), *data["queries"][1:]])


def graded(grade):
    return lambda data: dict(data, judgements=[*data["judgements"][:-1], ("q2", "d5", grade)])


def scored(score):
    query, document, rank, _ = DATA["run"][0]
    return lambda data: dict(data, run=[(query, document, rank, score), *data["run"][1:]])


def unfit(end):
    """An id that ends in ``end``, of a document and of a query."""
    return both(
        more("documents", (f"d{end}", "other words")), more("run", (f"q{end}", "d0", 1, 0.5))
    )


def without_q1(data):
    return dict(data, run=[row for row in data["run"] if row[0] != "q1"])


# What is wrong with the data, by the case of the guide's table.
CASES = {
    "an empty or blank id of a document": more("documents", ("", "other words")),
    "an empty or blank id of a query": more("queries", (" ", "other words")),
    "an id with NUL or another control character": unfit("\0"),
    "an id with a lone surrogate": unfit("\ud800"),
    "a document's id twice": more("documents", ("d0", "other words")),
    "a query's id twice": more("queries", ("q0", "other words")),
    "two documents' ids that differ in their Unicode form only": more(
        "documents", ("caf\u00e9", "tea"), ("cafe\u0301", "coffee")
    ),
    "a text with a lone surrogate": both(queried("a\ud800"), more("documents", ("d9", "\ud800"))),
    "a document with NUL or another control character": more("documents", ("d9", "a\0b")),
    "a query with NUL or another control character": queried("a\x1b[2J"),
    "a word or sentence with control characters": queried("a\x1b[2J"),
    "an empty document": more("documents", ("d9", "")),
    "an empty query": queried(""),
    "an empty word or sentence": queried(""),
    "documents that are all empty": every("documents", lambda name, _: (name, " ")),
    "a document equal to another": more("documents", ("d9", WORDS[0])),
    "a pair judged twice with one grade": more("judgements", ("q0", "d0", 2)),
    "a pair judged twice with two grades: the last counts": more("judgements", ("q0", "d0", 1)),
    "a judged document that is missing": more("judgements", ("q0", "gone", 1)),
    "a query whose relevant documents are all missing": both(
        more("queries", ("q9", "other")), more("judgements", ("q9", "gone", 2))
    ),
    "a query that is also a document, by id and text: left out of its own ranking": both(
        more("queries", ("d5", WORDS[5])), more("judgements", ("d5", "d0", 2))
    ),
    "a query with the text of a document of another id": both(
        more("queries", ("q9", WORDS[5])), more("judgements", ("q9", "d0", 2))
    ),
    "a query that is also a document, and judged for it": both(
        more("queries", ("q9", WORDS[5])), more("judgements", ("q9", "d5", 2))
    ),
    "a query equal to another: one cluster": both(
        more("queries", ("q9", WORDS[0][:6])), more("judgements", ("q9", "d5", 2))
    ),
    "a judged document that is there in another Unicode form (NFC, NFD)": both(
        more("documents", ("caf\u00e9", "coffee")), more("judgements", ("q0", "cafe\u0301", 1))
    ),
    "most judged documents missing": more("judgements", *(("q0", f"gone{n}", 1) for n in range(9))),
    "a query without text that has a relevant document": more("judgements", ("q9", "d0", 1)),
    "a query without text that has none": more("judgements", ("q9", "d0", 0)),
    "a query without a relevant document": both(
        more("queries", ("q9", "other")), more("judgements", ("q9", "d0", 0))
    ),
    "no relevant document at all": every(
        "judgements", lambda query, document, _: (query, document, 0)
    ),
    "a grade written as 2.0": graded(2.0),
    "a negative grade: counts as 0": graded(-1),
    "a grade above 1,000, or above `highest_grade` in a query file (3)": graded(10**9),
    "a grade of 400 digits": graded(10**400),
    "a fractional grade: counts as it is": graded(1.5),
    "a grade that is not a number": graded("high"),
    "a grade that is true or false": graded(True),
    "a grade that is NaN": graded(math.nan),
    "a grade that is infinite": graded(math.inf),
    "a grade with an underscore, or digits of another script": graded("1_0"),
    "an unknown document": more("run", ("q0", "gone", 4, 0.1)),
    "a query that is unknown": more("run", ("q9", "d0", 1, 0.1)),
    "a query whose candidates nobody asked for": more("run", ("q9", "d0", 1, 0.1)),
    "a query that is missing": without_q1,
    "a query without candidates": without_q1,
    "a run of another collection": every("run", lambda query, *rest: (f"other{query}", *rest)),
    "a document twice": more("run", ("q0", "d0", 4, 0.1)),
    "a rank that contradicts the scores": scored(0.01),
    "ranks and scores in each other's column": every(
        "run", lambda q, d, rank, score: (q, d, score, rank)
    ),
    "a rank of 400 digits": more("run", ("q0", "d5", 10**400, 0.1)),
    "a score that is NaN": scored(math.nan),
    "a score that is infinite": scored(math.inf),
    "a score that is not a number": scored("high"),
    "a score with an underscore": scored("1_0"),
    "a score of 400 digits": scored(10**400),
}


def rewritten(change):
    return lambda file: file.write_bytes(change(file.read_bytes()))


def in_its_place(make):
    return lambda file: (file.unlink(), make(file))


def bent(**by_suffix):
    """Bytes to add to a file."""
    return lambda file: file.write_bytes(file.read_bytes() + by_suffix[file.suffix[1:]])


def packed(text, *, cut=None):
    def damage(file):
        file.unlink()
        file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(text, 9)[:cut])

    return damage


def pack_much(file):
    """Rows of 100 kB that are packed to a few hundred bytes each."""
    text = "x" * 100_000
    names = ("_id", "id", "query-id", "corpus-id")
    row = {
        ".tsv": lambda name: f"{name}\t{text}\n",
        ".csv": lambda name: f"{name},{text}\n",
        ".jsonl": lambda name: lines(
            [dict.fromkeys(names, name) | {"score": 1, "corpus-ids": [], "text": text}]
        ),
    }[file.suffix]
    head = "id,text\n" if file.suffix == ".csv" else ""
    packed((head + "".join(row(f"x{n}") for n in range(180))).encode())(file)


_JSON = (".jsonl", ".toml")
_TABLES = (".csv", ".tsv")
_TEXTS = (*_JSON, *_TABLES, ".dev", ".trec", ".txt")
_DEEP = b"[" * 100_000
_DIGITS = b"1" * 5000
# What is wrong with the bytes of a file, and the endings of the files that can be so.
DAMAGES = {
    "a byte order mark": (rewritten(lambda raw: b"\xef\xbb\xbf" + raw), _TEXTS),
    "bytes that are not UTF-8": (rewritten(lambda raw: raw[:-2] + b"\xff\n\n"), _TEXTS),
    "text in UTF-16, with its byte order mark": (
        rewritten(lambda raw: raw.decode().encode("utf-16")),
        _TEXTS,
    ),
    "an empty file": (rewritten(lambda _: b""), (*_TEXTS, ".db")),
    "a pipe in place of a file": (in_its_place(os.mkfifo), (*_TEXTS, ".db")),
    "a folder in place of a file": (in_its_place(Path.mkdir), (*_TEXTS, ".db")),
    "a line of more than 16 MiB": (rewritten(lambda raw: raw + b"x" * (17 << 20)), _TEXTS),
    "a compressed file that unpacks to more than 200 times its size, and 16 MiB": (
        pack_much,
        (".jsonl", ".csv", "collection.tsv"),
    ),
    "a damaged compressed file": (packed(b"{}\n" * 99, cut=30), (".jsonl", ".csv", ".tsv", ".dev")),
    "JSON or TOML nested too deeply": (
        bent(jsonl=_DEEP + b"\n", toml=b"\na = " + _DEEP),
        _JSON,
    ),
    "a key twice in an object or table": (
        bent(
            jsonl=b'{"a": 1, "a": 1}\n',
            toml=b"\n[settings]\n[settings]\n",
        ),
        _JSON,
    ),
    "a key misspelt in one line": (
        bent(jsonl=b'{"_id": "d9", "id": "d9", "title": "", "txt": "x"}\n'),
        (".jsonl",),
    ),
    "an unknown key in a query file": (
        bent(toml=b"\n[settings]\nrelevance_treshold = 1\n"),
        (".toml",),
    ),
    "an integer of more than 4,300 digits": (
        bent(
            jsonl=b'{"a": ' + _DIGITS + b"}\n",
            toml=b"\na = " + _DIGITS,
        ),
        _JSON,
    ),
    "a cell with quotes that do not close": (rewritten(lambda raw: raw + b'"a,1\n'), _TABLES),
}
# Formats that cannot express a case, although the reader of the table can.
CANNOT = {
    "BEIR qrels": ("a cell with quotes that do not close",),
    "MS MARCO": ("a cell with quotes that do not close",),
    "own SQLite": ("an id with a lone surrogate", "a text with a lone surrogate"),
    "MS MARCO top 1,000": ("an unknown document",),
}


def rows_of(title):
    section = PAGE.read_text(encoding="utf-8").split(f"\n## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split(" |")] for line in lines]


# Rows but the headings.
ROWS = [row[:4] for row in rows_of("The table") if not row[0].startswith("**")]


def test_every_case_is_a_row_and_every_reader_is_explained():
    cases = [case for case, *_ in ROWS]
    assert sorted(cases) == sorted([*CASES, *DAMAGES])
    named = {name.strip() for _, _, readers, _ in ROWS for name in readers.split(",")}
    assert named == READERS.keys() == {name for name, _ in rows_of("The readers")}


def formats_of(case, readers):
    """The formats of these readers that can express a case."""
    endings = DAMAGES[case][1] if case in DAMAGES else ("",)
    names = dict.fromkeys(name for reader in readers.split(", ") for name in READERS[reader])
    fit = [name for name in names if FORMATS[name][2].endswith(endings)]
    return [name for name in fit if case not in CANNOT.get(name, ())]


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """What each format reads when nothing is wrong."""
    read = {}
    for name, (write, reader, _) in FORMATS.items():
        folder = tmp_path_factory.mktemp("clean")
        write(folder, DATA)
        read[name] = reader(folder)
    return read


@pytest.mark.integration
@pytest.mark.parametrize(("case", "rule", "readers", "shown"), ROWS, ids=[row[0] for row in ROWS])
def test_a_row_of_the_table_holds(case, rule, readers, shown, tmp_path, clean):
    for reader in readers.split(", "):
        assert formats_of(case, reader), f"no format of {reader} can express this"
    for number, name in enumerate(formats_of(case, readers)):
        (write, reader, file), folder = FORMATS[name], tmp_path / str(number)
        folder.mkdir()
        write(folder, CASES.get(case, dict)(DATA))
        if case in DAMAGES:
            DAMAGES[case][0](folder / file)
        if rule == "refused":
            check_refused(name, folder, shown)
            continue
        read = reader(folder)
        if rule == "counted":
            assert read[1].get(shown) == 1, f"{name}: {read[1]}"
        else:
            assert (rule, read) == ("accepted", clean[name]), name


def check_refused(name, folder, shown):
    """One line that names the file, and the line or the option if the table says so."""
    with pytest.raises(ValueError, match=re.escape(str(folder))) as error:
        pytest.fail(f"{name}: {FORMATS[name][1](folder)}")
    message = str(error.value)
    assert message.isprintable(), f"{name}: {message!r}"
    assert len(message) < 600 + 2 * len(str(folder)), f"{name}: {message}"
    if "with the line" in shown:
        assert re.search(r":\d+: ", message), f"{name}: {message}"
    if "`--read-limit`" in shown:
        assert "--read-limit SIZE" in message, f"{name}: {message}"


def test_an_option_that_errors_name_raises_a_limit_and_counts_are_printed(tmp_path, monkeypatch):
    folder = tmp_path / "own"
    write_own(folder, DATA)
    pack_much(folder / "docs.jsonl")
    command = ["domain", "--check", "--queries", str(folder / "queries.toml")]
    command += ["--documents", str(folder / "docs.jsonl.gz")]
    refused = CliRunner().invoke(main, command)
    assert refused.exit_code == 1
    assert "more than 16 MiB unpacked from" in refused.output
    raised = CliRunner().invoke(main, [*command, "--read-limit", "64MB"])
    assert "among the 180 documents of docs.jsonl.gz" in raised.output  # so all was read
    assert "QWEN3NB_READ_LIMIT" not in os.environ
    write_own(folder, graded(-1)(DATA))
    counted = CliRunner().invoke(main, [*command[:-1], str(folder / "docs.jsonl")])
    assert "judgements with a negative grade, counted as 0: 1" in counted.output
    monkeypatch.setenv("QWEN3NB_READ_LIMIT", "much")
    assert "QWEN3NB_READ_LIMIT: expected a size" in CliRunner().invoke(main, command).output


def test_limits_in_the_guide_are_those_of_the_code():
    limits = dict(rows_of("Limits"))
    assert limits["a line, a text in a Parquet file"] == f"{LINE >> 20} MiB"
    assert limits["a compressed file, unpacked"].startswith(f"{RATIO} times its size")
    for name in ("domain", "rerank pairs", "rerank suite", "rerank outputs", "analyze"):
        assert "--read-limit" in CliRunner().invoke(main, [*name.split(), "--help"]).output
