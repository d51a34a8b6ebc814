"""A run that fetches its data from the hub: no mirror, a cache of its own."""

import json
import os
import subprocess
import sys

import pytest
from helpers.beir import WORDS
from helpers.hub import local_hub

import qwen3nb as q
from qwen3nb import paths
from qwen3nb.records.store import load_results

TASKS = "SciFact,STSBenchmark"


def write_rows(file, rows):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_search(folder):
    """A data set in the layout of MTEB's retrieval sets: three configurations."""
    parts = {"corpus": "corpus", "queries": "queries", "default": "test"}
    ids = range(len(WORDS))
    corpus = [{"_id": f"d{i}", "title": "", "text": f"{WORDS[i]} {WORDS[i - 1]}"} for i in ids]
    write_rows(folder / "corpus.jsonl", corpus)
    write_rows(folder / "queries.jsonl", [{"_id": f"q{i}", "text": WORDS[i]} for i in ids])
    judged = [{"query-id": f"q{i}", "corpus-id": f"d{i}", "score": 1} for i in ids]
    write_rows(folder / "default.jsonl", judged)
    card = ["---", "configs:"]
    for name, split in parts.items():
        card += [f"- config_name: {name}", "  data_files:", f"  - split: {split}"]
        card += [f"    path: {name}.jsonl"]
    (folder / "README.md").write_text("\n".join([*card, "---", ""]))


@pytest.mark.integration
def test_data_come_from_the_hub_once(checkout, tmp_path):
    root = tmp_path / "hub"
    write_search(root / "mteb" / "scifact")
    rows = [
        {"sentence1": word, "sentence2": f"{word} {i}", "score": i / 3}
        for i, word in enumerate(WORDS)
    ]
    write_rows(root / "mteb" / "stsbenchmark-sts" / "test.jsonl", rows)
    command = ["eval", "--tasks", TASKS, "--checkpoint", "random"]
    with local_hub(root) as address:
        done = subprocess.run(
            [sys.executable, "-m", "qwen3nb.cli.main", *command],
            cwd=checkout,
            text=True,
            env={
                **os.environ,
                "HF_ENDPOINT": address,
                "HF_HUB_OFFLINE": "0",
                "HF_HOME": str(tmp_path / "cache"),
                "PYTHONWARNINGS": "",
            },
            capture_output=True,
            check=False,
            timeout=300,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    first = {each.task.key: each for each in load_results()}
    assert set(first) == set(TASKS.split(","))
    assert all(len(each.task.revision) == 40 for each in first.values())
    assert first["SciFact"].main.n == len(WORDS)
    assert len(list(paths.book_runs().glob("eval-random-*.ipynb"))) == 1
    # The hub is gone, and nothing of it is needed again.
    again = q.evaluate("random", tasks=TASKS, show_progress=False)
    assert set(again.reused) == set(first)
