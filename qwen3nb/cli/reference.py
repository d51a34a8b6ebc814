"""A Sphinx extension: reference pages generated from the code whenever a book is built.

The directive ``reference`` writes the body of such a page: ``commands Compare``, ``parameters``,
``tiers``, ``metrics``, or ``python`` with public names or a namespace. The Python interface is read
from the sources: importing it would take ten seconds per build.
"""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

import qwen3nb
from qwen3nb import paths
from qwen3nb.cli.layout import arranged_options, option_row
from qwen3nb.cli.main import main
from qwen3nb.cli.program import CommandWithParts, command_words, shown_options
from qwen3nb.execution.parameters import (
    ParameterError,
    is_text_notebook,
    notebook_title,
    read_parameters,
)
from qwen3nb.metrics.retrieval import METRICS, RECORDED, recorded_measures
from qwen3nb.report.render.home import formula_link
from qwen3nb.tiers import BENCHMARKS, GROUPS, TIERS, Benchmark
from qwen3nb.utils.format import escaped, markdown_table

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_OUTDATED = "This page is of another release; ``qwen3nb new --update`` renews it."
_OPTION = re.compile(r"(?<![\w`-])(--[a-z][\w-]*)")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive with Sphinx."""
    from docutils import nodes
    from docutils.parsers.rst import Directive
    from docutils.statemachine import StringList

    class Reference(Directive):
        """The body of a reference page, of a kind and on a subject."""

        required_arguments = 1
        final_argument_whitespace = True  # as in "python Model load_encoder"

        def run(self) -> list[nodes.Node]:
            self.state.document.settings.env.note_reread()  # the page changes with the release
            kind, *subjects = self.arguments[0].split()
            body = nodes.Element()
            text = _PAGES[kind](*subjects)
            lines = StringList(text.splitlines(), source=kind)
            self.state.nested_parse(lines, self.content_offset, body, match_titles=True)
            return body.children

    app.add_directive("reference", Reference)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table of cells that are Markdown."""

    def cell(value: object) -> str:
        return str(value).replace("|", "\\|").replace("\n", " ")

    return markdown_table(columns, rows, cell=cell) + "\n"


def _markdown(text: str) -> str:
    """Convert a text of the help to Markdown."""
    return _OPTION.sub(r"`\1`", text.replace("<", "\\<"))


def commands_text(heading: str) -> str:
    """Return the commands under a heading of ``qwen3nb --help``, with examples and options."""
    context = click.Context(main, info_name="qwen3nb")
    return _commands_of(main, main.contents[heading], context)


def _commands_of(group: click.Group, names: Iterable[str], context: click.Context) -> str:
    """Return the descriptions of some commands of a group."""
    descriptions = []
    for name in names:
        command = group.get_command(context, name)
        if command is not None:
            descriptions.append(_command_text(name, command, context))
    return "\n".join(descriptions)


def _command_text(name: str, command: click.Command, parent: click.Context) -> str:
    """Return the description of a command: its help, its options, and the commands below it."""
    context = click.Context(command, info_name=name, parent=parent)
    text = [f"## {context.command_path}\n"]
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        # Click's mark of text that keeps its line breaks: examples.
        if paragraph.startswith("\b"):
            text.append(f"```sh\n{paragraph[2:]}\n```\n")
        else:
            text.append(f"{_markdown(paragraph)}\n")
    rows = _option_rows(command, context)
    if rows:
        text.append(_table(("option", "what"), rows))
    if isinstance(command, CommandWithParts):
        for part_name, part in command.parts.items():
            text.append(_command_text(f"{name} {part_name}", part, parent))
    if isinstance(command, click.Group) and name != "run":  # its commands are notebooks
        text.append(_commands_of(command, command.list_commands(context), context))
    return "\n".join(text)


def _option_rows(command: click.Command, context: click.Context) -> list[tuple[str, str]]:
    """Return the spelling and the help of each option, those that one needs first at the top."""
    shown = shown_options(command, context)
    rows = []
    for options in arranged_options(command_words(context), shown).values():
        for option in options:
            spelling, description = option_row(option, context)
            if option.secondary_opts:  # both names, so that readers find either
                spelling = " / ".join([*option.opts, *option.secondary_opts])
            rows.append((f"`{spelling}`", _markdown(description)))
    return rows


def parameters_text() -> str:
    """Return the parameters of the study's notebooks: type, default and meaning.

    Notebooks of other kinds follow, each with the reason why it has no page.
    """
    text = []
    refusals = []
    for name in paths.notebook_names():
        notebook = paths.find_notebook(name)
        try:
            title = notebook_title(notebook)
            parameters = read_parameters(notebook)
        except (ParameterError, OSError) as error:
            refusals.append((name, _reason(error, notebook)))
            continue
        rows = []
        for parameter in parameters.values():
            default = f"`{parameter.default!r}`"
            rows.append((f"`{parameter.name}`", parameter.type, default, parameter.help))
        table = _table(("parameter", "type", "default", "what"), rows)
        text.append(f"## {name}\n\n{escaped(title)}\n\n{table}")
    # Notebooks as text, such as .md, which are not run.
    for file in sorted(paths.notebooks().glob("[!.]*")):
        if is_text_notebook(file):
            reason = f"a notebook as text; `jupytext --to ipynb {file.name}`"
            refusals.append((file.name, reason))
    if refusals:
        text.append(f"## Not run\n\n{markdown_table(('notebook', 'why'), refusals)}\n")
    return "\n".join(text)


def _reason(error: Exception, notebook: Path) -> str:
    """Return the first line of an error about a notebook, without its path."""
    message = str(error)
    if isinstance(error, ParameterError):
        message = error.message
    first_line = message.split("\n")[0].replace(str(notebook), notebook.name)
    return first_line.removeprefix(f"{notebook.name}: ")


def tiers_text() -> str:
    """Return the tiers, with the tasks and averages of each."""
    tiers = [(f"`{tier.name}`", tier.about, len(tier.task_keys)) for tier in TIERS.values()]
    # Text before a heading would end up last.
    text = [f"## Which tier\n\n{_table(('tier', 'what', 'tasks'), tiers)}"]
    for tier in TIERS.values():
        text.append(f"## {tier.name}\n")
        if tier.tasks:
            text.append(", ".join(f"`{task}`" for task in tier.tasks) + "\n")
        rows = []
        for name in tier.benchmarks:
            rows += _average_rows(BENCHMARKS[name])
        if rows:
            text.append(_table(("benchmark", "type", "averaged", "tasks"), rows))
    return "\n".join(text)


def _average_rows(benchmark: Benchmark) -> list[tuple[str, str, str, str]]:
    """Return what a benchmark averages: a row per type of its tasks."""
    rows = []
    for kind, tasks in benchmark.types.items():
        names = []
        for task in tasks:
            if task in GROUPS:
                names.append(f"{task} ({len(GROUPS[task])} parts)")
            else:
                names.append(task)
        rows.append((benchmark.name, kind, benchmark.metric or "main score", ", ".join(names)))
    return rows


def metrics_text() -> str:
    """Return the retrieval metrics, where each is recorded, and their formulas."""
    rows = []
    for name in METRICS:
        depths = [_recorded_depths(name, kind) for kind in RECORDED]
        shown_name = f"{name}@k" if METRICS[name].has_depth else name
        rows.append([f"`{shown_name}`", _formula_link(name), *depths])
    columns = ["metric", "formula", *(f"recorded: {kind}" for kind in RECORDED)]
    return _table(columns, rows)


def _formula_link(metric: str) -> str:
    """Return a link to the formula of a metric in the guide; empty if it has none there."""
    address = formula_link(f"{metric}@1").removeprefix("../")
    if not address:
        return ""
    return f'<a href="../{address}">formula</a>'


def _recorded_depths(metric: str, kind: str) -> str:
    """Return the depths of a metric that evaluations of a kind record, such as ``1, 10``."""
    measures = recorded_measures(kind)
    depths = [str(measure.depth) for measure in measures if measure.metric == metric]
    return ", ".join(depths)


def python_text(*names: str) -> str:
    """Return the signatures and docstrings of public names, or of all names of a namespace.

    A page of an older study may list a name that is gone; it says so.
    """
    parts = []
    for name in names:
        if find_spec(f"qwen3nb.{name}"):
            parts += _namespace_texts(name)
        else:
            parts.append(_name_text("qwen3nb", name, title=f"q.{name}"))
    return "```{eval-rst}\n" + "\n".join(parts) + "```\n"


def _namespace_texts(namespace: str) -> list[str]:
    """Return the descriptions of the names that only a namespace has."""
    module = importlib.import_module(f"qwen3nb.{namespace}")
    texts = []
    for name in module.__all__:
        if name not in dir(qwen3nb):
            texts.append(_name_text(module.__name__, name, title=f"q.{namespace}.{name}"))
    return texts


def _name_text(module: str, name: str, *, title: str) -> str:
    """Return the description of a public name."""
    definition = _find_definition(module, name)
    if definition is None:
        return f"``{title}`` is not in this release. {_OUTDATED}\n"
    return _described(definition, title)


@dataclass(frozen=True)
class _Definition:
    """The definition of a class or a function, and the lines of its file."""

    node: ast.ClassDef | ast.FunctionDef
    lines: Sequence[str]


def _find_definition(module: str, name: str) -> _Definition | None:
    """Return the definition of a name; None if the module does not define or import it."""
    file = _source_of(module)
    source = file.read_text(encoding="utf-8")
    statements = ast.parse(source).body
    for statement in reversed(statements):  # the last definition is not an overload
        if isinstance(statement, ast.ClassDef | ast.FunctionDef) and statement.name == name:
            return _Definition(statement, source.splitlines())
        if isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                local_name = alias.asname or alias.name
                if local_name == name:
                    # It is imported, so its definition is in the other module.
                    return _find_definition(str(statement.module), alias.name)
    return None


def _source_of(module: str) -> Path:
    """Return the file of a module, or its stub if it loads its names on first use."""
    spec = find_spec(module)
    if spec is None:
        raise ModuleNotFoundError(module)
    file = Path(str(spec.origin))
    # A package that loads its names on first use imports them in its stub.
    stub = file.with_suffix(".pyi")
    if stub.exists():
        return stub
    return file


def _described(definition: _Definition, title: str) -> str:
    """Return a definition as a directive of Sphinx's Python domain; a class with its methods."""
    node = definition.node
    if isinstance(node, ast.ClassDef):
        return _class_text(node, definition.lines, title)
    decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
    # Such as property, or functools.cached_property.
    is_property = bool(decorators) and decorators[0].endswith("property")
    if is_property:
        return _directive("property", title, _docstring(node))
    kind = "method"
    has_module = "." in title  # such as q.evaluate
    if has_module:
        kind = "function"
    return _directive(kind, f"{title}{_signature(node)}", _docstring(node))


def _class_text(node: ast.ClassDef, lines: Sequence[str], title: str) -> str:
    """Return a class as a directive: its fields with their comments, and its public methods."""
    text = _docstring(node)
    methods: list[str] = []
    signature = ""
    for member in node.body:
        if isinstance(member, ast.AnnAssign):
            # A field, such as `name: str  # of the model`.
            text.append(f"| ``{ast.unparse(member.target)}`` {_comment_after(member, lines)}")
        elif isinstance(member, ast.FunctionDef) and member.name == "__init__":
            signature = _signature(member)
        elif isinstance(member, ast.FunctionDef) and _is_public(member):
            method = _described(_Definition(member, lines), member.name)
            methods += method.splitlines()
    return _directive("class", f"{title}{signature}", [*text, "", *methods])


def _comment_after(member: ast.stmt, lines: Sequence[str]) -> str:
    """Return the comment on the line in which a member ends."""
    last_line = lines[(member.end_lineno or member.lineno) - 1]
    _code, _, comment = last_line.partition("  # ")
    return comment


def _is_public(method: ast.FunctionDef) -> bool:
    return not method.name.startswith("_") and ast.get_docstring(method) is not None


def _docstring(node: ast.ClassDef | ast.FunctionDef) -> list[str]:
    """Return the docstring of a definition as lines of reStructuredText."""
    from sphinx.ext.napoleon import Config, GoogleDocstring

    docstring = ast.get_docstring(node) or ""
    lines = GoogleDocstring(docstring, Config(napoleon_use_ivar=True)).lines()
    return ["", *lines, ""]


def _signature(node: ast.FunctionDef) -> str:
    """Return the parameters of a function, without ``self``, and what it returns."""
    arguments = copy.copy(node.args)
    arguments.args = [
        argument for argument in arguments.args if argument.arg not in ("self", "cls")
    ]
    signature = f"({ast.unparse(arguments)})"
    if node.returns and node.name != "__init__":
        signature += f" -> {ast.unparse(node.returns)}"
    return signature


def _directive(kind: str, title: str, body: Sequence[str]) -> str:
    lines = [f"   {line}".rstrip() for line in body]
    return "\n".join([f".. py:{kind}:: {title}", *lines, ""])


_PAGES: dict[str, Callable[..., str]] = {
    "commands": commands_text,
    "parameters": parameters_text,
    "tiers": tiers_text,
    "metrics": metrics_text,
    "python": python_text,
}
