"""The program: its commands, the study they work in, and one-line errors.

Summaries are not shortened. A mistake on the command line is reported in one line, with similar
choices and the command whose ``--help`` lists the rest. All output passes through
`guarded_streams`: escape sequences in names and messages are shown as text, and secrets are
removed.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import click

from qwen3nb import paths
from qwen3nb.cli.spellings import respelled
from qwen3nb.utils.atomic_files import explained
from qwen3nb.utils.children import keep_exit_statuses
from qwen3nb.utils.secrets import key_bound_to_hosts_in
from qwen3nb.utils.terminal import guarded_streams, say

if TYPE_CHECKING:
    from qwen3nb.records.results import Results

# What PyTorch, CUDA and oneDNN say.
_LACK_OF_MEMORY = re.compile("allocate memory|out of memory|could not create a (primitive|memory)")
_COMPLETING = "_QWEN3NB_COMPLETE"  # set by a shell's completion


class ClickSettings(TypedDict, total=False):
    """What `click.command` passes on to a command."""

    callback: Callable[..., Any] | None
    params: list[click.Parameter] | None
    help: str | None
    context_settings: MutableMapping[str, Any] | None


class CommandSettings(ClickSettings, total=False):
    """The arguments of a `Command`."""

    study: Callable[[], Path] | None
    writes: bool
    unless: Sequence[str]


class Command(click.Command):
    """A command, possibly one that works in a study.

    Such a command may write far from the working directory, because `QWEN3NB_HOME` or a study in a
    parent folder decides. It therefore first prints the study's path to standard error; one that
    only reads does so if the study is not the current one.

    Attributes:
        study: returns the folder of a study that the command needs; None if it needs no study.
        writes: whether it writes there.
        unless: parameters with which it needs no study, such as the folder of the records.
    """

    def __init__(
        self,
        *args: Any,
        study: Callable[[], Path] | None = None,
        writes: bool = False,
        unless: Sequence[str] = (),
        **settings: Unpack[ClickSettings],
    ) -> None:
        super().__init__(*args, **settings)
        if writes and study is None:
            study = paths.results
        self.study = study
        self.writes = writes
        self.unless = unless

    def get_short_help_str(self, limit: int = 0) -> str:
        """Return the whole first sentence, for the list of a group."""
        return super().get_short_help_str(limit=1000)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; other spellings of options are accepted, see `respelled`."""
        parameters = self.get_params(ctx)
        spellings: set[str] = set()
        for parameter in parameters:
            # The opposite of a flag, such as --no-boost, is secondary.
            spellings.update(parameter.opts, parameter.secondary_opts)
        has_arguments = any(isinstance(parameter, click.Argument) for parameter in parameters)
        words = [str(word) for word in args]
        words = respelled(self.name or "", words, spellings, has_arguments=has_arguments)
        return super().parse_args(ctx, words)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command.

        Raises:
            NoStudyError: the command needs a study, and there is none.
        """
        works_elsewhere = any(ctx.params.get(name) for name in self.unless)
        if self.study is not None and not works_elsewhere:
            self._print_study(self.study())
        return super().invoke(ctx)

    def _print_study(self, folder: Path) -> None:
        """Print the study that the command works in, if that may be a surprise."""
        root = paths.find_root()
        if root is None:
            say(f"{folder.name}: {folder}", err=True, dim=True)
            return
        is_elsewhere = not folder.is_relative_to(root)
        runs_elsewhere = not Path.cwd().is_relative_to(root)
        text = f"study: {root}"
        if is_elsewhere:
            text += f", {folder.name}: {folder}"
        # Silent only if the command reads the study that it is called in.
        may_surprise = self.writes or is_elsewhere or runs_elsewhere
        if may_surprise:
            say(text, err=True, dim=True)


class CommandGroup(click.Group):
    """A group that lists commands with whole first sentences and suggests similar names."""

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command by name; for a mistyped one, suggest similar names."""
        name = args[0]
        # Not while a shell completes a command (resilient parsing), nor for an option.
        is_name = not ctx.resilient_parsing and not name.startswith("-")
        if is_name and self.get_command(ctx, name) is None:
            names = self.list_commands(ctx)
            similar = get_close_matches(name, names)
            if similar:
                hint = f"Did you mean {' or '.join(map(repr, similar))}?"
            else:
                hint = f"The commands are {', '.join(names)}."
            ctx.fail(f"No such command {name!r}. {hint}")
        return super().resolve_command(ctx, args)


class Program(CommandGroup):
    """The top-level group: output is guarded, errors are one line.

    A command's module is imported when the command is used; ``--help`` imports none.

    Attributes:
        contents: by heading and name, the location of a command in ``commands/``, such as
            ``tasks:fetch``, and a summary.
    """

    def __init__(
        self,
        *args: Any,
        contents: Mapping[str, Mapping[str, tuple[str, str]]],
        **settings: Unpack[ClickSettings],
    ) -> None:
        super().__init__(*args, **settings)
        self.contents = contents
        self._locations: dict[str, str] = {}
        for commands in contents.values():
            for name, (location, _summary) in commands.items():
                self._locations[name] = location

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the commands, in the order of the help."""
        return list(self._locations)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import and return a command; None if the name is unknown."""
        if name not in self.commands and name in self._locations:
            module_name, _, attribute = self._locations[name].partition(":")
            module = importlib.import_module(f"qwen3nb.cli.commands.{module_name}")
            self.add_command(getattr(module, attribute), name)
        return self.commands.get(name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands under their headings, aligned across them."""
        width = max(len(name) for name in self._locations)
        for heading, commands in self.contents.items():
            rows = [(name.ljust(width), summary) for name, (_, summary) in commands.items()]
            with formatter.section(heading):
                formatter.write_dl(rows)

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: object
    ) -> Any:
        """Run a command with guarded output and errors, or complete one for a shell."""
        keep_exit_statuses()
        words = [str(word) for word in args or sys.argv[1:]]
        guard: AbstractContextManager[None] = guarded_streams()
        if os.environ.get(_COMPLETING):
            guard = nullcontext()
        with key_bound_to_hosts_in(words), guard:
            return super().main(args, prog_name or self.name, **extra)  # type: ignore[call-overload]

    def __call__(self, *args: Any, **settings: object) -> Any:
        """Run a command; if it ends in a traceback, that is guarded, too."""
        # Called by a test or another program, or to complete a command: errors are the caller's.
        if args or settings or os.environ.get(_COMPLETING):
            return self.main(*args, **settings)  # type: ignore[arg-type]
        with guarded_streams():
            try:
                return self.main()
            except Exception as error:  # noqa: BLE001 - a bug of this program, shown in full
                traceback.print_exception(error)
                sys.exit(1)

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: object,
    ) -> click.Context:
        """Parse the options of the program itself."""
        with _errors_in_one_line():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Parse and run a command; a signal to stop ends it with a message."""
        from qwen3nb.execution.interruption import Interrupted, interrupted_by_signals

        with _errors_in_one_line():
            try:
                with interrupted_by_signals():
                    return super().invoke(ctx)
            except KeyboardInterrupt as interruption:
                message = "stopped. Repeat the command to resume; what was finished is kept"
                raise Interrupted(message, interruption) from None


class _Mistake(click.ClickException):
    """An invalid command line, reported in one line."""

    exit_code = 2


@contextmanager
def _errors_in_one_line() -> Iterator[None]:
    """Turn errors that users can act on into click's ``Error: …``, without a traceback.

    They are the package's own errors, file errors, missing optional libraries, and too little
    memory. A closed pipe is left to click, which exits silently.
    """
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:
        raise  # its message is the help
    # Before ClickException, of which it is one; likewise OSError before Exception.
    except click.UsageError as error:
        raise _Mistake(_usage_text(error)) from None
    except (click.ClickException, BrokenPipeError):  # click handles these itself
        raise
    except OSError as error:
        one_line = " ".join(explained(error).splitlines())
        raise click.ClickException(one_line) from None
    except Exception as error:
        # Their messages say what to do, so a traceback would only hide them.
        is_ours = type(error).__module__.startswith("qwen3nb.")
        if is_ours or isinstance(error, (ValueError, ImportError)):
            raise click.ClickException(str(error)) from None
        lacks_memory = isinstance(error, MemoryError) or _LACK_OF_MEMORY.search(str(error))
        if lacks_memory:
            advice = f"free some memory, or use less of it, as by a smaller batch; {error!r:.160}"
            raise click.ClickException(f"not enough memory: {advice}") from None
        raise


def _usage_text(error: click.UsageError) -> str:
    """Return what is wrong with a command line, and which command has the help."""
    text = " ".join(error.format_message().split())
    context = error.ctx or click.get_current_context(silent=True)
    if context is None:
        return text
    if not text.endswith((".", "?", ")")):
        text += "."
    return f"{text} See `{context.command_path} -h`."


def readable_records(folder: Path | None = None, *, adapters: bool = True) -> Results:
    """Load the records in a folder, see `load_results`; print those that are left out."""
    from qwen3nb.records.store import load_results

    if folder is not None and not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder of records")
    records = load_results(folder, adapters=adapters)
    for reason in records.unreadable.values():
        click.echo(f"left out: {reason}", err=True)
    return records
