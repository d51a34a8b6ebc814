"""A copy of what makes a folder a checkout: its notebooks, its book and its configuration."""

import shutil

from helpers import REPOSITORY


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
