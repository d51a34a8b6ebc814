"""The command line as users type it."""

import ast
import importlib
import json

import click
import papermill  # noqa: F401 - first, as its command does: it loads our engine
import pytest
from click.testing import CliRunner
from helpers import REPOSITORY
from helpers.records import make

from qwen3nb.cli.errors import without_traceback
from qwen3nb.cli.main import main
from qwen3nb.evaluation.run import EvaluationError
from qwen3nb.execution.parameters import ParameterError

COMMANDS = (
    "analyze", "average", "bench", "book", "cache", "card", "compare", "demo", "domain", "encode",
    "eval", "extract", "fetch", "figures", "new", "paper", "push", "quick", "report", "reproduce",
    "rerank", "rerank-outputs", "rerank-suite", "results", "run", "sweep", "tables", "tasks",
    "verify",
)  # fmt: skip


# All options since the first version; scripts rely on them.
FLAGS = """
analyze: --output-dir --results --task-steps --report --exit-code --resamples --seed
average: --checkpoint-dir --output --last --last-n --best --best-n --metric --higher-is-better
bench calibration: --output --seed
bench cache: --vectors --dimension --rounds --growth --folder --json
bench encode: --model --texts --rounds --device --dtype --json
bench extraction: --size --repeats --folder --json
bench precision: --model --dtype --texts --rounds --json
bench rerank: --size --passages --documents --rounds --no-memory --folder --json
bench search: --documents --dimension --queries -k --json
bench statistics: --systems --tasks --queries --loop-pairs --resamples --seed --json
book: --tier
cache prune: --older-than --model --damaged --all --to --dry-run
card: --model --output --results --eval-results --tier --facts
compare: --current --task --model --results --metric --alpha --threshold --most --json
    --markdown --gate --resamples --seed
demo: --at-once
domain: --queries --documents --model --preset --table --id-column --text --date --no-boost
    --name --output-dir --reports --no-report --check --metric --alpha --threshold
    --fresh --seed --pooling --max-length --dimensions --batch-size --device --dtype --no-cache
    --cache-limit --mirror
encode: --model --input --output --role --no-cache --pooling --max-length --dimensions
    --batch-size --device --dtype
eval: --checkpoint --tier --pooling --max-length --dimensions --tasks --limit --prefix --append-eos
    --bidirectional --batch-size --device --dtype --seed --fresh --mirror
extract: --checkpoint --output --pooling --no-normalize --max-length --dtype --prefix
    --append-eos --prompt --label --allow --onnx --verbose
fetch: --tier --tasks --models --list --mirror
figures: --format --out --tier --columns
push: --dry-run --private --revision --message
quick: --pooling --max-length --dimensions --batch-size --device --dtype --json
report: --model --encoder-path --baselines --tier --tasks --limit --retrieval-num-docs --output
    --output-dir --facts --seed --pooling --batch-size --device --dtype --mirror
reproduce: --models --tasks --mirror
rerank: --model --adapter --instruction --max-length --template --device --dtype --pairs
    --output
rerank-outputs: --base --data --embedding-task --depth --max-length --tier --eval-tier --limit
    --device --dtype --checkpoint --config --msmarco --mirror
rerank-suite: --model --adapter --instruction --max-length --template --device --dtype --first
    --depth --output --seed --fresh --tier --eval-tier --limit --msmarco --mirror
run: -p --parameter --fresh
sweep: --checkpoint --tier --notebook -p --parameter --at-once --no-book --dry-run --fresh
    --mirror
tables: --format --out --tier --seed
tasks: --tier --type --language --benchmark --cost
"""


def lines_of(text):
    """Lines, each joined with the indented lines below it."""
    return [" ".join(line.split()) for line in text.strip().replace("\n    ", " ").splitlines()]


@pytest.mark.parametrize("line", lines_of(FLAGS), ids=lambda line: line.partition(":")[0])
def test_options_of_earlier_versions_still_exist(checkout, line):
    names, _, flags = line.partition(": ")
    context, command = click.Context(main), main
    for name in names.split():
        command = command.get_command(context, name)
        context = click.Context(command, parent=context, info_name=name)
    options = {flag for each in command.get_params(context) for flag in each.opts}
    assert set(flags.split()) <= options


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(cli, command, checkout):
    done = cli(command, "--help")
    assert done.exit_code == 0
    assert "Usage:" in done.output
    if command != "bench":
        assert f"qwen3nb {command} " in done.output.split("Options:")[0]


def test_commands_listed_are_commands_tested():
    assert sorted(main.list_commands(click.Context(main))) == sorted(COMMANDS)


def test_a_prompt_with_an_equals_sign_is_refused(cli, tmp_path):
    given = ("--prompt", "query=find: ", "--prompt", "passage=this: ")
    done = cli("extract", tmp_path, tmp_path / "out", *given)
    assert done.exit_code == 2
    assert "--prompt query 'query: '; got 'query=find: ' and '--prompt'" in done.output


@pytest.mark.integration
def test_extract_and_average_from_the_command_line(cli, checkpoint, tmp_path):
    done = cli("extract", checkpoint, tmp_path / "out", "--pooling", "last")
    assert done.exit_code == 0, done.output
    assert "differs from its source by at most 0.0e+00" in done.output
    done = cli(
        "extract", checkpoint, tmp_path / "out", "--pooling", "last", "--prefix", "[R]",
        "--append-eos", "--prompt", "query", "find: ", "--prompt", "qeury", "find: ",
        "--allow", "decoder", "--verbose",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "prompt 'qeury' is used only where a program names it; is it 'query'?" in done.output
    assert "causal_leak: " in done.output
    stored = json.loads((tmp_path / "out" / "qwen3nb.json").read_text())
    assert (stored["prefix"], stored["append_eos"]) == ("[R]", True)
    assert stored["prompts"] == dict.fromkeys(("query", "qeury"), "find: ")
    card = (tmp_path / "out" / "README.md").read_text()
    assert "query 'find: '" in card
    for section in ("Training", "Use", "Pooling", "Limitations", "Citation"):
        assert f"# {section}\n" in card
    done = cli("push", tmp_path / "out", "lab/model", "--dry-run")
    assert done.exit_code == 0, done.output
    assert "model.safetensors" in done.output
    assert "nothing was uploaded" in done.output
    done = cli("average", checkpoint.parent, tmp_path / "mean", "--last-n", 5)
    assert done.exit_code == 0
    assert "has 1: all" in done.output


@pytest.mark.integration
def test_folders_are_arguments_or_options(cli, checkpoint, tmp_path):
    by_name = cli("average", "--checkpoint-dir", checkpoint.parent, "--output", tmp_path / "a",
                  "--last-n", 1)  # fmt: skip
    assert by_name.exit_code == 0, by_name.output
    assert cli("average", checkpoint.parent, tmp_path / "b", "--last-n", 1).exit_code == 0
    both = [(tmp_path / name / "model.safetensors").read_bytes() for name in "ab"]
    assert both[0] == both[1]
    mixed = cli("extract", "--checkpoint", checkpoint, tmp_path / "out", "--no-normalize")
    assert mixed.exit_code == 0, mixed.output
    assert (tmp_path / "out" / "model.safetensors").is_file()
    for arguments, message in (
        (("extract", checkpoint), "Missing OUTPUT, or option --out."),
        (("extract", "--output", tmp_path / "x"), "Missing CHECKPOINT, or option --model."),
        (("average", "--output", tmp_path / "x", "a", "b"), "unexpected extra argument (b)"),
    ):
        done = cli(*arguments)
        assert (done.exit_code, message in done.output) == (2, True), done.output


def test_errors_are_told_without_a_traceback(cli, tmp_path, checkpoint, checkout):
    for arguments, message in (
        (("extract", tmp_path / "no", tmp_path / "out"), "no such folder"),
        (("extract", checkpoint, tmp_path / "o", "--pooling", "men"), "'men' is not one of 'mean'"),
        (("average", tmp_path, tmp_path / "o", "--last", 2), "checkpoint-N"),
        (("average", tmp_path, tmp_path / "o"), "either --last N or --best N"),
        (("card", "--model", checkpoint), "no qwen3nb.json"),
        (("extract", checkpoint, tmp_path / "o", "--allow", "nan"), "choose one of: decoder"),
        (("push", checkpoint, "lab/model"), "this is not an export"),
        (("run", "ablation", "-p", "training", "nowhere"), "no folder 'nowhere' with the check"),
        (("run", "extract", "-p", "average", "lst"), "unknown average 'lst'; choose one of"),
        (("eval", "--checkpoint", "randm"), "Did you mean 'random'"),
        (("run", "nonsense"), "no notebook 'nonsense'"),
    ):
        done = cli(*arguments)
        assert done.exit_code != 0, arguments
        assert message in done.output
        assert "Traceback" not in done.output
        assert isinstance(done.exception, SystemExit)


def public_errors():
    """The error classes of the package, except those that never leave their module."""
    for file in sorted((REPOSITORY / "qwen3nb").rglob("*.py")):
        module = ".".join(file.relative_to(REPOSITORY).with_suffix("").parts)
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            bases = [ast.unparse(base) for base in getattr(node, "bases", ())]
            raised = any(base.endswith(("Error", "Exception")) for base in bases)
            if raised and not node.name.startswith("_"):
                yield getattr(importlib.import_module(module), node.name)


def test_every_expected_error_is_one_message():
    kinds = set(public_errors())
    assert {EvaluationError, ParameterError} < kinds
    for kind in (*kinds, ImportError):

        @click.command()
        @without_traceback
        def fails(kind=kind):
            raise kind("what to do")

        done = CliRunner().invoke(fails)
        assert done.output == "Error: what to do\n", kind
        assert done.exit_code == getattr(kind("what to do"), "exit_code", 1)


def test_verify_says_which_file_does_not_hold(cli, home):
    from helpers.records import make

    assert cli("verify").stdout == "no records yet; `qwen3nb eval` makes some\n"
    file = make("m").save()
    empty = cli("verify", file.parent)
    assert (empty.exit_code, "seed_0 has no records; expected a folder" in empty.output) == (
        2,
        True,
    )
    assert cli("verify").stdout.strip() == "1 of 1 records hold"
    value = json.loads(file.read_text())
    value["metrics"]["nDCG@10"]["value"] = 0.9
    file.write_text(json.dumps(value))
    done = cli("verify")
    assert done.exit_code == 1
    assert str(file) in done.output
    assert "0 of 1 records hold" in done.output
    assert cli("verify", file).exit_code == 1


def test_results_lists_records_and_writes_their_scores(cli, home):
    for label in ("one", "two"):
        make(label, [0.25, 0.5], task="PyDocsSampleRetrieval").save(home / "results")
    shown = cli("results").output
    assert all(each in shown for each in ("one", "two", "0.375", "2 queries"))
    rows = json.loads(cli("results", "--model", "two", "--json").stdout)
    assert [(row["model"], row["value"]) for row in rows] == [("two", 0.375)]
    done = cli("results", "--to", home / "scores.csv", "--model", "one", "--tier", "smoke")
    assert done.output.endswith("scores.csv: the scores of 1 records\n")
    assert len((home / "scores.csv").read_text().splitlines()) == 3
    for options, message in (
        (("--to", home / "scores.xls"), ".parquet"),
        (("--model", "thre"), "one, two"),
        (("--results", home / "none"), "no such folder of records"),
    ):
        done = cli("results", *options)
        assert (done.exit_code, message in done.output) == (1, True), done.output
