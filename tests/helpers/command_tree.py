"""The commands of the command line, with their options."""

import click

from qwen3nb.cli.main import main


def commands():
    """Every command that runs something, by its words: ``("cache", "info")``."""
    return dict(_leaves(main, click.Context(main, info_name="qwen3nb"), ()))


def groups():
    """Every group of commands, by its words; ``()`` is the program."""
    return {
        words: command
        for words, command in _all(main, click.Context(main, info_name="qwen3nb"), ())
        if isinstance(command, click.Group)
    }


def options(command):
    """Spellings of a command's options, by the name of what they set."""
    context = click.Context(command, info_name=command.name)
    return {
        each.name: [*each.opts, *each.secondary_opts]
        for each in command.get_params(context)
        if isinstance(each, click.Option)
    }


def _all(command, context, words):
    yield words, command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            below = click.Context(inner, parent=context, info_name=name)
            yield from _all(inner, below, (*words, name))


def _leaves(command, context, words):
    for each, inner in _all(command, context, words):
        if not isinstance(inner, click.Group):
            yield each, inner
