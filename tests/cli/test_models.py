"""Extract, average, push, encode and rerank from the command line."""

import json
import shutil

import numpy as np
import pytest
from helpers.beir import write_beir
from helpers.rerankers import DOCUMENTS, QUERY, write_reranker

from qwen3nb.models.rerankers.load import load_reranker
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
    none = cli("average", tmp_path / "nope", tmp_path / "mean")
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
    assert f"{folder}: 7 x 8 float32, in 3 parts, of which 0 were" in encode("--shards", 3).output
    (folder / "part-000001.npy").unlink()
    (folder / "manifest.json").unlink()
    again = encode("--shards", 3).output
    assert "in 3 parts, of which 2 were there before" in again
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
        done = cli("rerank", "--model", folder, "--device", "cpu", *files, *options)
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
    suite = ("rerank-suite", "--model", folder, "--device", "cpu", "--depth", 4, "--limit", 2)
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
    done = cli("rerank-outputs", *adapter, *config, *short)
    assert done.exit_code == 0, done.output
    assert "PyDocsSampleRetrieval.bm25-4-limit3: nDCG@10" in done.output
    (file,) = seed.glob("results/PyDocs*.json")
    written = json.loads(file.read_text())
    assert len(written["per_query"]) == 3
    assert written["aggregate"].keys() == {"ndcg@10"}
    assert written["config"]["training"]["mode"] == "rank_only"
