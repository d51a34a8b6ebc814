"""Options as REQUIREMENTS.md spells them, and several models."""

import re

import pytest
from helpers.command_tree import commands

# As REQUIREMENTS.md types them, and what they set.
REQUIRED = {
    "extract --checkpoint c --output o --pooling mean --no-normalize --verbose": {
        "checkpoint": "c",
        "output": "o",
    },
    "average --checkpoint-dir c --output=o --last-n 5": {"folder": "c", "output": "o", "last": 5},
    "quick --encoder-path e --batch-size 8": {"model": "e", "batch_size": 8},
    "report --encoder-path e --output-dir o --retrieval-num-docs 9 --baselines b": {
        "model": "e",
        "output": "o",
        "limit": 9,
    },
    "card --model m --eval-results r --output o": {"results": "r", "output": "o"},
    "rerank-outputs --checkpoint a --config c --eval-tier fast": {
        "checkpoint": "a",
        "tier": "fast",
    },
    "rerank-suite --model m --eval-tier fast": {"tier": "fast"},
    "analyze --output-dir o": {"output_dir": "o"},
}


@pytest.mark.parametrize("line", REQUIRED)
def test_the_spellings_of_the_requirements_work_and_are_not_listed(checkout, cli, line):
    name, *words = line.split()
    params = commands()[name,].make_context(name, list(words)).params
    assert {key: str(params[key]) for key in REQUIRED[line]} == {
        key: str(value) for key, value in REQUIRED[line].items()
    }
    listed = cli(name, "--help").output
    assert not re.search(r"--(output|checkpoint-dir|encoder-path|output-dir|eval-\w+)\b", listed)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("paper --model a,b --model c", ("a", "b", "c")),
        ("sweep --model runs/checkpoint-[1,2],bm25", ("runs/checkpoint-[1,2]", "bm25")),
        ("sweep --checkpoint a", ("a",)),
        ("run speed --model a,b --model c", "a,b,c"),
        ("run speed", "all-MiniLM-L6-v2"),
        ("run reproduce", ""),
        ("bench encode", ("all-MiniLM-L6-v2", "qwen3-60M-random")),
        ("domain --queries q --documents d --model a;b,c", ("a;b,c",)),
    ],
)
def test_several_models_are_repeated_or_separated_by_commas(
    checkout, tmp_path, monkeypatch, line, expected
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a;b,c").mkdir()  # a folder with a comma in its name is one model
    words, dash, arguments = line.partition(" --")
    given = [*(dash + arguments).split()]
    params = commands()[tuple(words.split())].make_context(words, given).params
    assert params["models"] == expected
