"""A Sphinx extension: reference pages generated from the code whenever a book is built.

The directive ``reference`` writes the body of such a page: ``commands Compare``, ``parameters``,
``tiers``, ``metrics``, or ``python`` with public names or a namespace. The Python interface is read
from the sources: importing it would take ten seconds per build.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import qwen3nb
from qwen3nb import paths
from qwen3nb.cli.main import main
from qwen3nb.execution.parameters import (
    ParameterError,
    is_text_notebook,
    notebook_title,
    read_parameters,
)
from qwen3nb.metrics.retrieval import METRICS, RECORDED
from qwen3nb.report.render.home import formula_link
from qwen3nb.tiers import BENCHMARKS, GROUPS, TIERS
from qwen3nb.utils.format import escaped, markdown_table

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_OPTION = re.compile(r"(?<![\w`-])(--[a-z][\w-]*)")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive with Sphinx."""
    from docutils import nodes
    from docutils.parsers.rst import Directive
    from docutils.statemachine import StringList

    class Reference(Directive):
        """The body of a reference page, of a kind and on a subject."""

        required_arguments = 1
        final_argument_whitespace = True

        def run(self) -> list[nodes.Node]:
            self.state.document.settings.env.note_reread()  # the page changes with the release
            kind, *about = self.arguments[0].split()
            body = nodes.Element()
            lines = StringList(_PAGES[kind](*about).splitlines(), source=kind)
            self.state.nested_parse(lines, self.content_offset, body, match_titles=True)
            return body.children

    app.add_directive("reference", Reference)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table of cells that are Markdown."""

    def cell(value: object) -> str:
        return str(value).replace("|", "\\|").replace("\n", " ")

    return markdown_table(columns, rows, cell=cell) + "\n"


def _prose(text: str) -> str:
    """Convert a text of the help to Markdown."""
    return _OPTION.sub(r"`\1`", text.replace("<", "\\<"))


def commands_text(heading: str) -> str:
    """Return the commands under a heading of ``qwen3nb --help``, with examples and options."""
    context = click.Context(main, info_name="qwen3nb")
    named = [(name, main.get_command(context, name)) for name in main.contents[heading]]
    return "\n".join(_command(name, each, context) for name, each in named if each is not None)


def _command(name: str, command: click.Command, parent: click.Context) -> str:
    context = click.Context(command, info_name=name, parent=parent)
    text = [f"## {context.command_path}\n"]
    for part in inspect.cleandoc(command.help or "").split("\n\n"):
        example = part.startswith("\b")
        text.append(f"```sh\n{part[2:]}\n```\n" if example else f"{_prose(part)}\n")
    shown = [each.get_help_record(context) for each in command.get_params(context)]
    rows = [(f"`{spelling}`", _prose(about)) for spelling, about in filter(None, shown)]
    if rows := [row for row in rows if "--help" not in row[0]]:
        text.append(_table(("option", "what"), rows))
    if isinstance(command, click.Group) and name != "run":  # its commands are notebooks
        inner = [
            (each, command.get_command(context, each)) for each in command.list_commands(context)
        ]
        text += [_command(each, of, context) for each, of in inner if of is not None]
    return "\n".join(text)


def parameters_text() -> str:
    """Return the parameters of the study's notebooks: type, default and meaning.

    Notebooks of other kinds follow, each with the reason why it has no page.
    """
    text = []
    refused = []
    for name in paths.notebook_names():
        notebook = paths.find_notebook(name)
        try:
            title = notebook_title(notebook)
            declared = read_parameters(notebook)
        except (ParameterError, OSError) as error:
            refused.append((name, _reason(error, notebook)))
            continue
        rows = [
            (f"`{parameter.name}`", parameter.type, f"`{parameter.default!r}`", parameter.help)
            for parameter in declared.values()
        ]
        table = _table(("parameter", "type", "default", "what"), rows)
        text.append(f"## {name}\n\n{escaped(title)}\n\n{table}")
    for file in sorted(paths.notebooks().glob("[!.]*")):
        if is_text_notebook(file):
            refused.append((file.name, f"a notebook as text; `jupytext --to ipynb {file.name}`"))
    if refused:
        text.append(f"## Not run\n\n{markdown_table(('notebook', 'why'), refused)}\n")
    return "\n".join(text)


def _reason(error: Exception, notebook: Path) -> str:
    """Return the first line of an error about a notebook, without its path."""
    text = error.message if isinstance(error, ParameterError) else str(error)
    return (
        text.split("\n")[0].replace(str(notebook), notebook.name).removeprefix(f"{notebook.name}: ")
    )


def tiers_text() -> str:
    """Return the tiers, with the tasks and averages of each."""
    tiers = [(f"`{each.name}`", each.about, len(each.task_keys)) for each in TIERS.values()]
    # Text before a heading would end up last.
    text = [f"## Which tier\n\n{_table(('tier', 'what', 'tasks'), tiers)}"]
    for tier in TIERS.values():
        text.append(f"## {tier.name}\n")
        if tier.tasks:
            text.append(", ".join(f"`{task}`" for task in tier.tasks) + "\n")
        rows = []
        for benchmark in (BENCHMARKS[name] for name in tier.benchmarks):
            for kind, tasks in benchmark.types.items():
                keys = (
                    f"{key} ({len(GROUPS[key])} parts)" if key in GROUPS else key for key in tasks
                )
                averaged = benchmark.metric or "main score"
                rows.append((benchmark.name, kind, averaged, ", ".join(keys)))
        if rows:
            text.append(_table(("benchmark", "type", "averaged", "tasks"), rows))
    return "\n".join(text)


def metrics_text() -> str:
    """Return the retrieval metrics, where each is recorded, and their formulas."""
    rows = []
    for name in METRICS:
        depths = (
            ", ".join(str(each.depth) for each in recorded if each.metric == name)
            for recorded in RECORDED.values()
        )
        formula = formula_link(f"{name}@1").removeprefix("../")
        rows.append((f"`{name}@k`", f'<a href="../{formula}">formula</a>', *depths))
    return _table(("metric", "formula", *(f"recorded: {kind}" for kind in RECORDED)), rows)


def python_text(*names: str) -> str:
    """Return the signatures and docstrings of public names, or of all names of a namespace."""
    parts = []
    for name in names:
        if not find_spec(f"qwen3nb.{name}"):
            parts.append(_described(*_definition("qwen3nb", name), shown=f"q.{name}"))
            continue
        namespace = importlib.import_module(f"qwen3nb.{name}")
        own = [each for each in namespace.__all__ if each not in dir(qwen3nb)]
        parts += [
            _described(*_definition(namespace.__name__, each), shown=f"q.{name}.{each}")
            for each in own
        ]
    return "```{eval-rst}\n" + "\n".join(parts) + "```\n"


def _definition(module: str, name: str) -> tuple[ast.stmt, list[str]]:
    """Return the definition of a name, and the lines of its file."""
    spec = find_spec(module)
    file = Path(str(spec and spec.origin))
    stub = file.with_suffix(".pyi")  # of names that are loaded on first use
    source = (stub if stub.exists() else file).read_text(encoding="utf-8")
    for node in reversed(ast.parse(source).body):  # the last one is not an overload
        if getattr(node, "name", "") == name:
            return node, source.splitlines()
        if isinstance(node, ast.ImportFrom):
            for each in node.names:
                if name == (each.asname or each.name):
                    return _definition(str(node.module), each.name)
    raise ValueError(f"{module} defines no {name}")


def _described(node: Any, lines: list[str], *, shown: str) -> str:
    """Return a definition as a directive of Sphinx's Python domain; a class with its methods."""
    from sphinx.ext.napoleon import Config, GoogleDocstring

    config = Config(napoleon_use_ivar=True)
    text = ["", *GoogleDocstring(ast.get_docstring(node) or "", config).lines(), ""]
    kind, signature, arguments = "method" if "." not in shown else "function", "", None
    if isinstance(node, ast.ClassDef):
        kind = "class"
        for each in node.body:
            if isinstance(each, ast.AnnAssign):
                about = lines[(each.end_lineno or 1) - 1].partition("  # ")[2]
                text.append(f"| ``{ast.unparse(each.target)}`` {about}")
        text.append("")
        for each in (each for each in node.body if isinstance(each, ast.FunctionDef)):
            if each.name == "__init__":
                arguments = each.args
            elif each.name[0] != "_" and ast.get_docstring(each):
                text += _described(each, lines, shown=each.name).splitlines()
    elif ast.unparse(node.decorator_list[:1]).endswith("property"):
        kind = "property"
    else:
        arguments = node.args
        signature = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    if arguments is not None:
        arguments.args = [each for each in arguments.args if each.arg not in ("self", "cls")]
        signature = f"({ast.unparse(arguments)}){signature}"
    body = "\n".join(f"   {line}".rstrip() for line in text)
    return f".. py:{kind}:: {shown}{signature}\n{body}\n"


_PAGES: dict[str, Callable[..., str]] = {
    "commands": commands_text,
    "parameters": parameters_text,
    "tiers": tiers_text,
    "metrics": metrics_text,
    "python": python_text,
}
