"""Releases of a study: immutable copies of the records and pages behind its numbers.

    releases/<name>/results/       the records with the files next to them, MTEB's results
    releases/<name>/pages/         the executed notebooks
    releases/<name>/html/          the book as last built, if any
    releases/<name>/CITATION.cff   how to cite it
    releases/<name>/release.json   versions, revisions of the data, the SHA-256 of every file

A release is written atomically. Files named by their content are hard links where the file system
supports them: such files are replaced, never changed.
"""

import os
import platform
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.records.record import Result, safe_name
from qwen3nb.records.results import Results
from qwen3nb.records.store import load_results, verify_folder
from qwen3nb.utils.atomic_files import (
    exclusive_lock,
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
_OF_RUNS = ("logs", "partial")  # folders of results that a release leaves out
_MOST = 3  # problems that a message lists


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
            _copy(source, work / "results", leave=_OF_RUNS)
            records = load_results(work / "results", whole=False)
            if wrong := verify_folder(work / "results", checksums_only=True):
                lines = [f"{file}: {why}" for file, each in wrong.items() for why in each]
                text = "\n".join(lines[:_MOST]).replace(str(work / "results"), str(source))
                raise ReleaseError(f"not frozen, since `qwen3nb verify` fails:\n{text}")
            if not records:
                raise ReleaseError(f"no records in {source}; `qwen3nb eval` writes some")
            for folder, own in ((paths.book_runs(), ""), (paths.book() / "guide", "guide")):
                _copy(folder, work / "pages" / own, only=(".ipynb",))
            _copy(paths.root() / "_build" / "html", work / "html")
            today = datetime.now(UTC)
            write_text(work / "CITATION.cff", _citation(name, records, today))
            files = {each: sha256_file(work / each) for each in _files(work)}
            facts = {
                "schema": _SCHEMA,
                "name": name,
                "frozen": today.isoformat(timespec="seconds"),
                "qwen3nb": __version__,
                "python": platform.python_version(),
                "commit": git_commit(paths.root()),
                "records": len(records),
                **software_and_data(records),
                "files": files,
            }
            write_json(work / _FILE, facts | {"checksum": sha256_json(facts)})
    return target


def software_and_data(records: Iterable[Result]) -> dict[str, dict[str, list[str]]]:
    """Return the versions of each library, and the revisions of each task's data."""
    versions, data = defaultdict(set), defaultdict(set)
    for each in records:
        for library, version in each.environment.versions.items():
            versions[library].add(version)
        versions["python"].add(each.environment.python)
        data[each.task.key].add(each.task.revision)
    named = {"versions": versions, "data": data}
    return {
        kind: {name: sorted(values) for name, values in sorted(of.items())}
        for kind, of in named.items()
    }


def released(name: str) -> Results:
    """Return the records of a release, of a folder of records, or for `NOW` the study's own.

    Args:
        name: name of a release of this study, path of any release, or path of a folder of records.

    Raises:
        ReleaseError: no such release, or a file of it was changed, added or removed.
    """
    if name == NOW:
        return load_results(whole=False)
    given = Path(name).expanduser()
    for folder in (*([paths.releases() / name] if paths.find_root() else []), given):
        if (folder / _FILE).is_file():
            _check(folder)
            return load_results(folder / "results", whole=False)
    if any(given.glob("*/seed_*/*.json")):
        return load_results(given, whole=False)
    known = [each.parent.name for each in sorted(paths.releases().glob(f"*/{_FILE}"))]
    raise ReleaseError(
        f"no release {name!r}; expected one of: {', '.join([*known, NOW])}, or a folder of records"
    )


def _check(folder: Path) -> None:
    """Check that a release was not modified."""
    facts = read_json(folder / _FILE)
    stated = facts.pop("checksum", "") if isinstance(facts, dict) else ""
    sound = stated == sha256_json(facts) and facts.get("schema") == _SCHEMA
    if not sound or not isinstance(facts.get("files"), dict):
        raise ReleaseError(f"{folder / _FILE} was changed after the release was frozen")
    files, there = facts["files"], {*_files(folder)} - {_FILE}
    wrong = [f"{each} is missing" for each in sorted(files.keys() - there)]
    wrong += [f"{each} was added" for each in sorted(there - files.keys())]
    wrong += [
        f"{each} was changed"
        for each in sorted(there & files.keys())
        if sha256_file(folder / each) != files[each]
    ]
    if wrong:
        raise ReleaseError(
            f"{folder} is not as it was frozen: {'; '.join(wrong[:_MOST])}"
            + f" and {len(wrong) - _MOST} more" * (len(wrong) > _MOST)
        )


def _files(folder: Path) -> Iterator[str]:
    """Yield the paths of all files below a folder, except hidden ones."""
    for file in sorted(folder.rglob("*")):
        within = file.relative_to(folder)
        if file.is_file() and not any(part.startswith(".") for part in within.parts):
            yield within.as_posix()


def _copy(
    source: Path, target: Path, *, only: tuple[str, ...] = (), leave: tuple[str, ...] = ()
) -> None:
    """Copy the files below a folder, if it exists; those named by their content as hard links."""
    for name in _files(source):
        file, copy = source / name, target / name
        if (only and file.suffix not in only) or name.split("/")[0] in leave:
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix in _NAMED_BY_CONTENT:
            with suppress(OSError):  # another file system, or one without links
                os.link(file, copy)
                continue
        shutil.copyfile(file, copy)


def _citation(name: str, records: Results, today: datetime) -> str:
    import yaml

    study = book_settings()
    people = [each.strip() for each in study.author.split(",") if each.strip()]
    facts: dict[str, Any] = {
        "cff-version": "1.2.0",
        "message": "If you use these results, please cite this release.",
        "title": study.title or paths.root().name,
        "type": "dataset",
        "authors": [{"name": each} for each in people or ["The authors of the study"]],
        "version": name,
        "date-released": today.date().isoformat(),
        "abstract": f"{len(records)} evaluation records of {len(records.models)} models on "
        f"{len(records.tasks)} tasks, made with qwen3nb {__version__}.",
    }
    facts |= {"url": study.url} if study.url else {}
    return str(yaml.safe_dump(facts, sort_keys=False, allow_unicode=True))
