"""One small collection written in every format that is read, with one thing wrong at a time.

`FORMATS` write a `Data` and read it back; `CASES` change the data, or the bytes of a file. The
rules that the outcomes must follow are the table of the guide's page `what-is-refused`.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from qwen3nb.analysis.inventory.collect import load_all_results
from qwen3nb.analysis.inventory.training_logs import read_log
from qwen3nb.datasets.collection import TestCollection
from qwen3nb.datasets.custom.load import load_domain
from qwen3nb.datasets.find_collections import find_collections
from qwen3nb.datasets.rows import json_rows
from qwen3nb.datasets.trec import load_run
from qwen3nb.datasets.words import load_analogies, load_word_pairs
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
            for rank, m in enumerate((n, n + 1, n + 2), start=1)
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
        domain = load_domain(folder / "queries.toml", folder / name)
        counts = getattr(domain, "counts", {note: 1 for note in domain.notes})
        return Read(domain.revision, dict(counts))

    return read


def write_memory(folder: Path, data: Data) -> None:
    write_beir(folder, Data())
    MEMORY[folder] = data


MEMORY: dict[Path, Data] = {}


def read_memory(folder: Path) -> Read:
    data = MEMORY[folder]
    qrels: dict[str, dict[str, Any]] = {}
    for query, document, grade in data.judgements:
        qrels.setdefault(query, {})[document] = grade
    collection = TestCollection.from_texts(dict(data.queries), dict(data.documents), qrels)
    return Read(collection.revision, dict(collection.counts))


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
    return Read(content, dict(getattr(stage, "counts", {})))


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
    scores = {"task_name": "SciFact", "dataset_revision": "1", "scores": {"test": value}}
    put(folder / "org__model" / "1" / "SciFact.json", json.dumps(scores))
    put(folder / "org__model" / "1" / "model_meta.json", '{"name": "org/model", "revision": "1"}')


def read_scores(folder: Path) -> Read:
    collection = load_all_results(folder)
    json.loads(collection.to_json())
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


def write_analogies(folder: Path, data: Data) -> None:
    put(folder / "analogies.txt", "".join(f"{q} {d} {r} {s}\n" for q, d, r, s in data.run))


def write_rerank_pairs(folder: Path, data: Data) -> None:
    put(folder / "pairs.jsonl", lines({"query": q, "document": d} for q, d, *_ in data.run))


def read_rerank_pairs(folder: Path) -> Read:
    return Read(list(json_rows(folder / "pairs.jsonl", {"query": str, "document": str})), {})


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


ADAPTER = "joint/seed_1"
FORMATS = {
    "BEIR": Format(write_beir, read_collection, "corpus.jsonl"),
    "BEIR queries": Format(write_beir, read_collection, "queries.jsonl"),
    "BEIR qrels": Format(write_beir, read_collection, "qrels/test.tsv"),
    "BEIR JSONL qrels": Format(write_beir_json, read_collection, "qrels/test.jsonl"),
    "BEIR candidates": Format(write_candidates, read_collection, "top_ranked/test.jsonl"),
    "MS MARCO": Format(write_msmarco, read_collection, "collection.tsv"),
    "MS MARCO top 1,000": Format(write_top1000, read_collection, "top1000.dev"),
    "memory": Format(write_memory, read_memory, "corpus.jsonl"),
    "own JSONL": Format(write_own_json, read_own("docs.jsonl"), "docs.jsonl"),
    "own CSV": Format(write_own_csv, read_own("docs.csv"), "docs.csv"),
    "own SQLite": Format(write_own_sqlite, read_own("docs.db"), "docs.db"),
    "query file": Format(write_own_json, read_own("docs.jsonl"), "queries.toml"),
    "TREC run": Format(write_trec, read_trec, "run.trec"),
    "MS MARCO run": Format(write_ranks, read_trec, "run.trec"),
    "adapter scores": Format(write_scores, read_scores, f"{ADAPTER}/results/reranking_results.json"),
    "MTEB scores": Format(write_mteb, read_scores, "org__model/1/SciFact.json"),
    "training log": Format(write_log, read_training_log, f"{ADAPTER}/train_log.jsonl"),
    "training configuration": Format(write_yaml, read_scores, f"{ADAPTER}/config.yaml"),
    "STS JSONL": Format(write_pairs, read_sts("pairs.jsonl"), "pairs.jsonl"),
    "STS CSV": Format(write_pairs_table(","), read_sts("pairs.csv"), "pairs.csv"),
    "STS TSV": Format(write_pairs_table("\t"), read_sts("pairs.tsv"), "pairs.tsv"),
    "word pairs JSONL": Format(write_pairs, read_words("pairs.jsonl"), "pairs.jsonl"),
    "word pairs CSV": Format(write_pairs_table(","), read_words("pairs.csv"), "pairs.csv"),
    "word pairs TSV": Format(write_pairs_table("\t"), read_words("pairs.tsv"), "pairs.tsv"),
    "analogies": Format(write_analogies, lambda f: Read(load_analogies(f / "analogies.txt"), {}), "analogies.txt"),
    "pairs": Format(write_rerank_pairs, read_rerank_pairs, "pairs.jsonl"),
}  # fmt: skip


def documents(*rows: Any) -> Callable[[Data], Data]:
    return lambda data: replace(data, documents=[*data.documents, *rows])


def queries(*rows: Any) -> Callable[[Data], Data]:
    return lambda data: replace(data, queries=[*data.queries, *rows])


def judgements(*rows: Any) -> Callable[[Data], Data]:
    return lambda data: replace(data, judgements=[*data.judgements, *rows])


def graded(grade: Any) -> Callable[[Data], Data]:
    return lambda data: replace(data, judgements=[*data.judgements[:-1], ("q2", "d5", grade)])


def run(*rows: Any) -> Callable[[Data], Data]:
    return lambda data: replace(data, run=[*data.run, *rows])


def scored(score: Any, place: int = 0) -> Callable[[Data], Data]:
    def change(data: Data) -> Data:
        query, document, rank, _ = data.run[place]
        return replace(
            data, run=[*data.run[:place], (query, document, rank, score), *data.run[place + 1 :]]
        )

    return change


def asked(text: Any) -> Callable[[Data], Data]:
    return lambda data: replace(data, queries=[("q0", text), *data.queries[1:]])


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "bom": lambda raw: b"\xef\xbb\xbf" + raw,
    "utf-16": lambda raw: raw.decode("utf-8", "replace").encode("utf-16"),
    "invalid utf-8": lambda raw: raw[:-1] + b"\xff\xfe\n",
    "empty": lambda raw: b"",
    "cut": lambda raw: raw[:-4],
    "nested": lambda raw: raw + b"[" * 200_000 + b"\n",
    "no newline": lambda raw: raw + b"x" * (17 << 20),
    "binary": lambda raw: bytes(range(256)) * 8,
}
