"""A copy of what makes a folder a checkout: its notebooks, its book and its configuration."""

import shutil

from helpers import REPOSITORY


def write_checkout(home):
    """Make ``home`` a checkout without results or pages; return it."""
    ignored = shutil.ignore_patterns("runs", ".ipynb_*")
    for name in ("notebooks", "book"):
        shutil.copytree(REPOSITORY / name, home / name, ignore=ignored)
    shutil.copyfile(REPOSITORY / "_config.yml", home / "_config.yml")
    return home
