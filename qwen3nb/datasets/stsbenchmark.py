"""Read the test pairs of STS-B from the local cache.

MTEB names the dataset and its revision; the datasets library caches what it has loaded.
Nothing is downloaded: the sanity check must not depend on the network.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["SentencePairs", "sts_benchmark"]

TASK = "STSBenchmark"


@dataclass(frozen=True)
class SentencePairs:
    """Sentence pairs with gold scores.

    Attributes:
        name: name of the dataset.
        first: the first sentence of each pair.
        second: the second sentence of each pair.
        gold: similarity of each pair, 0 to 5.
    """

    name: str
    first: tuple[str, ...]
    second: tuple[str, ...]
    gold: tuple[float, ...]


def sts_benchmark() -> SentencePairs | None:
    """Return the 1,379 test pairs (Cer et al. 2017), or None if they are not in the cache.

    Only the revision that MTEB evaluates is used.
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
    return SentencePairs("STS-B", first, second, tuple(map(float, rows["score"])))


def _cached(path: str, revision: str) -> Path | None:
    """The dataset's folder in the cache: owner___name/config/version/revision."""
    import datasets

    root = Path(os.path.expanduser(str(datasets.config.HF_DATASETS_CACHE)))  # noqa: PTH111
    folders = sorted(root.glob(f"{path.replace('/', '___')}/*/*/{revision}"))
    return next((folder for folder in folders if folder.is_dir()), None)
