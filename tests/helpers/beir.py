"""BEIR folders of random words."""

from __future__ import annotations

import gzip
import json

import numpy as np

SENTENCE = "sort row column table date list value index array mean sum axis file path text"
WORDS = SENTENCE.split()


def write_beir(folder, *, documents=30, queries=8, seed=0, gzipped=False):
    """A BEIR folder of random words; a query's words come from its relevant document."""
    generator = np.random.default_rng(seed)
    texts = [" ".join(generator.choice(WORDS, 12)) for _ in range(documents)]
    asked = [" ".join(texts[i].split()[:3]) for i in range(queries)]
    (folder / "qrels").mkdir(parents=True)
    corpus = [{"_id": f"d{i}", "title": "About", "text": text} for i, text in enumerate(texts)]
    rows = {"corpus": corpus, "queries": [{"_id": f"q{i}", "text": t} for i, t in enumerate(asked)]}
    for name, each in rows.items():
        data = "".join(json.dumps(row) + "\n" for row in each).encode()
        file = folder / f"{name}.jsonl{'.gz' if gzipped else ''}"
        file.write_bytes(gzip.compress(data) if gzipped else data)
    lines = [f"q{i}\td{i}\t2\nq{i}\td{i + 9}\t1\n" for i in range(queries)]
    (folder / "qrels" / "test.tsv").write_text(
        "query-id\tcorpus-id\tscore\n" + "".join(lines) + "extra\td1\t0\n"
    )
    return folder
