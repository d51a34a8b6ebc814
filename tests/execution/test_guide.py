"""The lessons of the guide: valid names, cross-references, and a run without the demo."""

import re

import nbformat
import pytest
from helpers import REPOSITORY
from helpers.checkout import write_checkout
from helpers.notebooks import execute_here

from qwen3nb import paths
from qwen3nb.execution.notebook import page_path

GUIDE = REPOSITORY / "notebooks" / "guide"
LESSONS = sorted(GUIDE.glob("*.ipynb"))


def test_every_lesson_is_in_the_book_and_in_its_overview():
    names = {path.stem for path in LESSONS}
    overview = (REPOSITORY / "book" / "guide" / "index.md").read_text(encoding="utf-8")
    contents = (REPOSITORY / "book" / "_toc.yml").read_text(encoding="utf-8")
    assert set(re.findall(r'href="([a-z-]+)\.html"', overview)) == names
    assert set(re.findall(r"glob: guide/([a-z-]+)\*", contents)) == names


def test_the_page_of_a_lesson_is_beside_the_overview(home):
    checkout = write_checkout(home, lessons=True)
    notebook = paths.find_notebook("guide/caching")
    assert page_path(notebook, {}) == checkout / "book" / "guide" / "caching.ipynb"
    assert page_path(paths.find_notebook("interference"), {}).parent == paths.book_runs()


@pytest.mark.integration
@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_and_its_solution_run_without_the_demo(path, home, monkeypatch, shared_cache):
    checkout = write_checkout(home, lessons=True)
    monkeypatch.setenv("QWEN3NB_CACHE", str(shared_cache))  # restored: a lesson sets its own
    names = execute_here(checkout / "notebooks" / "guide" / path.name, None, {})
    text = "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells)
    (solution,) = re.findall(r"<summary>Solution</summary>\s+```python\n(.*?)```", text, re.DOTALL)
    exec(solution, names)  # noqa: S102 - our own lesson
    assert not paths.results().exists()
    assert not paths.runs().exists()
