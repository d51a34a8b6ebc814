"""Create a study: a folder in which every command works.

The notebooks and the book's sources are copied from this release, to be changed freely;
`qwen3nb.study.update` renews them later. ``_config.yml`` gets the study's title. Files that only a
study has (README, Makefile, sweep, ``.gitignore``) are in ``files/`` next to this module.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from qwen3nb.paths import study_of
from qwen3nb.study.copies import MANIFEST, copies_of, read_copies
from qwen3nb.utils.atomic_files import may_replace, new_folder

_EXAMPLES = {  # in notebooks/guide/tools/: at the top of a study
    "queries.toml": "queries.toml",
    "tools.jsonl": "documents.jsonl",
}


class StudyError(ValueError):
    """A study cannot be created or updated here."""


def create_study(folder: Path, *, title: str = "", author: str = "") -> Path:
    """Create a study in a new or empty folder, and return the folder.

    The book's title is by default from the folder's name; its authors are separated by commas.

    Raises:
        StudyError: the folder is not empty, or this installation has no notebooks.
    """
    folder = folder.expanduser().resolve()
    if not may_replace(folder, mark=""):  # no file marks a folder as one to overwrite
        raise StudyError(
            f"{folder} exists and is not empty: give the name of a new folder; "
            "`qwen3nb new --update` renews a study"
        )
    title = title or folder.name.replace("-", " ").replace("_", " ").capitalize()
    with new_folder(folder) as work:
        contents = study_files(title=title, author=author)
        for path, content in contents.items():
            file = work / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
    return folder


def study_files(*, title: str, author: str) -> dict[str, bytes]:
    """Return the content of each file of a new study, by its path in the study."""
    template = template_folder()
    copied = {path: source.read_bytes() for path, source in template_files().items()}
    files = dict(copied)
    files[MANIFEST] = copies_of(copied).text.encode()
    config = (template / "_config.yml").read_text(encoding="utf-8")
    files["_config.yml"] = _with_settings(config, title=title, author=author).encode()
    for source in Path(__file__).with_name("files").iterdir():
        text = source.read_text(encoding="utf-8").replace("{study}", title)
        name = source.name
        if name == "gitignore":  # without the dot, git and wheels keep it
            name = ".gitignore"
        files[name] = text.encode()
    # The examples of the guide are those of a new study.
    examples = template / "notebooks" / "guide" / "tools"
    for example, name in _EXAMPLES.items():
        files[name] = (examples / example).read_bytes()
    return files


def template_files() -> dict[str, Path]:
    """Return the files that a study gets as they are, by their path in the study.

    They are the notebooks and the book's sources, without what runs have made there.

    Raises:
        StudyError: this installation has none.
    """
    template = template_folder()
    files = {}
    for file in sorted(_files_below(template / "notebooks")):
        if file.name != "ruff.toml":  # settings of the linter for our notebooks
            files[file.relative_to(template).as_posix()] = file
    for file in sorted(_files_below(template / "book")):
        path = file.relative_to(template)
        # Below book/runs/, or a notebook that was run.
        is_made_by_runs = path.parts[1] == "runs" or file.suffix == ".ipynb"
        if not is_made_by_runs:
            files[path.as_posix()] = file
    return files


def _files_below(folder: Path) -> Iterator[Path]:
    """Yield the files in a folder and its folders, without hidden ones and Python's cache."""
    for entry in folder.iterdir():
        if entry.name.startswith(".") or entry.name == "__pycache__":
            continue
        if entry.is_dir():
            yield from _files_below(entry)
        else:
            yield entry


def template_folder() -> Path:
    """Return the folder with notebooks and book: in an installed wheel, or the repository.

    Raises:
        StudyError: this installation has none.
    """
    in_wheel = Path(__file__).with_name("template")
    repository = Path(__file__).resolve().parents[2]  # above qwen3nb/study/__init__.py
    for folder in (in_wheel, repository):
        if (folder / "notebooks" / "eval.ipynb").is_file():
            return folder
    raise StudyError(
        f"no notebooks in {in_wheel}: this installation is incomplete; install qwen3nb again, "
        "from a wheel or from a clone"
    )


def is_outdated(notebook: Path) -> bool:
    """Return whether a notebook of a study was copied from another release than this one."""
    study = study_of(notebook)
    if study is None:
        return False
    path = notebook.resolve().relative_to(study).as_posix()
    source = template_files().get(path)
    if source is None:
        return False
    released = source.read_bytes()
    if released == notebook.read_bytes():
        return False
    # The owner may have changed it: what was copied is compared, not what is there.
    digests_copied = read_copies(study / MANIFEST).digests.get(path)
    digests_released = copies_of({path: released}).digests[path]
    return digests_copied != digests_released


def _with_settings(config: str, *, title: str, author: str) -> str:
    """Return ``_config.yml`` with the study's own facts; JSON strings are YAML."""
    values = {
        "title": json.dumps(title, ensure_ascii=False),
        "author": json.dumps(author, ensure_ascii=False),
        "copyright": json.dumps(str(datetime.now(UTC).year)),
        "  license": '"" # such as apache-2.0, of the book, and of models that state no other',
        "repository": '{ url: "" } # of the study; with one, set use_repository_button: true',
        "  use_repository_button": "false",
    }
    # Lines are replaced one by one, as a YAML library would drop the comments.
    lines = []
    for line in config.splitlines(keepends=True):
        key = line.partition(":")[0]  # with its indentation
        if key in values:
            lines.append(f"{key}: {values[key]}\n")
        else:
            lines.append(line)
    return "".join(lines)
