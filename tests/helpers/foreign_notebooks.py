"""Notebooks of other people: of other formats, kernels and languages, and files that are none."""

from __future__ import annotations

import json

KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
R = {"kernelspec": {"name": "ir", "display_name": "R", "language": "R"}}
JULIA = {"language_info": {"name": "julia"}}


def cell(source, **metadata):
    return {"cell_type": "code", "source": source, "metadata": metadata, "outputs": []}


def parameters(source):
    return cell(source, tags=["parameters"])


def whole(*cells, **metadata):
    content = {"nbformat": 4, "nbformat_minor": 4, "metadata": metadata, "cells": [*cells]}
    return json.dumps(content)


# By name: the text of the file, and the reason on the page; empty for one that is a page's source.
FOREIGN = {
    "untyped": (whole(parameters("greeting = 'hello'"), **KERNEL), "expected a typed parameter"),
    "magic": (whole(parameters("%matplotlib inline\nshare: float = 0.5"), **KERNEL), ""),
    "shell": (whole(parameters("!pip list \\\n  -v\nx: int = 1\nprint?"), **KERNEL), ""),
    "help": (whole(parameters("x: int = 1\nx?\n?x"), **KERNEL), ""),
    "cell-magic": (whole(parameters("%%bash\nx=1"), **KERNEL), "expected a typed parameter"),
    "assigned": (whole(parameters("x: int = !ls"), **KERNEL), "is not Python"),
    "R": (whole(parameters("share <- 0.5"), **R), "its parameters are in R"),
    "julia": (whole(parameters("share = 1//2"), **JULIA), "its parameters are in julia"),
    "R-alone": (whole(cell("x <- 1"), **R), ""),
    "format-3": (
        json.dumps({"nbformat": 3, "metadata": {}, "worksheets": [{"cells": []}]}),
        "is a notebook of format 3",
    ),
    "no-parameters": (whole(cell("1"), **KERNEL), ""),
    "two": (whole(parameters("x: int = 1"), parameters("y: int = 1")), "expected one cell"),
    "no-metadata": (json.dumps({"cells": [{"cell_type": "code", "source": "1"}]}), ""),
    "null-metadata": (
        json.dumps({"metadata": None, "cells": [{"cell_type": "code", "metadata": None}]}),
        "",
    ),
    "odd-metadata": (whole(cell("1", tags=None), kernelspec=None, qwen3nb=True), ""),
    "literal": (whole(parameters("x: int = 2 * 3")), "expected a typed parameter"),
    "mistyped": (whole(parameters("x: int = None")), "expected a typed parameter"),
    "empty": ("", "is not a notebook"),
    "conflict": ("<<<<<<< HEAD\n{}", "is not a notebook"),
    "deep": ("[" * 100_000, "is not a notebook"),
    "no-cells": ("{}", "it has no cells"),
    "cells-of-text": ('{"cells": ["a"]}', "a cell is not one"),
    "html": ("<!doctype html><title>404</title>", "is not a notebook"),
}


def write_foreign(home):
    """Put all of them into the study ``home``, never run, and files that are none."""
    for name, (text, _) in FOREIGN.items():
        (home / "notebooks" / f"z-{name}.ipynb").write_text(text)
    (home / "notebooks" / "z-latin.ipynb").write_bytes("{é}".encode("latin-1"))
    (home / "notebooks" / "z-folder.ipynb").mkdir()
    (home / "notebooks" / "._z-mac.ipynb").write_bytes(b"\x00\x05\x16\x07")
    (home / "notebooks" / "z-gone.ipynb").symlink_to("nowhere.ipynb")
    text = "---\njupyter:\n  jupytext:\n    text_representation: {}\n---\n# A\n"
    (home / "notebooks" / "z-text.md").write_text(text)
    (home / "notebooks" / "z-percent.py").write_text("# %% [markdown]\n# # A\n# %%\n1\n")
    (home / "notebooks" / "z-helper.py").write_text("def helper():\n    return 1\n")
    (home / "notebooks" / "README.md").write_text("# Notebooks\n\njupytext: no\n")
