"""Groups of commands: how they are listed, and how what is mistyped is answered.

A summary is shown whole. What is wrong with a command line is one line, with the near choices and
the command whose ``--help`` lists the rest. Whatever a command prints passes `guarded_streams`:
escape sequences in names and messages are shown as text, and secrets are removed.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import click

from qwen3nb import paths
from qwen3nb.utils.terminal import guarded_streams, traceback_here

__all__ = ["CommandGroup", "Program"]

_COMPLETING = "_QWEN3NB_COMPLETE"  # set by a shell's completion
_WHOLE = 1000  # characters: more than any first sentence


class CommandGroup(click.Group):
    """A group that lists its commands with their first sentences whole, and knows near names."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands and their summaries."""
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        rows = [(name, each.get_short_help_str(_WHOLE)) for name, each in commands.items() if each]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is named; a mistyped one is answered with those near it."""
        name = args[0]
        parses = not ctx.resilient_parsing and not name.startswith("-")
        if parses and self.get_command(ctx, name) is None:
            known = self.list_commands(ctx)
            meant = self.elsewhere(name) or _near(name, known) or known
            ctx.fail(f"No such command {name!r}. Did you mean {_or(meant)}?")
        return super().resolve_command(ctx, args)

    def elsewhere(self, name: str) -> list[str]:
        """Return what another command does under this name."""
        return []


class Program(CommandGroup):
    """The top of the command line: output is guarded, errors of usage are one line.

    A command's module is imported when the command is used, so that ``--help`` imports none.

    Attributes:
        contents: by heading, the names of commands, each with its home, such as ``tasks:fetch``,
            and a summary; without a summary it is not listed.
        package: where the modules of homes are.
    """

    def __init__(
        self,
        *args: Any,
        contents: Mapping[str, Mapping[str, tuple[str, str]]],
        package: str,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.contents, self.package = contents, package
        self._homes = {
            name: home for names in contents.values() for name, (home, _) in names.items()
        }

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the commands, in the order of the help."""
        return list(self._homes)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Return a command, imported now; None if there is none of this name."""
        if name not in self.commands and name in self._homes:
            module, _, attribute = self._homes[name].partition(":")
            home = importlib.import_module(f"{self.package}.{module}")
            self.add_command(getattr(home, attribute), name)
        return self.commands.get(name)

    def elsewhere(self, name: str) -> list[str]:
        """Return how to run the study's notebook of this name, if there is one."""
        with suppress(paths.NoStudyError):
            return [f"run {name}"] if name in paths.notebook_names() else []
        return []

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands under their headings, aligned across them."""
        width = max(map(len, self._homes))
        for heading, names in self.contents.items():
            rows = [(name.ljust(width), text) for name, (_, text) in names.items() if text]
            with formatter.section(heading):
                formatter.write_dl(rows)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command, with output and error messages guarded; or complete one for a shell."""
        kwargs.setdefault("prog_name", self.name)
        with nullcontext() if os.environ.get(_COMPLETING) else guarded_streams():
            return super().main(*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command; as a program of its own, a traceback at its end is guarded, too."""
        if args or kwargs or os.environ.get(_COMPLETING):
            return self.main(*args, **kwargs)
        with guarded_streams(), traceback_here():
            return self.main()

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Read the options of the program itself."""
        with _one_line():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Read the command and its options, and run it."""
        with _one_line():
            return super().invoke(ctx)


class _Mistake(click.ClickException):
    """A command line that cannot be understood, in one line."""

    exit_code = 2


@contextmanager
def _one_line() -> Iterator[None]:
    """Turn an error of usage within the block into one line."""
    try:
        yield
    except paths.NoStudyError as error:
        raise click.ClickException(str(error)) from None
    except click.UsageError as error:
        if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):
            raise  # its message is the help
        text = " ".join(error.format_message().split()) + _near_choice(error)
        if error.ctx is not None:
            end = "" if text.endswith((".", "?", ")")) else "."
            text += f"{end} See `{error.ctx.command_path} -h`."
        raise _Mistake(text) from None


def _near_choice(error: click.UsageError) -> str:
    """The end of a message: the choices near a mistyped one."""
    kind = getattr(getattr(error, "param", None), "type", None)
    wrong = re.match(r"'(.*?)' is not one of", error.message)
    if not isinstance(kind, click.Choice) or not wrong:
        return ""
    near = _near(wrong[1], [str(each) for each in kind.choices])
    return f" Did you mean {_or(near)}?" if near else ""


def _near(name: str, known: Sequence[str]) -> list[str]:
    from difflib import get_close_matches

    return get_close_matches(name, known)


def _or(names: Sequence[str]) -> str:
    """The names as a choice: ``'a', 'b' or 'c'``."""
    *first, last = map(repr, names)
    return f"{', '.join(first)} or {last}" if first else last
