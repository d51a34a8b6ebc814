"""`--model` and `--out` mean the same in every command."""

import re

import pytest
from helpers.command_tree import commands, options

# Together with these, every command is in one of two tables: a new one has to be put in.
WITHOUT_MODEL = """
analyze, average, book, demo, new, verify, cache info, cache verify,
bench gpu, bench rerank, run ablation, run calibration, run compare, run data,
run extract, run interference, run leaderboard, run status, run training
"""
WITHOUT_OUT = """
book, demo, push, quick, reproduce, rerank-outputs, tasks, verify, cache info, cache prune,
cache verify, bench encode, bench eval, bench precision, run ablation, run ann, run calibration,
run compare, run data, run explorer, run interference, run leaderboard, run probes, run reproduce,
run speed, run status, run training
"""

# What the first versions called it: command, earlier spelling, value of the argument's name.
EARLIER = """
analyze --output-dir --outputs
analyze --report --out
average --checkpoint-dir --training
average --output --out
bench rerank --folder --out
card --output --out
compare --current --baseline
domain --output-dir --out
encode --output --out
extract --checkpoint --model
extract --output --out
fetch --models --model
figures --models --model
paper --models --model
report --encoder-path --model
report --output --out
report --output-dir --out
reproduce --models --model
rerank --output --out
rerank-outputs --base --model
rerank-outputs --checkpoint --adapter
rerank-suite --output --out
sweep --checkpoint --model
tables --models --model
tasks --cost --model
"""

# Both are listed: the parameter's name is papermill's.
OF_PARAMETERS = """
eval --checkpoint --model
eval --output-dir --out
fetch --mirror --out
run ann --checkpoint --model
run explorer --models --model
run extract --output --out
run probes --checkpoint --model
run reproduce --models --model
run rerank --checkpoint --model
run rerank --output-dir --out
run speed --models --model
sweep --output-dir --out
"""


def rows(text):
    for line in text.strip().splitlines():
        *words, earlier, now = line.split()
        yield tuple(words), earlier, now


def named(text):
    return {tuple(each.split()) for each in text.strip().replace("\n", " ").split(", ")}


def spelled(command):
    return {spelling for each in options(command).values() for spelling in each}


@pytest.mark.parametrize(
    ("spelling", "without"), [("--model", WITHOUT_MODEL), ("--out", WITHOUT_OUT)]
)
def test_every_command_takes_it_by_one_name(checkout, spelling, without):
    everything = commands()
    having = {words for words, command in everything.items() if spelling in spelled(command)}
    assert everything.keys() - having == named(without)


def test_no_other_name_is_used_for_a_model_or_an_output(checkout):
    common = {earlier: now for _, earlier, now in rows(EARLIER) if now in ("--model", "--out")}
    others = {  # with these names, and another meaning
        ("analyze", "--output-dir"),
        ("rerank-outputs", "--checkpoint"),
    }
    for words, command in commands().items():
        for spellings in options(command).values():
            for each in set(spellings) & set(common):
                if (" ".join(words), each) not in others:
                    assert common[each] in spellings, (words, each)


@pytest.mark.parametrize("table", [EARLIER, OF_PARAMETERS], ids=["earlier", "of parameters"])
def test_an_earlier_spelling_sets_the_same_value(checkout, table):
    everything = commands()
    for words, own, common in rows(OF_PARAMETERS):
        both = [each for each in options(everything[words]).values() if own in each]
        assert [common in each for each in both] == [True], (words, own)


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
    "analyze --output-dir o": {"output_dir": "o"},
}


@pytest.mark.parametrize("line", REQUIRED)
def test_the_spellings_of_the_requirements_work_and_are_not_listed(checkout, cli, line):
    name, *words = line.split()
    params = commands()[name,].make_context(name, list(words)).params
    assert {key: params[key] for key in REQUIRED[line]} == {
        key: type(params[key])(value) for key, value in REQUIRED[line].items()
    }
    listed = cli(name, "--help").output
    assert (
        re.search(r"--(output|checkpoint-dir|encoder-path|output-dir|eval-\w+)\b", listed) is None
    )


@pytest.mark.parametrize(
    ("words", "arguments", "expected"),
    [
        (("paper",), ["--model", "a,b", "--model", "c"], ("a", "b", "c")),
        (("sweep",), ["--model", "runs/checkpoint-[1,2],bm25"], ("runs/checkpoint-[1,2]", "bm25")),
        (("run", "speed"), ["--model", "a,b", "--model", "c"], "a,b,c"),
        (("run", "speed"), [], "all-MiniLM-L6-v2"),
        (("run", "reproduce"), [], ""),
        (("bench", "encode"), [], ("all-MiniLM-L6-v2", "qwen3-60M-random")),
    ],
)
def test_several_models_are_repeated_or_separated_by_commas(checkout, words, arguments, expected):
    command = commands()[words]
    context = command.make_context(words[-1], arguments)
    name = "checkpoints" if words == ("sweep",) else "models"
    assert context.params[name] == expected


def test_a_folder_with_a_comma_in_its_name_is_one_model(checkout, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a,b").mkdir()
    context = commands()["domain",].make_context(
        "domain", ["--queries", "q", "--documents", "d", "--model", "a,b"]
    )
    assert context.params["models"] == ("a,b",)


def test_a_missing_argument_is_named_with_its_option(cli):
    done = cli("quick")
    assert done.exit_code == 2
    assert done.output == "Error: Missing MODEL, or option --model. See `qwen3nb quick -h`.\n"
