"""What a type checker knows of the front door in a user's file, where names load on first use."""

import subprocess
import sys
from collections.abc import Mapping

import pytest
from helpers import REPOSITORY

pytest.importorskip("mypy", reason="mypy is not installed (extra dev)")

RIGHT = """
from pathlib import Path

import numpy as np
import qwen3nb as q

encoder: q.Encoder = q.load_encoder("random", pooling="mean", max_length=256)
vectors: np.ndarray = encoder.encode(["sort a list"], prompt_type="query")
run = q.evaluate(encoder, tier="smoke", limit=10)
results: q.Results = run.results
records: q.Results = q.load_results(Path("results"))
comparison = q.compare(records, baseline="bm25", correction="holm", alpha=0.01)
frame = comparison.to_frame().sort_values("difference")
first: q.Result = records[0]
value: float | None = first.value
problems: list[str] = [str(each) for each in q.verify(records)]
collection = q.TestCollection.from_texts({"q": "sort"}, {"d": "sort a list"}, {"q": ["d"]})
found = q.evaluate(encoder, collection, output=None)
own = q.evaluate_domain([encoder, "bm25"], q.datasets.load_domain("queries.toml", "docs.csv"))
reranker: q.Reranker = q.load_reranker("checkpoint-1")
figure: object = records.plot()
board = q.leaderboard(records, tier="fast")
p: float = q.stats.permutation_test(np.zeros(10), np.ones(10), seed=0).p_value
table: q.Table = board.cost_table()
pivot = records.pivot("nDCG@10").round(3)
verdict: str = q.sanity_check(encoder).verdict
"""
WRONG = {  # each line, and a part of the error that it gives
    'encoder = q.load_encoder("random", poolin="mean")': '"poolin" for "load_encoder"',
    'q.evaluate("bm25", limit="10")': 'Argument "limit" to "evaluate"',
    'q.compare(q.load_results("results"), alpha="0.05")': 'Argument "alpha" to "compare"',
    'number: int = q.load_encoder("random")': 'expression has type "Encoder"',
    'q.evalute("bm25")': 'maybe "evaluate"',
    'q.leaderboard(q.load_results("results")).cost_tabel()': 'maybe "cost_table"',
}


@pytest.mark.integration
def test_a_type_checker_accepts_right_uses_and_refuses_wrong_ones(tmp_path):
    wrong: Mapping[int, str] = dict(enumerate(WRONG.values(), start=2))
    (tmp_path / "right.py").write_text(RIGHT, encoding="utf-8")
    (tmp_path / "wrong.py").write_text("\n".join(["import qwen3nb as q", *WRONG]), encoding="utf-8")
    config = ["--config-file", str(REPOSITORY / "pyproject.toml")]  # leaves torch and others out
    # What `make check` has read of the package is not read again: a cold check takes half a minute.
    config += ["--cache-dir", str(REPOSITORY / ".mypy_cache")]
    shown = subprocess.run(
        [sys.executable, "-m", "mypy", *config, "right.py", "wrong.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    ).stdout
    errors = [line for line in shown.splitlines() if ": error: " in line]
    assert len(errors) == len(WRONG), shown
    for line, part in wrong.items():
        assert [each for each in errors if each.startswith(f"wrong.py:{line}:") and part in each]
