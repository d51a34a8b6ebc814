"""Damage to any file of a set of records is noticed by `verify`, or changes nothing.

`FLIPS=400 pytest tests/records/test_flipped_bytes.py` tries more of them.
"""

import hashlib
import json
import os
import random

import pytest
from helpers.absurd_records import of_many_kinds

from qwen3nb import paths
from qwen3nb.evaluation.mteb.evaluate import keep_results
from qwen3nb.records.runs import first_stage_file
from qwen3nb.records.side_files import run_path
from qwen3nb.records.store import verify

FLIPS = int(os.environ.get("FLIPS", "60"))
RUN = "".join(f"q{i} Q0 d{i} 1 {i / 7!r} m\n" for i in range(40))


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
