"""Releases of a study: immutable copies of the records and pages behind its numbers.

    releases/<name>/results/       the records with the files next to them, MTEB's results
    releases/<name>/pages/         the executed notebooks
    releases/<name>/html/          the book as last built, if any
    releases/<name>/CITATION.cff   how to cite it
    releases/<name>/release.json   versions, revisions of the data, the SHA-256 of every file

A release is written atomically. Files named by their content are hard links where the file system
supports them: such files are replaced, never changed.
"""

import platform
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.records.record import Result, safe_name
from qwen3nb.records.results import Results
from qwen3nb.records.store import load_results, records_under, verify_folder
from qwen3nb.utils.atomic_files import (
    exclusive_lock,
    link_or_copy,
    new_folder,
    read_json,
    sha256_file,
    sha256_json,
    write_json,
    write_text,
)
from qwen3nb.utils.book_settings import book_settings
from qwen3nb.utils.code_version import __version__, git_commit

NOW = "results"  # instead of a release's name: the study's current records
_FILE, _SCHEMA = "release.json", "qwen3nb.release/1"
_NAMED_BY_CONTENT = (".parquet", ".trec", ".qrels")
_LEFT_OUT = ("logs", "partial")  # folders of results that a release leaves out
_MAX_LISTED = 3  # problems that a message lists


class ReleaseError(ValueError):
    """A release cannot be created, or was modified; the message says why."""


def freeze(name: str) -> Path:
    """Freeze the study's records, executed pages and built book as a release; return its folder.

    Raises:
        ReleaseError: a name that is taken or unsafe, no records, or records that were changed
            after they were written.
    """
    target, source = paths.releases() / safe_name(name), paths.results()
    with exclusive_lock(target, purpose="freezes"):
        if name == NOW or target.exists():
            raise ReleaseError(f"{name!r} is taken: a release is never replaced; give another name")
        with new_folder(target) as work:
            _copy(source, work / "results", left_out=_LEFT_OUT)
            _check_records(work / "results", source)
            records = records_under(work / "results", whole=False)
            if not records:
                raise ReleaseError(f"no records in {source}; `qwen3nb eval` writes some")
            _copy(paths.book_runs(), work / "pages", only=(".ipynb",))
            _copy(paths.book() / "guide", work / "pages" / "guide", only=(".ipynb",))
            _copy(paths.root() / "_build" / "html", work / "html")
            today = datetime.now(UTC)
            write_text(work / "CITATION.cff", _citation(name, records, today))
            facts = {
                "schema": _SCHEMA,
                "name": name,
                "frozen": today.isoformat(timespec="seconds"),
                "qwen3nb": __version__,
                "python": platform.python_version(),
                "commit": git_commit(paths.root()),
                "records": len(records),
                **software_and_data(records),
                "files": {file: sha256_file(work / file) for file in _files(work)},
            }
            write_json(work / _FILE, facts | {"checksum": sha256_json(facts)})
    return target


def _check_records(copied: Path, source: Path) -> None:
    """Raise ReleaseError if records were changed after they were written; names those copied."""
    lines: list[str] = []
    for file, problems in verify_folder(copied, checksums_only=True).items():
        lines += [f"{file}: {problem}" for problem in problems]
    if lines:
        text = "\n".join(lines[:_MAX_LISTED]).replace(str(copied), str(source))
        raise ReleaseError(f"not frozen, since `qwen3nb verify` fails:\n{text}")


def software_and_data(records: Iterable[Result]) -> dict[str, dict[str, list[str]]]:
    """Return the versions of each library, and the revisions of each task's data."""
    versions, revisions = defaultdict(set), defaultdict(set)
    for record in records:
        for library, version in record.environment.versions.items():
            versions[library].add(version)
        versions["python"].add(record.environment.python)
        revisions[record.task.key].add(record.task.revision)
    return {"versions": _sorted_values(versions), "data": _sorted_values(revisions)}


def _sorted_values(values_by_name: Mapping[str, set[str]]) -> dict[str, list[str]]:
    return {name: sorted(values) for name, values in sorted(values_by_name.items())}


def released(name: str) -> Results:
    """Return the records of a release, of a folder of records, or for `NOW` the study's own.

    Args:
        name: name of a release of this study, path of any release, or path of a folder of records.

    Raises:
        ReleaseError: no such release, or a file of it was changed, added or removed.
    """
    if name == NOW:
        return load_results(whole=False)
    given_folder = Path(name).expanduser()
    possible_folders = [given_folder]
    if paths.find_root():
        # Within a study, the name of a release comes before a folder.
        possible_folders.insert(0, paths.releases() / name)
    for folder in possible_folders:
        if (folder / _FILE).is_file():
            _check_unmodified(folder)
            return load_results(folder / "results", whole=False)
    if any(given_folder.glob("*/seed_*/*.json")):
        return load_results(given_folder, whole=False)
    release_names = [file.parent.name for file in sorted(paths.releases().glob(f"*/{_FILE}"))]
    choices = ", ".join([*release_names, NOW])
    raise ReleaseError(f"no release {name!r}; expected one of: {choices}, or a folder of records")


def _check_unmodified(folder: Path) -> None:
    """Raise ReleaseError if a release was modified; lists what was."""
    expected, present = _digests(folder), {*_files(folder)} - {_FILE}
    problems = [f"{file} is missing" for file in sorted(expected.keys() - present)]
    problems += [f"{file} was added" for file in sorted(present - expected.keys())]
    for file in sorted(present & expected.keys()):
        if sha256_file(folder / file) != expected[file]:
            problems.append(f"{file} was changed")
    if not problems:
        return
    message = f"{folder} is not as it was frozen: {'; '.join(problems[:_MAX_LISTED])}"
    if len(problems) > _MAX_LISTED:
        message += f" and {len(problems) - _MAX_LISTED} more"
    raise ReleaseError(message)


def _digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a release, as it was frozen.

    Raises:
        ReleaseError: what says so was changed.
    """
    facts, checksum = read_json(folder / _FILE), ""
    if isinstance(facts, dict):
        checksum = facts.pop("checksum", "")
    is_unchanged = checksum == sha256_json(facts) and facts.get("schema") == _SCHEMA
    if not is_unchanged or not isinstance(facts.get("files"), dict):
        raise ReleaseError(f"{folder / _FILE} was changed after the release was frozen")
    digests: dict[str, str] = facts["files"]
    return digests


def _files(folder: Path) -> Iterator[str]:
    """Yield the paths of all files below a folder, except hidden ones."""
    for file in sorted(folder.rglob("*")):
        relative_path = file.relative_to(folder)
        if file.is_file() and not any(part.startswith(".") for part in relative_path.parts):
            yield relative_path.as_posix()


def _copy(
    source: Path, target: Path, *, only: tuple[str, ...] = (), left_out: tuple[str, ...] = ()
) -> None:
    """Copy the files below a folder, if it exists; those named by their content as hard links."""
    for name in _files(source):
        file, copy = source / name, target / name
        first_folder, _, _ = name.partition("/")
        has_other_suffix = bool(only) and file.suffix not in only
        if has_other_suffix or first_folder in left_out:
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        # Never changed, so a hard link is as good as a copy.
        if file.suffix in _NAMED_BY_CONTENT:
            link_or_copy(file, copy)
        else:
            shutil.copyfile(file, copy)


def _citation(release: str, records: Results, today: datetime) -> str:
    import yaml

    study = book_settings()
    people = [name.strip() for name in study.author.split(",") if name.strip()]
    if not people:
        people = ["The authors of the study"]
    facts: dict[str, Any] = {
        "cff-version": "1.2.0",
        "message": "If you use these results, please cite this release.",
        "title": study.title or paths.root().name,
        "type": "dataset",
        "authors": [{"name": person} for person in people],
        "version": release,
        "date-released": today.date().isoformat(),
        "abstract": f"{len(records)} evaluation records of {len(records.models)} models on "
        f"{len(records.tasks)} tasks, made with qwen3nb {__version__}.",
    }
    if study.url:
        facts["url"] = study.url
    return str(yaml.safe_dump(facts, sort_keys=False, allow_unicode=True))
