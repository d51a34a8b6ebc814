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

from qwen3nb.cli import program
from qwen3nb.cli.main import main
from qwen3nb.evaluation.run import EvaluationError
from qwen3nb.execution.parameters import ParameterError


@pytest.mark.parametrize("command", main.list_commands(None))
def test_every_command_has_help(cli, command, checkout):
    done = cli(command, "--help")
    assert done.exit_code == 0
    assert "Usage:" in done.output
    if command != "bench":
        assert f"qwen3nb {command} " in done.output.split("Options:")[0]


def test_a_prompt_with_an_equals_sign_is_refused(cli, tmp_path):
    given = ("--prompt", "query=find: ", "--prompt", "passage=this: ")
    done = cli("extract", tmp_path, tmp_path / "out", *given)
    assert done.exit_code == 2
    assert "--prompt query 'query: '; got 'query=find: ' and '--prompt'" in done.output


@pytest.mark.integration
def test_extract_and_average_from_the_command_line(cli, checkpoint, tmp_path):
    out = tmp_path / "out"
    given = ("--prefix", "[R]", "--append-eos", "--allow", "decoder", "--verbose")
    prompts = [word for name in ("query", "qeury") for word in ("--prompt", name, "find: ")]
    # One folder is an option, the other one an argument.
    done = cli("extract", "--checkpoint", checkpoint, out, "--pooling", "last", *given, *prompts)
    assert done.exit_code == 0, done.output
    assert "differs from its source by at most 0.0e+00" in done.output
    assert "prompt 'qeury' is used only where a program names it; is it 'query'?" in done.output
    assert "causal_leak: " in done.output
    stored = json.loads((out / "qwen3nb.json").read_text())
    assert (stored["prefix"], stored["append_eos"]) == ("[R]", True)
    assert stored["prompts"] == dict.fromkeys(("query", "qeury"), "find: ")
    card = (out / "README.md").read_text()
    assert "query 'find: '" in card
    for section in ("Training", "Use", "Pooling", "Limitations", "Citation"):
        assert f"# {section}\n" in card
    done = cli("push", out, "lab/model", "--dry-run")
    assert done.exit_code == 0, done.output
    assert "model.safetensors" in done.output
    assert "nothing was uploaded" in done.output
    done = cli("average", checkpoint.parent, tmp_path / "mean", "--last-n", 5)
    assert done.exit_code == 0
    assert "has 1: all" in done.output
    by_name = ("--checkpoint-dir", checkpoint.parent, "--output", tmp_path / "again")
    assert cli("average", *by_name, "--last-n", 1).exit_code == 0
    weights = {(tmp_path / n / "model.safetensors").read_bytes() for n in ("mean", "again")}
    assert len(weights) == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("extract {no} {out}", "no such folder"),
        ("extract {checkpoint} {out} --pooling men", "'men' is not one of 'mean'"),
        ("extract {checkpoint}", "Missing OUTPUT, or option --out."),
        ("extract --output {out}", "Missing CHECKPOINT, or option --model."),
        ("extract {checkpoint} {out} --allow nan", "choose one of: decoder"),
        ("average --output {out} a b", "unexpected extra argument (b)"),
        ("average {folder} {out} --last 2", "checkpoint-N"),
        ("average {folder} {out}", "either --last N or --best N"),
        ("card --model {checkpoint}", "no qwen3nb.json"),
        ("push {checkpoint} lab/model", "this is not an export"),
        ("run ablation -p training nowhere", "no folder 'nowhere' with the check"),
        ("run extract -p average lst", "unknown average 'lst'; choose one of"),
        ("eval --checkpoint randm", "Did you mean 'random'"),
        ("run nonsense", "no notebook 'nonsense'"),
        ("results --to {out}.xls", ".parquet"),
        ("results --model thre", "one, two"),
        ("results --results {no}", "no such folder of records"),
    ],
)
def test_errors_are_told_without_a_traceback(cli, tmp_path, checkpoint, checkout, line, message):
    for label in ("one", "two"):
        make(label).save()
    paths = {"no": tmp_path / "no", "out": tmp_path / "o", "folder": tmp_path}
    done = cli(*line.format(checkpoint=checkpoint, **paths).split())
    assert done.exit_code != 0
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

        def fails(kind=kind):
            raise kind("what to do")

        group = program.Program("q", contents={}, package="")
        group.add_command(click.command("fails")(fails))
        done = CliRunner().invoke(group, ["fails"])
        assert done.output == "Error: what to do\n", kind
        assert done.exit_code == getattr(kind("what to do"), "exit_code", 1)


def test_verify_says_which_file_does_not_hold(cli, home):
    assert cli("verify").stdout == "no records yet; `qwen3nb eval` makes some\n"
    file = make("m").save()
    empty = cli("verify", file.parent)
    assert (empty.exit_code, "seed_0 has no records; expected" in empty.output) == (2, True)
    assert cli("verify").stdout.strip() == "1 of 1 records hold"
    value = json.loads(file.read_text())
    value["metrics"]["nDCG@10"]["value"] = 0.9
    file.write_text(json.dumps(value))
    done = cli("verify")
    assert done.exit_code == cli("verify", file).exit_code == 1
    assert str(file) in done.output
    assert "0 of 1 records hold" in done.output


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
