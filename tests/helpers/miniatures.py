"""Mirrors with a miniature of the data sets of a tier, made by ``tools/rehearsal.py``."""

from __future__ import annotations

import functools
import importlib.util
import sys

import pytest


@functools.cache
def _generator(file):
    spec = importlib.util.spec_from_file_location("rehearsal", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


def write_miniatures(fixtures, folder, *, tier="full", tasks=()):
    """Write a mirror of a tier, or of the named tasks; skip the test without the generator."""
    file = fixtures / "tools" / "rehearsal.py"
    if not file.is_file():
        pytest.skip("the folder of QWEN3NB_FIXTURES has no tools/rehearsal.py")
    made = _generator(file)
    made.generate(folder, made.tasks(tier, tasks))
    return folder
