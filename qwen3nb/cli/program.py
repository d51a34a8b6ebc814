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
import shlex
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, Unpack

import click

from qwen3nb import paths
from qwen3nb.cli.layout import arranged_options, option_row
from qwen3nb.cli.spellings import current_words, respelled
from qwen3nb.utils.atomic_files import explained
from qwen3nb.utils.children import keep_exit_statuses
from qwen3nb.utils.secrets import key_bound_to_hosts_in
from qwen3nb.utils.terminal import guarded_streams, say

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from qwen3nb.records.results import Results

# What PyTorch, CUDA and oneDNN say.
_LACK_OF_MEMORY = re.compile("allocate memory|out of memory|could not create a (primitive|memory)")
_COMPLETING = "_QWEN3NB_COMPLETE"  # set by a shell's completion
_HAS_OLD_NAME = "qwen3nb.has_old_name"  # in a context: whether the command has another name today
_NAME_WIDTH = 26  # of a column of names in a list
_EXIT_CODES = """Exit codes: 0, success; 1, an error, or a part that failed; 2, an invalid command \
line; 3 and above, verdicts listed in the command's help; 130, stopped by Ctrl-C."""

Contents: TypeAlias = Mapping[str, Mapping[str, tuple[str, str]]]


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
        given_words = [str(word) for word in args]
        words = respelled(self.name or "", given_words, spellings, has_arguments=has_arguments)
        has_old_name = ctx.find_root().meta.get(_HAS_OLD_NAME, False)
        differs = has_old_name or words != given_words
        if differs and not ctx.resilient_parsing:
            say(f"Write: {ctx.command_path} {shlex.join(words)}".rstrip(), err=True, dim=True)
        return super().parse_args(ctx, words)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options that one needs first, and the rest under headings."""
        sections = {}
        arranged = arranged_options(command_words(ctx), shown_options(self, ctx))
        for heading, options in arranged.items():
            sections[heading] = [option_row(option, ctx) for option in options]
        _write_sections(formatter, sections)

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


class CommandWithParts(Command):
    """A command with others below it: `card MODEL` writes a card, `card push` uploads a model.

    A first word that names none of them is an argument of the command itself.

    Attributes:
        parts: the commands below it, by name.
    """

    def __init__(self, *args: Any, **settings: Unpack[CommandSettings]) -> None:
        super().__init__(*args, **settings)
        self.parts: dict[str, Command] = {}

    def part(
        self, name: str, **settings: Unpack[CommandSettings]
    ) -> Callable[[Callable[..., Any]], Command]:
        """Return a decorator that makes a function a command below this one."""

        def decorate(function: Callable[..., Any]) -> Command:
            part = click.command(name, cls=Command, **settings)(function)
            self.parts[name] = part
            return part

        return decorate

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Parse the arguments of the command, or those of the part that the first one names."""
        part = None
        if args:
            part = self.parts.get(str(args[0]))
        if part is None:
            return super().make_context(info_name, args, parent, **extra)
        return part.make_context(f"{info_name} {part.name}", args[1:], parent, **extra)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the name of a part, or an option."""
        from click.shell_completion import CompletionItem

        items = super().shell_complete(ctx, incomplete)
        for name, part in self.parts.items():
            if name.startswith(incomplete):
                items.append(CompletionItem(name, help=part.get_short_help_str()))
        return items

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands below this one."""
        rows = []
        for name, part in self.parts.items():
            rows.append((f"{ctx.command_path} {name}", _summary(part)))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def shown_options(command: click.Command, ctx: click.Context) -> list[click.Option]:
    """Return the options that the help of a command shows: all but ``--help`` and hidden ones."""
    help_names = command.get_help_option_names(ctx)
    options = []
    for parameter in command.get_params(ctx):
        if not isinstance(parameter, click.Option) or parameter.hidden:
            continue
        if set(parameter.opts).isdisjoint(help_names):
            options.append(parameter)
    return options


def command_words(ctx: click.Context) -> str:
    """Return the words of a command, without the program."""
    program = ctx.find_root().command_path
    return ctx.command_path.removeprefix(program).strip()


def complete_parts(
    ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the first argument of a command with the names of its parts."""
    if isinstance(ctx.command, CommandWithParts):
        return ctx.command.shell_complete(ctx, incomplete)
    return []


class CommandGroup(click.Group):
    """A group that lists commands with whole first sentences and suggests similar names."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the commands, in the order in which they are defined."""
        return list(self.commands)

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
        first: the commands that one needs first, which ``--help`` lists. By heading and name: the
            location of a command in ``commands/``, such as ``tasks:fetch``, and a summary.
        contents: the same for all commands, which ``help all`` lists.
    """

    def __init__(
        self,
        *args: Any,
        first: Contents,
        more: Contents,
        **settings: Unpack[ClickSettings],
    ) -> None:
        super().__init__(*args, **settings)
        self.first = first
        self.contents: Contents = {
            heading: {**commands, **more.get(heading, {})} for heading, commands in first.items()
        }
        self._locations: dict[str, str] = {"help": "help:show_help"}
        for commands in self.contents.values():
            for name, (location, _summary) in commands.items():
                self._locations[name] = location

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the commands, in the order of the help."""
        return [name for name in self._locations if name != "help"]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command by name, which may be an old one."""
        words = current_words(args)
        if words != args:
            ctx.meta[_HAS_OLD_NAME] = True
        return super().resolve_command(ctx, words)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import and return a command; None if the name is unknown."""
        if name not in self.commands and name in self._locations:
            module_name, _, attribute = self._locations[name].partition(":")
            module = importlib.import_module(f"qwen3nb.cli.commands.{module_name}")
            self.add_command(getattr(module, attribute), name)
        return self.commands.get(name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands that one needs first, under their headings."""
        rows = {}
        for heading, commands in self.first.items():
            rows[heading] = [(name, summary) for name, (_, summary) in commands.items()]
        _write_sections(formatter, rows)
        formatter.write(
            "\n`qwen3nb help all` lists the rest; `qwen3nb help COMMAND` has details.\n"
        )

    def text_of_all(self, ctx: click.Context) -> str:
        """Return the list of all commands, with those below them."""
        formatter = ctx.make_formatter()
        rows: dict[str, list[tuple[str, str]]] = {}
        for heading, commands in self.contents.items():
            rows[heading] = []
            for name, (_location, summary) in commands.items():
                rows[heading].append((name, summary))
                for part in self._commands_below(ctx, name):
                    rows[heading].append((f"{name} {part.name}", _summary(part)))
        formatter.write_usage(ctx.command_path, "COMMAND [ARGS]...")
        _write_sections(formatter, rows)
        formatter.write_paragraph()
        formatter.write_text(_EXIT_CODES)
        return formatter.getvalue().rstrip("\n")

    def _commands_below(self, ctx: click.Context, name: str) -> list[click.Command]:
        """Return the commands below a command; notebooks are none."""
        command = self.get_command(ctx, name)
        if isinstance(command, CommandWithParts):
            return list(command.parts.values())
        if isinstance(command, click.Group):
            return list(command.commands.values())
        return []

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


def _summary(command: click.Command) -> str:
    """Return the first sentence of the help of a command."""
    return command.get_short_help_str(limit=1000).removesuffix(".")


def _write_sections(
    formatter: click.HelpFormatter, sections: Mapping[str, Sequence[tuple[str, str]]]
) -> None:
    """Write names and summaries under headings, aligned across them."""
    names = [name for rows in sections.values() for name, _summary in rows]
    # A longer name has a line of its own.
    width = max((len(name) for name in names if len(name) <= _NAME_WIDTH), default=0)
    for heading, rows in sections.items():
        if not rows:
            continue
        with formatter.section(heading):
            formatter.write_dl(
                [(name.ljust(width), summary) for name, summary in rows], col_max=width
            )


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
