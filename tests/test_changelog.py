"""The list of changes is short, and what it names exists."""

import dataclasses
import operator
import re

import pytest
from helpers import REPOSITORY
from helpers.command_tree import commands

import qwen3nb as q
from qwen3nb.cli.spellings import current_words

TEXT = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
QUOTED = re.findall(r"`([^`]+)`", TEXT)
HOMES = {"q": q, "results": q.Results, "result": q.Result, "record": q.Result}
FIELDS = {field.name for field in dataclasses.fields(q.Result)}
MOST_CHANGES, MOST_LINES = 14, 45  # of a release


def named_commands():
    """The commands of the list, such as ``eval``; ``COMMAND`` stands for any."""
    names = re.findall(r"`qwen3nb ([a-z-]+)", TEXT)
    return sorted(set(names))


def named_values():
    """The dotted names of the list, such as ``q.stats.mean_difference``."""
    names = [re.match(r"(q|results?|record)(\.\w+)+", quoted) for quoted in QUOTED]
    return sorted({name.group() for name in names if name})


@pytest.mark.parametrize("name", named_commands())
def test_a_command_of_the_list_exists(name):
    tree = {**commands(groups=True), **commands()}
    words = tuple(current_words([name]))  # an earlier release had other names
    assert words in tree or words == ("help",)


def test_an_option_of_the_list_exists():
    named = set(re.findall(r"--[a-z][a-z0-9-]+", " ".join(QUOTED)))
    existing = {"--help"}
    for command in commands().values():
        for parameter in command.params:
            existing.update(parameter.opts)
    assert "--margin" in named
    assert named - existing == set()


@pytest.mark.parametrize("name", named_values())
def test_a_name_of_the_list_exists(name):
    home, _, rest = name.partition(".")
    if HOMES[home] is q.Result and rest in FIELDS:  # of an object, not of its class
        return
    assert operator.attrgetter(rest)(HOMES[home]) is not None


def test_a_release_has_about_ten_changes():
    releases = re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]
    assert [release.split("]")[0] for release in releases] == ["[Unreleased", "[0.1.0"]
    for release in releases:
        changes = re.findall(r"^- ", release, flags=re.MULTILINE)
        assert len(changes) <= MOST_CHANGES
        assert len(release.splitlines()) <= MOST_LINES
