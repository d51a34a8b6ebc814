"""One small collection written in every format that is read, with one thing wrong at a time.

`FORMATS` write a `Data` and read it back; `CASES` change the data, `DAMAGES` a file of theirs. The
rules that the outcomes must follow are the table of the guide's page `what-is-refused`.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from qwen3nb.analysis.inventory.collect import load_all_results
from qwen3nb.analysis.inventory.training_logs import read_log
from qwen3nb.datasets.collection import find_collections
from qwen3nb.datasets.custom.load import load_domain
from qwen3nb.datasets.trec import load_run
from qwen3nb.datasets.words import load_word_pairs
from qwen3nb.evaluation.embeddings.sts import read_pairs
from qwen3nb.evaluation.retrieval.first_stage import first_stage

WORDS = ("sort a list", "read a file", "draw a line", "sum a column", "join two paths", "wait")


@dataclass(frozen=True)
class Data:
    """Rows as they are written; nothing is checked."""

    documents: list[Any] = field(
        default_factory=lambda: [(f"d{n}", text) for n, text in enumerate(WORDS)]
    )
    queries: list[Any] = field(
        default_factory=lambda: [(f"q{n}", text[:6]) for n, text in enumerate(WORDS[:3])]
    )
    judgements: list[Any] = field(
        default_factory=lambda: [(f"q{n}", f"d{m}", 2) for n in range(3) for m in (n, n + 3)]
    )
    run: list[Any] = field(
        default_factory=lambda: [
            (f"q{n}", f"d{m}", rank, 1.0 / rank)
            for n in range(3)
            for rank, m in enumerate((n, n + 1, n + 3), start=1)
        ]
    )


@dataclass(frozen=True)
class Read:
    """What a reader returned: the content, and what it counted."""

    content: Any
    counts: dict[str, int]


@dataclass(frozen=True)
class Format:
    """How to write data into a folder and to read them, and the file that is damaged."""

    write: Callable[[Path, Data], None]
    read: Callable[[Path], Read]
    file: str


Change = Callable[[Data], Data]
Damage = Callable[[Path], object]


def lines(rows: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def put(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode("utf-8", "surrogatepass"))


def tabs(rows: Any) -> str:
    return "".join("\t".join(map(str, row)) + "\n" for row in rows)


def write_beir(folder: Path, data: Data) -> None:
    put(
        folder / "corpus.jsonl",
        lines({"_id": i, "title": "", "text": t} for i, t in data.documents),
    )
    put(folder / "queries.jsonl", lines({"_id": i, "text": t} for i, t in data.queries))
    put(folder / "qrels" / "test.tsv", "query-id\tcorpus-id\tscore\n" + tabs(data.judgements))


def write_beir_json(folder: Path, data: Data) -> None:
    write_beir(folder, data)
    (folder / "qrels" / "test.tsv").unlink()
    rows = ({"query-id": q, "corpus-id": d, "score": g} for q, d, g in data.judgements)
    put(folder / "qrels" / "test.jsonl", lines(rows))


def write_candidates(folder: Path, data: Data) -> None:
    write_beir(folder, data)
    listed: dict[str, list[Any]] = {}
    for query, document, *_ in data.run:
        listed.setdefault(query, []).append(document)
    rows = ({"query-id": q, "corpus-ids": names} for q, names in listed.items())
    put(folder / "top_ranked" / "test.jsonl", lines(rows))


def write_msmarco(folder: Path, data: Data) -> None:
    put(folder / "queries.dev.small.tsv", tabs(data.queries))
    put(folder / "qrels.dev.small.tsv", tabs((q, 0, d, g) for q, d, g in data.judgements))
    put(folder / "collection.tsv", tabs(data.documents))


def write_top1000(folder: Path, data: Data) -> None:
    write_msmarco(folder, data)
    (folder / "collection.tsv").unlink()
    texts, questions = dict(data.documents), dict(data.queries)
    rows = [(q, d, questions.get(q, "?"), texts.get(d, "?")) for q, d, *_ in data.run]
    put(folder / "top1000.dev", tabs(rows))


def read_collection(folder: Path) -> Read:
    (collection,) = find_collections(folder)
    return Read(collection.revision, dict(collection.counts))


def write_toml(folder: Path, data: Data) -> None:
    grades: dict[str, list[str]] = {}
    for query, document, grade in data.judgements:
        grades.setdefault(query, []).append(f"{toml(document)} = {toml(grade)}")
    parts = []
    for name, text in data.queries:
        judged = ", ".join(grades.get(name, ()))
        parts.append(
            f"[[queries]]\nid = {toml(name)}\nquery = {toml(text)}\n"
            f"relevance_grades = {{ {judged} }}\n"
        )
    put(folder / "queries.toml", "\n".join(parts))


def toml(value: Any) -> str:
    return str(value) if isinstance(value, float) else json.dumps(value)


def write_own_json(folder: Path, data: Data) -> None:
    write_toml(folder, data)
    put(folder / "docs.jsonl", lines({"id": i, "text": t} for i, t in data.documents))


def write_own_csv(folder: Path, data: Data) -> None:
    write_toml(folder, data)
    text = io.StringIO()
    csv.writer(text).writerows([("id", "text"), *data.documents])
    put(folder / "docs.csv", text.getvalue())


def write_own_sqlite(folder: Path, data: Data) -> None:
    write_toml(folder, data)
    with closing(sqlite3.connect(folder / "docs.db")) as base, base:
        base.execute("CREATE TABLE docs (id, text)")
        base.executemany("INSERT INTO docs VALUES (?, ?)", data.documents)


def read_own(name: str) -> Callable[[Path], Read]:
    def read(folder: Path) -> Read:
        file = next(iter(folder.glob(f"{name}*")))  # perhaps a .gz
        domain = load_domain(folder / "queries.toml", file)
        return Read(domain.revision, dict(domain.counts))

    return read


def write_trec(folder: Path, data: Data) -> None:
    write_beir(folder / "words", Data())
    put(folder / "run.trec", "".join(f"{q} Q0 {d} {r} {s} tag\n" for q, d, r, s in data.run))


def write_ranks(folder: Path, data: Data) -> None:
    write_beir(folder / "words", Data())
    put(folder / "run.trec", tabs((q, d, r) for q, d, r, _ in data.run))


def read_trec(folder: Path) -> Read:
    file = folder / "run.trec"
    content = {query: dict(scores) for query, scores in load_run(file).items()}
    (collection,) = find_collections(folder / "words")
    stage = first_stage(collection, file, depth=10)
    return Read(content, dict(stage.counts))


def write_scores(folder: Path, data: Data) -> None:
    per_query = {q: s for q, d, r, s in data.run if r == 1}
    numbers = [s for s in per_query.values() if isinstance(s, (int, float)) and abs(s) < 2]
    mean = sum(numbers) / max(len(numbers), 1)
    content = {"per_query": per_query, "aggregate": {"ndcg@10": mean}}
    if not data.run:
        value: dict[str, Any] = {"per_dataset": {}, "average": {}}
    else:
        value = {"per_dataset": {"SciFact": content}, "average": {"ndcg@10": mean}}
    put(folder / "joint" / "seed_1" / "results" / "reranking_results.json", json.dumps(value))


def write_mteb(folder: Path, data: Data) -> None:
    value = [{"main_score": s, "hf_subset": q} for q, d, r, s in data.run if r == 1]
    scores = {"task_name": "SciFact", "scores": {"test": value} if value else {}}
    put(folder / "org__model" / "1" / "SciFact.json", json.dumps(scores))
    put(folder / "org__model" / "1" / "model_meta.json", '{"name": "org/model", "revision": "1"}')


def read_scores(folder: Path) -> Read:
    collection = load_all_results(folder)
    refused = [flag.text for flag in collection.flags if flag.kind == "unreadable"]
    if refused:
        raise ValueError(refused[0])
    return Read(collection.nested(), {flag.kind: 1 for flag in collection.flags})


def write_pairs(folder: Path, data: Data) -> None:
    rows = [
        {"sentence1": dict(data.queries).get(q, "x"), "sentence2": d, "score": s}
        for q, d, r, s in data.run
    ]
    put(folder / "pairs.jsonl", lines(rows))


def write_pairs_table(mark: str) -> Callable[[Path, Data], None]:
    def write(folder: Path, data: Data) -> None:
        text = io.StringIO()
        queries = dict(data.queries)
        rows = [(queries.get(q, "x"), d, s) for q, d, r, s in data.run]
        writer = csv.writer(text, delimiter=mark, lineterminator="\n")
        writer.writerows([("sentence1", "sentence2", "score"), *rows])
        put(folder / f"pairs.{'tsv' if mark != ',' else 'csv'}", text.getvalue())

    return write


def read_sts(name: str) -> Callable[[Path], Read]:
    return lambda folder: Read(read_pairs(folder / name), {})


def read_words(name: str) -> Callable[[Path], Read]:
    return lambda folder: Read(load_word_pairs(folder / name), {})


def write_log(folder: Path, data: Data) -> None:
    rows = [{"step": r, "loss": s, "timestamp": s} for q, d, r, s in data.run]
    put(folder / "joint" / "seed_1" / "train_log.jsonl", lines(rows))
    write_scores(folder, Data())


def read_training_log(folder: Path) -> Read:
    read = read_scores(folder)  # with the facts of the training
    log = read_log(folder / "joint" / "seed_1" / "train_log.jsonl")
    return Read((read.content, log.series), dict.fromkeys(log.notes, 1))


def write_yaml(folder: Path, data: Data) -> None:
    put(folder / "joint" / "seed_1" / "config.yaml", "training: {mode: joint}\nlora: {rank: 4}\n")
    write_scores(folder, Data())


ADAPTER, SCORES = "joint/seed_1", "results/reranking_results.json"
FORMATS = {
    "BEIR": Format(write_beir, read_collection, "corpus.jsonl"),
    "BEIR queries": Format(write_beir, read_collection, "queries.jsonl"),
    "BEIR qrels": Format(write_beir, read_collection, "qrels/test.tsv"),
    "BEIR JSONL qrels": Format(write_beir_json, read_collection, "qrels/test.jsonl"),
    "BEIR candidates": Format(write_candidates, read_collection, "top_ranked/test.jsonl"),
    "MS MARCO": Format(write_msmarco, read_collection, "collection.tsv"),
    "MS MARCO top 1,000": Format(write_top1000, read_collection, "top1000.dev"),
    "own JSONL": Format(write_own_json, read_own("docs.jsonl"), "docs.jsonl"),
    "own CSV": Format(write_own_csv, read_own("docs.csv"), "docs.csv"),
    "own SQLite": Format(write_own_sqlite, read_own("docs.db"), "docs.db"),
    "query file": Format(write_own_json, read_own("docs.jsonl"), "queries.toml"),
    "TREC run": Format(write_trec, read_trec, "run.trec"),
    "MS MARCO run": Format(write_ranks, read_trec, "run.trec"),
    "adapter scores": Format(write_scores, read_scores, f"{ADAPTER}/{SCORES}"),
    "MTEB scores": Format(write_mteb, read_scores, "org__model/1/SciFact.json"),
    "training log": Format(write_log, read_training_log, f"{ADAPTER}/train_log.jsonl"),
    "training configuration": Format(write_yaml, read_scores, f"{ADAPTER}/config.yaml"),
    "STS JSONL": Format(write_pairs, read_sts("pairs.jsonl"), "pairs.jsonl"),
    "STS CSV": Format(write_pairs_table(","), read_sts("pairs.csv"), "pairs.csv"),
    "STS TSV": Format(write_pairs_table("\t"), read_sts("pairs.tsv"), "pairs.tsv"),
    "word pairs JSONL": Format(write_pairs, read_words("pairs.jsonl"), "pairs.jsonl"),
    "word pairs CSV": Format(write_pairs_table(","), read_words("pairs.csv"), "pairs.csv"),
    "word pairs TSV": Format(write_pairs_table("\t"), read_words("pairs.tsv"), "pairs.tsv"),
}


# The readers of the guide's table, and the formats that each of them reads.
READERS = {
    "BEIR": ("BEIR", "BEIR queries", "BEIR qrels", "BEIR JSONL qrels"),
    "MS MARCO": ("MS MARCO", "MS MARCO top 1,000"),
    "own data": ("own JSONL", "own CSV", "own SQLite", "query file"),
    "runs": ("TREC run", "MS MARCO run"),
    "TREC runs": ("TREC run",),
    "candidates": ("BEIR candidates", "MS MARCO top 1,000"),
    "scores": ("adapter scores", "MTEB scores"),
    "trainings": ("training log", "training configuration"),
    "pairs": (
        "STS JSONL",
        "STS CSV",
        "STS TSV",
        "word pairs JSONL",
        "word pairs CSV",
        "word pairs TSV",
    ),
}


def documents(*rows: Any) -> Change:
    return lambda data: replace(data, documents=[*data.documents, *rows])


def queries(*rows: Any) -> Change:
    return lambda data: replace(data, queries=[*data.queries, *rows])


def judgements(*rows: Any) -> Change:
    return lambda data: replace(data, judgements=[*data.judgements, *rows])


def run(*rows: Any) -> Change:
    return lambda data: replace(data, run=[*data.run, *rows])


def queried(text: Any) -> Change:
    return lambda data: replace(data, queries=[("q0", text), *data.queries[1:]])


def graded(grade: Any) -> Change:
    return lambda data: replace(data, judgements=[*data.judgements[:-1], ("q2", "d5", grade)])


def scored(score: Any) -> Change:
    query, document, rank, _ = Data().run[0]
    return lambda data: replace(data, run=[(query, document, rank, score), *data.run[1:]])


def unfit(end: str) -> Change:
    """An id that ends in ``end``, of a document and of a query."""
    return lambda data: replace(
        data,
        documents=[*data.documents, (f"d{end}", "other words")],
        run=[*data.run, (f"q{end}", "d0", 1, 0.5)],
    )


# What is wrong with the data, by the case of the guide's table.
CASES: dict[str, Change] = {
    "an empty or blank id of a document": documents(("", "other words")),
    "an empty or blank id of a query": queries((" ", "other words")),
    "an id with NUL or another control character": unfit("\0"),
    "an id with a lone surrogate": unfit("\ud800"),
    "a document's id twice": documents(("d0", "other words")),
    "a query's id twice": queries(("q0", "other words")),
    "a text with a lone surrogate": lambda data: queried("a\ud800")(
        documents(("d9", "\ud800"))(data)
    ),
    "a document with NUL or another control character": documents(("d9", "a\0b")),
    "a query with NUL or another control character": queried("a\x1b[2J"),
    "a word or sentence with control characters": queried("a\x1b[2J"),
    "an empty document": documents(("d9", "")),
    "an empty query": queried(""),
    "an empty word or sentence": queried(""),
    "documents that are all empty": lambda data: replace(
        data, documents=[(name, " ") for name, _ in data.documents]
    ),
    "a document equal to another": documents(("d9", WORDS[0])),
    "a pair judged twice with one grade": judgements(("q0", "d0", 2)),
    "a pair judged twice with two grades: the last counts": judgements(("q0", "d0", 1)),
    "a judged document that is missing": judgements(("q0", "gone", 1)),
    "most judged documents missing": judgements(*(("q0", f"gone{n}", 1) for n in range(9))),
    "a query without text that has a relevant document": judgements(("q9", "d0", 1)),
    "a query without text that has none": judgements(("q9", "d0", 0)),
    "a query without a relevant document": lambda data: queries(("q9", "other"))(
        judgements(("q9", "d0", 0))(data)
    ),
    "no relevant document at all": lambda data: replace(
        data, judgements=[(query, document, 0) for query, document, _ in data.judgements]
    ),
    "a grade written as 2.0": graded(2.0),
    "a negative grade: counts as 0": graded(-1),
    "a grade above 1,000, or above 3 in a query file": graded(10**9),
    "a grade of 400 digits": graded(10**400),
    "a grade that is not a whole number": graded(1.5),
    "a grade that is not a number": graded("high"),
    "a grade that is true or false": graded(True),
    "a grade that is NaN": graded(math.nan),
    "a grade that is infinite": graded(math.inf),
    "a grade with an underscore, or digits of another script": graded("1_0"),
    "an unknown document": run(("q0", "gone", 4, 0.1)),
    "a query that is unknown": run(("q9", "d0", 1, 0.1)),
    "a query whose candidates nobody asked for": run(("q9", "d0", 1, 0.1)),
    "a query that is missing": lambda data: replace(
        data, run=[row for row in data.run if row[0] != "q1"]
    ),
    "a query without candidates": lambda data: replace(
        data, run=[row for row in data.run if row[0] != "q1"]
    ),
    "a run of another collection": lambda data: replace(
        data, run=[(f"other{query}", *rest) for query, *rest in data.run]
    ),
    "a document twice": run(("q0", "d0", 4, 0.1)),
    "a rank that contradicts the scores": scored(0.01),
    "ranks and scores in each other's column": lambda data: replace(
        data, run=[(query, name, score, rank) for query, name, rank, score in data.run]
    ),
    "a rank of 400 digits": run(("q0", "d5", 10**400, 0.1)),
    "a score that is NaN": scored(math.nan),
    "a score that is infinite": scored(math.inf),
    "a score that is not a number": scored("high"),
    "a score with an underscore": scored("1_0"),
    "a score of 400 digits": scored(10**400),
    "a number in quotes": scored("0.5"),
    "results without scores": lambda data: replace(data, run=[]),
}


def add(raw: bytes) -> Damage:
    return lambda file: file.write_bytes(file.read_bytes() + raw)


def put_raw(raw: bytes) -> Damage:
    return lambda file: file.write_bytes(raw)


def in_its_place(make: Callable[[Path], object]) -> Damage:
    def damage(file: Path) -> None:
        file.unlink()
        make(file)

    return damage


def bent(**by_suffix: bytes) -> Damage:
    """Bytes to add to a file of rows, and to put in place of a whole document."""

    def damage(file: Path) -> None:
        raw = by_suffix[file.suffix[1:]]
        file.write_bytes(raw if file.suffix == ".json" else file.read_bytes() + raw)

    return damage


def packed(text: bytes, *, cut: int | None = None) -> Damage:
    def damage(file: Path) -> None:
        file.unlink()
        file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(text, 9)[:cut])

    return damage


def pack_much(file: Path) -> None:
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


_JSON = (".jsonl", ".json", ".toml", ".yaml")
_TABLES = (".csv", ".tsv")
_TEXTS = (*_JSON, *_TABLES, ".dev", ".trec", ".txt")
_DEEP = b"[" * 100_000
_DIGITS = b"1" * 5000
# What is wrong with the bytes of a file, and the endings of the files that can be so.
DAMAGES: dict[str, tuple[Damage, tuple[str, ...]]] = {
    "a byte order mark": (
        lambda file: file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes()),
        _TEXTS,
    ),
    "bytes that are not UTF-8": (
        lambda file: file.write_bytes(file.read_bytes()[:-2] + b"\xff\n\n"),
        _TEXTS,
    ),
    "text in UTF-16": (
        lambda file: file.write_bytes(file.read_text().encode("utf-16")),
        _TEXTS,
    ),
    "an empty file": (put_raw(b""), (*_TEXTS, ".db")),
    "a pipe in place of a file": (in_its_place(os.mkfifo), (*_TEXTS, ".db")),
    "a folder in place of a file": (in_its_place(Path.mkdir), (*_TEXTS, ".db")),
    "a line of more than 16 MiB": (add(b"x" * (17 << 20)), _TEXTS),
    "a `.gz` file that unpacks to more than 200 times its size, and 16 MiB": (
        pack_much,
        (".jsonl", ".csv", "collection.tsv"),
    ),
    "a damaged `.gz` file": (packed(b"{}\n" * 99, cut=30), (".jsonl", ".csv", ".tsv", ".dev")),
    "JSON, TOML or YAML nested too deeply": (
        bent(jsonl=_DEEP + b"\n", json=_DEEP, toml=b"\na = " + _DEEP, yaml=b"a: " + _DEEP[:2000]),
        _JSON,
    ),
    "a key twice in an object or table": (
        bent(
            jsonl=b'{"a": 1, "a": 1}\n',
            json=b'{"per_task": {}, "per_task": {}}',
            toml=b"\n[settings]\n[settings]\n",
            yaml=b"seed: 1\nseed: 2\n",
        ),
        _JSON,
    ),
    "a key misspelt in one line": (
        bent(
            jsonl=b'{"_id": "d9", "id": "d9", "title": "", "txt": "x"}\n',
            toml=b"\n[settings]\nrelevance_treshold = 1\n",
        ),
        (".jsonl", ".toml"),
    ),
    "an integer of more than 4,300 digits": (
        bent(
            jsonl=b'{"a": ' + _DIGITS + b"}\n",
            json=b'{"per_task": ' + _DIGITS + b"}",
            toml=b"\na = " + _DIGITS,
            yaml=b"seed: " + _DIGITS + b"\n",
        ),
        _JSON,
    ),
    "a cell with quotes that do not close": (add(b'"a,1\n'), _TABLES),
}
# Formats that cannot express a case, although the reader of the table can.
CANNOT = {
    "BEIR qrels": ("a cell with quotes that do not close",),
    "MS MARCO": ("a cell with quotes that do not close",),
    "own SQLite": ("an id with a lone surrogate", "a text with a lone surrogate"),
    "MTEB scores": (
        "an id with NUL or another control character",
        "an id with a lone surrogate",
    ),
    "MS MARCO top 1,000": (
        "a document's id twice",
        "a document with NUL or another control character",
        "an empty or blank id of a document",
        "an empty document",
        "a document equal to another",
        "documents that are all empty",
        "an unknown document",
    ),
}
