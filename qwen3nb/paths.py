"""Paths of everything on disk, and the variables that override them.

A *study* is a folder with `_config.yml`, `book/_toc.yml` and `notebooks/`, as `qwen3nb new`
makes it; a clone of the repository is one too. `root` is the nearest study, from the working
directory upwards, so a notebook opened in JupyterLab (working directory `notebooks/`) and a
command run at the top agree. Outside a study, relative paths start from the working directory,
the cache is the user's, and reading or writing results, models or pages raises `NoStudyError`::

    QWEN3NB_HOME     the root itself
    QWEN3NB_RESULTS  results/   result records, MTEB's own files
    QWEN3NB_RUNS     runs/      models that the demo trains and extracts
    QWEN3NB_CACHE    .cache/    embeddings, built tasks, file digests; safe to delete; outside a
                                study `qwen3nb` in the user's cache folder
    QWEN3NB_MIRROR   (none)     local copies of data sets and models, by hub id
    QWEN3NB_BOOK     book/      the book's sources; executed notebooks in book/runs/, lessons
                                in book/guide/
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Public: the folders of a study.
__all__ = [
    "book",
    "cache",
    "find_notebook",
    "notebooks",
    "releases",
    "results",
    "root",
    "runs",
]

# Environment variable of an evaluation during a training: a checkpoint and its kept copy, as JSON.
KEPT_COPY = "QWEN3NB_KEPT_COPY"


class NoStudyError(FileNotFoundError):
    """No study to read results from or write them to; the message says how to create one."""


def is_study(folder: Path) -> bool:
    """Return whether ``folder`` is a study: has the three entries that every study has."""
    return (
        (folder / "_config.yml").is_file()
        and (folder / "book" / "_toc.yml").is_file()
        and (folder / "notebooks").is_dir()
    )


def find_root() -> Path | None:
    """Return ``QWEN3NB_HOME``, else the nearest study, or None outside any."""
    home = os.environ.get("QWEN3NB_HOME")
    if home:
        return Path(home).expanduser().resolve()
    working_directory = Path.cwd()
    for folder in (working_directory, *working_directory.parents):
        if is_study(folder):
            return folder
    return None


def study_of(notebook: Path) -> Path | None:
    """Return the study whose ``notebooks/`` contains a notebook, at any depth, or None."""
    parent = notebook.resolve().parent
    for folder in (parent, parent.parent):
        if folder.name == "notebooks" and is_study(folder.parent):
            return folder.parent
    return None


@contextmanager
def within(study: Path | None) -> Iterator[None]:
    """Make ``study`` the root within a block, also for processes started there.

    With None, or if ``QWEN3NB_HOME`` is set, the root stays as it is.
    """
    # A root that the user has set stays.
    is_root_fixed = bool(os.environ.get("QWEN3NB_HOME"))
    if study is None or is_root_fixed or study == find_root():
        yield
        return
    os.environ["QWEN3NB_HOME"] = str(study)  # child processes inherit it
    try:
        yield
    finally:
        del os.environ["QWEN3NB_HOME"]


def root() -> Path:
    """Return the folder that relative paths start from: the study, else the working directory."""
    return find_root() or Path.cwd()


def shown(path: Path) -> str:
    """Return ``path`` as records store it: relative to the root if it is inside.

    A kept copy of a checkpoint, see `kept_copy`, is shown as that checkpoint.
    """
    resolved = Path(os.path.realpath(path))
    checkpoint, copy = _checkpoint_and_copy()
    if copy is not None and resolved.is_relative_to(copy):
        resolved = checkpoint / resolved.relative_to(copy)
    if resolved.is_relative_to(root()):
        return str(resolved.relative_to(root()))
    return str(resolved)


def kept_copy(folder: Path) -> Path | None:
    """Return the copy of a checkpoint that a training keeps while it is evaluated, or None.

    The trainer may delete the checkpoint meanwhile. Its records and pages name the checkpoint.
    """
    checkpoint, copy = _checkpoint_and_copy()
    if copy is not None and Path(os.path.realpath(folder)) == checkpoint:
        return copy
    return None


def _checkpoint_and_copy() -> tuple[Path, Path | None]:
    """Return a checkpoint and its copy, which `KEPT_COPY` names; no copy if it is not set."""
    value = os.environ.get(KEPT_COPY)
    if not value:
        return Path(), None
    checkpoint, copy = json.loads(value)
    return Path(checkpoint), Path(copy)


def given_file(path: Path | str) -> Path:
    """Return a file as it is named, or else the one of this name in the study.

    A notebook runs in ``notebooks/``, and its parameters name files from the study's folder.
    """
    file = Path(path).expanduser()
    if not file.exists() and (root() / file).exists():
        return root() / file
    return file


def _folder(variable: str, default: str) -> Path:
    value = os.environ.get(variable)
    if value:
        return Path(value).expanduser().resolve()
    return _in_study(default)


def _in_study(name: str) -> Path:
    study = find_root()
    if study is None:
        raise NoStudyError(
            f"{Path.cwd()} is in no study (a folder with _config.yml, book/ and notebooks/): "
            "create one with `qwen3nb new my-study` and go there, or set QWEN3NB_HOME to its path"
        )
    return study / name


def results() -> Path:
    """Result records, from which every table, figure and page is rebuilt."""
    return _folder("QWEN3NB_RESULTS", "results")


def releases() -> Path:
    """Releases of the study, which `qwen3nb freeze` makes."""
    return _in_study("releases")


def runs() -> Path:
    """Models that the demo trains and extracts."""
    return _folder("QWEN3NB_RUNS", "runs")


def cache() -> Path:
    """Embeddings, built tasks and file digests; deleting it costs only time."""
    is_in_study = find_root() is not None
    if is_in_study or os.environ.get("QWEN3NB_CACHE"):
        return _folder("QWEN3NB_CACHE", ".cache")
    cache_of_user = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache_of_user) / "qwen3nb"


def cache_to_write() -> Path:
    """Return the folder of `cache`, which need not exist, for what cannot do without it.

    Raises:
        NotADirectoryError: there is something else than a folder; names the variable.
    """
    folder = cache()
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(
            f"{folder}: the cache is no folder; set QWEN3NB_CACHE to one, or remove what is there"
        )
    return folder


def book() -> Path:
    """The book's sources."""
    return _folder("QWEN3NB_BOOK", "book")


def book_runs() -> Path:
    """Executed notebooks and generated pages, published only when finished."""
    return book() / "runs"


def mirror() -> Path | None:
    """Local copies of data sets and models, each in ``<organisation>/<name>``; None if unset."""
    value = os.environ.get("QWEN3NB_MIRROR")
    if not value:
        return None
    return Path(value).expanduser().resolve()


def notebooks() -> Path:
    """The parameterised notebooks."""
    return _in_study("notebooks")


def notebook_names() -> list[str]:
    """Names of all notebooks, sorted: ``eval``, and with their folder ``guide/caching``."""
    files = [*notebooks().glob("[!.]*.ipynb"), *notebooks().glob("[!.]*/[!.]*.ipynb")]
    return sorted(notebook_name(file) for file in files if file.is_file())


def notebook_name(notebook: Path) -> str:
    """Return a notebook's name: ``eval``; in a folder of `notebooks`, ``guide/caching``."""
    file = notebook.resolve()
    is_in_subfolder = file.parent.parent == notebooks().resolve()
    if is_in_subfolder:
        return f"{file.parent.name}/{file.stem}"
    return file.stem


def page_key(page: Path) -> str:
    """Return a page's name in logs and notes: ``eval-bm25-smoke``, or ``guide-caching``."""
    is_lesson = page.is_relative_to(book()) and page.parent != book_runs()
    if is_lesson:
        return f"{page.parent.name}-{page.stem}"
    return page.stem


def find_notebook(notebook: Path | str) -> Path:
    """Return the path of a notebook, given by its path or by its name in `notebooks`.

    Raises:
        FileNotFoundError: no such notebook; lists the available names.
    """
    path = Path(notebook)
    if path.is_file():
        return path
    # The name may have a folder, as ``guide/caching`` has, and folders above it do not count.
    stem = path.name.removesuffix(".ipynb")
    for name in (Path(path.parent.name, stem), Path(stem)):
        file = notebooks() / f"{name}.ipynb"
        if file.is_file():
            return file
    names = ", ".join(notebook_names()) or "none; create a study with `qwen3nb new my-study`"
    raise FileNotFoundError(f"no notebook {str(notebook)!r}; in {notebooks()}: {names}")
