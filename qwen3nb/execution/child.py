"""The process of a run on a node: compare the facts of the node with the driver's, then run.

A program with one argument, the file of its orders as JSON: ``facts`` of the driver (none: nothing
is compared), the ``models`` among them, and the ``arguments`` of ``qwen3nb``, or of a ``part`` of
an evaluation. The facts found are written next to it, before and after the run. Without them, the
driver takes nothing.
"""

import runpy
import sys
from pathlib import Path

from qwen3nb.cluster.nodes import model_facts, run_facts
from qwen3nb.cluster.runs import FACTS
from qwen3nb.report.evaluation.checked_run import check_and_evaluate
from qwen3nb.utils.atomic_files import read_json, write_json


def main(file: Path) -> None:
    """Execute the orders in a file, unless this node differs from the driver."""
    orders = read_json(file)

    def found() -> bool:
        if not orders["facts"]:
            return True
        facts = run_facts() | model_facts(orders["models"])
        write_json(file.with_name(FACTS), facts)
        return bool(facts == orders["facts"])

    if found():
        sys.argv = ["qwen3nb", *orders["arguments"]]
        try:
            if orders["part"]:
                check_and_evaluate(**orders["part"])
                return
            runpy.run_module("qwen3nb.cli.main", run_name="__main__")
        finally:
            found()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
