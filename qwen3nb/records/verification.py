"""Verify records: do their numbers follow from what they and the files beside them hold?

A record is compared with its checksum, with the list of all records that were ever written in its
folder, with its per-query scores, its settings, the files of its runs and MTEB's own result; the
summary of a folder with its records. Nothing is signed: what someone can change who recomputes
every checksum is in the help of ``qwen3nb verify``.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from qwen3nb import paths
from qwen3nb.metrics.aggregate import (
    AGGREGATES,
    PERCENTILE,
    REPORTED,
    Aggregate,
    Draws,
    aggregate_samples,
    sample_of,
)
from qwen3nb.metrics.intervals import Array
from qwen3nb.records.errors import ResultError
from qwen3nb.records.query_scores import QueryScores, StoredScores
from qwen3nb.records.record import CHECKSUMS, FIRST_SCHEMA, SCHEMA, Result, read_record
from qwen3nb.records.runs import rescored_problems, run_problems
from qwen3nb.records.side_files import side_file_problems
from qwen3nb.utils.atomic_files import read_json, sha256_file, sha256_json
from qwen3nb.utils.choices import one_of
from qwen3nb.utils.files.journal import Journal

__all__ = [
    "SUMMARY",
    "SUMMARY_SCHEMA",
    "RecordCheck",
    "Verifier",
    "folder_problems",
    "listed_records",
    "problems",
    "removed_records",
    "scores_of",
    "signature_problems",
    "unchanged_record",
]

_ROUNDING = 1e-9  # between two computations of one number
_TOLERANCE = 1e-5  # MTEB rounds some of its scores to five digits
_REMOVED = (
    f"it was removed after it was written; if that was meant, delete its lines in {CHECKSUMS}"
)
_DAY = 86_400.0  # seconds: clocks of other machines differ by less
_ROUND_TIME = 60.0  # seconds between two notes of one moment
_IDENTITY = 40  # digits of a model's identity in the name of MTEB's folder
SUMMARY, SUMMARY_SCHEMA = "all_results.json", "qwen3nb.all-results/3"
_META = "model_meta.json"
_THEIRS = {
    "nDCG": "ndcg",
    "MAP": "map",
    "Recall": "recall",
    "P": "precision",
    "MRR": "mrr",
    "Spearman": "cosine_spearman",
    "Pearson": "cosine_pearson",
    "V-measure": "v_measure",
}
_VERSION = re.compile(r"not installed|\d+(\.\w+)*(\+[\w.]+)?")


@dataclass(frozen=True)
class RecordCheck:
    """What was found in the file of a record.

    Attributes:
        problems: what is wrong, a line each; empty if the record holds.
        has_checksum: whether the record has one; also true of a file that cannot be read.
    """

    problems: tuple[str, ...]
    has_checksum: bool = True


class Verifier:
    """Verifies records; what several of them need is computed or listed once for all.

    The files must not change while one verifier is in use.
    """

    def __init__(self, *, checksums_only: bool = False) -> None:
        """Check everything, or only checksums and the digests of the files beside the records."""
        self._checksums_only = checksums_only
        self._draws = Draws()
        self._mteb = _MTEBFiles()
        self._digests: dict[Path, str] = {}  # of runs, which records may share
        self._listed: dict[Path, dict[str, dict[str, bool]]] = {}

    def check(self, file: Path) -> RecordCheck:
        """Return what is wrong with the record in ``file``; an unreadable file is a problem."""
        if not os.path.lexists(file) and any(self._known(file).values()):
            return RecordCheck((_REMOVED,))
        try:
            result, raw = read_record(file)
        except (OSError, ValueError) as error:
            return RecordCheck((str(error),))
        has_checksum = bool(result.checksum)
        try:
            lost = list(side_file_problems(file, raw))
            wrong = [*(signature_problems(raw) or self._list_problems(file, result)), *lost]
            if not (lost or self._checksums_only):
                wrong += self._contents(file, result)
            if raw["schema"] != FIRST_SCHEMA and not result.model.settings:
                wrong.append("it has no settings, from which the model's identity follows")
        except (OSError, ValueError, KeyError) as error:
            return RecordCheck((str(error),), has_checksum)
        return RecordCheck(tuple(wrong), has_checksum)

    def _known(self, file: Path) -> dict[str, bool]:
        """Return the checksums that the list of its folder has of a record."""
        base = file.absolute().parents[2]
        if base not in self._listed:
            self._listed[base] = listed_records(base)
        return self._listed[base].get(file.absolute().relative_to(base).as_posix(), {})

    def _list_problems(self, file: Path, result: Result) -> list[str]:
        known = self._known(file)
        if not known or result.checksum in known:
            return []
        return [f"{CHECKSUMS} does not list it as it is: it was changed after it was written"]

    def _contents(self, file: Path, result: Result) -> Iterator[str]:
        yield from problems(result, draws=self._draws)
        yield from _location_problems(file, result)
        changed = list(run_problems(file, result, known=self._digests))
        yield from changed or rescored_problems(file, result)
        yield from self._mteb.problems(file, result)


def problems(result: Result, *, draws: Draws | None = None) -> list[str]:
    """Return what does not follow from the rest of the record; empty if it is consistent.

    Aggregates follow from the per-query scores, the identity from the settings, and a reported
    main score is MTEB's.

    Args:
        result: the record.
        draws: where the percentile intervals of many records share what they draw.
    """
    draws = draws or Draws()
    if isinstance(result.per_query, StoredScores):
        try:
            result = replace(result, per_query=result.per_query.loaded())
        except ResultError as error:  # nothing can be recomputed
            return [str(error)]
    wrong = []
    if result.model.settings and sha256_json(result.model.settings) != result.model.identity:
        wrong.append("its identity does not follow from the model's settings")
    if result.task.main_metric not in result.metrics:
        wrong.append(f"main metric {result.task.main_metric!r} is not among its metrics")
    wrong += [*_score_problems(result), *_implausible(result)]
    for name, stored in _aggregates(result):
        if stored.how == REPORTED:  # another program's value: there are no per-query scores
            if name in result.per_query or name in result.metrics.keys() - {
                result.task.main_metric
            }:
                wrong.append(f"{name}: reported by another program, which only a main score may be")
            continue
        try:
            again = _recomputed(result, stored, draws)
        except (ValueError, KeyError) as error:
            wrong.append(f"{name}: cannot be recomputed ({error})")
            continue
        for part in ("value", "low", "high", "n"):
            ours, theirs = getattr(again, part), getattr(stored, part)
            if not _same(ours, theirs):
                wrong.append(f"{name}: {part} is {theirs}, per-query scores give {ours}")
    return wrong


def _score_problems(result: Result) -> Iterator[str]:
    """Compare the main score, of all and of each part, with the one that MTEB reported."""
    main, mteb = result.metrics.get(result.task.main_metric), result.task.mteb
    pairs = [(result.task.main_metric, main, mteb.value)] if main and mteb else []
    pairs += [(f"{part.split}/{part.subset}", part.score, part.mteb) for part in result.parts]
    for name, ours, theirs in pairs:
        if ours.value is None or not abs(ours.value - theirs) <= _TOLERANCE:
            yield f"{name}: value is {ours.value}, MTEB reported {theirs}"


def _implausible(result: Result) -> Iterator[str]:
    """Yield what cannot be, whoever made the record."""
    if result.finished and _since_epoch(result.finished) > time.time() + _DAY:
        yield f"it was finished {result.finished}, which is still to come"
    for name, version in result.environment.versions.items():
        if not _VERSION.fullmatch(version):
            yield f"version of {name}: expected numbers such as 2.13.0, got {version!r}"
    size, main = result.task.size.get(result.task.unit), result.metrics.get(result.task.main_metric)
    if size is not None and main and main.n > size:
        yield f"{result.task.main_metric}: n is {main.n} of {size} {result.task.unit}"


def _recomputed(result: Result, stored: Aggregate, draws: Draws) -> Aggregate:
    """Compute an aggregate of a record again, from its per-query scores."""
    one_of("aggregate", stored.how, AGGREGATES)
    return aggregate_samples(
        [_sample(result.per_query, stored.columns, part) for part in stored.parts or ("",)],
        how=stored.how,
        columns=stored.columns,
        seed=result.seed,
        percentile=stored.interval == PERCENTILE,
        wilson=stored.interval == "wilson",
        parts=stored.parts,
        draws=draws,
    )


def _sample(
    per_query: Mapping[str, Mapping[str, float]], columns: tuple[str, ...], part: str
) -> Array:
    if isinstance(per_query, QueryScores):
        return per_query.sample(columns, part)
    return sample_of(per_query, columns, part)


def _aggregates(result: Result) -> Iterator[tuple[str, Aggregate]]:
    """Yield every aggregate of a record with a name for messages."""
    yield from result.metrics.items()
    for part in result.parts:
        yield f"{result.task.main_metric} on {part.split}/{part.subset}", part.score


def _same(first: float | None, second: float | None) -> bool:
    if first is None or second is None:
        return first is second
    return math.isclose(first, second, rel_tol=0, abs_tol=_ROUNDING)


def _location_problems(file: Path, result: Result) -> Iterator[str]:
    """Compare the names of a record's file and folders with what it contains."""
    model, task = result.model, result.task.key
    if file.name != f"{task}.json":
        yield f"contains the task {task!r}"
    if file.parent.name != f"seed_{result.seed}":
        yield f"contains the seed {result.seed}"
    label, _, identity = file.parent.parent.name.rpartition("-")
    if identity != model.identity[:8]:
        yield "is in the folder of a model with another identity"
    elif label != model.label:
        yield f"contains the model {model.label!r}"


def unchanged_record(file: Path, *, alone: bool = False) -> Result:
    """Return the record in ``file`` if it and the files that it names are as they were written.

    What its numbers follow from is up to `Verifier`.

    Args:
        file: the record.
        alone: whether to leave the files beside it unread.

    Raises:
        ResultError: it cannot be read, or it or a file beside it was changed; names the file.
    """
    result, raw = read_record(file)
    lost = [] if alone else [*side_file_problems(file, raw), *_id_problems(result)]
    if lost and read_json(file) != raw:  # replaced meanwhile, with the files that it named
        return unchanged_record(file)
    for problem in (*(f"{file}: {each}" for each in signature_problems(raw)), *lost):
        raise ResultError(problem)
    return result


def _id_problems(result: Result) -> Iterator[str]:
    """Yield whether the query ids beside a record are not those it names.

    They are read once for all records of the same queries, as long as one of these is in use.
    """
    try:
        _ = result.scores.queries
    except ResultError as error:
        yield str(error)


def signature_problems(raw: dict[str, Any]) -> list[str]:
    """Return whether the JSON of a record is not that of its checksum."""
    content = {name: value for name, value in raw.items() if name != "checksum"}
    if raw["schema"] == FIRST_SCHEMA or raw.get("checksum") == sha256_json(content):
        return []
    return ["its content is not that of its checksum: it was changed after it was written"]


def folder_problems(folder: Path) -> dict[Path, list[str]]:
    """Return what is wrong with the list of the records in ``folder``, and with their summary."""
    problems = {}
    files = sorted(folder.glob("*/seed_*/*.json"))
    unlisted = (file for file in files if _schema(file) == SCHEMA)
    if not (folder / CHECKSUMS).is_file() and any(unlisted):
        problems[folder / CHECKSUMS] = [
            "this list of all records that were written here is missing; copy it with them. "
            "Records of older versions get one when the next is written"
        ]
    if wrong := list(_summary_problems(folder / SUMMARY)):
        problems[folder / SUMMARY] = wrong
    return problems


def removed_records(folder: Path) -> list[Path]:
    """Return the records that the list of a folder has, but that are not there any more."""
    listed = {name for name, each in listed_records(folder).items() if any(each.values())}
    return [folder / name for name in sorted(listed) if not os.path.lexists(folder / name)]


def _schema(file: Path) -> Any:
    try:
        return read_json(file)["schema"]
    except (OSError, ValueError, KeyError, TypeError):
        return None  # said of the file itself


def _summary_problems(file: Path) -> Iterator[str]:
    """Compare a summary with its checksum and with the records that it is made from.

    It may be older than they are: an entry whose record was replaced since is not compared.
    """
    try:
        value = read_json(file)
        if not isinstance(value, dict) or value.get("schema") != SUMMARY_SCHEMA:
            return  # of an older version
        if signature_problems(value):
            yield "its content is not that of its checksum: it was changed after it was written"
        listed = listed_records(file.parent)
        for model, tasks in value["results"].items():
            for task, entry in tasks.items():
                yield from _entry_problems(file.parent, f"{model} on {task}", entry, listed)
    except FileNotFoundError:
        return
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        yield f"it cannot be read ({error!r})"


def _entry_problems(
    folder: Path, name: str, entry: dict[str, Any], listed: dict[str, dict[str, bool]]
) -> Iterator[str]:
    record, digest = entry["record"], entry["checksum"]
    if digest not in listed.get(record, {digest: True}):
        yield f"{name}: it was made from no record that was written here"
    elif os.path.lexists(folder / record):
        result, raw = read_record(folder / record)
        if raw.get("checksum", "") == digest and json.loads(json.dumps(scores_of(result))) != entry:
            yield f"{name}: it is not what {record} holds"


def scores_of(result: Result) -> dict[str, Any]:
    """Return the scores of a record without those of its queries, and the record's checksum."""
    task, model = result.task, result.model
    return {
        "identity": model.identity,
        "type": task.type,
        "dataset": task.dataset,
        "revision": task.revision,
        "splits": task.splits,
        "subsets": task.subsets,
        "main_metric": task.main_metric,
        "main_score": result.main.value,
        "metrics": {name: asdict(value) for name, value in result.metrics.items()},
        "parts": [asdict(part) for part in result.parts],
        "mteb": asdict(task.mteb) if task.mteb else None,
        "size": task.size,
        "counts": task.counts,
        "seconds": result.cost.seconds,
        # As in `Result.path`, which refuses names that a record was not saved under here.
        "record": f"{model.label}-{model.identity[:8]}/seed_{result.seed}/{task.key}.json",
        "checksum": result.checksum,
    }


def listed_records(folder: Path) -> dict[str, dict[str, bool]]:
    """Return the checksums of all records ever written in ``folder``, by the record's path.

    With each, whether the record was written, or only about to be.
    """
    journal = Journal(folder / CHECKSUMS)
    listed: dict[str, dict[str, bool]] = {}
    for key in sorted(journal.keys()):
        name, _, digest = key.rpartition(" ")
        listed.setdefault(name, {})[digest] = bool(journal.get(key))
    return listed


class _MTEBFiles:
    """MTEB's results, listed once for all records; they must not change meanwhile."""

    def __init__(self) -> None:
        self._folders: dict[Path, list[Path]] = {}
        self._checked: dict[Path, tuple[str, str]] = {}  # a file's digest, and what is wrong

    def problems(self, file: Path, result: Result) -> Iterator[str]:
        """Yield what is wrong with MTEB's results of the record in ``file``.

        A record of a part of a task is not compared, as MTEB's file may be of another part.
        """
        if result.task.mteb is None or result.task.selection:
            return
        for folder in self._of_model(file, result):
            theirs = folder / f"{result.task.name}.json"
            digest, wrong = self._digest(theirs)
            yield from filter(None, (wrong, self._digest(folder / _META)[1]))
            if digest and not wrong:
                yield from _of_another(theirs, result) or _differences(theirs, result, digest)

    def _of_model(self, file: Path, result: Result) -> list[Path]:
        base = file.parent.parent.parent / "mteb" / "results"
        if base not in self._folders:
            self._folders[base] = list(base.glob("*/*"))  # a model, then its identity
        own = result.model.identity[:_IDENTITY]
        return [each for each in self._folders[base] if each.name.startswith(own)]

    def _digest(self, file: Path) -> tuple[str, str]:
        if file not in self._checked:
            digest = sha256_file(file) if file.is_file() else ""
            self._checked[file] = digest, _checksum_problem(file, digest)
        return self._checked[file]


def _checksum_problem(file: Path, digest: str) -> str:
    """Return whether a file is not one of those that were written; empty if it is."""
    checksums = file.with_name(CHECKSUMS)
    journal = Journal(checksums)
    known = [key for key in sorted(journal.keys()) if key.startswith(f"{file.name} ")]
    if not digest:
        written = any(map(journal.get, known))
        return f"MTEB's {paths.shown(file)} was removed after it was written" if written else ""
    if not checksums.is_file():
        return f"{paths.shown(checksums)}, the checksums of MTEB's results, is missing"
    if f"{file.name} {digest}" not in known:
        return f"MTEB's {paths.shown(file)} was changed after it was written"
    return ""


def _of_another(theirs: Path, result: Result) -> list[str]:
    """Return whether MTEB's file that a record was made with was never there."""
    own = result.task.mteb.file if result.task.mteb else ""
    if not own or Journal(theirs.with_name(CHECKSUMS)).get(f"{theirs.name} {own}") is not None:
        return []
    return [f"MTEB's result that it was made with was never in {paths.shown(theirs.parent)}"]


def _differences(theirs: Path, result: Result, digest: str) -> Iterator[str]:
    """Compare a record with MTEB's own file, unless that is of a later evaluation."""
    task, where = result.task, paths.shown(theirs)
    if task.mteb and task.mteb.file not in ("", digest):
        return
    try:
        outcome = json.loads(theirs.read_bytes())  # MTEB writes NaN
        scores = {_their_name(result, name): metric for name, metric in result.metrics.items()}
        pairs = [
            ("score", task.mteb.value if task.mteb else None, _averaged(outcome, "main_score"))
        ]
        pairs += [
            (name, metric.value, _averaged(outcome, name))
            for name, metric in scores.items()
            if all(name in entry for each in outcome["scores"].values() for entry in each)
        ]
        for name, ours, value in pairs:
            if ours is not None and not abs(value - ours) <= _TOLERANCE:
                yield f"MTEB's {name} is {ours}, in {where} it is {value}"
        yield from _other_facts(outcome, result, where)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        yield f"MTEB's result {where} cannot be read ({error!r})"


def _other_facts(outcome: dict[str, Any], result: Result, where: str) -> Iterator[str]:
    """Compare data, versions and times of a record with those that MTEB noted."""
    task, entries = result.task, [each for part in outcome["scores"].values() for each in part]
    facts = {
        "revision": (task.revision, outcome.get("dataset_revision")),
        "splits": (sorted(task.splits), sorted(outcome["scores"])),
        "subsets": (
            sorted(task.subsets),
            sorted({each.get("hf_subset", "") for each in entries} - {""}),
        ),
        "version of mteb": (result.environment.versions.get("mteb"), outcome.get("mteb_version")),
    }
    for name, (ours, theirs) in facts.items():
        if ours and theirs and ours != theirs:
            yield f"its {name} is {ours}, in {where} it is {theirs}"
    took, ended = outcome.get("evaluation_time") or 0.0, outcome.get("date")
    if took > result.cost.seconds + _ROUND_TIME:
        yield f"it took {result.cost.seconds:.1f} s, MTEB alone {took:.1f} s ({where})"
    if ended and result.finished:
        finished = _since_epoch(result.finished)
        if not -_ROUND_TIME <= finished - ended <= result.cost.seconds + _ROUND_TIME:
            at = datetime.fromtimestamp(ended, UTC).isoformat(timespec="seconds")
            yield f"it was finished {result.finished}, MTEB's part {at} ({where})"


def _since_epoch(moment: str) -> float:
    then = datetime.fromisoformat(moment)
    return (then if then.tzinfo else then.replace(tzinfo=UTC)).timestamp()


def _their_name(result: Result, metric: str) -> str:
    """Return MTEB's name of a metric, or ours if it has none."""
    name, at, k = metric.partition("@")
    if not at:
        return _THEIRS.get(metric, metric)
    of_reader = "max_over_subqueries_"
    theirs = result.task.mteb.metric if result.task.mteb else ""
    prefix = of_reader if theirs.startswith(of_reader) else ""
    return f"{prefix}{_THEIRS.get(name, name)}_at_{k}"


def _averaged(outcome: dict[str, Any], name: str) -> float:
    """A score as MTEB averages it: over the splits' means over subsets."""
    return fmean(fmean(entry[name] for entry in entries) for entries in outcome["scores"].values())
