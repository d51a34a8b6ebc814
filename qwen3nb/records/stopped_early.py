"""Records of runs that stopped as soon as their scores sufficed, such as races of models.

When a run stops depends on its scores, so a test on them would be too sure. Such records are marked
among their options. `load_results` leaves them out, and other runs do not reuse them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qwen3nb.records.record import Result

UNTIL_CERTAIN = "until_certain"  # option of such a record: the benchmark whose mean was meant


def why_left_out(record: Result) -> str:
    """Return why no test may rest on a record; empty if one may."""
    if UNTIL_CERTAIN not in record.options:
        return ""
    return (
        "of a run that stopped when it was certain, so no test may rest on it; "
        f"`qwen3nb eval --tasks {record.task.key}` measures it for comparisons"
    )


def may_be_reused(record: Result, options: Mapping[str, Any] | None) -> bool:
    """Return whether a run with such options may take a record for its own."""
    return UNTIL_CERTAIN not in record.options or UNTIL_CERTAIN in (options or {})
