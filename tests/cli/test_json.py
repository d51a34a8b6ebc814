"""`--json` prints one JSON document on standard output, and nothing else."""

import json
import re

import pytest
from helpers.records import make

from qwen3nb.datasets.pydocs.mteb_tasks import pydocs_sample


@pytest.fixture
def answer(cli):
    """Call a command with ``--json``; its document."""

    def call(*arguments, code=0):
        done = cli(*arguments, "--json")
        assert done.exit_code == code, done.output
        return json.loads(done.stdout)

    return call


def test_verify_says_which_file_does_not_hold(answer, cli, home):
    assert cli("verify").stdout == "no records yet; `qwen3nb eval` makes some\n"
    file = make("m").save()
    empty = cli("verify", file.parent)
    assert (empty.exit_code, "seed_0 has no records; expected" in empty.output) == (2, True)
    assert cli("verify").stdout.strip() == "1 of 1 records hold"
    assert answer("verify") == {"records": 1, "problems": {}}
    value = json.loads(file.read_text())
    value["metrics"]["nDCG@10"]["value"] = 0.9
    file.write_text(json.dumps(value))
    done = cli("verify")
    assert done.exit_code == cli("verify", file).exit_code == 1
    assert str(file) in done.output
    assert "0 of 1 records hold" in done.output
    problems = answer("verify", code=1)["problems"]
    assert list(problems) == [str(file)]
    assert all(isinstance(each, str) for each in problems[str(file)])


def test_results_lists_records_and_writes_their_scores(answer, cli, home):
    for label in ("one", "two"):
        make(label, [0.25, 0.5], task="PyDocsSampleRetrieval").save(home / "results")
    shown = cli("results").output
    assert all(each in shown for each in ("one", "two", "0.375", "2 queries"))
    (row,) = answer("results", "--model", "two")
    assert (row["model"], row["value"]) == ("two", 0.375)
    done = cli("results", "--to", home / "scores.csv", "--model", "one", "--tier", "smoke")
    assert done.output.endswith("scores.csv: the scores of 1 records\n")
    assert len((home / "scores.csv").read_text().splitlines()) == 3


def test_analyze(answer, home, tmp_path):
    (tmp_path / "outputs").mkdir()
    result = answer("analyze", "--outputs", tmp_path / "outputs")
    assert result["verdict"]["by_point"] == "NO RESULT"


def test_the_cache(cli, tmp_path):
    (tmp_path / "texts.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n')
    files = ("--input", tmp_path / "texts.jsonl", "--out", tmp_path / "v.npy")
    assert cli("encode", "--model", "random:9", *files).exit_code == 0
    assert "random-9  2 texts" in cli("cache", "info").stdout
    assert cli("cache", "verify").stdout.endswith("vectors; 0 problems\n")
    would = cli("cache", "prune", "--model", "random-9", "--dry-run").stdout
    assert re.search(r"^[1-9].* would be freed; nothing was removed", would)
    assert "freed" in cli("cache", "prune", "--model", "random-9").stdout
    assert "random-9" not in cli("cache", "info").stdout


def test_tasks_and_what_is_fetched_for_them(cli, home, monkeypatch):
    listed = cli("tasks", "--tier", "smoke").stdout
    assert "AuthorSTS" in listed
    assert "PyDocsSampleRetrieval" in listed
    monkeypatch.setattr(
        "qwen3nb.datasets.mirror.sizes", lambda needed, say: ((each, "1 MB") for each in needed)
    )
    need = cli("fetch", "--model", "e5-base-v2", "--list").stdout
    assert re.match(r"model +intfloat/e5-base-v2 .* 1 MB", need)


def test_contamination_says_what_was_found_and_what_the_scores_are_without(answer, cli, home):
    train = home / "train.jsonl"
    queries = {id: text for id, text in pydocs_sample().queries.items() if len(text.split()) > 5}
    first, second = list(queries)[:2]
    train.write_text(json.dumps({"text": queries[first]}))
    for label, scores in (("m", (1.0, 0.25)), ("n", (0.5, 0.5))):
        make(label, dict(zip((first, second), scores, strict=True))).save()
    task = "PyDocsSampleRetrieval"
    document = answer("contamination", "--train", train, "--tasks", task, code=3)
    (found,) = document["tasks"]
    assert (found["task"], found["queries"], found["hits"]) == (task, 200, [first])
    assert found["examples"][0]["where"] == "train.jsonl:1"
    scores = {row["model"]: row["without found queries"]["value"] for row in document["scores"]}
    assert scores == {"m": 0.25, "n": 0.5}
    shown = cli("contamination", "--train", train, "--tasks", task)
    assert shown.exit_code == 3
    assert queries[first][:50] in shown.stdout
    train.write_text('"another text"')
    assert answer("contamination", "--train", train, "--tasks", task)["scores"] == []


def test_plan_says_what_each_task_needs_and_writes_the_plan(answer, cli, home):
    scores = [0.1, 0.9] * 20
    for label, column in (("m", scores), ("n", scores[::-1])):
        make(label, column, task="T").save()
    options = ("--model", "m", "--baseline", "n", "--tasks", "T,U")
    document = answer("plan", *options, "--margin", "0.05", code=3)
    task, unknown = document["tasks"]
    assert (task["there"], unknown["spread"]) == (40, None)
    assert document["plan"]["queries"] == {"T": task["needed"]}
    assert 'baseline = "n"' in (home / "plan.toml").read_text()
    shown = cli("plan", *options, "--margin", "1")
    assert (shown.exit_code, "no records of two models" in shown.stdout) == (0, True)
