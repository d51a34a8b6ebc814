"""A copy of what makes a folder a checkout: its notebooks, its book and its configuration."""

import re
import shutil

from helpers import REPOSITORY

# Of the manual, its first page and the labels of formulas, which pages of results lead to.
SHORT_CONTENTS = """
format: jb-book
root: index
parts:
  - chapters:
      - file: guide/index
      - file: methods
"""


def write_checkout(home, *, lessons=False):
    """Make ``home`` a checkout without results or pages; return it.

    Without the lessons of the guide, a book is built in half the time.
    """
    ignored = shutil.ignore_patterns("runs", ".ipynb_*")
    for name in ("notebooks", "book"):
        shutil.copytree(REPOSITORY / name, home / name, ignore=ignored)
    for page in (home / "book" / "guide").glob("*.ipynb"):
        page.unlink()
    if not lessons:
        shutil.rmtree(home / "notebooks" / "guide")
    shutil.copyfile(REPOSITORY / "_config.yml", home / "_config.yml")
    return home


def shorten_manual(home):
    """Leave of a checkout's manual only what pages of results lead to; tests/book/test_book.py,
    the demo and CI build all of it."""
    book = home / "book"
    methods = (book / "methods.md").read_text(encoding="utf-8")
    labels = re.findall(r"^\(.+\)=$", methods, flags=re.MULTILINE)
    sections = "".join(f"\n{label}\n## Section {i}\n" for i, label in enumerate(labels))
    (book / "methods.md").write_text(f"# Methods\n{sections}")
    (book / "guide" / "index.md").write_text("# Manual\n")
    (book / "_toc.yml").write_text(SHORT_CONTENTS)
