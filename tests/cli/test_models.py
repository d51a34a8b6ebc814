"""Commands on models and on records, and the one JSON document that `--json` prints."""

import json
import re
import shutil

import numpy as np
import pytest
from helpers.beir import write_beir
from helpers.records import make
from helpers.rerankers import DOCUMENTS, QUERY, write_reranker

from qwen3nb.bench import encode as bench_encode
from qwen3nb.datasets.pydocs.mteb_tasks import pydocs_sample
from qwen3nb.evaluation.mteb import speed
from qwen3nb.metrics.aggregate import reported
from qwen3nb.models.rerankers import load_reranker
from qwen3nb.report.card import extract
from qwen3nb.vectors import encode_file


@pytest.mark.integration
def test_extract_and_average(cli, checkpoint, tmp_path):
    out = tmp_path / "out"
    given = ("--prefix", "[R]", "--append-eos", "--verbose")
    prompts = ("--prompt", "query=find: ", "--prompt", "STS=as: ")
    # One folder is an option, the other one an argument.
    done = cli("extract", "--checkpoint", checkpoint, out, "--pooling", "last", *given, *prompts)
    assert done.exit_code == 0, done.output
    assert "differs from its source by at most 0.0e+00" in done.output
    assert "causal_leak: " in done.output
    stored = json.loads((out / "qwen3nb.json").read_text())
    assert (stored["prefix"], stored["append_eos"]) == ("[R]", True)
    assert stored["prompts"] == {"query": "find: ", "STS": "as: "}
    done = cli("average", checkpoint.parent, tmp_path / "mean", "--last-n", 5)
    assert done.exit_code == 0
    assert "5 checkpoints requested, 1 averaged" in done.output
    none = cli("average", tmp_path / "nope", tmp_path / "mean", "--last", 2)
    assert "nope: no such folder" in none.output


@pytest.fixture
def encode(cli, tmp_path, monkeypatch):
    monkeypatch.setattr(encode_file, "AT_ONCE", 2)
    source = tmp_path / "texts.jsonl"
    source.write_text("".join(f'{{"text": "{number}"}}\n' for number in range(7)))
    files = ("--input", source, "--out", tmp_path / "v")
    return lambda *options: cli("encode", "--model", "random:8", *files, *options)


def test_a_folder_of_parts_is_written_resumed_and_verified(encode, cli, tmp_path):
    folder = tmp_path / "v"
    assert f"{folder}: 7 x 8 float32, in 3 parts, 0 of them from" in encode("--shards", 3).output
    (folder / "part-000001.npy").unlink()
    (folder / "manifest.json").unlink()
    again = encode("--shards", 3).output
    assert "in 3 parts, 2 of them from other runs" in again
    refused = encode("--shards", 2)
    assert refused.exit_code == 1
    assert "planned in 3 parts; got --shards 2" in refused.output
    assert cli("cache", "verify", folder).output == "7 vectors; 0 problems\n"
    file = folder / "part-000001.npy"
    np.save(file, np.load(file) + 1)
    done = cli("cache", "verify", folder)
    assert (done.exit_code, str(file) in done.output) == (1, True)
    assert "7 vectors; 1 problems" in done.output


def test_threads_are_for_workers(encode):
    assert "--threads is for the workers of --ray" in encode("--threads", 2).output


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_reranker(tmp_path_factory.mktemp("reranker") / "tiny")


@pytest.fixture
def scored(cli, folder, tmp_path):
    """Score lines of pairs; click's result and the rows of the output, if there is one."""

    def scored(lines, *options):
        (tmp_path / "pairs.jsonl").write_text("\n".join(lines) + "\n")
        files = ("--pairs", tmp_path / "pairs.jsonl", "--out", tmp_path / "s.jsonl")
        done = cli("rerank", "pairs", "--model", folder, "--device", "cpu", *files, *options)
        output = tmp_path / "s.jsonl"
        rows = map(json.loads, output.read_text().splitlines()) if output.exists() else ()
        return done, list(rows)

    return scored


def line(query, document):
    return json.dumps({"query": query, "document": document, "extra": 1})


def test_pairs_in_scores_out_in_order(folder, scored):
    pairs = [(q, d) for d in DOCUMENTS for q in (QUERY, "another")]
    settings = {"max_length": 400, "instruction": "Find it."}
    done, rows = scored(
        [line(*pair) for pair in pairs], "--max-length", 400, "--instruction", "Find it."
    )
    assert "14 pairs, 0 documents and 0 queries cut to 400 tokens" in done.output
    expected = load_reranker(folder, device="cpu", **settings).score_pairs(pairs)
    assert [row["log_odds"] for row in rows] == expected.log_odds.tolist()
    assert [row["p_yes"] for row in rows] == expected.p_yes.tolist()
    assert rows[0].keys() == {"p_yes", "log_odds", "truncated"}
    assert {row["truncated"] for row in rows} == {False}


@pytest.mark.parametrize(
    ("broken", "message"),
    [('{"query": "q"}', ":2: field 'document' is None"), ("{", ":2: not JSON")],
)
def test_what_is_not_a_pair_is_named_in_a_line(scored, broken, message):
    done, rows = scored([line("q", "d"), broken])
    assert (done.exit_code, message in done.output, rows) == (1, True, [])
    assert "Traceback" not in done.output


def test_what_failed_is_named_after_what_was_finished(cli, folder, tmp_path, home):
    beir = write_beir(tmp_path / "words", queries=3)
    (tmp_path / "empty").mkdir()
    suite = ("rerank", "suite", "--model", folder, "--device", "cpu", "--depth", 4, "--limit", 2)
    suite += ("--first", "bm25", "--first", "random:8")
    done = cli(*suite, tmp_path / "empty", beir)
    assert done.exit_code == 1
    order = ["words: nDCG@10 0.", "mean of 1 data set: nDCG@10", "1 of 2 data sets failed"]
    positions = [done.output.index(each) for each in order]
    assert positions == sorted(positions)
    assert "empty: " in done.output
    assert list(home.glob("results/*/seed_0/words.rrf-bm25-random-8-4*.json"))
    again = cli(*suite, beir)
    assert (again.exit_code, "1 of 1 records reused" in again.output) == (0, True)


@pytest.mark.integration
def test_one_adapter_with_its_configuration(cli, adapters, tmp_path, home):
    """The spellings of the training's own evaluation, on a tier of its configuration."""
    seed = tmp_path / "rank_only_r4" / "seed_42"
    shutil.copytree(adapters / "outputs" / "rank_only_r4" / "seed_42", seed)
    (seed / "config.yaml").unlink()
    adapter = ("--checkpoint", seed / "checkpoints" / "final", "--model", adapters / "base")
    config = ("--config", adapters / "configs" / "rank_only_r4.yaml", "--eval-tier", "smoke")
    short = ("--limit", 3, "--depth", 4, "--device", "cpu", "--dtype", "float32")
    done = cli("rerank", "outputs", *adapter, *config, *short)
    assert done.exit_code == 0, done.output
    assert "PyDocsSampleRetrieval.bm25-4-limit3: nDCG@10" in done.output
    (file,) = seed.glob("results/PyDocs*.json")
    written = json.loads(file.read_text())
    assert len(written["per_query"]) == 3
    assert written["aggregate"].keys() == {"ndcg@10"}
    assert written["config"]["training"]["mode"] == "rank_only"


@pytest.fixture
def answer(cli):
    """Call a command with ``--json``; its document."""

    def call(*arguments, code=0):
        done = cli(*arguments, "--json")
        assert done.exit_code == code, done.output
        return json.loads(done.stdout)

    return call


def test_verify_says_which_file_does_not_hold(answer, cli, home):
    assert cli("verify").stdout == "no records yet; `qwen3nb eval` writes some\n"
    file = make("m").save()
    empty = cli("verify", file.parent)
    assert (empty.exit_code, "seed_0 contains no records; expected" in empty.output) == (2, True)
    assert cli("verify").stdout.strip() == "1 of 1 records are consistent"
    assert answer("verify") == {"records": 1, "problems": {}}
    value = json.loads(file.read_text())
    value["metrics"]["nDCG@10"]["value"] = 0.9
    file.write_text(json.dumps(value))
    done = cli("verify")
    assert done.exit_code == cli("verify", file).exit_code == 1
    assert str(file) in done.output
    assert "0 of 1 records are consistent" in done.output
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
    assert done.output.endswith("scores.csv: scores of 1 records\n")
    assert len((home / "scores.csv").read_text().splitlines()) == 3


def test_analyze(answer, home, tmp_path):
    (tmp_path / "outputs").mkdir()
    result = answer("analyze", "--outputs", tmp_path / "outputs")
    assert result["verdict"]["by_point"] == "NO RESULT"


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (("--by", "layer", "--task-steps"), "--task-steps is of the ratio; leave out --by"),
        (("--tier", "smoke"), "--tier is for exchanged parts; add --by layer"),
    ],
)
def test_options_of_the_other_analysis_are_refused(cli, home, tmp_path, words, cause):
    result = cli("analyze", "--outputs", tmp_path, *words)
    assert result.exit_code == 2
    assert cause in result.output


def test_the_layers_of_a_joint_adapter(answer, cli, home, tmp_path, monkeypatch):
    from helpers.answers import exchanged_layers

    calls = []

    def interference_by(*arguments, **options):
        calls.append((arguments, options))
        return exchanged_layers()

    monkeypatch.setattr("qwen3nb.answers.interference_parts.interference_by", interference_by)
    result = answer("analyze", "--outputs", tmp_path, "--by", "layer", "--kind", "embedding")
    assert result["configurations"][0]["named"] == ["1"]
    (arguments, options) = calls[0]
    assert arguments == ("layer", tmp_path)
    assert (options["kind"], options["base"], options["tier"]) == ("embedding", None, "smoke")
    shown = cli("analyze", "--outputs", tmp_path, "--by", "layer", "--out", tmp_path / "to").output
    assert "In embedding, layer 1 of joint_r8 costs 0.096 [0.023, 0.139] nDCG@10." in shown
    written = {file.name for file in (tmp_path / "to").iterdir()}
    endings = ("md", "json", "svg", "pdf", "tex")
    assert written == {f"interference-by-layer.{ending}" for ending in endings}


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


@pytest.mark.integration
def test_a_benchmark_that_is_kept(answer, cli, monkeypatch, tmp_path):
    ran = []
    peer = {"name": "peer", "way": "peer", "ratio": 1.0, "cpu_ratio": 1.0, "seconds": 2.0}
    peer |= {"cpu": 2.0, "cosine": 1.0, "cosine_mean": 1.0, "equal": True, "peak_share": 0.5}
    made = bench_encode.EncodeBench("m", "short", 2, 9, {}, 3, 32, (peer,), 1.5, {"float32": 20.0})
    monkeypatch.setattr(bench_encode, "bench_encode", lambda *of, **_: ran.append(of) or [made])
    document = answer("bench", "encode", "--model", "one,two", "--texts", "2")
    assert ran == [("one",), ("two",)]
    assert "threads" in document["machine"]
    assert [each["peak_gflops"] for each in document["results"]] == [{"float32": 20.0}] * 2
    (kept := tmp_path / "kept.json").write_text(json.dumps(document))
    compared = answer("bench", "compare", kept, kept)
    assert [(row["method"], row["speed"]) for row in compared["rows"]] == [("peer", 1.0)]
    assert f"A: {document['machine']}" in cli("bench", "diff", kept, kept).stdout


def test_the_minutes_of_a_search_model_are_those_of_its_index(answer, monkeypatch):
    fixed = speed.EncodingSpeed((0, 10**6), (0, 60))
    monkeypatch.setattr(speed, "measure_indexing", lambda _: fixed)
    rows = answer("tasks", "--tier", "fast", "--model", "bm25")
    assert all(each["minutes"] > 0 for each in rows)


def test_tasks_and_what_is_fetched_for_them(answer, cli, home, monkeypatch):
    listed = cli("tasks", "--tier", "smoke").stdout
    names = {each["task"] for each in answer("tasks", "--tier", "smoke")}
    assert names >= {"AuthorSTS", "PyDocsSampleRetrieval"}
    assert all(name in listed for name in names)
    monkeypatch.setattr(
        "qwen3nb.datasets.mirror.sizes", lambda needed, say: [(each, "1 MB") for each in needed]
    )
    need = cli("fetch", "--model", "e5-base-v2", "--list").stdout
    assert re.search(r"model +intfloat/e5-base-v2 .* 1 MB", need)
    (need,) = answer("fetch", "--model", "e5-base-v2", "--list")
    assert (need["id"], need["size"], need["kind"]) == ("intfloat/e5-base-v2", "1 MB", "model")


@pytest.mark.integration
def test_contamination_says_what_was_found_and_what_the_scores_are_without(answer, cli, home):
    train = home / "train.jsonl"
    queries = {id: text for id, text in pydocs_sample().queries.items() if len(text.split()) > 5}
    first, second = list(queries)[:2]
    train.write_text(json.dumps({"text": queries[first]}))
    for label, scores in (("m", (1.0, 0.25)), ("n", (0.5, 0.5))):
        make(label, dict(zip((first, second), scores, strict=True))).save()
    make("other", (), metrics={"nDCG@10": reported(0.7, n=200)}, per_query={}).save()
    task = "PyDocsSampleRetrieval"
    document = answer("contamination", "--train", train, "--tasks", task, code=3)
    found, _ = document["texts"]
    assert (found["task"], found["number"], found["hits"]) == (task, 200, [first])
    assert found["examples"][0]["where"] == "train.jsonl:1"
    scores = {row["model"]: row["without hits"] for row in document["scores"]}
    assert scores.pop("other") is None
    assert {label: score["value"] for label, score in scores.items()} == {"m": 0.25, "n": 0.5}
    shown = cli("contamination", "--train", train, "--tasks", task)
    assert shown.exit_code == 3
    assert "no scores per query" in shown.stdout
    assert queries[first][:50] in shown.stdout
    train.write_text('{"text": "another text"}')
    assert answer("contamination", "--train", train, "--tasks", task)["scores"] == []


def test_plan_says_what_each_task_needs_and_writes_the_plan(answer, cli, home):
    scores = [0.1, 0.9] * 20
    for label, column in (("m", scores), ("n", scores[::-1])):
        make(label, column, task="T").save()
    options = ("--model", "m", "--baseline", "n", "--tasks", "T,SciFact")
    document = answer("plan", *options, "--margin", "0.05", code=3)
    task, unknown = document["tasks"]
    assert (task["there"], unknown["deviation"]) == (40, None)
    assert document["plan"]["queries"] == {"T": task["needed"]}
    assert 'baseline = "n"' in (home / "plan-1.toml").read_text()
    shown = cli("plan", *options, "--margin", "1")
    assert (shown.exit_code, "give --deviation" in shown.stdout) == (0, True)
    assert "Measured before this plan: m, n." in " ".join(shown.stdout.split())
    assert (home / "plan-2.toml").is_file()
    again = cli("plan", *options, "--margin", "1", "--out", home / "plan-1.toml")
    assert again.exit_code == 1
    assert "plans are never replaced" in again.stderr
    unknown = cli("plan", "--model", "typo", "--baseline", "n", "--tasks", "T", "--margin", "1")
    assert unknown.exit_code == 1
    assert "no model 'typo'" in unknown.stderr


def test_a_command_uses_the_prompts_of_the_folder_unless_told_otherwise(cli, checkpoint, tmp_path):
    folder = extract(checkpoint, tmp_path / "encoder", prompts={"query": "find: "}).folder
    vectors = []
    for text, *given in (("a",), ("a", "--prompt", "none"), ("find: a", "--prompt", "none")):
        (tmp_path / "texts.jsonl").write_text(json.dumps({"text": text}))
        files = ("--input", tmp_path / "texts.jsonl", "--out", tmp_path / "v.npy")
        done = cli("encode", "--model", folder, "--role", "query", *files, *given)
        assert done.exit_code == 0, done.output
        vectors.append(np.load(tmp_path / "v.npy"))
        (tmp_path / "v.npy").unlink()
    own, none, typed = vectors
    np.testing.assert_array_equal(own, typed)
    assert not np.allclose(own, none)
