"""Names of the house: one word for one thing, and the field's where it has one."""

import ast

from helpers import REPOSITORY

# CONTRIBUTING, "Words", says why: each stood for many things.
RETIRED = {
    "asked",
    "chosen",
    "found",
    "heard",
    "hears",
    "pace",
    "place",
    "places",
    "said",
    "told",
}
PACKAGE = sorted((REPOSITORY / "qwen3nb").rglob("*.py"))
TESTS = sorted((REPOSITORY / "tests").rglob("*.py"))


def nodes(file):
    return ast.walk(ast.parse(file.read_text(encoding="utf-8")))


def names(node):
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.alias) and node.asname:
        yield node.asname


def retired(file, *, functions=True):
    for node in nodes(file):
        if isinstance(node, ast.FunctionDef) and not functions:
            continue  # the name of a test is a sentence
        for name in names(node):
            if RETIRED & set(name.strip("_").lower().split("_")):
                yield f"{file.relative_to(REPOSITORY)}:{getattr(node, 'lineno', '?')} {name}"


def test_a_retired_name_is_noticed(tmp_path):
    file = REPOSITORY / "tests" / "test_names.py"
    assert list(retired(file)) == []
    source = tmp_path / "x.py"
    source.write_text("found = 1\ndef _was_told(PLACES): ...\nfoundation = 2\n")
    hits = [name for node in nodes(source) for name in names(node)]
    words = [set(name.strip("_").lower().split("_")) & RETIRED for name in sorted(hits)]
    assert [bool(each) for each in words] == [True, True, True, False]


def test_retired_names_do_not_come_back():
    assert [each for file in PACKAGE for each in retired(file)] == []
    assert [each for file in TESTS for each in retired(file, functions=False)] == []


def test_file_names_use_no_retired_word():
    assert [f.name for f in PACKAGE + TESTS if RETIRED & set(f.stem.split("_"))] == []
