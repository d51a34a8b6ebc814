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
    judged = [f"q{i}\td{i}\t2\nq{i}\td{i + 9}\t1\n" for i in range(queries)]
    questions = [" ".join(text.split()[:3]) for text in texts[:queries]]
    return _write(folder, "About", texts, questions, [*judged, "extra\td1\t0\n"], gzipped)


def write_words(folder):
    """Ten documents, five queries: each asks for one of them by its first words."""
    texts = [f"sort the row of table {i} by column {i * i}, {ODD}" for i in range(10)]
    judged = [f"q{i}\td{i}\t1\n" for i in range(5)]
    return _write(folder, "", texts, [f"table {i} {ODD}" for i in range(5)], judged)


def _write(folder, title, texts, questions, judged, gzipped=False):
    (folder / "qrels").mkdir(parents=True)
    rows = {
        "corpus": [{"_id": f"d{i}", "title": title, "text": t} for i, t in enumerate(texts)],
        "queries": [{"_id": f"q{i}", "text": text} for i, text in enumerate(questions)],
    }
    for name, each in rows.items():
        data = "".join(json.dumps(row) + "\n" for row in each).encode()
        file = folder / f"{name}.jsonl{'.gz' if gzipped else ''}"
        file.write_bytes(gzip.compress(data) if gzipped else data)
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(judged))
    return folder
