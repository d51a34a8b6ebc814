"""The commands of the command line, with their options."""

import click

from qwen3nb.cli.main import main
from qwen3nb.cli.program import CommandWithParts

# Libraries that help may not load.
HEAVY = set(
    """
    IPython asyncio datasets httpx huggingface_hub matplotlib mteb nbformat numpy pandas papermill
    peft pyarrow pydantic ray requests rich scipy sentence_transformers sklearn sphinx torch
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


def _all(command, context, words):
    yield words, command
    if isinstance(command, CommandWithParts):
        for name, part in command.parts.items():
            yield (*words, name), part
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            below = click.Context(inner, parent=context, info_name=name)
            yield from _all(inner, below, (*words, name))
