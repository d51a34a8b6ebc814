"""The commands of the command line, with their options."""

import click

from qwen3nb.cli.main import main

# Libraries that help may not load.
HEAVY = set(
    """
    IPython asyncio datasets httpx huggingface_hub matplotlib mteb nbformat numpy pandas papermill
    peft plotly pyarrow pydantic ray requests rich scipy sentence_transformers sklearn sphinx torch
    tqdm transformers yaml
    """.split()  # noqa: SIM905 - a list of words reads better as lines
)


def commands(*, groups=False):
    """Every command that runs something, or every group, by its words: ``("cache", "info")``."""
    return {
        words: command
        for words, command in _all(main, click.Context(main, info_name="qwen3nb"), ())
        if isinstance(command, click.Group) == groups
    }


def spellings(command):
    """Spellings of a command's options, by the name of what they set."""
    context = click.Context(command, info_name=command.name)
    return {
        each.name: [*each.opts, *each.secondary_opts]
        for each in command.get_params(context)
        if isinstance(each, click.Option)
    }


def having(spelling):
    """The commands that have an option, by their words."""
    return {
        words
        for words, command in commands().items()
        if any(spelling in each for each in spellings(command).values())
    }


def named(text):
    """The words of commands that are separated by commas."""
    return {tuple(each.split()) for each in " ".join(text.split()).split(", ")}


def _all(command, context, words):
    yield words, command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            below = click.Context(inner, parent=context, info_name=name)
            yield from _all(inner, below, (*words, name))
