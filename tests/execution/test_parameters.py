"""The parameters that a notebook declares, and those that are refused."""

import ast
import re

import nbformat
import papermill  # noqa: F401 - first, as its command does: it loads our engine
import pytest
from helpers import REPOSITORY
from helpers.notebooks import notebook_of

import qwen3nb as q
from qwen3nb.execution.parameters import (
    CHOICES,
    MINIMUM,
    Parameter,
    ParameterError,
    check_parameters,
    check_value,
    declared_parameters,
    read_parameters,
)

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
        assert parameter.default in CHOICES.get(name, (parameter.default,))
        if name in MINIMUM:
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
        ({"tier": "smok"}, "unknown tier 'smok'; choose one of: smoke, pydocs, fast, full"),
        ({"checkpoint": "nope"}, "no model 'nope'"),
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
        with pytest.raises(ParameterError, match="prefix holds ") as error:
            check_parameters(declared, {"prefix": value})
        assert value not in str(error.value)


def test_data_without_a_folder_are_told_what_a_folder_holds(tmp_path):
    check_value("data", f"{tmp_path}, {tmp_path}")
    with pytest.raises(ValueError, match=r"'beir/scifact/test': no such folder\..*corpus\.jsonl"):
        check_value("data", f"{tmp_path}, beir/scifact/test")
