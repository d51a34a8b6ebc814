"""BEIR folders of a few short documents."""

from __future__ import annotations

import gzip
import json

import numpy as np

SENTENCE = "sort row column table date list value index array mean sum axis file path text"
WORDS = SENTENCE.split()
ODD = "<script>alert(1)</script> | $x$ [a](b)"


def write_beir(folder, *, documents=30, queries=8, seed=0, gzipped=False):
    """A BEIR folder of random words; a query's words come from its relevant document."""
    generator = np.random.default_rng(seed)
    texts = [" ".join(generator.choice(WORDS, 12)) for _ in range(documents)]
    questions = [" ".join(texts[i].split()[:3]) for i in range(queries)]
    (folder / "qrels").mkdir(parents=True)
    corpus = [{"_id": f"d{i}", "title": "About", "text": text} for i, text in enumerate(texts)]
    rows = {
        "corpus": corpus,
        "queries": [{"_id": f"q{i}", "text": t} for i, t in enumerate(questions)],
    }
    for name, each in rows.items():
        data = "".join(json.dumps(row) + "\n" for row in each).encode()
        file = folder / f"{name}.jsonl{'.gz' if gzipped else ''}"
        file.write_bytes(gzip.compress(data) if gzipped else data)
    lines = [f"q{i}\td{i}\t2\nq{i}\td{i + 9}\t1\n" for i in range(queries)]
    (folder / "qrels" / "test.tsv").write_text(
        "query-id\tcorpus-id\tscore\n" + "".join(lines) + "extra\td1\t0\n"
    )
    return folder


def write_words(folder):
    """Ten documents, five queries: each asks for one of them by its first words."""
    (folder / "qrels").mkdir(parents=True)
    texts = [f"sort the row of table {i} by column {i * i}, {ODD}" for i in range(10)]
    rows = {
        "corpus": [{"_id": f"d{i}", "title": "", "text": text} for i, text in enumerate(texts)],
        "queries": [{"_id": f"q{i}", "text": f"table {i} {ODD}"} for i in range(5)],
    }
    for name, each in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in each))
    lines = "".join(f"q{i}\td{i}\t1\n" for i in range(5))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + lines)
    return folder
