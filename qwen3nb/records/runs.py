"""Files of the runs of a reranking.

    <model>/seed_<n>/<task>.trec              the reranked run, beside its record
    first_stages/<task>-<digest>.trec         that of the first stage, shared by all rerankers
    <model>/seed_<n>/<task>.first.trec        the same, as older versions wrote it for each

The name of a shared file has the digest of its content: whoever writes it writes the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["first_run_file", "first_stage_file", "run_digests"]


def first_stage_file(folder: Path, name: str) -> Path:
    """Return the file of a first stage's run in a folder of records."""
    return folder / "first_stages" / Path(name).name


def first_run_file(file: Path, config: Mapping[str, Any]) -> Path:
    """Return the file of the first stage's run for the record in ``file``."""
    shared = config.get("first_run")
    if isinstance(shared, dict):
        return first_stage_file(file.parent.parent.parent, str(shared.get("name")))
    return file.with_suffix(".first.trec")


def run_digests(file: Path, config: Mapping[str, Any]) -> dict[Path, str] | None:
    """Return the SHA-256 of each run of the record in ``file``; None for an older one."""
    digests, shared = config.get("runs"), config.get("first_run")
    if not isinstance(digests, dict):
        return None
    own = {file.with_name(Path(str(name)).name): str(each) for name, each in digests.items()}
    if isinstance(shared, dict):
        own[first_run_file(file, config)] = str(shared.get("sha256"))
    return own
