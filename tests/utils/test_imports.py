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


def imported(folder, *before, text="kept = [[] for _ in range(20)]"):
    (folder / "large.py").write_text(f"import gc\nassert not gc.isenabled()\n{text}\n")
    done = subprocess.run(
        [sys.executable, "-c", CODE, *before],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("before", "frozen"), [((), True), (("torch",), False)], ids=["first", "after torch"]
)
def test_what_a_library_leaves_is_not_visited_unless_a_model_may_be_there(tmp_path, before, frozen):
    assert imported(tmp_path, *before) == [True, frozen, not frozen, 20]


def test_the_collector_works_again_after_an_import_that_fails(tmp_path):
    assert imported(tmp_path, text="raise ValueError")[:2] == [True, False]
