"""The reference pages name everything that the code declares, and import none of it."""

import re

import click
from helpers import REPOSITORY
from helpers.command_tree import commands

import qwen3nb as q
from qwen3nb import paths
from qwen3nb.cli import reference
from qwen3nb.cli.main import main
from qwen3nb.execution.parameters import read_parameters
from qwen3nb.metrics.retrieval import METRICS
from qwen3nb.tiers import TIERS

PAGES = {
    file.stem: re.findall(r"```\{reference\} (.+)", file.read_text(encoding="utf-8"))
    for file in sorted((REPOSITORY / "book" / "reference").glob("*.md"))
}
BLOCKS = [each for blocks in PAGES.values() for each in blocks]


def text_of(block):
    kind, *about = block.split()
    return reference._PAGES[kind](*about)


def sections(text):
    return dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))


def test_every_command_is_on_a_page_with_all_its_options(checkout):
    headings = {each.split()[1] for each in BLOCKS if each.startswith("commands")}
    assert headings == {*main.contents}
    shown = sections("".join(text_of(f"commands {each}") for each in main.contents))
    for words, command in commands().items():
        if words[0] == "run":  # the notebooks: on the page of their parameters
            continue
        section = shown[f"qwen3nb {' '.join(words)}"]
        for each in command.get_params(click.Context(command)):
            if isinstance(each, click.Option) and "help" not in each.name:
                assert each.opts[0] in section, (words, each.name)


def test_every_parameter_metric_and_tier_is_on_a_page(checkout):
    shown = sections(reference.parameters_text())
    for name in paths.notebook_names():
        declared = read_parameters(paths.find_notebook(name))
        assert re.findall(r"^\| `(\w+)` \|", shown[name], re.MULTILINE) == [*declared]
    assert re.findall(r"`(\w+)@k`", reference.metrics_text()) == [*METRICS]
    assert [*sections(reference.tiers_text())] == ["Which tier", *TIERS]
    assert {"parameters", "metrics", "tiers"} <= {*BLOCKS}


def test_every_public_name_is_on_one_page():
    shown = " ".join(each.removeprefix("python ") for each in BLOCKS if each.startswith("python"))
    listed = shown.split()
    assert sorted(listed) == sorted({*q.__all__} - {"__version__"})


def test_a_declaration_has_signature_fields_and_methods():
    text = reference.python_text("evaluate", "Result", "TestCollection", "stats")
    assert ".. py:function:: q.evaluate(" in text
    assert "| ``label``" not in text  # of another class
    assert "   .. py:method:: from_beir(" in text
    for name in q.stats.__all__:
        assert f".. py:function:: q.stats.{name}(" in text
