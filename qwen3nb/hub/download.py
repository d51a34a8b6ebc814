"""Download complete repositories into the hub's cache or a folder.

huggingface_hub compares sizes. Large files, which the hub identifies by SHA-256, are also compared
with it before their first use.
"""

import re
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

from qwen3nb.hub.errors import NOT_A_HUB, HubError, hub_error
from qwen3nb.hub.session import hub_session
from qwen3nb.utils.atomic_files import sha256_file
from qwen3nb.utils.files.journal import remembered_digest

_COMMIT = re.compile("[0-9a-f]{40}")
_SHA256 = re.compile("[0-9a-f]{64}")


def cached_snapshot(
    id_: str, *, kind: str, revision: str | None, files: list[str] | None = None
) -> Path:
    """Download what is not in the hub's cache yet, and return the folder of the snapshot.

    Without a pinned revision, the cached snapshot is used while the hub is unreachable.

    Args:
        id_: id of the repository.
        kind: ``model`` or ``dataset``.
        revision: a commit or branch; None for the main branch.
        files: patterns of file names; None for all.

    Raises:
        HubError: the hub is unreachable, has no such repository, or sent an invalid answer.
    """
    from huggingface_hub import snapshot_download

    def snapshot(**more: Any) -> Path:
        options: Any = {"repo_type": kind, "revision": revision, "allow_patterns": files, **more}
        return Path(snapshot_download(id_, **options))

    with hub_session():
        try:
            folder = snapshot()
            if _check_cached(folder):  # damaged files were removed: try again
                folder = snapshot()
                _refuse(_check_cached(folder))
            if not any(file.is_file() for file in folder.rglob("*")):
                # Discard the empty listing.
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
            _refuse(_check_cached(folder))
    return folder


def download_into(
    folder: Path, id_: str, *, kind: str, revision: str | None, files: list[str] | None = None
) -> set[str]:
    """Download the files of a repository into ``folder``, except those already there.

    Returns:
        The names of the files, all of them complete.

    Raises:
        HubError: see `cached_snapshot`. Completed files are kept.
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
        folder / name: (each.size, each.lfs.sha256 if each.lfs else "")
        for name, each in listed.items()
        if files is None or any(fnmatch(name, pattern) for pattern in files)
    }
    _refuse(_remove_damaged(wanted))
    return {str(file.relative_to(folder)) for file in wanted}


def listing(id_: str, *, kind: str, revision: str | None) -> tuple[str, dict[str, Any]]:
    """Return the commit of a revision, and its files as huggingface_hub's ``RepoFile``.

    Call it in a session; errors are those of the hub's libraries.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile

    api, commit = HfApi(), revision or ""
    if not _COMMIT.fullmatch(commit):
        commit = str(api.repo_info(id_, repo_type=kind, revision=revision).sha)
        if not _COMMIT.fullmatch(commit):
            raise HubError(NOT_A_HUB)
    entries = api.list_repo_tree(id_, repo_type=kind, revision=commit, recursive=True)
    return commit, {each.path: each for each in entries if isinstance(each, RepoFile)}


def _check_cached(folder: Path) -> list[Path]:
    """Remove and return the files of a cached snapshot whose content does not match.

    The cache names large files by their SHA-256. Each file is read once.
    """
    links = [file for file in sorted(folder.rglob("*")) if file.is_symlink()]
    return _remove_damaged({file: (None, file.readlink().name) for file in links})


def _remove_damaged(expected: dict[Path, tuple[int | None, str]]) -> list[Path]:
    """Remove and return the files of a wrong size or SHA-256, where these are known."""
    damaged = []
    for file, (size, digest) in expected.items():
        whole = size is None or (file.is_file() and file.stat().st_size == size)
        if whole and _SHA256.fullmatch(digest) and file.is_file():
            whole = digest == remembered_digest([file], partial(sha256_file, file), kind="sha256")
        if not whole:
            file.resolve().unlink(missing_ok=True)
            file.unlink(missing_ok=True)
            damaged.append(file)
    return damaged


def _refuse(damaged: list[Path]) -> None:
    for file in damaged:
        raise HubError(
            f"{file}: not what the hub lists; it was removed; try again, and check the proxy"
        )
