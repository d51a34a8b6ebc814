"""Large libraries are imported beside the garbage collector."""

import json
import subprocess
import sys

import pytest

CODE = """
import gc, json, sys
from qwen3nb.utils.imports import load_library
sys.modules.update(dict.fromkeys(sys.argv[1:]))  # what was imported before
try:
    module = load_library("large")
    assert load_library("large") is module
    kept = module.kept
except ValueError:
    kept = []
gc.collect()
listed = any(each is kept for each in gc.get_objects())
print(json.dumps([gc.isenabled(), gc.get_freeze_count() > 0, listed, len(kept)]))
"""


@pytest.mark.parametrize(
    ("before", "text", "expected"),
    [
        ((), "kept = [[] for _ in range(20)]", [True, True, False, 20]),
        (("torch",), "kept = [[] for _ in range(20)]", [True, False, True, 20]),  # maybe a model
        ((), "raise ValueError", [True, False, False, 0]),
    ],
)
def test_what_a_library_leaves_is_not_visited(tmp_path, before, text, expected):
    """The collector works again afterwards."""
    (tmp_path / "large.py").write_text(f"import gc\nassert not gc.isenabled()\n{text}\n")
    command = [sys.executable, "-c", CODE, *before]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    got = json.loads(done.stdout)
    assert got[:2] == expected[:2]
    assert got[3] == expected[3]
    assert got[2] == expected[2] or not got[3]
