"""Published scores of the models in the registry, each on a known revision of model and data.

They are main scores from MTEB's repository of results, over the same splits and subsets as here.
`source` says where they come from. Scores of an unknown revision of a model are left out.
"""

from __future__ import annotations

import csv
import functools
import gzip
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from qwen3nb.analysis.forecasting.published import Source
from qwen3nb.utils.atomic_files import read_json, sha256_file, write_bytes, write_json

SCORES = Path(__file__).with_name("published_models.tsv.gz")
ORIGIN = Path(__file__).with_name("published_models.json")
_COLUMNS = ("model", "revision", "task", "data_revision", "score", "prompt")
_OTHER_PROMPT = "other"


@dataclass(frozen=True)
class PublishedScore:
    """A published main score of one model on one task."""

    model: str  # its id on the hub
    revision: str  # the commit of the model on the hub
    task: str  # the key of the task, such as ``STS17-en-en``
    data_revision: str  # the commit of the task's data on the hub
    value: float  # from 0 to 1; correlations from -1
    has_other_prompt: bool = False  # whether MTEB's prompts are not those of the registry


@functools.cache
def published_models() -> Mapping[tuple[str, str], Mapping[str, PublishedScore]]:
    """Return the scores of each model by task; models are named by hub id and revision.

    Raises:
        ValueError: the file is not the one whose digest is stated beside it.
    """
    digest, expected = sha256_file(SCORES), source().sha256
    if digest != expected:
        raise ValueError(
            f"expected {SCORES} with sha256 {expected}, got {digest}; install qwen3nb again"
        )
    lines = gzip.decompress(SCORES.read_bytes()).decode().splitlines()
    models: dict[tuple[str, str], dict[str, PublishedScore]] = {}
    for row in csv.DictReader(lines, delimiter="\t"):
        score = PublishedScore(
            model=row["model"],
            revision=row["revision"],
            task=row["task"],
            data_revision=row["data_revision"],
            value=float(row["score"]),
            has_other_prompt=row["prompt"] == _OTHER_PROMPT,
        )
        models.setdefault((score.model, score.revision), {})[score.task] = score
    return models


def source() -> Source:
    """Return where the scores come from."""
    return Source(**read_json(ORIGIN))


def write_published_models(scores: Iterable[PublishedScore], origin: Mapping[str, str]) -> None:
    """Write scores, their origin and their digest to the package's files."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter="\t", lineterminator="\n")
    writer.writerow(_COLUMNS)
    for score in scores:
        prompt = _OTHER_PROMPT if score.has_other_prompt else ""
        value = f"{score.value:.5f}"
        writer.writerow(
            (score.model, score.revision, score.task, score.data_revision, value, prompt)
        )
    write_bytes(SCORES, gzip.compress(text.getvalue().encode(), mtime=0))
    write_json(ORIGIN, {**origin, "sha256": sha256_file(SCORES)})
    published_models.cache_clear()
