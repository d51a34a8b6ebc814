"""Download whole repositories, or nothing: into the hub's cache, or into a folder.

Every file is compared with the hub's digest: while it comes, and in the hub's cache once
more before it is first used, since another program, or a crash, may have left it there.
"""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from qwen3nb.hub.digests import FileFacts, file_digest
from qwen3nb.hub.errors import NOT_A_HUB, HubError, hub_error
from qwen3nb.hub.session import hub_session
from qwen3nb.utils.files.digest_memory import remembered_digest

# The files of a model; weights in other formats are not downloaded.
MODEL_FILES = ["*.safetensors", "*.json", "*.txt", "*.model", "*.jinja"]
_COMMIT = re.compile("[0-9a-f]{40}")
_DIGEST = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")


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

    options: dict[str, Any] = {"repo_type": kind, "revision": revision, "allow_patterns": files}
    with hub_session():
        try:
            folder = Path(snapshot_download(id_, **options))
            if check_cached(folder):  # and removed: once more
                folder = Path(snapshot_download(id_, **options))
                _refuse(check_cached(folder))
            _check_some(folder)
            return folder
        except Exception as error:  # noqa: BLE001 - the libraries' errors pass through
            final = hub_error(error)
            if final.lasting and revision is None:
                try:
                    folder = Path(snapshot_download(id_, **options, local_files_only=True))
                except Exception:  # noqa: BLE001 - likewise; the first error says more
                    raise final from None
                _refuse(check_cached(folder))
                return folder
            raise final from None


def download_into(
    folder: Path, id_: str, *, kind: str, revision: str | None, files: list[str] | None = None
) -> dict[str, FileFacts]:
    """Download the files of a repository into ``folder``, which may have some of them already.

    Returns:
        The files that are there now, all of them whole.

    Raises:
        HubError: see `cached_snapshot`. The files that came are kept, each of them whole.
    """
    from huggingface_hub import snapshot_download

    with hub_session():
        try:
            commit, listed = listing(id_, kind=kind, revision=revision)
            wanted = {
                name: facts
                for name, facts in listed.items()
                if files is None or any(fnmatch(name, each) for each in files)
            }
            snapshot_download(
                id_,
                repo_type=kind,
                revision=commit,
                local_dir=folder,
                allow_patterns=files,
            )
        except Exception as error:  # noqa: BLE001 - the libraries' errors pass through
            raise hub_error(error) from None
    problems = _problems({folder / name: facts for name, facts in wanted.items()})
    for file in problems:
        file.unlink(missing_ok=True)
    _refuse({file.relative_to(folder): text for file, text in problems.items()})
    return wanted


def listing(id_: str, *, kind: str, revision: str | None) -> tuple[str, dict[str, FileFacts]]:
    """Return the commit of a revision, and its files.

    To be called in a session; the errors are those of the hub's libraries.
    """
    from huggingface_hub import HfApi

    api = HfApi()
    commit = revision or ""
    if not _COMMIT.fullmatch(commit):
        commit = str(api.repo_info(id_, repo_type=kind, revision=revision).sha)
        if not _COMMIT.fullmatch(commit):
            raise HubError(NOT_A_HUB)
    entries: Any = api.list_repo_tree(id_, repo_type=kind, revision=commit, recursive=True)
    listed = {}
    for entry in entries:
        if not hasattr(entry, "blob_id"):
            continue  # a folder
        large = getattr(entry, "lfs", None)
        sha256 = large.sha256 if large is not None else None
        listed[entry.path] = FileFacts(entry.size, sha256, None if large else entry.blob_id)
    return commit, listed


def check_cached(folder: Path) -> dict[Path, str]:
    """Compare the files of a snapshot in the hub's cache with their digests, and remove others.

    The cache names a content by its digest. Each file is read once in its life there.

    Returns:
        The removed files, each with what was wrong.
    """
    contents = {}
    for file in sorted(folder.rglob("*")):
        name = file.readlink().name if file.is_symlink() else ""
        if not _DIGEST.fullmatch(name):
            continue  # a cache without links has no digests
        if not file.exists():
            contents[file] = FileFacts(size=-1)
        elif len(name) == 64:
            contents[file] = FileFacts(sha256=name)
        else:
            contents[file] = FileFacts(file.stat().st_size, git=name)
    problems = _problems(contents)
    for file in problems:
        file.resolve().unlink(missing_ok=True)
        file.unlink(missing_ok=True)
    return problems


def _problems(files: dict[Path, FileFacts]) -> dict[Path, str]:
    """Return what is wrong with files; ids that agree with none of them are made up."""
    texts = {file: text for file, facts in files.items() if (text := _problem(file, facts))}
    by_git = [file for file, facts in files.items() if not facts.sha256 and facts.git]
    if by_git and all(file in texts and _same_size(file, files[file]) for file in by_git):
        for file in by_git:
            del texts[file]
    return texts


def _problem(file: Path, facts: FileFacts) -> str | None:
    if not file.is_file():
        return "it is missing"
    if facts.size is not None and file.stat().st_size != facts.size:
        return f"expected {facts.size:,} bytes, got {file.stat().st_size:,}"
    expected = facts.sha256 or facts.git
    if expected is None:
        return None
    kind = "sha256" if facts.sha256 else "git"
    got = remembered_digest([file], lambda: file_digest(file, facts).hexdigest(), kind=kind)
    return None if got == expected else f"expected {expected[:12]}…, got {got[:12]}…"


def _same_size(file: Path, facts: FileFacts) -> bool:
    return file.is_file() and file.stat().st_size == facts.size


def _refuse(problems: dict[Path, str]) -> None:
    for file, text in problems.items():
        raise HubError(
            f"{file}: not what the hub lists ({text}); it was removed; try again, and check "
            "the proxy"
        )


def _check_some(folder: Path) -> None:
    """Raise if a snapshot is empty, and forget the listing that said so."""
    if not any(file.is_file() for file in folder.rglob("*")):
        (folder.parent.parent / "trees" / f"{folder.name}.json").unlink(missing_ok=True)
        raise HubError("the hub lists no file that is used; check the name")
