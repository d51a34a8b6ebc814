"""Download whole repositories, or nothing: into the hub's cache, or into a folder.

Every file is compared with the hub's digest before it is first used: a SHA-256 of large files,
of small ones the id that git gives their content. Some look-alikes of the hub make these ids up.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from qwen3nb.hub.errors import NOT_A_HUB, HubError, hub_error
from qwen3nb.hub.session import hub_session
from qwen3nb.utils.files.digest_memory import remembered_digest

_COMMIT = re.compile("[0-9a-f]{40}")
_DIGEST = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True)
class FileFacts:
    """Size in bytes of a file on the hub, and its digest: SHA-256, or git's id of its content."""

    size: int | None
    digest: str | None

    def problem(self, file: Path) -> str | None:
        """Return how a file differs from these facts; None if it does not."""
        if not file.is_file():
            return "it is missing"
        size, git = file.stat().st_size, len(self.digest or "") == 40
        if self.size is not None and size != self.size:
            return f"expected {self.size:,} bytes, got {size:,}"
        if self.digest is None:
            return None

        def compute() -> str:
            start = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
            digest = start if git else hashlib.sha256()
            with file.open("rb") as stream:
                hashlib.file_digest(stream, lambda: digest)
            return digest.hexdigest()

        got = remembered_digest([file], compute, kind="git" if git else "sha256")
        return None if got == self.digest else f"expected {self.digest[:12]}…, got {got[:12]}…"


def cached_snapshot(
    id_: str, *, kind: str, revision: str | None, files: list[str] | None = None
) -> Path:
    """Download what is not in the hub's cache yet, and return the folder of the snapshot.

    Without a pinned revision, the cache has to do while the hub cannot be used.

    Args:
        id_: id of the repository.
        kind: ``model`` or ``dataset``.
        revision: a commit or branch; None for the main branch.
        files: patterns of file names; None for all.

    Raises:
        HubError: the hub cannot be used, or has no such repository, or sent what it must not.
    """
    from huggingface_hub import snapshot_download

    def snapshot(**more: Any) -> Path:
        options: Any = {"repo_type": kind, "revision": revision, "allow_patterns": files, **more}
        return Path(snapshot_download(id_, **options))

    with hub_session():
        try:
            folder = snapshot()
            if check_cached(folder):  # and removed: once more
                folder = snapshot()
                _refuse(check_cached(folder))
            if not any(file.is_file() for file in folder.rglob("*")):
                # Forget the listing that said so.
                listed = folder.parent.parent / "trees" / f"{folder.name}.json"
                listed.unlink(missing_ok=True)
                raise HubError("the hub lists no file that is used; check the name")
        except Exception as error:  # noqa: BLE001 - the libraries' errors pass through
            final = hub_error(error)
            if not final.lasting or revision is not None:
                raise final from None
            try:
                folder = snapshot(local_files_only=True)
            except Exception:  # noqa: BLE001 - likewise; the first error says more
                raise final from None
            _refuse(check_cached(folder))
    return folder


def download_into(
    folder: Path, id_: str, *, kind: str, revision: str | None, files: list[str] | None = None
) -> set[str]:
    """Download the files of a repository into ``folder``, which may have some of them already.

    Returns:
        The files that are there now, all of them whole.

    Raises:
        HubError: see `cached_snapshot`. The files that came are kept, each of them whole.
    """
    from huggingface_hub import snapshot_download

    options: Any = {"repo_type": kind, "local_dir": folder, "allow_patterns": files}
    with hub_session():
        try:
            commit, listed = listing(id_, kind=kind, revision=revision)
            snapshot_download(id_, revision=commit, **options)
        except Exception as error:  # noqa: BLE001 - the libraries' errors pass through
            raise hub_error(error) from None
    wanted = {
        folder / name: facts
        for name, facts in listed.items()
        if files is None or any(fnmatch(name, each) for each in files)
    }
    problems = _problems(wanted)
    for file in problems:
        file.unlink(missing_ok=True)
    _refuse({file.relative_to(folder): text for file, text in problems.items()})
    return {str(file.relative_to(folder)) for file in wanted}


def listing(id_: str, *, kind: str, revision: str | None) -> tuple[str, dict[str, FileFacts]]:
    """Return the commit of a revision, and its files.

    To be called in a session; the errors are those of the hub's libraries.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile

    api, commit = HfApi(), revision or ""
    if not _COMMIT.fullmatch(commit):
        commit = str(api.repo_info(id_, repo_type=kind, revision=revision).sha)
        if not _COMMIT.fullmatch(commit):
            raise HubError(NOT_A_HUB)
    entries = api.list_repo_tree(id_, repo_type=kind, revision=commit, recursive=True)
    return commit, {
        each.path: FileFacts(each.size, each.lfs.sha256 if each.lfs else each.blob_id)
        for each in entries
        if isinstance(each, RepoFile)
    }


def check_cached(folder: Path) -> dict[Path, str]:
    """Compare the files of a snapshot in the hub's cache with their digests, and remove others.

    The cache names a content by its digest. Each file is read once in its life there.

    Returns:
        The removed files, each with what was wrong.
    """
    links = [file for file in sorted(folder.rglob("*")) if file.is_symlink()]
    digests = {file: file.readlink().name for file in links}  # a cache without links has none
    known = {f: FileFacts(None, name) for f, name in digests.items() if _DIGEST.fullmatch(name)}
    problems = _problems(known)
    for file in problems:
        file.resolve().unlink(missing_ok=True)
        file.unlink(missing_ok=True)
    return problems


def _problems(files: dict[Path, FileFacts]) -> dict[Path, str]:
    """Return what is wrong with files; git ids that agree with none of them are made up."""
    texts = {file: text for file, facts in files.items() if (text := facts.problem(file))}
    by_git = [file for file, facts in files.items() if len(facts.digest or "") == 40]
    if all("…" in texts.get(file, "") for file in by_git):  # not another size
        for file in by_git:
            del texts[file]
    return texts


def _refuse(problems: dict[Path, str]) -> None:
    for file, text in problems.items():
        raise HubError(
            f"{file}: not what the hub lists ({text}); it was removed; try again, and check "
            "the proxy"
        )
