"""Names of the house: one word for one thing, and the field's where it has one."""

import ast

from helpers import REPOSITORY

# CONTRIBUTING, "Words", says why: each stood for many things.
RETIRED = {"asked", "heard", "hears", "pace", "said", "told"}
PACKAGE = REPOSITORY / "qwen3nb"
FILES = sorted([*PACKAGE.rglob("*.py"), *(REPOSITORY / "tests").rglob("*.py")])


def names(file):
    """What a file names, with the line; of tests, functions are sentences, which may say all."""
    kinds = (ast.ClassDef, ast.FunctionDef) if file.is_relative_to(PACKAGE) else ast.ClassDef
    text = file.read_text(encoding="utf-8")
    if not any(word in text.lower() for word in RETIRED):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, kinds):
            yield node.name, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.alias) and node.asname:
            yield node.asname, 0
    yield file.stem.removeprefix("test_"), 0


def test_retired_names_do_not_come_back():
    hits = [
        f"{file.relative_to(REPOSITORY)}:{line} {name}"
        for file in FILES
        for name, line in names(file)
        if RETIRED & set(name.strip("_").lower().split("_"))
    ]
    assert hits == []
