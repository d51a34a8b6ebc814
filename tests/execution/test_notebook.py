import ast
import importlib
import json
import os
import re
import shutil
import subprocess
import threading
import time
from pathlib import Path

import click
import nbformat
import papermill  # noqa: F401 - first, as its command does: it loads our engine
import pytest
from click.testing import CliRunner
from helpers import REPOSITORY
from helpers.notebooks import call, notebook_of, save

from qwen3nb.cli.errors import plainly
from qwen3nb.cli.main import main
from qwen3nb.evaluation.run import EvaluationError
from qwen3nb.execution import notebook as notebooks
from qwen3nb.execution.notebook import page_name, run_notebook
from qwen3nb.execution.papermill_argv import OPTIONS, with_output
from qwen3nb.execution.parameters import ParameterError, check_parameters, declared_parameters
from qwen3nb.execution.publish import clean
from qwen3nb.execution.sweep import Job, sweep
from qwen3nb.records.store import load_results

NOTEBOOKS = sorted((REPOSITORY / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_hold_no_outputs_and_no_logic(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    assert "papermill" not in notebook.metadata
    assert notebook.metadata.kernelspec.name == "python3"
    assert len(notebook.cells) <= 18
    for cell in code:
        assert len(cell.source.splitlines()) <= 24
        assert "def " not in cell.source
        assert "class " not in cell.source
    assert declared_parameters(notebook)
    parameters = next(c for c in code if "parameters" in c.metadata.get("tags", ()))
    assert all("  # " in line for line in parameters.source.splitlines())


@pytest.fixture
def declared():
    return declared_parameters(nbformat.read(REPOSITORY / "notebooks/eval.ipynb", as_version=4))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"teir": "smoke"}, "unknown parameter 'teir'; did you mean 'tier'"),
        ({"y=1;import os": 1}, "unknown parameter 'y=1;import os'"),
        ({"tier": "smok"}, "unknown tier 'smok'; choose one of: smoke, pydocs, fast, full"),
        ({"pooling": "men"}, "choose one of: auto, mean, cls, last, weighted_mean"),
        ({"checkpoint": "nope"}, "no model 'nope'"),
        ({"device": "gpu"}, "unknown device 'gpu'"),
        ({"dtype": "int8"}, "unknown dtype 'int8'"),
        ({"batch_size": 0}, "batch_size is 0; expected at least 1"),
        ({"max_length": -1}, "max_length is -1; expected 0 or more"),
        ({"output_dir": "/dev/null/x"}, "output_dir '/dev/null/x' cannot be written to"),
        ({"batch_size": "32"}, r"batch_size is '32' \(str\); expected int"),
        ({"batch_size": True}, r"batch_size is True \(bool\); expected int"),
        ({"seed": 1.5}, r"seed is 1.5 \(float\); expected int"),
        ({"checkpoint": 100}, "`-r` passes a value as it is typed"),
    ],
)
def test_wrong_parameters_are_refused_with_what_would_do(declared, given, message):
    with pytest.raises(ParameterError, match=message):
        check_parameters(declared, {"checkpoint": "random", **given})


def test_all_problems_are_told_at_once(declared):
    with pytest.raises(ParameterError) as error:
        check_parameters(declared, {"teir": "x", "seed": "y"})
    assert str(error.value.message).count("\n") == 1


def test_defaults_are_filled_in(declared):
    values = check_parameters(declared, {"checkpoint": "random", "seed": 3})
    assert values["tier"] == "smoke"
    assert values["seed"] == 3
    assert list(values) == list(declared)


@pytest.mark.parametrize(
    "cell", ["x = 1", "x: list = []", "x: int", "import os", "x: int = int(3)", "a.b: int = 1"]
)
def test_parameters_must_be_typed_literals(cell):
    with pytest.raises((ParameterError, ValueError)):
        declared_parameters(notebook_of(parameters=cell))


def test_a_notebook_without_parameters_is_refused():
    node = notebook_of()
    node.cells[1].metadata["tags"] = []
    with pytest.raises(ParameterError, match="one cell tagged 'parameters'; found 0"):
        declared_parameters(node)


def test_pages_of_different_runs_have_different_names(declared, home, encoder_folder):
    def name(**given):
        return page_name("eval", check_parameters(declared, given), declared)

    shutil.copytree(encoder_folder, home / "runs" / "a" / "encoder")
    elsewhere = name(checkpoint=str(encoder_folder))
    names = [
        name(checkpoint="random"),
        name(checkpoint="random", seed=1),
        name(checkpoint="random:64"),
        name(checkpoint="random", tier="pydocs"),
        name(checkpoint="runs/a/encoder"),
        name(checkpoint="runs/a/encoder", pooling="last"),
        elsewhere,
    ]
    assert len(set(names)) == len(names)
    assert names[0] == "eval-random-smoke"
    assert names[4] == "eval-a-encoder-smoke"
    assert all(set(each) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-")
               for each in names)  # fmt: skip


@pytest.mark.slow
def test_a_finished_run_is_published_whole_and_reused(checkout):
    path = save(notebook_of("print(x)", "import sys; print('warn', file=sys.stderr)"), "small")
    page = run_notebook(path, {"x": 5}, show_progress=False)
    assert page == checkout / "book" / "runs" / "small.ipynb"
    node = nbformat.read(page, as_version=4)
    assert any("5" in str(cell.outputs) for cell in node.cells if cell.cell_type == "code")
    assert node.metadata.qwen3nb.parameters == {"x": 5}
    stamp = page.stat().st_mtime_ns
    assert run_notebook(path, {"x": 5}, show_progress=False).stat().st_mtime_ns == stamp
    assert run_notebook(path, {"x": 6}, show_progress=False).stat().st_mtime_ns != stamp
    assert run_notebook(path, {"x": 6}, fresh=True, show_progress=False) == page
    assert list((checkout / "results" / "partial").iterdir()) == []


@pytest.mark.slow
def test_tokens_do_not_reach_the_kernel_or_the_page(checkout, monkeypatch):
    token = "hf_secretsecretsecret"  # noqa: S105 - made up
    monkeypatch.setenv("HF_TOKEN", token)
    path = save(
        notebook_of("import os; print(os.environ.get('HF_TOKEN'), 'hf_' + 'secret' * 3)"), "s"
    )
    page = run_notebook(path, {}, show_progress=False)
    text = page.read_text()
    assert "None [removed]" in text
    assert "secretsecret" not in text
    assert os.environ["HF_TOKEN"] == token


def test_cleaning_drops_widgets_and_progress_and_names_the_page():
    node = notebook_of("a", "b")
    widget = nbformat.v4.new_output(
        "display_data", {"application/vnd.jupyter.widget-view+json": {}, "text/plain": "0%"}
    )
    noise = nbformat.v4.new_output("stream", name="stderr", text=" 10%|#\r 100%|##\nreal warning\n")
    only_noise = nbformat.v4.new_output("stream", name="stderr", text="3it/s\r")
    node.cells[2].outputs = [widget, noise, only_noise]
    cleaned = clean(node, title="m · smoke")
    assert cleaned.cells[0].source == "# m · smoke"
    assert [output.text for output in cleaned.cells[2].outputs] == ["real warning"]
    assert "remove-cell" in cleaned.cells[1].metadata.tags
    assert node.cells[0].source == "# A page"


def test_our_table_of_papermills_options_is_complete():
    from papermill.cli import papermill as command

    takes = {
        option: each.nargs
        for each in command.params
        if each.param_type_name == "option" and not each.is_flag
        for option in each.opts
    }
    assert takes == OPTIONS


@pytest.mark.parametrize(
    ("arguments", "added"),
    [
        (["eval.ipynb"], True),
        (["eval.ipynb", "-p", "tier", "smoke"], True),
        (["-p", "tier", "smoke", "--cwd", ".", "eval.ipynb"], True),
        (["eval.ipynb", "out.ipynb", "-p", "tier", "smoke"], False),
        (["-", "-p", "tier", "smoke"], False),
        (["eval.ipynb", "--help-notebook"], False),
        (["other.ipynb"], False),
        (["--version"], False),
        ([], False),
    ],
)
def test_an_output_is_added_for_our_notebooks_alone(checkout, monkeypatch, arguments, added):
    monkeypatch.chdir(checkout / "notebooks")
    found = with_output(arguments)
    assert found[: len(arguments)] == arguments
    assert (len(found) - len(arguments)) == added
    if added:
        assert Path(found[-1]).parent == checkout / "results" / "partial"


def test_a_notebook_elsewhere_is_left_alone(tmp_path, monkeypatch):
    (tmp_path / "eval.ipynb").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert with_output(["eval.ipynb"]) == ["eval.ipynb"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "stdin", [{"stdin": subprocess.DEVNULL}, {"input": ""}], ids=["null", "pipe"]
)
def test_the_bare_papermill_command_works_as_typed(checkout, stdin):
    """With an empty pipe for a standard input, papermill alone overwrites the source."""
    save(notebook_of("print('hello', x)"), "small")
    before = (checkout / "notebooks" / "small.ipynb").read_bytes()
    done = call("small.ipynb", "-p", "x", "7", folder=checkout / "notebooks", **stdin)
    assert done.returncode == 0, done.stderr
    assert "hello 7" in (checkout / "book" / "runs" / "small.ipynb").read_text()
    assert (checkout / "notebooks" / "small.ipynb").read_bytes() == before
    assert list((checkout / "results" / "partial").iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("output", [(), ("out.ipynb",)], ids=["bare", "with output"])
def test_papermill_refuses_what_a_notebook_does_not_declare(checkout, output):
    marker = checkout / "ran"
    save(notebook_of(f"open({str(marker)!r}, 'w')"), "small")
    for arguments in (["-p", "z", "1"], ["-p", "x", "one"], ["-p", "x=1;import os", "1"]):
        done = call("small.ipynb", *output, *arguments, folder=checkout / "notebooks")
        assert done.returncode != 0
        assert "Error: " in done.stderr
        assert "Traceback" not in done.stderr
    assert not marker.exists()
    assert not (checkout / "book" / "runs").exists()


@pytest.mark.slow
def test_an_explicit_output_stays_papermills_and_the_book_is_refused(checkout):
    save(notebook_of("print('hi')"), "small")
    folder = checkout / "notebooks"
    assert call("small.ipynb", "out.ipynb", folder=folder).returncode == 0
    assert "hi" in (folder / "out.ipynb").read_text()
    assert not (checkout / "book" / "runs").exists()
    done = call("small.ipynb", "../book/runs/x.ipynb", folder=folder)
    assert done.returncode != 0
    assert "only finished runs belong" in done.stderr


@pytest.mark.slow
def test_other_peoples_notebooks_run_as_ever(tmp_path):
    node = notebook_of("print(undeclared)")
    del node.metadata["qwen3nb"]
    nbformat.write(node, tmp_path / "theirs.ipynb")
    done = call("theirs.ipynb", "out.ipynb", "-p", "undeclared", "3", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert '"3\\n"' in (tmp_path / "out.ipynb").read_text()


@pytest.mark.slow
def test_a_kernel_killed_from_outside(checkout):
    """What a machine without memory does: the kernel goes, the command fails, the page says so."""
    flag = checkout / "pid"
    code = f"import os, time; open({str(flag)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    save(notebook_of(code), "small")

    def kill():
        while not (flag.is_file() and flag.read_text()):
            time.sleep(0.1)
        os.kill(int(flag.read_text()), 9)

    threading.Thread(target=kill, daemon=True).start()
    done = call("small.ipynb", folder=checkout / "notebooks", stdin=subprocess.DEVNULL)
    assert done.returncode != 0
    page = (checkout / "book" / "runs" / "small.ipynb").read_text()
    assert "This run failed" in page
    assert "its kernel died" in page


@pytest.mark.slow
def test_the_way_from_a_model_to_a_page_and_the_book(checkout, encoder_folder, make_checkpoint):
    """eval.ipynb for an encoder, bm25 and a toy that was renamed by somebody hostile."""
    from qwen3nb.book.accessibility import images_without_alt
    from qwen3nb.book.build import build_book
    from qwen3nb.extraction.extract import extract

    source = make_checkpoint(checkout / "runs" / "checkpoint-3", seed=9)
    extract(source, checkout / "runs" / "bad", label="x<script>alert(1)</script>_*y*")
    jobs = [Job("eval", {"checkpoint": spec}) for spec in (str(encoder_folder), "bm25", "runs/bad")]
    outcomes = sweep(jobs, show_progress=False)
    assert [outcome.status for outcome in outcomes] == ["done"] * 3, outcomes[0].log.read_text()
    assert [outcome.status for outcome in sweep(jobs, show_progress=False)] == ["reused"] * 3
    assert len(load_results()) == 5 + 2 + 5

    index = build_book(show_progress=False)
    pages = {page.stem: page.read_text() for page in index.parent.rglob("*.html")}
    landing = pages["index"]
    for result in load_results():
        if result.task.name == "PyDocsSampleRetrieval":
            assert f"{result.main.value:.3f}" in landing
    guilty = [name for name, page in pages.items() if "<script>alert" in page]
    assert not guilty, re.findall(".*<script>alert.*", pages[guilty[0]])
    (bad,) = [page for name, page in pages.items() if name.startswith("eval-bad")]
    assert "x-script-alert-1-script-" in bad
    # Links from the landing page lead to pages.
    assert 'href="runs/eval-bm25-smoke.html"' in landing
    assert "eval-bm25-smoke" in pages
    assert images_without_alt(index.parent) == []


def test_a_changed_input_is_a_new_run(checkout, make_checkpoint):
    node = nbformat.read(REPOSITORY / "notebooks/eval.ipynb", as_version=4)
    declared = declared_parameters(node)

    def key(**given):
        return notebooks.run_key(node, check_parameters(declared, given))

    assert key(checkpoint="random") == key(checkpoint="random")
    assert key(checkpoint="random") != key(checkpoint="random", seed=1)
    folder = make_checkpoint(checkout / "runs" / "checkpoint-4", seed=1)
    before = key(checkpoint=str(folder))
    shutil.rmtree(folder)
    make_checkpoint(folder, seed=2)
    assert key(checkpoint=str(folder)) != before
    reader = notebook_of("1", qwen3nb={"reads": "results"})
    first = notebooks.run_key(reader, {})
    file = checkout / "results" / "m" / "seed_0" / "t.json"
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    assert notebooks.run_key(reader, {}) != first


@pytest.fixture
def cli():
    runner = CliRunner()
    return lambda *arguments: runner.invoke(main, list(map(str, arguments)))


COMMANDS = (
    "analyze", "average", "bench", "book", "cache", "card", "compare", "demo", "domain", "encode",
    "eval", "extract", "fetch", "figures", "push", "quick", "reproduce", "rerank",
    "rerank-outputs", "rerank-suite", "run", "sweep", "tables", "tasks", "verify",
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(cli, command):
    done = cli(command, "--help")
    assert done.exit_code == 0
    assert "Usage:" in done.output
    if command not in ("bench", "book", "demo"):
        assert f"qwen3nb {command} " in done.output.split("Options:")[0]


def test_commands_listed_are_commands_tested():
    assert set(main.commands) == set(COMMANDS)


def test_extract_and_average_from_the_command_line(cli, checkpoint, tmp_path):
    done = cli("extract", checkpoint, tmp_path / "out", "--pooling", "last")
    assert done.exit_code == 0, done.output
    assert "differs from its source by at most 0.0e+00" in done.output
    done = cli(
        "extract", checkpoint, tmp_path / "out", "--pooling", "last", "--prefix", "[R]",
        "--append-eos", "--prompt", "query", "find: ", "--allow", "decoder", "--verbose",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "causal_leak: " in done.output
    stored = json.loads((tmp_path / "out" / "qwen3nb.json").read_text())
    assert (stored["prefix"], stored["append_eos"]) == ("[R]", True)
    assert stored["prompts"] == {"query": "find: "}
    done = cli("push", tmp_path / "out", "lab/model", "--dry-run")
    assert done.exit_code == 0, done.output
    assert "model.safetensors" in done.output
    assert "nothing was uploaded" in done.output
    done = cli("average", checkpoint.parent, tmp_path / "mean", "--last-n", 5)
    assert done.exit_code == 0
    assert "has 1: all were taken" in done.output


def test_the_bench_of_extraction_measures_and_compares(cli, tmp_path):
    done = cli("bench", "extraction", "--size", "tiny", "--repeats", 1, "--folder", tmp_path)
    assert done.exit_code == 0, done.output
    rows = [line.split() for line in done.output.splitlines() if line.startswith(("av", "ex"))]
    assert {(row[0], row[1]) for row in rows} >= {("average", "qwen3nb"), ("extract", "naive")}
    assert all(float(row[-1]) > 0 for row in rows)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("qwen3nb-bench")]
    done = cli("bench", "extraction", "--size", "small")
    assert "unknown size 'small'; choose one of: tiny, 60M, 0.6B" in done.output


def test_errors_are_told_without_a_traceback(cli, tmp_path, checkpoint, checkout):
    for arguments, message in (
        (("extract", tmp_path / "no", tmp_path / "out"), "no such folder"),
        (("extract", checkpoint, tmp_path / "o", "--pooling", "men"), "'men' is not one of 'mean'"),
        (("average", tmp_path, tmp_path / "o", "--last", 2), "holds no checkpoint-N folder"),
        (("average", tmp_path, tmp_path / "o"), "expected one of last=N or best=N"),
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
    """The error classes that the package defines, but for those that never leave their module."""
    for file in sorted((REPOSITORY / "qwen3nb").rglob("*.py")):
        module = ".".join(file.relative_to(REPOSITORY).with_suffix("").parts)
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            bases = [ast.unparse(base) for base in getattr(node, "bases", ())]
            raised = any(base.endswith(("Error", "Exception")) for base in bases)
            if raised and not node.name.startswith("_"):
                yield getattr(importlib.import_module(module), node.name)


def test_every_error_of_ours_is_told_in_a_line():
    kinds = set(public_errors())
    assert {EvaluationError, ParameterError} < kinds
    for kind in (*kinds, ImportError):

        @click.command()
        @plainly
        def fails(kind=kind):
            raise kind("what to do")

        done = CliRunner().invoke(fails)
        assert done.output == "Error: what to do\n", kind
        assert done.exit_code == getattr(kind, "exit_code", 1)


def test_run_reads_values_as_the_notebook_declares_them(cli, checkout):
    save(notebook_of("pass"), "small")
    done = cli("run", "small", "-p", "x", "one")
    assert done.exit_code != 0
    assert "x is 'one'; expected int" in done.output
    done = cli("run", "small", "-p", "y", "1")
    assert "unknown parameter 'y'" in done.output


def test_verify_says_which_file_does_not_hold(cli, home):
    from helpers.records import make

    file = make("m").save()
    assert cli("verify").output.strip() == "1 of 1 records hold"
    value = json.loads(file.read_text())
    value["metrics"]["nDCG@10"]["value"] = 0.9
    file.write_text(json.dumps(value))
    done = cli("verify")
    assert done.exit_code == 1
    assert str(file) in done.output
    assert "0 of 1 records hold" in done.output
    assert cli("verify", file).exit_code == 1
