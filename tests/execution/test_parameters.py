"""The parameters that a notebook declares, and the papermill command that gives them."""

import ast
import os
import re
from pathlib import Path

import nbformat
import papermill
import papermill.cli  # first, as its command does: it loads our engine
import pytest
from click.testing import CliRunner
from helpers import REPOSITORY
from helpers.notebooks import call, notebook_of, save

import qwen3nb as q
from qwen3nb.execution.papermill_engine import VALUES_PER_OPTION, completed
from qwen3nb.execution.parameters import (
    RULES,
    Parameter,
    ParameterError,
    check_parameters,
    check_value,
    declared_parameters,
    read_config,
    read_notebook,
    read_parameters,
)
from qwen3nb.records.failures import failed_runs

NOTEBOOKS = sorted((REPOSITORY / "notebooks").rglob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_hold_no_outputs_and_no_logic(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    assert "papermill" not in notebook.metadata
    assert notebook.metadata.kernelspec.name == "python3"
    lesson = path.parent.name == "guide"
    for cell in code:
        tree = ast.walk(ast.parse(cell.source))
        assert lesson or not any(hasattr(node, "decorator_list") for node in tree)
    declared = declared_parameters(notebook)
    assert read_parameters(path) == declared  # which reads without nbformat
    for name, parameter in declared.items():
        rule = RULES.get(name)
        if rule is not None and (rule.choices or rule.minimum is not None):
            check_value(name, parameter.default)
    parameters = next(c for c in code if "parameters" in c.metadata.get("tags", ()))
    assert all("  # " in line for line in parameters.source.splitlines())
    for name in set(re.findall(r"\bq\.[a-z_]+(?:\.[a-z_]+)?", "\n".join(c.source for c in code))):
        value = q
        for part in name.split(".")[1:]:
            value = getattr(value, part)  # also those that only a failed run shows


@pytest.fixture
def declared():
    return read_parameters(REPOSITORY / "notebooks" / "eval.ipynb")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"teir": "smoke"}, "unknown parameter 'teir'; did you mean 'tier'"),
        ({"y=1;import os": 1}, "unknown parameter 'y=1;import os'"),
        (
            {"tier": "smok"},
            "unknown tier 'smok'; choose one of: smoke, pydocs, fast, full, multilingual, nano",
        ),
        ({"checkpoint": "nope"}, "no model 'nope'"),
        (
            {"languages": "german"},
            "unknown language of the tier smoke .*; choose one of: eng",
        ),
        ({"device": "gpu"}, "unknown device 'gpu'"),
        ({"batch_size": 0}, "batch_size is 0; expected at least 1"),
        ({"max_length": -1}, "max_length is -1; expected at least 0"),
        ({"checkpoint": "bm25", "pooling": "cls"}, "pooling 'cls' has no effect on bm25"),
        ({"checkpoint": "bm25+random", "prompts": "query=q"}, "prompts 'query=q' has no effect"),
        ({"checkpoint": "bm25", "dimensions": 8}, "dimensions 8 has no effect on bm25"),
        ({"output_dir": "/dev/null/x"}, "output_dir '/dev/null/x' cannot be written to"),
        ({"batch_size": "32"}, r"batch_size is '32' \(str\); expected int"),
        ({"batch_size": True}, r"batch_size is True \(bool\); expected int"),
        ({"seed": 1.5}, r"seed is 1.5 \(float\); expected int"),
        ({"checkpoint": 100}, "expected str; papermill's `-r`"),
        ({"seed": -1, "max_length": -1}, "(?s)seed is -1.*max_length is -1|max_length.*seed is"),
    ],
)
def test_wrong_parameters_are_refused_with_what_is_expected(declared, given, message):
    with pytest.raises(ParameterError, match=message):
        check_parameters(declared, {"checkpoint": "random", **given})


def test_defaults_are_filled_in(declared):
    values = check_parameters(declared, {"checkpoint": "bm25+random", "dimensions": 5})
    assert (values["tier"], values["dimensions"]) == ("smoke", 5)
    assert list(values) == list(declared)


@pytest.mark.parametrize(
    "cell", ["x = 1", "x: list = []", "x: int", "import os", "x: int = int(3)", "a.b: int = 1"]
)
def test_parameters_must_be_typed_literals(cell):
    with pytest.raises((ParameterError, ValueError)):
        declared_parameters(notebook_of(parameters=cell))


def test_a_parameter_has_its_type_default_and_comment(tmp_path):
    cell = """a: str = "é # no comment"  # one, with # in it\nb: bool = True\nc: int = 3# close"""
    declared = declared_parameters(notebook_of(parameters=cell))
    assert declared == {
        "a": Parameter("a", "str", "é # no comment", "one, with # in it"),
        "b": Parameter("b", "bool", True, ""),
        "c": Parameter("c", "int", 3, "close"),
    }


@pytest.mark.parametrize("text", ["", "[]", "{}"])
def test_a_file_that_is_no_notebook_is_named(tmp_path, text):
    file = tmp_path / "x.ipynb"
    file.write_text(text)
    with pytest.raises(ParameterError, match=r"x\.ipynb"):
        read_parameters(file)


def test_a_value_that_holds_a_secret_is_refused_and_not_repeated(monkeypatch):
    """It would be part of the name of a page, of records and of the book."""
    monkeypatch.setenv("GH_PAT", "correct-horse")
    declared = {"prefix": Parameter("prefix", "str", "")}
    for value in ("hf_" + "a1" * 17, "x correct-horse"):
        with pytest.raises(ParameterError, match="prefix contains ") as error:
            check_parameters(declared, {"prefix": value})
        assert value not in str(error.value)


def test_data_without_a_folder_are_told_what_a_folder_holds(tmp_path):
    check_value("data", f"{tmp_path}, {tmp_path}")
    with pytest.raises(ValueError, match=r"'beir/scifact/test': no such folder\..*corpus\.jsonl"):
        check_value("data", f"{tmp_path}, beir/scifact/test")


@pytest.mark.integration
@pytest.mark.parametrize("outside", [False, True], ids=["notebooks", "outside the study"])
def test_the_bare_papermill_command_works_as_typed(checkout, monkeypatch, outside):
    """With an empty pipe as its input, papermill alone overwrites the source."""
    monkeypatch.delenv("QWEN3NB_HOME")
    node = notebook_of("print('hello', x)")
    if outside:
        node.metadata = {}  # neither ours nor of any kernel
    file = save_in(checkout, node)
    before = file.read_bytes()
    named, folder = (file, checkout.parent) if outside else (file.name, file.parent)
    done = call(named, "-p", "x", "7", folder=folder, input="")
    assert done.returncode == 0, done.stderr
    assert "hello 7" in (checkout / "book" / "runs" / "small-x-7.ipynb").read_text()
    assert file.read_bytes() == before
    assert list((checkout / "results" / "partial").iterdir()) == []


def save_in(study, node):
    file = study / "notebooks" / "small.ipynb"
    nbformat.write(node, file)
    return file


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_papermill_itself_reads_every_parameter(path):
    """It reads no line with two signs of equality, such as in a comment, and warns of it."""
    declared = declared_parameters(nbformat.read(path, as_version=4))
    assert set(papermill.inspect_notebook(str(path))) == set(declared)


@pytest.mark.parametrize(
    "arguments",
    [("-p", "z", "1"), ("out.ipynb", "-p", "x", "one"), ("-p", "x=1;import os", "1")],
    ids=["undeclared", "another type, with output", "code"],
)
def test_papermill_refuses_what_a_notebook_does_not_declare(checkout, monkeypatch, arguments):
    marker = checkout / "ran"
    save(notebook_of(f"open({str(marker)!r}, 'w')"), "small")
    monkeypatch.chdir(checkout / "notebooks")
    done = CliRunner().invoke(papermill.cli.papermill, completed(["small.ipynb", *arguments]))
    assert isinstance(done.exception, SystemExit)  # not a traceback
    assert done.exit_code != 0
    assert "Error: " in done.output
    assert not marker.exists()
    assert not (checkout / "book" / "runs").exists()


@pytest.mark.integration
def test_an_explicit_output_stays_papermills_and_the_book_is_refused(checkout, monkeypatch):
    save(notebook_of("print('hi'); 1 / x"), "small")
    folder = checkout / "notebooks"
    done = call("small.ipynb", "out.ipynb", "-p", "x", "0", folder=folder)
    assert done.returncode == 1
    assert "hi" in (folder / "out.ipynb").read_text()
    assert not (checkout / "book" / "runs").exists()
    assert failed_runs() == []
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(papermill.cli.papermill, ["small.ipynb", "../book/runs/x.ipynb"])
    assert done.exit_code != 0
    assert "has only finished runs" in done.output


@pytest.mark.integration
def test_other_peoples_notebooks_run_as_ever(tmp_path, monkeypatch):
    node = notebook_of("print(undeclared)")
    del node.metadata["qwen3nb"]
    nbformat.write(node, tmp_path / "theirs.ipynb")
    monkeypatch.chdir(tmp_path)
    papermill.execute_notebook("theirs.ipynb", "out.ipynb", {"undeclared": 3}, progress_bar=False)
    assert '"3\\n"' in (tmp_path / "out.ipynb").read_text()


def test_our_table_of_papermills_options_is_complete():
    from papermill.cli import papermill as command

    takes = {
        option: each.nargs
        for each in command.params
        if each.param_type_name == "option" and not each.is_flag
        for option in each.opts
    }
    assert takes == VALUES_PER_OPTION


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
    given = completed(arguments)
    assert given[: len(arguments)] == arguments
    assert (len(given) - len(arguments)) == added
    if added:
        assert Path(given[-1]).parent == checkout / "results" / "partial"


def test_a_bare_name_is_looked_up_in_the_notebooks_of_the_checkout(checkout, monkeypatch):
    monkeypatch.chdir(checkout)
    named = str(checkout / "notebooks" / "eval.ipynb")
    given = completed(["-p", "tier", "full", "eval.ipynb"])
    assert given[:4] == ["-p", "tier", "full", named]
    assert Path(given[4]).parent == checkout / "results" / "partial"
    for arguments, expected in (
        (["eval.ipynb", "out.ipynb"], [named, "out.ipynb"]),
        (["missing.ipynb"], ["missing.ipynb"]),
        (["folder/eval.ipynb"], ["folder/eval.ipynb"]),
    ):
        assert completed(arguments) == expected


@pytest.mark.parametrize(
    ("name", "read"),
    [("c.json", read_config), ("c.toml", read_config), ("n.ipynb", read_notebook)],
)
def test_a_file_that_never_ends_or_fills_the_memory_is_not_read(tmp_path, name, read):
    file = tmp_path / name
    os.mkfifo(file)
    with pytest.raises(ParameterError, match=f"{name}: expected a regular file, got a pipe"):
        read(file)
    file.unlink()
    with file.open("wb") as stream:
        stream.truncate(700 << 20)
    with pytest.raises(ParameterError, match=f"{name}: 734,003,200 bytes; expected at most"):
        read(file)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("c.json", '{"seed": NaN}', "NaN"),
        ("c.json", '{"seed": 1, "seed": 2}', "the key 'seed' occurs twice"),
        ("c.yaml", "seed: 1\nseed: 2", r"the key 'seed' occurs twice in an object \(line 2\)"),
        ("c.yaml", "seed: .nan", r"nan is no number \(line 1\)"),
        ("c.json", "[" * 100_000, "nested too deeply"),
        ("c.toml", "seed = [{a = 0x" + "f" * 5000 + "}]", "a number of too many digits"),
        ("c.yaml", "seed: &a [*a]", "an alias stands for a part that it is in itself"),
    ],
)
def test_parameters_of_a_file_that_are_ambiguous_are_refused(tmp_path, name, text, message):
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(ParameterError, match=f"{name}: cannot be read .*{message}"):
        read_config(tmp_path / name)
