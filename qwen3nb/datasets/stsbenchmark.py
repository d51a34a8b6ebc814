"""STS-B's test pairs, if they were downloaded before.

MTEB names the data set and its revision, the data sets library keeps what it once
loaded. Nothing is downloaded here: a first look must not wait for a network.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Pairs", "sts_benchmark"]

TASK = "STSBenchmark"


@dataclass(frozen=True)
class Pairs:
    """Sentence pairs with gold scores.

    Attributes:
        name: of the data set.
        first: one sentence per pair.
        second: the other.
        gold: similarity of 0 to 5.
    """

    name: str
    first: tuple[str, ...]
    second: tuple[str, ...]
    gold: tuple[float, ...]


def sts_benchmark() -> Pairs | None:
    """The 1,379 test pairs (Cer et al. 2017) from the local cache; None if they are not there.

    Of the revision that MTEB evaluates, and of no other.
    """
    import mteb
    from datasets import Dataset

    wanted = mteb.get_task(TASK).metadata.dataset
    folder = _cached(wanted["path"], wanted["revision"])
    files = sorted(folder.glob("*-test.arrow")) if folder is not None else []
    if len(files) != 1:
        return None
    rows = Dataset.from_file(str(files[0]))
    first, second = (tuple(map(str, rows[column])) for column in ("sentence1", "sentence2"))
    return Pairs("STS-B", first, second, tuple(map(float, rows["score"])))


def _cached(path: str, revision: str) -> Path | None:
    """Where the data sets library keeps a data set: owner___name/config/version/revision."""
    import datasets

    root = Path(os.path.expanduser(str(datasets.config.HF_DATASETS_CACHE)))  # noqa: PTH111
    found = sorted(root.glob(f"{path.replace('/', '___')}/*/*/{revision}"))
    return next((folder for folder in found if folder.is_dir()), None)
