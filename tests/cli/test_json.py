"""`--json` prints one JSON document on standard output, and nothing else."""

import json
from types import SimpleNamespace

import pytest
from helpers.command_tree import having, named
from helpers.records import make, own

# Of these a program reads the answer; what writes files a program reads writes them as JSON.
WITH_JSON = """
analyze, average, bench encode, bench eval, bench gpu, bench precision,
bench rerank, cache info, cache prune, cache verify, compare, extract, fetch, push, quick,
reproduce, results, sweep, tasks, verify
"""


@pytest.fixture
def answer(cli):
    """Call a command with ``--json``; its document."""

    def call(*arguments, code=0):
        done = cli(*arguments, "--json")
        assert done.exit_code == code, done.output
        return json.loads(done.stdout)

    return call


def test_these_commands_have_it(checkout):
    assert having("--json") == named(WITH_JSON)


def test_verify(answer, home):
    make("a").save()
    file = make("b").save()
    assert answer("verify") == {"records": 2, "problems": {}}
    value = json.loads(file.read_text())
    value["metrics"]["nDCG@10"]["value"] = 0.9
    file.write_text(json.dumps(value))
    problems = answer("verify", code=1)["problems"]
    assert list(problems) == [str(file)]
    assert all(isinstance(each, str) for each in problems[str(file)])


def test_compare(answer, home):
    for record in (own("now", 0.4), own("new", 0.6, seed=1)):
        record.save()
    assert answer("compare", "--baseline", "now", "--resamples", 100)["task"] == "mine-1a"


def test_results(answer, home):
    make("a", scores=(0.5, 1.0)).save()
    (record,) = answer("results", "--model", "a")
    assert (record["model"], record["value"]) == ("a", 0.75)


def test_tasks(answer, home):
    listed = answer("tasks", "--tier", "smoke")
    assert {"AuthorSTS", "PyDocsSampleRetrieval"} <= {each["task"] for each in listed}
    assert all(each["minutes"] is None for each in listed)


def test_the_cache(answer, cli, tmp_path):
    (tmp_path / "texts.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n')
    files = ("--input", tmp_path / "texts.jsonl", "--out", tmp_path / "v.npy")
    assert cli("encode", "--model", "random:9", *files).exit_code == 0
    before = answer("cache", "info")
    (model,) = [each for each in before["models"] if each["label"] == "random-9"]
    assert (model["texts"], model["bytes"] > 0) == (2, True)
    assert answer("cache", "verify")["damaged"] == {}
    would = answer("cache", "prune", "--model", "random-9", "--dry-run")
    assert (would["bytes"], would["removed"]) == (model["bytes"], False)
    gone = answer("cache", "prune", "--model", "random-9")
    assert [each["label"] for each in gone["models"]] == ["random-9"]
    assert gone["removed"] is True


def test_a_sweep(answer, checkout, monkeypatch):
    planned = answer("sweep", "--model", "bm25", "--dry-run")
    assert planned == {"runs": [{"page": "eval-bm25-smoke", "status": "would run", "reason": ""}]}
    failed = {"status": "failed", "seconds": 1.5, "log": "l", "reason": "r", "node": ""}
    monkeypatch.setattr(
        "qwen3nb.execution.sweep.sweep",
        lambda jobs, **_: [SimpleNamespace(name=jobs[0].name, **failed)],
    )
    done = answer("sweep", "--model", "bm25", "--no-book", code=1)
    assert done == {"runs": [{"page": "eval-bm25-smoke", **failed}], "book": None}


def test_making_a_model(answer, checkpoint, tmp_path):
    made = answer("average", checkpoint.parent, tmp_path / "mean", "--last", 1)
    assert made["checkpoints"] == [str(checkpoint)]
    made = answer("extract", checkpoint, tmp_path / "encoder")
    assert (made["folder"], made["max_difference"]) == (str(tmp_path / "encoder"), 0.0)
    listed = answer("push", tmp_path / "encoder", "lab/model", "--dry-run")
    assert "model.safetensors" in {each["path"] for each in listed["files"]}
    assert listed["url"] is None
    checked = answer("quick", tmp_path / "encoder", code=1)  # random weights fail
    assert checked["verdict"] == "FAILED"


def test_fetch(answer, monkeypatch):
    monkeypatch.setattr(
        "qwen3nb.datasets.mirror.sizes", lambda needed, say: ((each, "1 MB") for each in needed)
    )
    (need,) = answer("fetch", "--model", "e5-base-v2", "--list")
    assert (need["id"], need["size"], need["kind"]) == ("intfloat/e5-base-v2", "1 MB", "model")


def test_reproduce(answer, home, monkeypatch):
    from qwen3nb.evaluation.studies import reproduce

    undone = lambda scores, **_: [reproduce.Reproduction(scores[0], None, None, "no data")]  # noqa: E731
    monkeypatch.setattr(reproduce, "unavailable", lambda scores: ())
    monkeypatch.setattr(reproduce, "reproduce", undone)
    (score,) = answer("reproduce", "--model", "all-MiniLM-L6-v2")
    assert (score["model"], score["ours"]) == ("all-MiniLM-L6-v2", None)
    assert (score["value"] > 0, score["reason"]) == (True, "no data")


def test_analyze(answer, home, tmp_path):
    (tmp_path / "outputs").mkdir()
    result = answer("analyze", "--outputs", tmp_path / "outputs")
    assert result["verdict"]["by_point"] == "NO RESULT"
