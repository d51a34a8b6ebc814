"""A copy of what makes a folder a checkout: its notebooks, its book and its configuration."""

import shutil

from helpers import REPOSITORY


def write_checkout(home, *, lessons=False, api=False):
    """Make ``home`` a checkout without results or pages; return it.

    Without the lessons of the guide, and without the page of the Python interface, which imports
    every library, a book is built in a third of the time.
    """
    ignored = shutil.ignore_patterns("runs", ".ipynb_*")
    for name in ("notebooks", "book"):
        shutil.copytree(REPOSITORY / name, home / name, ignore=ignored)
    for page in (home / "book" / "guide").glob("*.ipynb"):
        page.unlink()
    if not lessons:
        shutil.rmtree(home / "notebooks" / "guide")
    if not api:
        (home / "book" / "api.md").write_text("# The Python interface\n")
    shutil.copyfile(REPOSITORY / "_config.yml", home / "_config.yml")
    return home
