"""Releases of a study: immutable copies of the records and pages behind its numbers.

    releases/<name>/data/results/  the records with the files next to them, MTEB's results
    releases/<name>/data/pages/    the executed notebooks
    releases/<name>/data/html/     the book as last built, if any
    releases/<name>/release.json   versions of the libraries, revisions of the data
    releases/<name>/CITATION.cff   how to cite it
    releases/<name>/datacite.json  metadata to register a DOI with
    releases/<name>/verify.py      verifies it without this package
    releases/<name>/manifest-sha256.txt and others: the SHA-256 of every file
    releases/checksums.jsonl       all releases ever frozen here

The folder is a bag (BagIt, RFC 8493), which archives and libraries read. Older releases have no
such lists: the digests are in ``release.json``, and results/ stands beside it.

A release is written atomically. Files named by their content are hard links where the file system
supports them: such files are replaced, never changed.
"""

import os
import platform
import re
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.records import release_check
from qwen3nb.records.known_records import KnownDigests, occasion_of_release, remember
from qwen3nb.records.record import CHECKSUMS, Result, safe_name
from qwen3nb.records.release_check import PAYLOAD, TAGS
from qwen3nb.records.results import Results
from qwen3nb.records.side_files import STEM
from qwen3nb.records.signatures import sign_file, signature_problem
from qwen3nb.records.store import PROMPTS, load_results, records_under, verify_folder
from qwen3nb.utils.atomic_files import (
    exclusive_lock,
    link_or_copy,
    new_folder,
    read_json,
    sha256_file,
    sha256_json,
    write_bytes,
    write_json,
    write_text,
)
from qwen3nb.utils.book_settings import BookSettings, book_settings
from qwen3nb.utils.code_version import __version__, git_commit
from qwen3nb.utils.journal import Journal, append
from qwen3nb.utils.schema import shortened
from qwen3nb.utils.secrets import known_secrets, secret_files

NOW = "results"  # instead of a release's name: the study's current records
_FILE, _SCHEMA = "release.json", "qwen3nb.release/2"
_WITHOUT_LISTS = "qwen3nb.release/1"  # the digests of all files are in the JSON
_BAG = "BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n"
# A release has all of them; a folder with any of them is one of which files may be gone.
_SIGNS = (_FILE, "bagit.txt", PAYLOAD, TAGS)
# What a process leaves that is killed while it freezes: such as .v1.1a2b3c4d-4711-9f8e7d6c.tmp
_LEFTOVER = re.compile(r"\..+\.[0-9a-f]{8}-\d+-[0-9a-f]{8}\.(?:tmp|old)")
# What this package reads in results/, also in folders and under names that it never writes.
_READ = (
    "*/seed_*/*.json",
    "*/seed_*/*.error.txt",
    f"{PROMPTS}/*/seed_*/*.json",
    f"{PROMPTS}/*/seed_*/*.error.txt",
    "mteb/results/*/*/*.json",
    f"{PROMPTS}/mteb/results/*/*/*.json",
    "failed/*.json",
)
_ENTRY = re.compile(rf"{STEM} [0-9a-f]{{64}}")  # in the list of all releases
_NAMED_BY_CONTENT = (".parquet", ".trec", ".qrels")
_LEFT_OUT = ("logs", "partial")  # folders of results that a release leaves out
_MAX_LISTED = 3  # problems that a message lists


class ReleaseError(ValueError):
    """A release cannot be created, or was modified; the message says why."""


def freeze(name: str, *, sign: Path | None = None) -> Path:
    """Freeze the study's records, executed pages and built book as a release; return its folder.

    Args:
        name: name of the release.
        sign: a private key of SSH to sign it with.

    Raises:
        ReleaseError: a name that is taken or unsafe, no records, records that were changed after
            they were written, or a secret in a file.
    """
    target, source = paths.releases() / safe_name(name), paths.results()
    with exclusive_lock(target, purpose="freezes"):
        if name == NOW or target.exists():
            raise ReleaseError(f"{name!r} is taken: a release is never replaced; give another name")
        with new_folder(target) as work:
            data = work / "data"
            _copy(source, data / "results", left_out=_LEFT_OUT)
            _check_records(data / "results", source)
            records = records_under(data / "results", whole=False)
            if not records:
                raise ReleaseError(f"no records in {source}; `qwen3nb eval` writes some")
            _copy(paths.book_runs(), data / "pages", only=(".ipynb",))
            _copy(paths.book() / "guide", data / "pages" / "guide", only=(".ipynb",))
            _copy(paths.root() / "_build" / "html", data / "html")
            frozen = _write_tags(work, name, records)
            _check_no_secrets(work)
            if sign:
                sign_file(work / TAGS, key=sign)
            digest = digest_of_release(work)
        append(paths.releases() / CHECKSUMS, f"{name} {digest}", True)
        remember(occasion_of_release(name, frozen), digest)
    return target


def _write_tags(bag: Path, name: str, records: Results) -> str:
    """Write what describes and lists the files of a release; return when it was frozen."""
    today = datetime.now(UTC)
    frozen = today.isoformat(timespec="seconds")
    described = _Description.of(name, records, today)
    facts = {
        "schema": _SCHEMA,
        "name": name,
        "frozen": frozen,
        "qwen3nb": __version__,
        "python": platform.python_version(),
        "commit": git_commit(paths.root()),
        "records": len(records),
        **software_and_data(records),
    }
    write_json(bag / _FILE, facts)
    write_text(bag / "CITATION.cff", described.citation())
    write_json(bag / "datacite.json", described.datacite())
    write_bytes(bag / "verify.py", Path(release_check.__file__).read_bytes())
    payload = [file for file in _files(bag) if file.startswith("data/")]
    size = sum((bag / file).stat().st_size for file in payload)
    write_text(bag / "bagit.txt", _BAG)
    write_text(
        bag / "bag-info.txt",
        f"Bag-Software-Agent: qwen3nb {__version__}\nBagging-Date: {today.date().isoformat()}\n"
        f"External-Identifier: {name}\nPayload-Oxum: {size}.{len(payload)}\n",
    )
    _write_list(bag, PAYLOAD, payload)
    _write_list(bag, TAGS, [file for file in _files(bag) if not file.startswith("data/")])
    return frozen


def _write_list(bag: Path, name: str, files: Iterable[str]) -> None:
    """Write the SHA-256 of files, as `sha256sum` does."""
    lines = []
    for file in files:
        escaped = file.replace("%", "%25").replace("\n", "%0A").replace("\r", "%0D")
        lines.append(f"{sha256_file(bag / file)}  {escaped}\n")
    write_text(bag / name, "".join(lines))


def _check_records(copied: Path, source: Path) -> None:
    """Raise ReleaseError if records were changed after they were written; names those copied."""
    lines: list[str] = []
    for file, problems in verify_folder(copied, checksums_only=True).items():
        lines += [f"{file}: {problem}" for problem in problems]
    if lines:
        text = "\n".join(lines[:_MAX_LISTED]).replace(str(copied), str(source))
        raise ReleaseError(f"not frozen, since `qwen3nb verify` fails:\n{text}")


def _check_no_secrets(bag: Path) -> None:
    """Raise ReleaseError if a file to be frozen holds a secret; names the first ones."""
    lines = []
    # The texts of records are data, which may look like a secret.
    for part, values_only in (("results", True), ("pages", False), ("html", False)):
        for file, kinds in secret_files(bag / "data" / part, values_only=values_only):
            lines.append(f"{part}/{file}: {', '.join(kinds)}")
    secrets = known_secrets()
    for tag in sorted(bag.glob("*.*")):  # what describes the release, such as its study's address
        kinds = secrets.kinds_in_file(tag)
        if kinds:
            lines.append(f"{tag.name}: {', '.join(kinds)}")
    if lines:
        text = "\n".join(lines[:_MAX_LISTED])
        raise ReleaseError(f"not frozen, since files hold secrets; remove them there:\n{text}")


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
        if is_release(folder):
            _check_unmodified(folder)
            return load_results(records_folder(folder), whole=False)
    if any(given_folder.glob("*/seed_*/*.json")):
        return load_results(given_folder, whole=False)
    choices = ", ".join([*(folder.name for folder in all_releases()), NOW])
    raise ReleaseError(f"no release {name!r}; expected one of: {choices}, or a folder of records")


def all_releases() -> list[Path]:
    """Return the folders of the study's releases, also of those that lack files."""
    folders = sorted(paths.releases().glob("*"))
    return [
        folder for folder in folders if is_release(folder) and not _LEFTOVER.fullmatch(folder.name)
    ]


def is_release(folder: Path) -> bool:
    """Return whether a folder is one that `freeze` made, though files of it may be gone."""
    return any(os.path.lexists(folder / name) for name in _SIGNS)


def records_folder(release: Path) -> Path:
    """Return the folder of a release's records; older releases have it at the top."""
    if (release / "data").is_dir():
        return release / "data" / "results"
    return release / "results"


def digest_of_release(folder: Path) -> str:
    """Return the SHA-256 of the list of lists, from which all other digests follow."""
    return sha256_file(folder / TAGS)


def release_problems(folder: Path) -> list[str]:
    """Return how the files of a release differ from those that were frozen."""
    if not (folder / _FILE).is_file():
        lost = f"its {_FILE} is missing, or is no file: copy it back, or remove the folder"
        return [lost, *release_check.problems(folder)]
    try:
        facts = read_json(folder / _FILE)
        has_lists = (folder / TAGS).is_file()
        if facts["schema"] == _WITHOUT_LISTS and not has_lists:
            problems = _problems_without_lists(folder, facts)
        elif facts["schema"] != _SCHEMA:
            return [f"{_FILE} has the schema {facts['schema']!r}; expected {_SCHEMA!r}"]
        else:
            problems = list(release_check.problems(folder))
            problems += _problems_of_facts(
                facts, records_under(records_folder(folder), whole=False)
            )
        name, frozen = facts["name"], str(facts.get("frozen"))
        if _is_of_study(folder) and folder.name != name:
            problems.append(f"it was frozen as {name!r}: give the folder that name again")
        digest = digest_of_release(folder) if has_lists else ""
        digests_in_list = set()
        if _is_of_study(folder):
            digests_in_list = _listed_releases().get(folder.name, set())
        is_known_otherwise = KnownDigests().contradict(
            occasion_of_release(str(name), frozen), digest
        )
        if is_known_otherwise or (digests_in_list and digest not in digests_in_list):
            problems.append("it was frozen here with other lists of files")
        return problems
    except (OSError, ValueError) as error:
        return [f"it cannot be read ({error})"]
    except (KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return [f"its {_FILE} is not that of a release: copy it back from where it was published"]


def _problems_of_facts(facts: Mapping[str, Any], records: Results) -> Iterator[str]:
    """Compare what the JSON of a release says of its records with these."""
    expected = {"records": len(records), **software_and_data(records)}
    for name, value in expected.items():
        if facts[name] != value:
            yield f"its {name} are {shortened(value)}; {_FILE} says {shortened(facts[name])}"


def _listed_releases() -> dict[str, set[str]]:
    """Return the digests of all releases ever frozen in this study, by name."""
    digests: dict[str, set[str]] = {}
    for entry in Journal(paths.releases() / CHECKSUMS).keys():  # noqa: SIM118 - it is no mapping
        if _ENTRY.fullmatch(entry):  # others are reported by `problems_of_list`
            name, _, digest = entry.partition(" ")
            digests.setdefault(name, set()).add(digest)
    return digests


def problems_of_list() -> dict[Path, list[str]]:
    """Return by path what is wrong of the list of all releases, and which of them were removed."""
    problems = {}
    file = paths.releases() / CHECKSUMS
    journal = Journal(file)
    if journal.damaged or not all(map(_ENTRY.fullmatch, journal.keys())):
        problems[file] = ["a line is damaged, or is of no release; delete that line"]
    for name in sorted(_listed_releases()):
        release = paths.releases() / name
        if not is_release(release):
            problems[release] = [
                "it was removed after it was frozen; if that was meant, delete its lines in "
                f"{paths.shown(file)}"
            ]
    return problems


def _is_of_study(release: Path) -> bool:
    """Return whether a release is in this study; a copy elsewhere may have any name."""
    if paths.find_root() is None:
        return False
    return release.absolute().parent.resolve() == paths.releases().resolve()


def signed_problems(folder: Path, signers: Path) -> list[str]:
    """Return why a release is not one that was signed as it is; see `signature_problem`."""
    problem = signature_problem(folder / TAGS, signers=signers)
    return [problem] if problem else []


def newest_release(releases: Iterable[Path]) -> Path:
    """Return the one of ``releases`` that was frozen last."""
    return max(releases, key=when_frozen)


def when_frozen(release: Path) -> str:
    """Return when a release was frozen, in ISO 8601."""
    return str(read_json(release / _FILE)["frozen"])


def changes_since_signed(newest: Path) -> dict[Path, list[str]]:
    """Compare the study's results with its newest release, file by file.

    Returns:
        What is wrong, by file: it was added, changed or removed since the release was signed.
    """
    base, signed_folder = paths.results(), records_folder(newest)
    names = {name for name in _files(base) if name.partition("/")[0] not in _LEFT_OUT}
    for pattern in _READ:
        names.update(file.relative_to(base).as_posix() for file in base.glob(pattern))
    problems = {}
    for name in sorted({*names, *_files(signed_folder)}):
        file, signed_file = base / name, signed_folder / name
        if name not in names:
            problems[file] = [f"it was removed since {newest.name} was signed"]
        elif not signed_file.is_file():
            problems[file] = [f"it was added since {newest.name} was signed"]
        elif not file.is_file() or sha256_file(file) != sha256_file(signed_file):
            problems[file] = [f"it was changed since {newest.name} was signed"]
    return problems


def _check_unmodified(folder: Path) -> None:
    """Raise ReleaseError if a release was modified; lists what was."""
    problems = release_problems(folder)
    if not problems:
        return
    message = f"{folder} is not as it was frozen: {'; '.join(problems[:_MAX_LISTED])}"
    if len(problems) > _MAX_LISTED:
        message += f" and {len(problems) - _MAX_LISTED} more"
    raise ReleaseError(message)


def _problems_without_lists(folder: Path, facts: dict[str, Any]) -> list[str]:
    """Compare the files of an older release with the digests in its JSON."""
    checksum = facts.pop("checksum", "")
    if checksum != sha256_json(facts) or not isinstance(facts.get("files"), dict):
        return [f"{_FILE} was changed"]
    expected, present = facts["files"], {*_files(folder)} - {_FILE}
    problems = [f"{file} is missing" for file in sorted(expected.keys() - present)]
    problems += [f"{file} was added" for file in sorted(present - expected.keys())]
    for file in sorted(present & expected.keys()):
        if sha256_file(folder / file) != expected[file]:
            problems.append(f"{file} was changed")
    return problems


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


@dataclass(frozen=True)
class _Description:
    """What a reader of a catalogue needs to know of a release."""

    study: BookSettings
    release: str
    people: list[str]
    title: str
    abstract: str
    today: datetime

    @classmethod
    def of(cls, release: str, records: Results, today: datetime) -> "_Description":
        """Describe records by the settings of the study's book."""
        study = book_settings()
        people = [name.strip() for name in study.author.split(",") if name.strip()]
        abstract = (
            f"{len(records)} evaluation records of {len(records.models)} models on "
            f"{len(records.tasks)} tasks, made with qwen3nb {__version__}."
        )
        return cls(
            study=study,
            release=release,
            people=people or ["The authors of the study"],
            title=study.title or paths.root().name,
            abstract=abstract,
            today=today,
        )

    def citation(self) -> str:
        """Return the content of CITATION.cff."""
        import yaml

        facts: dict[str, Any] = {
            "cff-version": "1.2.0",
            "message": "If you use these results, please cite this release.",
            "title": self.title,
            "type": "dataset",
            "authors": [{"name": person} for person in self.people],
            "version": self.release,
            "date-released": self.today.date().isoformat(),
            "abstract": self.abstract,
        }
        if self.study.url:
            facts["url"] = self.study.url
        return str(yaml.safe_dump(facts, sort_keys=False, allow_unicode=True))

    def datacite(self) -> dict[str, Any]:
        """Return the metadata of a DOI, as DataCite's schema 4.5 has them.

        The DOI and the publisher are those of the archive, which fills them in.
        """
        facts: dict[str, Any] = {
            "schemaVersion": "http://datacite.org/schema/kernel-4",
            "types": {"resourceTypeGeneral": "Dataset", "resourceType": "Evaluation records"},
            "creators": [{"name": person} for person in self.people],
            "titles": [{"title": self.title}],
            "publisher": {"name": "(:tba)"},
            "publicationYear": str(self.today.year),
            "dates": [{"date": self.today.date().isoformat(), "dateType": "Created"}],
            "version": self.release,
            "descriptions": [{"description": self.abstract, "descriptionType": "Abstract"}],
            "formats": ["application/json", "application/vnd.apache.parquet", "text/html"],
        }
        if self.study.url:
            facts["url"] = self.study.url
        if self.study.license:
            facts["rightsList"] = [{"rights": self.study.license}]
        return facts
