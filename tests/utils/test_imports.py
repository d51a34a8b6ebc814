"""Large libraries are imported without the garbage collector."""

import json
import subprocess
import sys

import pytest

CODE = """
import gc, json, sys
from qwen3nb.utils.imports import load_library
sys.modules.update(dict.fromkeys(sys.argv[1:]))  # what was imported before
frozen = gc.get_freeze_count()  # 3.12 starts with some
kept = load_library("large").kept
gc.collect()
listed = any(each is kept for each in gc.get_objects())
print(json.dumps([gc.isenabled(), gc.get_freeze_count() > frozen, listed]))
"""


@pytest.mark.parametrize("before", [(), ("torch",)])  # later it may be a model
def test_what_a_library_leaves_is_not_visited(tmp_path, before):
    """The collector works again afterwards."""
    (tmp_path / "large.py").write_text("import gc\nassert not gc.isenabled()\nkept = [[]] * 20\n")
    command = [sys.executable, "-c", CODE, *before]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [True, not before, bool(before)]
