"""The command `qwen3nb judge`: grade documents until the grades decide between models."""

from __future__ import annotations

import csv
import getpass
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from qwen3nb import paths
from qwen3nb.cli import options as opt
from qwen3nb.cli.program import Command
from qwen3nb.utils.terminal import say

if TYPE_CHECKING:
    from qwen3nb.datasets.custom.grades import GradeFile, GradeLine
    from qwen3nb.evaluation.judging import Grading, JudgingTask

_KEYS = "0-3, s: cannot tell, u: undo, q: quit"
_LONGEST_TEXT = 2000  # characters of a document on the terminal


@click.command(cls=Command)
@opt.option("--queries", required=True, type=opt.FILE, help="A query a line, or a query file.")
@opt.option("--documents", required=True, type=opt.FILE, help="JSONL, CSV, SQLite or DuckDB.")
@opt.model_option(
    "models",
    repeatable=True,
    required=True,
    help="Folder, name or hub id; two or more, the first is in use.",
)
@opt.option("--grades", type=opt.FILE, help="File of the grades.  [default: grades.jsonl]")
@opt.option("--grader", metavar="NAME", help="Who grades.  [default: your login name]")
@opt.flag("--terminal", help="Grade here instead of on a page.")
@opt.option("--port", type=click.IntRange(0, 65535), default=0, help="Of the page; 0: any.")
@opt.option("--sheet", type=opt.FILE, help="Write what is left to grade as CSV, and stop.")
@opt.option("--read", "sheets", type=opt.FILE, multiple=True, help="Read a CSV that came back.")
@opt.option("--id-column", metavar="NAME", help="Column of the ids.  [default: id]")
@opt.option("--text", metavar="TEMPLATE", help="Text, as '{title}. {body}'.  [default: {text}]")
@opt.seed_option("Seed of what is asked next.")
def judge(
    *,
    queries: Path,
    documents: Path,
    models: Sequence[str],
    grades: Path | None,
    grader: str | None,
    terminal: bool,
    port: int,
    sheet: Path | None,
    sheets: Sequence[Path],
    id_column: str | None,
    text: str | None,
    seed: int,
) -> None:
    """Grade documents by the keyboard until the grades decide which model to use.

    \b
    qwen3nb judge --queries queries.txt --documents docs.jsonl \\
        --model bm25,encoder
    qwen3nb judge --queries queries.txt --documents docs.jsonl \\
        --model bm25,encoder --terminal --grader ann
    qwen3nb domain --queries grades.jsonl --documents docs.jsonl \\
        --text "{title}. {body}" --model bm25,encoder

    A page opens on this machine. It shows a query and one document, and takes a grade from 0 to
    3. What is asked next is drawn by how much it can change the decision. It ends when the other
    grades would turn the decision with a chance below 5 %, however often one looks.
    """
    from qwen3nb.datasets.custom.documents import find_layout, read_documents
    from qwen3nb.datasets.custom.grades import GradeFile
    from qwen3nb.datasets.custom.queries import read_query_texts
    from qwen3nb.evaluation.judging import Grading, judging_task
    from qwen3nb.models.model import Model

    if len(models) < 2:
        raise click.UsageError("a choice needs two models or more: give --model again")
    file = GradeFile(grades or Path("grades.jsonl"))
    name = grader or getpass.getuser()
    for returned_sheet in sheets:
        _read_sheet(returned_sheet, file, name)
    layout = find_layout(id_column=id_column, text=text)
    collection = read_documents(documents, layout)
    opt.hide_library_bars()
    task = judging_task(
        read_query_texts(queries), collection.texts, [Model(model) for model in models]
    )
    grading = Grading(task, file, grader=name, seed=seed)
    if sheet is not None:
        _write_sheet(sheet, task, file.read())
    elif terminal:
        _grade_here(grading)
    else:
        _serve(grading, port)
    _print_end(grading)


def _grade_here(grading: Grading) -> None:
    """Ask for grades on the terminal."""
    while True:
        question = grading.question()
        if question is None:
            return
        text = question.text
        if len(text) > _LONGEST_TEXT:
            text = f"{text[:_LONGEST_TEXT]} …"
        say(f"\n{question.query}", bold=True)
        say(text)
        answer = click.prompt(_KEYS, prompt_suffix=" > ").strip().lower()
        if answer == "q":
            return
        if answer == "u":
            grading.undo()
        elif answer == "s":
            grading.grade(question.query, question.document, None)
        elif answer in ("0", "1", "2", "3"):
            grading.grade(question.query, question.document, int(answer))
        else:
            say(f"expected one of {_KEYS}; got {answer!r:.20}", fg="yellow")


def _serve(grading: Grading, port: int) -> None:
    """Serve the page until the program is stopped."""
    import webbrowser

    from qwen3nb.cli.judge_page import JudgePage

    with JudgePage(grading, port=port) as page:
        say(f"Grade at {page.address}", bold=True)
        say("Ctrl-C ends. Every grade is saved at once.")
        webbrowser.open(page.address)
        try:
            page.serve_forever()
        except KeyboardInterrupt:
            click.echo()


def _print_end(grading: Grading) -> None:
    """Print the verdict, where the grades are, and how well two graders agree."""
    from qwen3nb.datasets.custom.grades import agreement

    say(grading.verdict().text, bold=True)
    lines = grading.file.read()
    graders = list(dict.fromkeys(line.grader for line in lines))
    for number, second in enumerate(graders):
        for first in graders[:number]:
            kappa, pairs = agreement(lines, first, second)
            if kappa is not None:
                click.echo(f"{first} and {second}: weighted kappa {kappa:.2f} on {pairs} documents")
    click.echo(paths.shown(grading.file.file))


def _write_sheet(sheet: Path, task: JudgingTask, lines: Sequence[GradeLine]) -> None:
    """Write every document that counts and has no grade, for a program of tables."""
    from qwen3nb.datasets.custom.grades import SHEET_COLUMNS
    from qwen3nb.utils.atomic_files import write_text
    from qwen3nb.utils.format import inert_text

    graded_pairs = {line.pair for line in lines}
    stream = io.StringIO()
    writer = csv.writer(stream)
    writer.writerow(SHEET_COLUMNS)
    count = 0
    for pair, is_needed in zip(task.pool.pairs, task.pool.counts, strict=True):
        if is_needed and pair not in graded_pairs:
            query, document = pair
            text = task.documents[document]
            writer.writerow([inert_text(query), inert_text(document), inert_text(text), ""])
            count += 1
    write_text(sheet, stream.getvalue())
    click.echo(f"{paths.shown(sheet)}: {count:,} documents to grade from 0 to 3")


def _read_sheet(sheet: Path, file: GradeFile, grader: str) -> None:
    """Add the grades of a sheet to the file, but those that it has."""
    from qwen3nb.datasets.custom.grades import read_sheet

    known_grades = {(line.pair, line.grade, line.grader) for line in file.read()}
    new_lines = []
    for line in read_sheet(sheet, grader):
        if (line.pair, line.grade, line.grader) not in known_grades:
            new_lines.append(line)
    for line in new_lines:
        file.add(line)
    click.echo(f"{paths.shown(sheet)}: {len(new_lines):,} new grades by {grader}")
