"""Collect the scores of all kinds of result files in one table, with their anomalies.

Read are our own records, ``<model>/seed_<n>/<task>.json``, and the `foreign_results` of MTEB and
of trainings of adapters. Files are recognised by their content. Flagged scores stay in the table.
Scores of adapters include the facts of their training, which must agree before two runs are
compared.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from qwen3nb import paths
from qwen3nb.analysis.inventory.anomalies import Flag, find_anomalies
from qwen3nb.analysis.inventory.foreign_results import foreign_scores
from qwen3nb.analysis.inventory.scores import Score, record_scores
from qwen3nb.datasets import rows
from qwen3nb.datasets.rows import DataError
from qwen3nb.records.record import Result, in_list, places
from qwen3nb.records.side_files import ResultError
from qwen3nb.utils.strict_json import parse_json

_LARGEST = 256 * 2**20  # bytes; a record of 100,000 queries has about 20 MB
_OTHER_FOLDERS = {"checkpoints", "partial", "logs", "prompts", "_build", ".cache"}


@dataclass(frozen=True)
class Collection:
    """Scores collected from files, with their anomalies."""

    scores: tuple[Score, ...]  # one per system, seed, task and metric
    flags: tuple[Flag, ...] = ()  # anomalies to review, by kind

    def nested(self) -> dict[str, dict[int | None, dict[str, dict[str, float | None]]]]:
        """``{system: {seed: {task: {metric: value}}}}``; the first of duplicates."""
        table: dict[str, dict[int | None, dict[str, dict[str, float | None]]]] = {}
        for score in self.scores:
            by_seed = table.setdefault(score.system, {})
            by_task = by_seed.setdefault(score.seed, {})
            by_metric = by_task.setdefault(score.task, {})
            by_metric.setdefault(score.metric, score.value)
        return table


def load_all_results(folders: Path | str | Iterable[Path | str] | None = None) -> Collection:
    """Read all results below one or more folders (by default `paths.results`).

    Raises:
        FileNotFoundError: a folder does not exist.
    """
    if folders is None:
        folders = paths.results()
    if isinstance(folders, str | Path):
        folders = [folders]
    return collect(map(Path, folders))


def collect(folders: Iterable[Path], records: Iterable[Result] = ()) -> Collection:
    """Return the scores of all results below folders, and of records that are loaded already.

    Raises:
        FileNotFoundError: a folder does not exist.
    """
    reader = _Reader()
    for folder in folders:
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder}: no such folder of results")
        for file in _json_files(folder):
            reader.read(file)
    scores = reader.scores
    for record in records:
        results = str(paths.results())  # only here: folders are also read outside a study
        scores += record_scores(record, source=_path_or_label(record), folder=results)
    flags = [*reader.flags, *find_anomalies(scores)]
    return Collection(tuple(scores), tuple(flags))


def _path_or_label(record: Result) -> str:
    """Return where a record is saved, or its label if that is not safe in a path."""
    try:
        return str(record.path())
    except ResultError:
        return record.model.label


def _json_files(base: Path) -> Iterator[Path]:
    """Yield regular JSON files below ``base`` in order, without following links to folders."""
    for folder, folders, files in os.walk(base):
        folders[:] = sorted(filter(_may_have_results, folders))  # those that are walked next
        for name in sorted(files):
            file = Path(folder) / name
            if file.suffix == ".json" and file.is_file():
                yield file


def _may_have_results(folder: str) -> bool:
    return folder not in _OTHER_FOLDERS and not folder.startswith(".")


@dataclass
class _Reader:
    """Scores and flags of the files read so far."""

    scores: list[Score] = field(default_factory=list)
    flags: list[Flag] = field(default_factory=list)
    places: dict[Path, dict[str, int]] = field(default_factory=dict)  # of records, by folder

    def read(self, file: Path) -> None:
        """Add the scores of one file; a broken file is flagged."""
        try:
            content = _parsed(file)
            if _is_record(content):
                self.scores += self._scores_of_record(file)
                return
            foreign = foreign_scores(file, content)
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split()).removeprefix(f"{file}: ")
            self._flag("unreadable", file, reason)
            return
        self.scores += foreign.scores
        for text in foreign.contradictions:
            self._flag("inconsistent", file, text)

    def _flag(self, kind: str, file: Path, text: str) -> None:
        self.flags.append(Flag(kind, rows.printable(f"{file}: {text}"), (str(file),)))

    def _scores_of_record(self, file: Path) -> list[Score]:
        result = Result.load(file)
        folder = file.absolute().parents[2]
        if folder not in self.places:  # each list of records is read once
            self.places[folder] = places(folder)
        place = self.places[folder].get(in_list(file, result.checksum), 0)
        return record_scores(replace(result, place=place), source=str(file), folder=str(folder))


def _is_record(content: object) -> bool:
    if not isinstance(content, dict):
        return False
    return str(content.get("schema", "")).startswith("qwen3nb.result/")


def _parsed(file: Path) -> object:
    """Return the content of a JSON file; MTEB writes bare NaN for undefined values."""
    text = rows.read_text(file, byte_limit=_LARGEST)
    try:
        return parse_json(text, nan=True)
    except ValueError as error:
        raise DataError(f"{file}: not readable as JSON ({error})") from None
