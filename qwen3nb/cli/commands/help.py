"""The command `qwen3nb help`."""

from __future__ import annotations

from typing import Any

import click


@click.command("help")
@click.argument("words", nargs=-1, metavar="[all | COMMAND]")
def show_help(words: tuple[str, ...]) -> None:
    """Explain a COMMAND, or list all of them.

    \b
    qwen3nb help all
    qwen3nb help eval
    """
    context: Any = click.get_current_context().find_root()
    program = context.command
    if words == ("all",):
        click.echo(program.text_of_all(context))
        return
    program.main([*words, "--help"], standalone_mode=False)
