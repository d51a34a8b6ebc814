"""The workflow that compares models on each pull request of a study.

GitHub reads workflows at the root of a repository only, so the file is written there, also where
the study is a folder of the repository.
"""

import re
from pathlib import Path

from qwen3nb.study import StudyError
from qwen3nb.utils.atomic_files import write_text
from qwen3nb.utils.code_version import __version__

_TEMPLATE = Path(__file__).with_name("ci") / "search-quality.yml"
_PLAIN_PATH = re.compile(r"[A-Za-z0-9._/-]+")  # the same in YAML, in bash and in expressions


def write_workflow(study: Path) -> Path:
    """Write the workflow of a study, and return its file; one that is there as it is stays.

    Raises:
        StudyError: the file exists and differs, or the path of the study has other characters.
    """
    study = study.resolve()
    repository = _repository(study)
    text = workflow(study.relative_to(repository).as_posix())
    file = repository / ".github" / "workflows" / _TEMPLATE.name
    if file.is_file() and file.read_text(encoding="utf-8") != text:
        raise StudyError(f"{file} exists and differs: delete or rename it to have it written anew")
    return write_text(file, text)


def workflow(folder: str = ".") -> str:
    """Return the workflow of a study in a folder of the repository, by its path there.

    Raises:
        StudyError: the path has characters that would have to be quoted.
    """
    if not _PLAIN_PATH.fullmatch(folder):
        raise StudyError(
            f"expected a path of letters, digits, '.', '_' and '-'; got {folder!r}: rename the "
            "folder of the study, or make it a repository of its own"
        )
    text = _TEMPLATE.read_text(encoding="utf-8")
    text = text.replace("<version>", _requirement(__version__))
    if folder == ".":
        text = text.replace("<folder>/", "")
    return text.replace("<folder>", folder)


def _requirement(version: str) -> str:
    """Return which versions are installed: this release; from before a release, that one on.

    >>> _requirement("1.2.0"), _requirement("1.3.0.dev7+gabc")
    ('==1.2.0', '>=1.3.0')
    """
    release, is_before_release, _ = version.partition(".dev")
    if is_before_release:
        return f">={release}"
    return f"=={version.partition('+')[0]}"


def _repository(study: Path) -> Path:
    """Return the repository that a study is in; the study itself if it is in none."""
    for folder in (study, *study.parents):
        if (folder / ".git").exists():
            return folder
    return study
