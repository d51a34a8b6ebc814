"""Build the book: run the pages that read results, build strictly, check the output.

`qwen3nb book` and a bare ``jupyter-book build book`` (through `qwen3nb.book.sphinx_ext`) first call
`refresh_pages`.
"""

import errno
import importlib.util
import logging
import os
import sys
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.analysis.inventory.training_logs import LOG, log_files
from qwen3nb.analysis.training.checkpoint_scores import training_step
from qwen3nb.book.catalog import Needs, page_kind, read_catalog
from qwen3nb.book.pages import pages_with_records
from qwen3nb.checkpoints.provenance import PROVENANCE
from qwen3nb.cluster.processes import guarded_command
from qwen3nb.execution.executors import RunOutcome
from qwen3nb.execution.notebook import OUTDATED, NotebookError, run_notebook
from qwen3nb.execution.page_names import is_measured, is_old, page_name
from qwen3nb.execution.parameters import cached_calls, read_parameters
from qwen3nb.execution.publish import set_notice
from qwen3nb.execution.study_paths import in_page, of_page
from qwen3nb.execution.sweep import Job, failures_text, memory, reusable, sweep
from qwen3nb.records.record import Result
from qwen3nb.records.results import newest, richest_tier
from qwen3nb.records.store import latest, load_results
from qwen3nb.report.card import card_text
from qwen3nb.report.render.home import record_link
from qwen3nb.study import is_outdated
from qwen3nb.tiers import TIERS
from qwen3nb.utils.atomic_files import exclusive_lock, new_folder, read_json
from qwen3nb.utils.children import run_program
from qwen3nb.utils.format import escaped
from qwen3nb.utils.hardware import available_memory
from qwen3nb.utils.secrets import kernel_environment, known_secrets, write_public

log = logging.getLogger(__name__)

# Texts of a built book, except the theme's files in ``_static``.
_TEXTS = {".html", ".json", ".js", ".ipynb", ".md", ".txt", ".csv", ".tex", ".bib", ".svg", ".css"}

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
    declared = read_parameters(paths.notebooks() / "eval.ipynb")
    links: dict[str, str] = {}
    others = pages_with_records()
    with cached_calls():
        for run, result in {each.run: each for each in results}.items():
            options = result.options
            values = {name: options.get(name, each.default) for name, each in declared.items()}
            name = page_name("eval", in_page(values), declared)
            if (paths.book_runs() / f"{name}.ipynb").is_file():
                links[run] = f"{name}.html"
    for result in results:
        if page := others.get(record_link(result)):
            links.setdefault(result.run, page)
    return links


def write_card_page(
    results: Sequence[Result], *, model: Path | None = None, tier: str = "smoke"
) -> Path | None:
    """Write ``book/runs/card.md``, the card of ``model``, and return its path.

    By default, ``model`` is the extracted model evaluated last; without one, there is no page.
    """
    page = paths.book_runs() / "card.md"
    if model is None:
        extracted = [
            result
            for result in latest(results)
            if (paths.root() / result.model.spec / PROVENANCE).is_file()
        ]
        if not extracted:
            page.unlink(missing_ok=True)
            return None
        model = paths.root() / newest(extracted).model.spec
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
    everything = load_results()
    results = everything.without_adapters
    richest = richest_tier(results)
    on_tier = tier and any(each.task.key in TIERS[tier].task_keys for each in results)
    if tier and results and not on_tier:
        raise BookError(
            f"expected results on the tier {tier!r}, got none; its empty leaderboard would replace "
            f"that of the tier {richest!r}. Run `qwen3nb eval --tier {tier}` first, or build the "
            f"book with --tier {richest}."
        )
    tier = tier or richest
    # The book's own pages keep their names for any tier.
    own_pages = [kind for kind in read_catalog() if kind.needs is not Needs.RUN]
    content = _content(results, everything, tier)
    if lessons:
        content.add(Needs.LESSONS)
    jobs = []
    for kind in own_pages:
        if kind.needs in content:
            parameters = {"tier": tier} if kind.takes_tier else {}
            jobs.append(Job(kind.notebook, parameters, kind.notebook))
        elif not kind.measures:
            (paths.book_runs() / f"{kind.notebook}.ipynb").unlink(missing_ok=True)
    if lessons:
        jobs += _lessons()
    names = {kind.notebook for kind in own_pages}
    with cached_calls():  # reads shared dependencies once
        due = [job for job in (*jobs, *_published(names)) if not reusable(job)]
        if not lessons:
            _mark_old_lessons()
    outcomes = sweep(due, at_once=at_once) if due else []
    write_card_page(results, model=model, tier=tier)
    failures = [outcome for outcome in outcomes if outcome.status == "failed"]
    try:
        run_notebook(_LAST)
    except NotebookError as error:
        if not is_outdated(paths.find_notebook(_LAST)):
            raise
        failures.append(RunOutcome(_LAST, 1, notebook=_LAST, reason=str(error)))
    _check_pages()
    return failures


def _check_pages() -> None:
    """Raise an error that names a page that is not a notebook."""
    for file in (*paths.book_runs().glob("*.ipynb"), *(paths.book() / "guide").glob("*.ipynb")):
        try:
            if not isinstance(read_json(file)["cells"], list):
                raise TypeError("its cells are not a list")
        except (OSError, ValueError, KeyError, TypeError) as error:
            why = f"expected a notebook; delete the file, or run it again ({error})"
            raise BookError(f"{file}: {why}") from None


def _content(results: Sequence[Result], everything: Sequence[Result], tier: str) -> set[Needs]:
    """Return what the book's own pages can be about."""
    content = {Needs.RECORDS}
    models = {
        result.model.identity for result in results if result.task.key in TIERS[tier].task_keys
    }
    logs = {file.name for file in log_files(paths.runs())}
    if len(models) > 1:
        content.add(Needs.TWO_MODELS)
    if logs or any(map(training_step, everything)):
        content.add(Needs.TRAININGS)
    if LOG in logs or any(result.training is not None for result in everything):
        content.add(Needs.ADAPTERS)
    return content


def _lessons() -> Iterator[Job]:
    """Yield the lessons; one that is no notebook of this package is named and left out."""
    for file in sorted((paths.notebooks() / "guide").glob("[!.]*.ipynb")):
        job = Job(f"guide/{file.stem}", {})
        try:
            job.resolved()
        except (ValueError, OSError) as error:
            log.warning("left out: %s", str(error).splitlines()[0])
            continue
        yield job


def _mark_old_lessons() -> None:
    """Put a notice on lessons that were run on other records, or by another version."""
    for job in _lessons():
        if job.page.is_file():
            text = "" if job.finished() else "`qwen3nb book --lessons` makes it again."
            set_notice(job.page, text)


def _published(own: Container[str]) -> Iterator[Job]:
    """Yield the user's runs whose pages depend on records that have changed.

    A page that cannot be run again here, because its model or its folder is gone, gets a notice
    instead.
    """
    for file in sorted(paths.book_runs().glob("*.ipynb")):
        if file.stem in own:
            continue
        try:
            page = read_json(file)
            made = page["metadata"]["qwen3nb"]
            job = Job(made["notebook"], of_page(made["parameters"]), file.stem)
            reads = made.get("reads") == "results" and not _is_unaffected(job.notebook)
            old = is_old(page)
        except (ValueError, KeyError, TypeError):  # damaged, or not one of ours
            continue
        if "failed" in made or not (reads or old):
            continue
        unrunnable = _why_not_run(job)
        why = unrunnable or (_why_not_again(job, page) if old else "")
        if old:
            notice = f"Other models were evaluated since. It cannot be updated: {escaped(why)}."
            set_notice(file, notice if why else "")
        else:
            notice = f"It shows the records of its time: {escaped(why)}."
            set_notice(file, notice if why else "", title="This page cannot be made again")
        if not why:
            yield job


def _is_unaffected(notebook: str) -> bool:
    """Return whether records that come later do not change the pages of a notebook."""
    return notebook == _LAST or page_kind(notebook).measures


def _why_not_run(job: Job) -> str:
    """Return why a page's run cannot start here; empty if it can."""
    try:
        job.resolved()
    except (ValueError, OSError, RuntimeError) as error:
        return str(error).splitlines()[0].rstrip(".")
    return ""


def _why_not_again(job: Job, page: Mapping[str, Any]) -> str:
    """Return why a page cannot be run again here without measuring again; empty if it can."""
    try:
        needs = memory(job)
    except (ValueError, OSError) as error:
        return str(error).splitlines()[0].rstrip(".")
    if needs > available_memory():
        return f"its model needs about {needs / 1e9:.0f} GB of memory"
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

    The new book replaces the old one atomically; if it does not build, the old one is kept. A
    lesson that fails, for example because its model cannot be downloaded, has a page that reports
    it. So has a page whose notebook is of another release; warnings then do not count.

    The arguments are those of `refresh_pages`; returns the path of the book's first page.

    Raises:
        BookError: Sphinx warned, a page contains a secret, the tier has no results but another has,
            a page failed, or the book is built but a lesson failed.
        NotebookError: the page of all runs failed.
    """
    require_jupyter_book()
    failures = refresh_pages(tier=tier, model=model, lessons=lessons, at_once=at_once)
    outdated = [failure for failure in failures if _is_outdated(failure)]
    failures = [failure for failure in failures if failure not in outdated]
    if outdated:
        names = ", ".join(failure.name for failure in outdated)
        log.warning("pages that could not be made again: %s: %s", names, OUTDATED)
    if failed := [each for each in failures if not each.notebook.startswith("guide/")]:
        raise BookError(f"the book is not built; pages that failed:\n{failures_text(failed)}")
    # Always a new folder: an incremental build keeps the pages and glued values of deleted runs.
    target = paths.root() / "_build"
    with exclusive_lock(target, purpose="builds"), new_folder(target) as output:
        _build(output, strict=not outdated)  # what others quote of an outdated page may be missing
    index = target / "html" / "index.html"
    if failures:
        raise BookError(
            f"{index} is built, but {len(failures)} lessons failed, as their "
            "pages say. Delete the notebook of a lesson to leave it out.\n"
            f"{failures_text(failures)}"
        )
    return index


def _is_outdated(failure: RunOutcome) -> bool:
    """Return whether the notebook of a page that failed was copied from another release."""
    return is_outdated(paths.find_notebook(failure.notebook))


def _build(output: Path, *, strict: bool) -> None:
    """Build the book in a folder and check it.

    Raises:
        BookError: see `build_book`.
    """
    command = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()"]
    command += ["build", str(paths.book()), "-n", "--keep-going", "-q"]
    command += ["-W"] if strict else []
    command += ["--path-output", str(output)]
    done = run_program(
        guarded_command(command),
        own_session=True,
        environment=kernel_environment() | {REFRESHED: "1"},
    )
    if done.returncode:
        output_text = (done.stdout + done.stderr).strip()
        if os.strerror(errno.ENOSPC) in output_text:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(output))
        raise BookError(f"the book does not build without warnings:\n{output_text[-4000:]}")
    html = output / "_build" / "html"
    if not (html / "index.html").is_file():
        raise BookError(f"the build succeeded but did not write {html / 'index.html'}")
    if secret := secret_pages(html):
        listed = "\n".join(f"  {page}: {', '.join(kinds)}" for page, kinds in secret[:10])
        raise BookError(f"the built pages contained secrets and were deleted:\n{listed}")
    for each in (output / "_build").iterdir():
        each.rename(output / each.name)
    (output / "_build").rmdir()


def secret_pages(html: Path) -> list[tuple[str, list[str]]]:
    """Return the texts of a built book that contain secrets, and the kinds of secrets.

    Pages, their sources, records, downloads and the search index are searched.
    """
    secrets = known_secrets()
    holding = []
    for file in sorted(html.rglob("*")):
        name = file.relative_to(html)
        if file.suffix not in _TEXTS or name.parts[0] == "_static" or not file.is_file():
            continue
        texts = secrets.values if name.parts[0] == "records" else secrets  # of data
        if kinds := texts.kinds(file.read_text(encoding="utf-8", errors="replace")):
            holding.append((str(name), kinds))
    return holding
