"""Create a study: a folder in which every command works.

The notebooks, the book's sources and ``_config.yml`` are copied from this release, to be changed
freely. Files that only a study has (README, Makefile, sweep, ``.gitignore``) are in ``files/`` next
to this module.
"""

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

from qwen3nb.utils.atomic_files import may_replace, new_folder

_EXAMPLES = {  # in notebooks/guide/tools/: at the top of a study
    "queries.toml": "queries.toml",
    "tools.jsonl": "documents.jsonl",
}
_MADE_BY_RUNS = shutil.ignore_patterns("runs", "guide", ".*", "__pycache__")


class StudyError(ValueError):
    """A study cannot be created here."""


def create_study(folder: Path, *, title: str = "", author: str = "") -> Path:
    """Create a study in a new or empty folder, and return the folder.

    The book's title is by default from the folder's name; its authors are separated by commas.

    Raises:
        StudyError: the folder is not empty, or this installation has no notebooks.
    """
    folder = folder.expanduser().resolve()
    if not may_replace(folder, mark=""):
        raise StudyError(
            f"{folder} exists and is not empty: give the name of a new folder; "
            "a study is updated by copying what you want from a new one"
        )
    template = template_folder()
    with new_folder(folder) as work:
        others = shutil.ignore_patterns(".*", "ruff.toml", "__pycache__")
        shutil.copytree(template / "notebooks", work / "notebooks", ignore=others)
        shutil.copytree(template / "book", work / "book", ignore=_MADE_BY_RUNS)
        # Without lessons published there by runs.
        pages = shutil.ignore_patterns("*.ipynb", ".*")
        shutil.copytree(template / "book" / "guide", work / "book" / "guide", ignore=pages)
        config = (template / "_config.yml").read_text(encoding="utf-8")
        title = title or folder.name.replace("-", " ").replace("_", " ").capitalize()
        settings = _with_settings(config, title=title, author=author)
        (work / "_config.yml").write_text(settings, encoding="utf-8")
        for source in Path(__file__).with_name("files").iterdir():
            name = ".gitignore" if source.name == "gitignore" else source.name
            text = source.read_text(encoding="utf-8").replace("{study}", title)
            (work / name).write_text(text, encoding="utf-8")
        for example, name in _EXAMPLES.items():
            shutil.copyfile(template / "notebooks" / "guide" / "tools" / example, work / name)
    return folder


def template_folder() -> Path:
    """Return the folder with notebooks and book: in an installed wheel, or the repository.

    Raises:
        StudyError: this installation has none.
    """
    repository = Path(__file__).resolve().parents[2]
    for folder in (Path(__file__).with_name("template"), repository):
        if (folder / "notebooks" / "eval.ipynb").is_file():
            return folder
    raise StudyError(
        f"no notebooks in {Path(__file__).with_name('template')}: this installation is "
        "incomplete; install qwen3nb again, from a wheel or from a clone"
    )


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
    return "".join(
        f"{key}: {values[key]}\n" if (key := line.partition(":")[0]) in values else line
        for line in config.splitlines(keepends=True)
    )
