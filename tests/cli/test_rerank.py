import json
import shutil

import pytest
from click.testing import CliRunner
from helpers.beir import write_beir
from helpers.rerankers import DOCUMENTS, QUERY, write_reranker

from qwen3nb.cli.main import main
from qwen3nb.models.rerankers.load import load_reranker


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return write_reranker(tmp_path_factory.mktemp("reranker") / "tiny")


def invoke(*arguments):
    return CliRunner().invoke(main, [str(each) for each in arguments])


def write_pairs(file, pairs):
    lines = [json.dumps({"query": q, "document": d, "extra": 1}) for q, d in pairs]
    file.write_text("\n".join(lines) + "\n")
    return file


def test_pairs_in_scores_out_in_order(folder, tmp_path):
    pairs = [(q, d) for d in DOCUMENTS for q in (QUERY, "another")]
    file = write_pairs(tmp_path / "pairs.jsonl", pairs)

    done = invoke(
        "rerank",
        "--model",
        folder,
        "--pairs",
        file,
        "--out",
        tmp_path / "s.jsonl",
        "--device",
        "cpu",
        "--max-length",
        400,
        "--instruction",
        "Find it.",
    )

    assert done.exit_code == 0, done.output
    assert "14 pairs, 0 documents and 0 queries cut to 400 tokens" in done.output
    rows = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text().splitlines()]
    expected = load_reranker(
        folder, device="cpu", max_length=400, instruction="Find it."
    ).score_pairs(pairs)
    assert [row["log_odds"] for row in rows] == expected.log_odds.tolist()
    assert [row["p_yes"] for row in rows] == expected.p_yes.tolist()
    assert rows[0].keys() == {"p_yes", "log_odds", "truncated"}
    assert {row["truncated"] for row in rows} == {False}


def test_a_query_too_long_is_cut_and_counted(folder, tmp_path):
    pairs = [("fox " * 900, "a dog"), ("fox", "a dog"), ("fox " * 900, "a fox")]
    done = invoke(
        "rerank",
        "--model",
        folder,
        "--device",
        "cpu",
        "--out",
        tmp_path / "s.jsonl",
        "--pairs",
        write_pairs(tmp_path / "pairs.jsonl", pairs),
    )
    assert "3 pairs, 0 documents and 1 queries cut to 512 tokens" in done.output


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"query": "q"}', "pairs.jsonl:2: field 'document' is None"),
        ("{", "pairs.jsonl:2: not JSON"),
    ],
)
def test_pairs_that_are_none_are_told_in_a_line(folder, tmp_path, line, message):
    file = write_pairs(tmp_path / "pairs.jsonl", [("q", "d")])
    file.write_text(file.read_text() + line + "\n")
    output = tmp_path / "s.jsonl"
    done = invoke("rerank", "--model", folder, "--pairs", file, "--out", output, "--device", "cpu")
    assert done.exit_code == 1
    assert message in done.output
    assert "Traceback" not in done.output
    assert not output.exists()


def test_a_suite_from_the_command_line(folder, tmp_path, home):
    beir = write_beir(tmp_path / "words", queries=3)
    done = invoke(
        "rerank-suite",
        "--model",
        folder,
        "--device",
        "cpu",
        "--depth",
        4,
        "--first",
        "bm25",
        "--first",
        "random:8",
        beir,
    )
    assert done.exit_code == 0, done.output
    assert "words: nDCG@10 0." in done.output
    assert "mean of 1 data set: nDCG@10" in done.output
    assert list(home.glob("results/*/seed_0/words.rrf-bm25-random-8-4.json"))


def test_what_failed_is_named_after_what_was_finished(folder, tmp_path):
    beir = write_beir(tmp_path / "words", queries=3)
    suite = ("rerank-suite", "--model", folder, "--device", "cpu", "--depth", 4, "--limit", 2)
    (tmp_path / "empty").mkdir()
    done = invoke(*suite, tmp_path / "empty", beir)
    assert done.exit_code == 1
    assert "words: nDCG@10 0." in done.output
    assert "1 of 2 data sets failed" in done.output
    assert "empty: " in done.output
    assert "1 of 1 records reused" in invoke(*suite, beir).output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("rerank-suite", "--model", "m"), "either data sets or --tier; got neither"),
        (("rerank-suite", "--model", "m", "--tier", "fast", "x"), "got both, x and fast"),
        (("rerank-suite", "--model", "m", "--eval-tier", "ful"), "'smoke', 'pydocs', 'fast'"),
        (("rerank-outputs",), "either OUTPUTS or --adapter"),
        (("rerank-outputs", "o", "--tier", "fast", "--data", "x"), "data sets or --tier; got both"),
    ],
)
def test_what_to_evaluate_on_must_be_clear(arguments, message):
    done = invoke(*arguments)
    assert done.exit_code == 2
    assert message in done.output


@pytest.mark.integration
def test_one_adapter_with_its_configuration(adapters, tmp_path, home):
    """The spellings of the training's own evaluation, on a tier of its configuration."""
    seed = tmp_path / "rank_only_r4" / "seed_42"
    shutil.copytree(adapters / "outputs" / "rank_only_r4" / "seed_42", seed)
    (seed / "config.yaml").unlink()
    done = invoke(
        "rerank-outputs",
        "--checkpoint",
        seed / "checkpoints" / "final",
        "--model",
        adapters / "base",
        "--config",
        adapters / "configs" / "rank_only_r4.yaml",
        "--eval-tier",
        "smoke",
        "--limit",
        3,
        "--depth",
        4,
        "--device",
        "cpu",
        "--dtype",
        "float32",
    )
    assert done.exit_code == 0, done.output
    assert "PyDocsSampleRetrieval.bm25-4-limit3: nDCG@10" in done.output
    (file,) = seed.glob("results/PyDocs*.json")
    written = json.loads(file.read_text())
    assert len(written["per_query"]) == 3
    assert written["aggregate"].keys() == {"ndcg@10"}
    assert written["config"]["training"]["mode"] == "rank_only"
