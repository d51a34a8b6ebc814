"""Failed runs and moments in time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import papermill  # noqa: F401 - first, as its command does: it loads our engine

from qwen3nb.records.failures import FailedRun


def moment(seconds):
    return (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).isoformat()


def failure(**changes):
    values = {"checkpoint": "bm25", "tier": "smoke", "output_dir": ""}
    return FailedRun(
        **{
            "page": "eval-bm25-smoke",
            "notebook": "eval",
            "parameters": values,
            "error": "ValueError",
            "message": "one\ntwo\n",
            "started": moment(10),
            "failed": moment(20),
            "seconds": 10.0,
            **changes,
        }
    )
