"""Renew the notebooks and the book of a study, and keep what its owner has changed.

Files that are as they were copied are replaced. Notebooks with changes are merged; see
`qwen3nb.study.merge`. What cannot be merged stays, and the new file is put below ``updates/``,
next to a copy of each file that was replaced. The study's own files, such as README, sweep,
queries and settings, are left alone.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import cached_property
from pathlib import Path

from qwen3nb.paths import is_study
from qwen3nb.study import StudyError, template_files
from qwen3nb.study.copies import (
    MANIFEST,
    Copies,
    NotANotebookError,
    copies_of,
    copy_parts,
    notebook_bytes,
    parse_notebook,
    read_copies,
    released_copies,
)
from qwen3nb.study.merge import merge_notebook
from qwen3nb.utils.atomic_files import write_bytes, write_text

_CONTENTS = "book/_toc.yml"


class Action(Enum):
    """What is done with a file of a study."""

    ADD = "added"
    REPLACE = "replaced"
    MERGE = "merged"
    REMOVE = "removed"
    KEEP = "kept"
    LEAVE_OUT = "left out"


_CHANGES = (Action.REPLACE, Action.MERGE, Action.REMOVE)  # of files that the study has


@dataclass(frozen=True)
class FileUpdate:
    """What is done with a file, and why."""

    path: str  # in the study
    action: Action
    content: bytes = b""  # of this release, or merged; empty if it has no such file
    reason: str = ""
    advice: tuple[str, ...] = ()  # what the owner should change in his cells

    @property
    def text(self) -> str:
        """What is done with which file, and why; then a line per piece of advice."""
        line = f"{self.action.value:8}  {self.path}"
        if self.reason:
            line = f"{line}: {self.reason}"
        return "\n".join([line, *(f"          {piece}" for piece in self.advice)])


@dataclass(frozen=True)
class StudyUpdate:
    """What is done with the files of a study; `apply` does it."""

    study: Path
    files: tuple[FileUpdate, ...]  # without those that are as in this release
    manifest: Copies  # of the study afterwards

    def apply(self) -> Path | None:
        """Write the files, and return the folder with what they were before.

        Returns None if no file was replaced or kept. A copy of each file is written before any is
        changed, so an update that is stopped loses nothing, and is completed by the next one.
        """
        now = datetime.now(UTC)
        folder = self.study / "updates" / now.strftime("%Y-%m-%d-%H%M%S")
        for update in self.files:
            file = self.study / update.path
            if update.action in _CHANGES:  # what the study has
                write_bytes(folder / "before" / update.path, file.read_bytes())
            elif update.action is not Action.ADD and update.content:  # not taken
                write_bytes(folder / "new" / update.path, update.content)
        for update in self.files:
            file = self.study / update.path
            if update.action is Action.REMOVE:
                file.unlink()
            elif update.action in (Action.ADD, Action.REPLACE, Action.MERGE):
                write_bytes(file, update.content)
        write_text(self.study / MANIFEST, self.manifest.text)
        return folder if folder.exists() else None


def plan_update(study: Path, *, new_names: Mapping[str, str] | None = None) -> StudyUpdate:
    """Compare a study with this release, and return what an update would do.

    Args:
        study: its folder.
        new_names: what to write instead of names of earlier versions, for advice.

    Raises:
        StudyError: the folder is no study, or it is the repository itself, which git updates.
    """
    if not is_study(study):
        raise StudyError(f"{study} is no study: it lacks _config.yml, book/_toc.yml or notebooks/")
    sources = template_files()
    # In a clone, the files to copy are those of the study itself.
    if sources[_CONTENTS] == study / _CONTENTS:
        raise StudyError(f"{study} is a clone of the repository: `git pull` updates it")
    released = {path: source.read_bytes() for path, source in sources.items()}
    comparison = _Comparison(
        study=study,
        released=released,
        manifest=read_copies(study / MANIFEST),
        history=released_copies(),
        release=copies_of(released),
        new_names=new_names or {},
    )
    updates = tuple(comparison.updates())
    return StudyUpdate(study, updates, comparison.manifest_after(updates))


@dataclass(frozen=True)
class _Comparison:
    """A study next to the files of this release."""

    study: Path
    released: Mapping[str, bytes]  # by path in the study
    manifest: Copies  # what was copied into this study; empty if it has no manifest
    history: Copies  # what earlier versions have copied
    release: Copies  # what this one copies
    new_names: Mapping[str, str]

    @cached_property
    def copied_before(self) -> Copies:
        """What this study was given: by its manifest, else what any earlier version gives."""
        if self.manifest.digests:
            return self.manifest
        return self.history

    @cached_property
    def copies(self) -> Copies:
        """What is ours: also what an update that was stopped has already written."""
        return self.copied_before | self.release

    def updates(self) -> Iterator[FileUpdate]:
        """Yield what is done with each file that is not as in this release."""
        contents_are_kept = False
        for path, content in sorted(self.released.items()):
            update = self._update_of(path, content)
            if update is None:
                continue
            yield update
            # A table of contents that is kept may list files that this release has dropped.
            if path == _CONTENTS and update.action is Action.KEEP:
                contents_are_kept = True
        for path in sorted(self.copies.digests):
            is_dropped = path not in self.released
            if is_dropped and (self.study / path).is_file():
                yield self._update_of_dropped(path, contents_are_kept=contents_are_kept)

    def manifest_after(self, updates: Iterable[FileUpdate]) -> Copies:
        """Return the manifest after an update: a file that stays is a copy of what it was."""
        digests = dict(self.release.digests)
        for update in updates:
            if update.action in (Action.KEEP, Action.LEAVE_OUT):
                digests[update.path] = self.copied_before.digests.get(update.path, frozenset())
        return Copies(digests)

    def _update_of(self, path: str, content: bytes) -> FileUpdate | None:
        """Return what is done with a file of this release; None if nothing."""
        file = self.study / path
        if not file.is_file():
            return self._addition(path, content)
        present = file.read_bytes()
        if present == content:
            return None
        if path.endswith(".ipynb"):
            return self._notebook_update(path, present, content)
        is_unchanged_copy = self.copies.has(path, present)
        if is_unchanged_copy:
            return FileUpdate(path, Action.REPLACE, content)
        return FileUpdate(path, Action.KEEP, content, reason="you have changed it")

    def _addition(self, path: str, content: bytes) -> FileUpdate:
        """Add a file that the study lacks; a notebook only if its owner has not deleted it."""
        if path.endswith(".ipynb") and path in self.copied_before.digests:
            reason = "your study does not have it"
            return FileUpdate(path, Action.LEAVE_OUT, content, reason=reason)
        return FileUpdate(path, Action.ADD, content)

    def _notebook_update(self, path: str, present: bytes, content: bytes) -> FileUpdate | None:
        """Return what is done with a notebook of this release."""
        try:
            owners_notebook = parse_notebook(present)
        except NotANotebookError as error:
            reason = f"it is no notebook: {error}"
            return FileUpdate(path, Action.KEEP, content, reason=reason)
        merge = merge_notebook(
            owners_notebook,
            parse_notebook(content),
            path=path,
            before=self.copied_before,
            manifest=self.manifest,
            new_names=self.new_names,
        )
        if merge.conflicts:
            reason = f"you and this release have changed {', '.join(merge.conflicts)}"
            return FileUpdate(path, Action.KEEP, content, reason=reason)
        if not merge.changes:  # of the owner
            return FileUpdate(path, Action.REPLACE, content)
        merged = notebook_bytes(merge.notebook)
        # An update that was stopped has already written this file.
        if parse_notebook(present) == merge.notebook:
            return None
        reason = f"with your {', '.join(merge.changes)}"
        return FileUpdate(path, Action.MERGE, merged, reason=reason, advice=merge.advice)

    def _update_of_dropped(self, path: str, *, contents_are_kept: bool) -> FileUpdate:
        """Return what is done with a file that this release no longer has."""
        if contents_are_kept and path.startswith("book/"):
            return FileUpdate(path, Action.KEEP, reason=f"your {_CONTENTS} may list it")
        present = (self.study / path).read_bytes()
        try:
            # The cells of a notebook without their outputs; of another file, its content.
            parts = list(copy_parts(path, present))
        except NotANotebookError as error:
            return FileUpdate(path, Action.KEEP, reason=f"it is no notebook: {error}")
        is_unchanged_copy = all(self.copies.has(path, part) for part in parts)
        if is_unchanged_copy:
            return FileUpdate(path, Action.REMOVE)
        return FileUpdate(path, Action.KEEP, reason="this release has no such file")
