"""Build the book: run the pages that read results, build strictly, check the output.

`qwen3nb book` and a bare ``jupyter-book build book`` (through `qwen3nb.book.sphinx_ext`) first call
`refresh_pages`.
"""

import errno
import importlib.util
import logging
import os
import sys
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.analysis.inventory.training_logs import LOG, log_files
from qwen3nb.analysis.training.checkpoint_scores import training_step
from qwen3nb.answers.own_data import collections, page_of
from qwen3nb.book.catalog import Needs, PageKind, page_kind, read_catalog
from qwen3nb.book.pages import pages_with_records
from qwen3nb.book.up_to_date import book_inputs, is_up_to_date, note_inputs, record_stamps
from qwen3nb.checkpoints.provenance import PROVENANCE
from qwen3nb.cluster.processes import guarded_command
from qwen3nb.execution.executors import RunOutcome
from qwen3nb.execution.notebook import OUTDATED, NotebookError, run_notebook
from qwen3nb.execution.page_names import is_measured, is_old, page_name
from qwen3nb.execution.parameters import cached_calls, read_parameters
from qwen3nb.execution.publish import is_unrun, set_notice, write_unrun
from qwen3nb.execution.study_paths import page_values_from_here, page_values_in_study
from qwen3nb.execution.sweep import Job, failures_text, memory, reusable, sweep
from qwen3nb.records.record import Result
from qwen3nb.records.results import newest, richest_tier
from qwen3nb.records.store import latest, load_results
from qwen3nb.report.card import card_text
from qwen3nb.report.render.home import record_link
from qwen3nb.study import is_outdated
from qwen3nb.tiers import TIERS
from qwen3nb.utils.atomic_files import exclusive_lock, new_folder, read_json, sweep_leftovers
from qwen3nb.utils.children import run_program
from qwen3nb.utils.format import escaped
from qwen3nb.utils.hardware import available_memory
from qwen3nb.utils.secrets import kernel_environment, secret_files, write_public
from qwen3nb.utils.terminal import say

log = logging.getLogger(__name__)

# Environment variable of a build whose pages are already refreshed.
REFRESHED = "QWEN3NB_BOOK_REFRESHED"

_LAST = "status"  # the page of all runs, made after the others


class BookError(RuntimeError):
    """The book does not build, or a page contains a secret."""


def page_links(results: Collection[Result]) -> dict[str, str]:
    """Return the page of each run id, relative to the other pages in ``book/runs``.

    Only published pages are included: the page of the evaluation, else the first that links to a
    record of the run. `qwen3nb.report.render.home.score_link` links to the row of a score.
    """
    parameters = read_parameters(paths.notebooks() / "eval.ipynb")
    links: dict[str, str] = {}
    with cached_calls():
        # One record of each run: its page is named after the options, which all of them have.
        for run, result in {result.run: result for result in results}.items():
            values = {}
            for name, parameter in parameters.items():
                values[name] = result.options.get(name, parameter.default)
            page = page_name("eval", page_values_in_study(values), parameters)
            if (paths.book_runs() / f"{page}.ipynb").is_file():
                links[run] = f"{page}.html"
    page_of_record = pages_with_records()
    for result in results:
        record = record_link(result)
        if record in page_of_record:  # for a run without a page of its own
            links.setdefault(result.run, page_of_record[record])
    return links


def write_card_page(
    results: Sequence[Result], *, model: Path | None = None, tier: str = "smoke"
) -> Path | None:
    """Write ``book/runs/card.md``, the card of ``model``, and return its path.

    By default, ``model`` is the extracted model evaluated last; without one, there is no page.
    """
    page = paths.book_runs() / "card.md"
    if model is None:
        extracted_results = []
        for result in latest(results):
            folder = paths.root() / result.model.spec
            if (folder / PROVENANCE).is_file():
                extracted_results.append(result)
        if not extracted_results:
            page.unlink(missing_ok=True)
            return None
        model = paths.root() / newest(extracted_results).model.spec
    # Without the YAML at the front, which is for a model hub.
    return write_public(page, card_text(model, results, tier=tier, front=False))


def refresh_pages(
    *, tier: str = "", model: Path | None = None, lessons: bool = False, at_once: int = 0
) -> list[RunOutcome]:
    """Update the pages that read results, and return the runs that failed.

    The book's own pages are included if they have content: no comparison of a single model, no page
    of trainings without one. Pages of a user's runs are run again if their statements on other
    models are outdated; those that cannot be run here get a notice. Outdated pages run in parallel.

    Args:
        tier: the tier whose tasks the pages show; by default the richest with results.
        model: the model of the card; by default the extracted model evaluated last.
        lessons: whether to also run the lessons and the page that tests the statistics.
        at_once: pages to run in parallel; 0 for as many as fit.

    Raises:
        BookError: the tier has no results but another has, or a page is not a notebook.
        NotebookError: the page of all runs failed.
    """
    all_results = load_results()
    results = all_results.without_adapters
    if tier:
        _require_results(results, tier)
    else:
        tier = richest_tier(results)
    # The book's own pages keep their names for any tier.
    own_pages = [kind for kind in read_catalog() if kind.needs is not Needs.RUN]
    content = _content(results, all_results, tier)
    if lessons:
        content.add(Needs.LESSONS)
    jobs = _jobs_of_own_pages(own_pages, content, tier, collections(results))
    if lessons:
        jobs += _lessons()
    names = {kind.notebook for kind in own_pages} | {job.name for job in jobs}
    with cached_calls():  # reads shared dependencies once
        due_jobs = [job for job in (*jobs, *_published(names)) if not reusable(job)]
        if not lessons:
            _show_lessons()
    outcomes = sweep(due_jobs, at_once=at_once) if due_jobs else []
    write_card_page(results, model=model, tier=tier)
    failures = [outcome for outcome in outcomes if outcome.status == "failed"]
    if not due_jobs and is_up_to_date(_built_book()):
        return []  # the page of all runs would be the same, too
    try:
        run_notebook(_LAST)
    except NotebookError as error:
        if not is_outdated(paths.find_notebook(_LAST)):
            raise
        failures.append(RunOutcome(_LAST, 1, notebook=_LAST, reason=str(error)))
    _check_pages()
    return failures


def _require_results(results: Sequence[Result], tier: str) -> None:
    """Raise BookError if a tier has no results, but another has."""
    if not results:
        return
    if any(result.task.key in TIERS[tier].task_keys for result in results):
        return
    richest = richest_tier(results)
    raise BookError(
        f"expected results on the tier {tier!r}, got none; its empty leaderboard would replace "
        f"that of the tier {richest!r}. Run `qwen3nb eval --tier {tier}` first, or build the "
        f"book with --tier {richest}."
    )


def _jobs_of_own_pages(
    own_pages: Iterable[PageKind],
    content: Container[Needs],
    tier: str,
    own_collections: Sequence[str],
) -> list[Job]:
    """Return the runs of the book's own pages that have content, and delete the others."""
    jobs = []
    for kind in own_pages:
        if kind.needs is Needs.OWN_DATA:
            jobs += _jobs_of_own_data(kind, own_collections)
        elif kind.needs in content:
            parameters = {"tier": tier} if kind.takes_tier else {}
            jobs.append(Job(kind.notebook, parameters, kind.notebook))
        elif not kind.measures:  # a page of an earlier build, which measured nothing itself
            (paths.book_runs() / f"{kind.notebook}.ipynb").unlink(missing_ok=True)
    return jobs


def _jobs_of_own_data(kind: PageKind, own_collections: Sequence[str]) -> list[Job]:
    """Return the run of each collection of own data, and delete the pages of others."""
    jobs = []
    for name in own_collections:
        jobs.append(Job(kind.notebook, {"collection": name}, page_of(name)))
    names = {job.page_name for job in jobs}
    for page in paths.book_runs().glob(f"{page_of('')}*.ipynb"):
        if page.stem not in names:
            page.unlink()
    return jobs


def _check_pages() -> None:
    """Raise an error that names a page that is not a notebook."""
    runs = paths.book_runs().glob("*.ipynb")
    lessons = (paths.book() / "guide").glob("*.ipynb")
    for file in (*runs, *lessons):
        try:
            if not isinstance(read_json(file)["cells"], list):
                raise TypeError("its cells are not a list")
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = f"expected a notebook; delete the file, or run it again ({error})"
            raise BookError(f"{file}: {reason}") from None


def _content(results: Sequence[Result], everything: Sequence[Result], tier: str) -> set[Needs]:
    """Return what the book's own pages can be about."""
    tasks = TIERS[tier].task_keys
    models = {result.model.identity for result in results if result.task.key in tasks}
    logs = {file.name for file in log_files(paths.runs())}
    content = {Needs.RECORDS}
    if len(models) > 1:
        content.add(Needs.TWO_MODELS)
    # Trainings leave logs, and several checkpoints that were evaluated.
    if logs or _has_several_steps(everything):
        content.add(Needs.TRAININGS)
    if LOG in logs or any(result.training is not None for result in everything):
        content.add(Needs.ADAPTERS)
    return content


def _has_several_steps(results: Sequence[Result]) -> bool:
    """Whether two checkpoints of one training were evaluated: one has no course."""
    first_steps: dict[tuple[str, int], int] = {}
    for result in results:
        checkpoint = training_step(result)
        if checkpoint is None:
            continue
        training = (checkpoint.training, checkpoint.seed)
        if first_steps.setdefault(training, checkpoint.step) != checkpoint.step:
            return True
    return False


def _lessons() -> Iterator[Job]:
    """Yield the lessons; one that is no notebook of this package is named and left out."""
    folder = paths.notebooks() / "guide"
    for file in sorted(folder.glob("[!.]*.ipynb")):  # no hidden file, such as of an editor
        job = Job(f"guide/{file.stem}", {})
        reason = _first_line_of_error(job, ValueError, OSError)
        if reason:
            log.warning("left out: %s", reason)
        else:
            yield job


def _show_lessons() -> None:
    """Give each lesson its page: as it was run, or without results if it was not run yet.

    Those that were run on other records, or by another version, get a notice.
    """
    for job in _lessons():
        if not job.page.is_file() or is_unrun(job.page):
            write_unrun(paths.find_notebook(job.notebook), job.page)
        else:
            text = "" if job.finished() else "`qwen3nb book --lessons` makes it again."
            set_notice(job.page, text)


@dataclass(frozen=True)
class _RunPage:
    """A page of a user's run whose records may have changed."""

    file: Path
    content: dict[str, Any]  # of the notebook
    job: Job  # that makes it again
    is_old: bool  # whether its statements on other models are outdated

    def why_not_made_again(self) -> str:
        """Return why the page cannot be made again here; empty if it can."""
        reason = _why_not_run(self.job)
        if self.is_old and not reason:
            return _why_not_again(self.job, self.content)
        return reason

    def set_reason(self, reason: str) -> None:
        """Put a notice on the page why it is not made again, or remove it without a reason."""
        if self.is_old:
            notice = f"Other models were evaluated since. It cannot be updated: {escaped(reason)}."
            set_notice(self.file, notice if reason else "")
        else:
            notice = f"It shows the records of its time: {escaped(reason)}."
            title = "This page cannot be made again"
            set_notice(self.file, notice if reason else "", title=title)


def _published(own_names: Container[str]) -> Iterator[Job]:
    """Yield the user's runs whose pages depend on records that have changed.

    A page that cannot be run again here, because its model or its folder is gone, gets a notice
    instead.
    """
    for file in sorted(paths.book_runs().glob("*.ipynb")):
        if file.stem in own_names:  # pages of the book, which have jobs already
            continue
        page = _run_page(file)
        if page is None:
            continue
        reason = page.why_not_made_again()
        page.set_reason(reason)  # a notice on the page, or none
        if not reason:
            yield page.job


def _run_page(file: Path) -> _RunPage | None:
    """Return a page that depends on records; None for one that failed, or that does not."""
    try:
        content = read_json(file)
        run = content["metadata"]["qwen3nb"]  # the notebook, its parameters, what it reads
        job = Job(run["notebook"], page_values_from_here(run["parameters"]), file.stem)
        reads_results = run.get("reads") == "results" and not _is_unaffected(job.notebook)
        page = _RunPage(file, content, job, is_old(content))
    except (ValueError, KeyError, TypeError):  # damaged, or not one of ours
        return None
    if "failed" in run or not (reads_results or page.is_old):
        return None
    return page


def _is_unaffected(notebook: str) -> bool:
    """Return whether records that come later do not change the pages of a notebook."""
    return notebook == _LAST or page_kind(notebook).measures


def _why_not_run(job: Job) -> str:
    """Return why a page's run cannot start here; empty if it can."""
    return _first_line_of_error(job, ValueError, OSError, RuntimeError).rstrip(".")


def _first_line_of_error(job: Job, *errors: type[Exception]) -> str:
    """Return the first line of the error with which a run cannot start; empty if it can."""
    try:
        job.resolved()
    except errors as error:
        return str(error).splitlines()[0]
    return ""


def _why_not_again(job: Job, page: Mapping[str, Any]) -> str:
    """Return why a page cannot be run again here without measuring again; empty if it can."""
    try:
        needed_bytes = memory(job)
    except (ValueError, OSError) as error:
        return str(error).splitlines()[0].rstrip(".")
    if needed_bytes > available_memory():
        return f"its model needs about {needed_bytes / 1e9:.0f} GB of memory"
    # Records of other versions are not reused, so that the run would measure again.
    if not is_measured(page):
        return "its records were made with other versions of the libraries"
    return ""


def require_jupyter_book() -> None:
    """Raise BookError if Jupyter Book is not installed; called before anything runs for long."""
    if importlib.util.find_spec("jupyter_book") is None:
        raise BookError(
            "the book needs Jupyter Book 1: pip install 'qwen3nb[book]'; "
            "`qwen3nb sweep --no-book` does without"
        )


def build_book(
    *, tier: str = "", model: Path | None = None, lessons: bool = False, at_once: int = 0
) -> Path:
    """Refresh the pages, build the book from scratch and strictly, and check it.

    If nothing has changed since it was built, it is kept. The new book replaces the old one
    atomically; if it does not build, the old one is kept. A lesson that fails, for example because
    its model cannot be downloaded, has a page that reports it. So has a page whose notebook is of
    another release; warnings then do not count.

    The arguments are those of `refresh_pages`; returns the path of the book's first page.

    Raises:
        BookError: Sphinx warned, a page contains a secret, the tier has no results but another has,
            a page failed, or the book is built but a lesson failed.
        NotebookError: the page of all runs failed.
    """
    require_jupyter_book()
    target = _built_book()
    index = target / "html" / "index.html"
    records_before = record_stamps()
    failures = refresh_pages(tier=tier, model=model, lessons=lessons, at_once=at_once)
    if not failures and is_up_to_date(target):
        with exclusive_lock(target, purpose="builds"):
            sweep_leftovers(target)  # of a build that was killed right after its last step
        say("the book is up to date: nothing has changed since it was built", err=True)
        return index
    # Only the last of the three kinds of failures stops the build.
    outdated, failed_lessons, failed_pages = [], [], []
    for failure in failures:
        if _is_outdated(failure):
            outdated.append(failure)
        elif failure.notebook.startswith("guide/"):
            failed_lessons.append(failure)
        else:
            failed_pages.append(failure)
    if outdated:
        names = ", ".join(failure.name for failure in outdated)
        log.warning("pages that could not be made again: %s: %s", names, OUTDATED)
    if failed_pages:
        text = failures_text(failed_pages)
        raise BookError(f"the book is not built; pages that failed:\n{text}")
    inputs = book_inputs()
    # A record that came meanwhile may be missing on some page.
    is_complete = not failures and record_stamps() == records_before
    # Always a new folder: an incremental build keeps the pages and glued values of deleted runs.
    with exclusive_lock(target, purpose="builds"), new_folder(target) as output:
        _build(output, strict=not outdated)  # what others quote of an outdated page may be missing
        if is_complete:
            note_inputs(output, inputs)
    if failed_lessons:
        raise BookError(
            f"{index} is built, but {len(failed_lessons)} lessons failed, as their "
            "pages say. Delete the notebook of a lesson to leave it out.\n"
            f"{failures_text(failed_lessons)}"
        )
    return index


def _built_book() -> Path:
    """Return the folder of the book that `build_book` builds."""
    return paths.root() / "_build"


def _is_outdated(failure: RunOutcome) -> bool:
    """Return whether the notebook of a page that failed was copied from another release."""
    return is_outdated(paths.find_notebook(failure.notebook))


def _build(output: Path, *, strict: bool) -> None:
    """Build the book in a folder and check it.

    Raises:
        BookError: see `build_book`.
    """
    _run_jupyter_book(output, strict=strict)
    build_folder = output / "_build"
    html = build_folder / "html"
    if not (html / "index.html").is_file():
        raise BookError(f"the build succeeded but did not write {html / 'index.html'}")
    secrets = secret_files(html)
    if secrets:
        lines = "\n".join(f"  {page}: {', '.join(kinds)}" for page, kinds in secrets[:10])
        raise BookError(f"the built pages contained secrets and were deleted:\n{lines}")
    for child in build_folder.iterdir():  # such as html, which Jupyter Book puts one folder deeper
        child.rename(output / child.name)
    build_folder.rmdir()


def _run_jupyter_book(output: Path, *, strict: bool) -> None:
    """Run Jupyter Book, and raise an error if it fails."""
    command = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()"]
    # -n: warn of missing references; -q: no progress; -W: warnings are errors.
    command += ["build", str(paths.book()), "-n", "--keep-going", "-q"]
    if strict:
        command.append("-W")
    command += ["--path-output", str(output)]
    process = run_program(
        guarded_command(command),
        own_session=True,
        environment=kernel_environment() | {REFRESHED: "1"},  # the pages are refreshed already
    )
    if not process.returncode:
        return
    output_text = (process.stdout + process.stderr).strip()
    if os.strerror(errno.ENOSPC) in output_text:  # the disk is full, which is no fault of a page
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(output))
    raise BookError(f"the book does not build without warnings:\n{output_text[-4000:]}")
