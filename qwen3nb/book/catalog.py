"""The pages of the book, as their notebooks describe them in ``metadata.qwen3nb``.

    part      caption of the part of the sidebar that lists the pages
    question  of readers, on the landing page; several notebooks may answer one
    place     order of parts, pages and questions; 1 comes first
    needs     what there must be for `qwen3nb book` to make the page anew when records come
    measures  whether the notebook reads results, but shows what records do not affect

A notebook without them has pages, too: among the owner's, made when they are run. The notebooks of
a study that was made by an earlier release are described by those of this one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path

from qwen3nb import paths
from qwen3nb.execution.parameters import ParameterError, read_parameters
from qwen3nb.study import StudyError, template_folder
from qwen3nb.utils.atomic_files import read_json

LAST = 1000  # place of pages that state none
OWN_PART = "Your own notebooks"
_SUFFIXES = (".ipynb", ".md")  # of pages of runs


class Needs(StrEnum):
    """What there must be for a page to have content."""

    RUN = "run"  # made by its owner's run only
    RECORDS = "records"  # shown in every book
    TWO_MODELS = "two models"
    TRAININGS = "trainings"
    ADAPTERS = "adapters"
    OWN_DATA = "own data"  # a page per collection
    LESSONS = "lessons"  # made with the lessons


@dataclass(frozen=True)
class PageKind:
    """The pages of one notebook: where they stand, and what they answer."""

    notebook: str  # its name
    part: str = OWN_PART
    question: str = ""
    place: int = LAST
    needs: Needs = Needs.RUN
    measures: bool = False

    @cached_property
    def takes_tier(self) -> bool:
        """Whether the notebook has a parameter ``tier``."""
        try:
            return "tier" in read_parameters(paths.find_notebook(self.notebook))
        except (ParameterError, OSError):
            return False


# The model card is no notebook: `qwen3nb.book.build.write_card_page` writes it.
CARD = PageKind("card", "The model", "What is the model, and what are its limitations?", 400)


def read_catalog() -> list[PageKind]:
    """Return the pages of the study's notebooks in their order, and the model card."""
    kinds = [CARD]
    for name in paths.notebook_names():
        if "/" not in name:  # lessons have their places in the guide
            kinds.append(page_kind(name))
    return sorted(kinds, key=lambda kind: (kind.place, kind.notebook))


def page_kind(notebook: str) -> PageKind:
    """Return what a notebook says of its pages, else what this release's says of that name."""
    metadata = _metadata(paths.notebooks() / f"{notebook}.ipynb")
    if "part" not in metadata:  # a copy of an earlier release
        metadata = _released_metadata(notebook)
    try:
        return PageKind(
            notebook=notebook,
            part=str(metadata.get("part", OWN_PART)),
            question=str(metadata.get("question", "")),
            place=int(str(metadata.get("place", LAST))),
            needs=Needs(str(metadata.get("needs", Needs.RUN))),
            measures=bool(metadata.get("measures", False)),
        )
    except ValueError:  # a place that is no number, or an unknown need
        return PageKind(notebook)


def _released_metadata(notebook: str) -> dict[str, object]:
    try:
        return _metadata(template_folder() / "notebooks" / f"{notebook}.ipynb")
    except StudyError:
        return {}


def _metadata(file: Path) -> dict[str, object]:
    """Return what a notebook says of itself to this package; empty for what is none of ours."""
    try:
        metadata = read_json(file)["metadata"]["qwen3nb"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return metadata if isinstance(metadata, dict) else {}


def run_pages(folder: Path) -> dict[Path, str]:
    """Return the pages in ``book/runs`` with the names of their notebooks, sorted by name."""
    pages = {}
    for file in sorted(folder.glob("*")):
        if file.suffix in _SUFFIXES:
            pages[file] = str(_metadata(file).get("notebook", "")) or _notebook_of(file.stem)
    return pages


def _notebook_of(page: str) -> str:
    """Return the notebook that a page is named after: ``eval-bm25-smoke`` is one of ``eval``."""
    return page.partition("-")[0]


def pages_of(kinds: Sequence[PageKind], folder: Path) -> list[tuple[PageKind, list[Path]]]:
    """Return the pages of each notebook, in the order of the catalog; others come last."""
    by_notebook: dict[str, list[Path]] = {}
    for file, notebook in run_pages(folder).items():
        by_notebook.setdefault(notebook, []).append(file)
    groups = [(kind, by_notebook.pop(kind.notebook, [])) for kind in kinds]
    for notebook, files in by_notebook.items():  # what the catalog does not have
        groups.append((PageKind(notebook), files))
    return [(kind, files) for kind, files in groups if files]
