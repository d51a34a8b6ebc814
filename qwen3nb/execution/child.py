"""The process of a run on a node: compare the facts of the node with the driver's, then run.

A program with one argument, the file of its orders as JSON: ``facts`` of the driver (none: nothing
is compared), the ``models`` among them, and the ``arguments`` of ``qwen3nb``, or of a ``part`` of
an evaluation. The facts found are written next to it, before and after the run. Without them, the
driver takes nothing.
"""

import runpy
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qwen3nb.cluster.nodes import model_facts, run_facts
from qwen3nb.cluster.runs import FACTS
from qwen3nb.report.evaluation.checked_run import check_and_evaluate
from qwen3nb.utils.atomic_files import read_json, write_json


def main(file: Path) -> None:
    """Execute the orders in a file, unless this node differs from the driver."""
    orders = read_json(file)
    # Writes the facts of this node, by which the driver refuses it.
    if not _is_like_driver(orders, file):
        return
    # The command line that the module run below then reads.
    sys.argv = ["qwen3nb", *orders["arguments"]]
    try:
        if orders["part"]:
            check_and_evaluate(**orders["part"])
        else:
            runpy.run_module("qwen3nb.cli.main", run_name="__main__")
    finally:
        _is_like_driver(orders, file)  # writes the facts once more: they may have changed


def _is_like_driver(orders: Mapping[str, Any], file: Path) -> bool:
    """Write the facts of this node next to the orders; return whether they are the driver's."""
    if not orders["facts"]:  # nothing is compared
        return True
    facts = run_facts() | model_facts(orders["models"])
    write_json(file.with_name(FACTS), facts)
    return bool(facts == orders["facts"])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
