"""A run that fetches its data from the hub: no mirror, a cache of its own."""

import os
import subprocess
import sys

import pytest
from helpers.hub import local_hub
from helpers.study import TEXTS, write_lines, write_retrieval

import qwen3nb as q
from qwen3nb import paths
from qwen3nb.records.store import load_results

TASKS = "SciFact,STSBenchmark"


@pytest.mark.integration
def test_data_come_from_the_hub_once(checkout, tmp_path):
    root = tmp_path / "hub"
    write_retrieval(root / "mteb" / "scifact")
    rows = [
        {"sentence1": text, "sentence2": f"{text} {i}", "score": i / 3}
        for i, text in enumerate(TEXTS)
    ]
    write_lines(root / "mteb" / "stsbenchmark-sts" / "test.jsonl", rows)
    command = ["eval", "--tasks", TASKS, "--checkpoint", "random"]
    cache = {"HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path / "cache"), "PYTHONWARNINGS": ""}
    with local_hub(root) as address:
        done = subprocess.run(
            [sys.executable, "-m", "qwen3nb.cli.main", *command],
            cwd=checkout,
            text=True,
            env={**os.environ, **cache, "HF_ENDPOINT": address},
            capture_output=True,
            check=False,
            timeout=300,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    first = {each.task.key: each for each in load_results()}
    assert set(first) == set(TASKS.split(","))
    assert all(len(each.task.revision) == 40 for each in first.values())
    assert first["SciFact"].main.n == 6
    assert len(list(paths.book_runs().glob("eval-random-*.ipynb"))) == 1
    # The hub is gone, and nothing of it is needed again.
    again = q.evaluate("random", tasks=TASKS, show_progress=False)
    assert set(again.reused) == set(first)
