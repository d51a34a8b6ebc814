"""The command `qwen3nb judge`: grade documents until the grades decide between models."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from qwen3nb import paths
from qwen3nb.cli import options as opt
from qwen3nb.cli.program import Command
from qwen3nb.utils.choices import check_choice
from qwen3nb.utils.terminal import say

if TYPE_CHECKING:
    from qwen3nb.datasets.custom.grade_sheets import KnownTexts
    from qwen3nb.datasets.custom.grades import GradeFile
    from qwen3nb.datasets.custom.query_texts import TextEntries
    from qwen3nb.evaluation.judging import Grading, JudgingTask
    from qwen3nb.models.model import Model


@click.command(cls=Command)
@opt.option("--queries", required=True, type=opt.FILE, help="A query a line, or a query file.")
@opt.option("--documents", required=True, type=opt.FILE, help="JSONL, CSV, SQLite or DuckDB.")
@opt.model_option(
    "models",
    repeatable=True,
    required=True,
    help="Folder, name, hub id, LABEL=MODEL or a fusion; two or more, the first is in use.",
)
@opt.option("--grades", type=opt.FILE, help="File of the grades.  [default: grades.jsonl]")
@opt.option(
    "--grader",
    metavar="NAME",
    help="Who grades: a name, or a language model (api:URL#MODEL, ./FOLDER, ORG/NAME).  "
    "[default: your login name]",
)
@opt.flag("--terminal", help="Grade here instead of on a page.")
@opt.option("--port", type=click.IntRange(0, 65535), default=0, help="Of the page; 0: any.")
@opt.option("--sheet", type=opt.FILE, help="Write what is left as CSV or .jsonl, and stop.")
@opt.option("--read", "sheets", type=opt.FILE, multiple=True, help="Read a sheet that came back.")
@opt.option("--again", metavar="NAME", help="Grade what NAME graded, for the agreement.")
@opt.option("--id-column", metavar="NAME", help="Column of the ids.  [default: id]")
@opt.option("--text", metavar="TEMPLATE", help="Text, as '{title}. {body}'.  [default: {text}]")
@opt.CHUNKS
@opt.option("--name", help="Name of the collection.  [default: of the documents]")
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
    again: str | None,
    id_column: str | None,
    text: str | None,
    chunks: str,
    name: str | None,
    seed: int,
) -> None:
    """Grade documents by the keyboard until the grades decide which model to use.

    \b
    qwen3nb judge --queries queries.txt --documents docs.jsonl \\
        --model bm25,encoder
    qwen3nb judge --queries queries.txt --documents docs.jsonl \\
        --model bm25,encoder --terminal --grader ann
    qwen3nb judge --queries queries.txt --documents docs.jsonl \\
        --model bm25,encoder --again ann --grader api:http://host:8000#llm
    qwen3nb domain --queries grades.jsonl --documents docs.jsonl \\
        --text "{title}. {body}" --model bm25,encoder

    A page opens on this machine. It shows a query and one document, and takes a grade from 0 to
    3. What is asked next is drawn by how much it can change the decision. It ends when the other
    grades would turn the decision with a chance below 5 %, however often one looks.

    If a document is graded twice, a person's grade counts before a language model's, else the
    later one. Texts leave this machine only for a grader or model that is named api:URL#MODEL.
    """
    from qwen3nb.datasets.custom.documents import find_layout, read_documents
    from qwen3nb.datasets.custom.grade_sheets import KnownTexts, check_may_be_replaced
    from qwen3nb.datasets.custom.grades import GradeFile
    from qwen3nb.datasets.custom.query_texts import read_entries
    from qwen3nb.evaluation.judging import Grading, judging_task

    if len(models) < 2:
        raise click.UsageError("a choice needs two models or more: give --model again")
    file = GradeFile(grades or Path("grades.jsonl"))
    if sheet is not None:
        inputs = {"--queries": queries, "--documents": documents, "--grades": file.file}
        _check_no_input(sheet, inputs)
    lines = file.read()  # what is wrong in it is said before the models search
    if again:
        check_choice("grader to grade again", again, dict.fromkeys(line.grader for line in lines))
    layout = find_layout(id_column=id_column, text=text)
    entries = read_entries(queries)
    query_texts, kinds = entries.texts, entries.generated
    collection = read_documents(documents, layout)
    known_texts = KnownTexts(query_texts, collection.texts)
    for returned_sheet in sheets:
        _read_sheet(returned_sheet, file, grader or "", known_texts, kinds)
    if sheet is not None:  # what is in the way is said before the models search
        check_may_be_replaced(sheet, file.read(), grader or "", known_texts)
    opt.hide_library_bars()
    task = judging_task(
        query_texts,
        collection.texts,
        [_model(model) for model in models],
        generated=kinds,
        chunks=chunks,
    )
    _add_grades_of_queries(queries, entries, task, file)
    if sheet is not None:
        _write_sheet(sheet, task, file)
    if sheet is not None or (sheets and not terminal):
        grading = Grading(task, file, grader=grader or "", seed=seed)
    elif grader and _names_language_model(grader):
        grading = _grade_by_model(grader, task, file, seed=seed, again=again or "")
    else:
        grader = grader or _login_name()
        grading = Grading(task, file, grader=grader, seed=seed, again=again or "")
        if terminal:
            _grade_on_terminal(grading)
        else:
            _serve(grading, port)
    _print_end(grading)
    _keep_verdict(grading, collection.name, name)


def _add_grades_of_queries(
    queries: Path, entries: TextEntries, task: JudgingTask, file: GradeFile
) -> None:
    """Add the grades that the queries have to the file, so that they are not asked for again.

    Their grader is the name of the file of queries.
    """
    from qwen3nb.datasets.custom.grades import GradeLine, is_grade_file, now

    # The grades of such a file have graders of their own.
    if queries.is_file() and is_grade_file(queries):
        return
    known_grades = entries.grades
    graded_pairs = {line.pair for line in file.read()}
    new_lines = []
    for pair in task.pool.pairs:
        if pair in known_grades and pair not in graded_pairs:
            query, document = pair
            new_lines.append(GradeLine(query, document, known_grades[pair], queries.name, now()))
    if new_lines:
        file.add(*new_lines)
        click.echo(f"{paths.shown(queries)}: {len(new_lines):,} grades are known")


def _model(text: str) -> Model:
    """Return the model of a spec, or of ``LABEL=SPEC``."""
    from qwen3nb.datasets.custom.queries import label_and_spec
    from qwen3nb.models.model import Model

    label, spec = label_and_spec(text)
    return Model(spec, name=label)


def _names_language_model(grader: str) -> bool:
    """Whether a grader is a server's model, a folder or a hub id; no person's name has a slash."""
    return grader.startswith("api:") or "/" in grader


def _login_name() -> str:
    """Return the name of the user of this machine."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a user without a name, as in some containers
        raise click.UsageError("who grades? This user has no name; give --grader NAME") from None


def _grade_by_model(
    spec: str, task: JudgingTask, file: GradeFile, *, seed: int, again: str
) -> Grading:
    """Let a language model grade, and return its grading."""
    from qwen3nb.evaluation.judging import Grading
    from qwen3nb.evaluation.model_grader import grade_all, language_model
    from qwen3nb.models.generation import load_generator

    generator = load_generator(spec)
    model = language_model(spec, generator)
    grading = Grading(task, file, grader=generator.label, seed=seed, again=again, model=model)
    try:
        counts = grade_all(grading, generator)
        click.echo(f"{generator.label}: {counts.text}")
    except KeyboardInterrupt:
        click.echo("\nStopped. Every grade is saved.")
    return grading


def _grade_on_terminal(grading: Grading) -> None:
    """Ask for grades on the terminal."""
    from qwen3nb.cli.judge_terminal import grade_here

    try:
        grade_here(grading)
    except KeyboardInterrupt:
        click.echo()


def _serve(grading: Grading, port: int) -> None:
    """Serve the page until the program is stopped."""
    from qwen3nb.cli.judge_page import JudgePage

    try:
        page = JudgePage(grading, port=port)
    except OSError as error:
        raise click.ClickException(f"port {port}: {error.strerror}; give another --port") from None
    with page:
        say(f"Grade at {page.address}", bold=True)
        say("Ctrl-C ends. Every grade is saved at once.")
        if _is_remote():
            say(
                f"From another machine, first: ssh -L {page.server_port}:127.0.0.1:"
                f"{page.server_port} HOST; or grade here: --terminal"
            )
        else:
            _open_browser(page.address)
        try:
            page.serve_forever()
        except KeyboardInterrupt:
            click.echo()


def _is_remote() -> bool:
    """Whether this machine has no screen that the user sees."""
    has_screen = bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    is_unix_without_screen = sys.platform.startswith("linux") and not has_screen
    return "SSH_CONNECTION" in os.environ or is_unix_without_screen


def _open_browser(address: str) -> None:
    """Open a page in the user's browser, if there is one."""
    import webbrowser

    try:
        webbrowser.open(address)
    except (webbrowser.Error, OSError):
        say("No browser was found: open the address yourself.")


def _print_end(grading: Grading) -> None:
    """Print the verdict, how well graders agree, and where the grades are."""
    progress = grading.progress()
    say(progress.verdict.text, bold=True)
    for agreement in progress.agreements:
        say(agreement.text)
    click.echo(paths.shown(grading.file.file))


def _keep_verdict(grading: Grading, documents: str, name: str | None) -> None:
    """Keep the verdict for the page of own data, in a study."""
    from qwen3nb.datasets.custom.load import collection_stem
    from qwen3nb.evaluation.judged import save_verdict

    task = grading.task
    queries = len(set(task.pool.queries))
    stem = collection_stem(documents, name, generated=task.generated_queries, queries=queries)
    file = save_verdict(grading, stem)
    if file is not None:
        click.echo(f"{paths.shown(file)}: for the page of own data")


def _check_no_input(sheet: Path, inputs: Mapping[str, Path]) -> None:
    """Refuse a sheet that would replace a file that the command reads, given by its option."""
    for option, file in inputs.items():
        is_same = sheet.absolute() == file.absolute()
        if is_same or (sheet.exists() and file.exists() and sheet.samefile(file)):
            raise click.UsageError(
                f"--sheet {sheet} is the file of {option}, which it would replace; name a new file"
            )


def _write_sheet(sheet: Path, task: JudgingTask, file: GradeFile) -> None:
    """Write every document that counts and has no grade."""
    from qwen3nb.datasets.custom.grade_sheets import write_sheet

    graded_pairs = {line.pair for line in file.read()}
    rows = []
    for pair, is_needed in zip(task.pool.pairs, task.pool.counts, strict=True):
        if is_needed and pair not in graded_pairs:
            query, document = pair
            rows.append((query, document, task.documents[document]))
    write_sheet(sheet, rows)
    click.echo(f"{paths.shown(sheet)}: {len(rows):,} documents to grade from 0 to 3")


def _read_sheet(
    sheet: Path, file: GradeFile, grader: str, known_texts: KnownTexts, kinds: Mapping[str, str]
) -> None:
    """Add the grades of a sheet to the file, but those that it has.

    Generated queries are marked by their ``kinds``.
    """
    from qwen3nb.datasets.custom.grade_sheets import read_sheet

    known_grades = {(line.pair, line.grade, line.grader) for line in file.read()}
    new_lines = []
    for line in read_sheet(sheet, grader, known_texts):
        if (line.pair, line.grade, line.grader) not in known_grades:
            new_lines.append(replace(line, generated=kinds.get(line.query, line.generated)))
    if new_lines:
        file.add(*new_lines)
    graders = ", ".join(dict.fromkeys(line.grader for line in new_lines)) or grader or "anybody"
    click.echo(f"{paths.shown(sheet)}: {len(new_lines):,} new grades by {graders}")
