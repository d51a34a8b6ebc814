import json

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

    done = invoke("rerank", "--model", folder, "--pairs", file, "--output", tmp_path / "s.jsonl",
                  "--device", "cpu", "--max-length", 400, "--instruction", "Find it.")  # fmt: skip

    assert done.exit_code == 0, done.output
    assert "14 pairs, 0 documents cut to 400 tokens" in done.output
    rows = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text().splitlines()]
    expected = load_reranker(
        folder, device="cpu", max_length=400, instruction="Find it."
    ).score_pairs(pairs)
    assert [row["log_odds"] for row in rows] == expected.log_odds.tolist()
    assert [row["p_yes"] for row in rows] == expected.p_yes.tolist()
    assert rows[0].keys() == {"p_yes", "log_odds", "truncated"}
    assert {row["truncated"] for row in rows} == {False}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"query": "q"}', "pairs.jsonl:2: field 'document' is None"),
        ("{", "pairs.jsonl:2: not JSON"),
        (json.dumps({"query": "fox " * 900, "document": "d"}), "query leaves no room"),
    ],
)
def test_pairs_that_are_none_are_told_in_a_line(folder, tmp_path, line, message):
    file = write_pairs(tmp_path / "pairs.jsonl", [("q", "d")])
    file.write_text(file.read_text() + line + "\n")
    output = tmp_path / "s.jsonl"
    done = invoke("rerank", "--model", folder, "--pairs", file, "--output", output,
                  "--device", "cpu")  # fmt: skip
    assert done.exit_code == 1
    assert message in done.output
    assert "Traceback" not in done.output
    assert not output.exists()


def test_a_suite_from_the_command_line(folder, tmp_path, home):
    beir = write_beir(tmp_path / "words", queries=3)
    done = invoke("rerank-suite", "--model", folder, "--device", "cpu", "--depth", 4,
                  "--first", "bm25", "--first", "random:8", beir)  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "words: nDCG@10 0." in done.output
    assert "mean: nDCG@10" in done.output
    assert list(home.glob("results/*/seed_0/words.rrf-bm25-random-8-4.json"))
