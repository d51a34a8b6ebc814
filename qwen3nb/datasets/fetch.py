"""Fill a mirror from the hub: whole repositories, every file compared with its digest.

A repository is downloaded beside its place and moved there when it is complete. What has come
by then is kept, so that an interrupted download goes on.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from qwen3nb.datasets.mirror import NOTE, MirrorError, copied_files, fetched_note, is_unchanged
from qwen3nb.datasets.needs import Need
from qwen3nb.hub.download import MODEL_FILES, download_into, listing
from qwen3nb.hub.errors import HubError, hub_reason
from qwen3nb.hub.session import hub_session
from qwen3nb.utils.atomic_files import sha256_file, write_json

__all__ = ["fetch", "fetch_all", "sizes"]

_PARTIAL = ".partial"  # downloads that are not complete, below the mirror


def fetch_all(
    needed: Iterable[Need], mirror: Path, *, say: Callable[[str], object] = print
) -> dict[str, str]:
    """Download each need into the mirror.

    If the hub cannot be used at all, it is not asked for the rest.

    Returns:
        By id, why it is not in the mirror; empty for those that were not tried.
    """
    failures: dict[str, str] = {}
    useless = False
    with hub_session():
        for need in needed:
            try:
                if useless and not is_fetched(need, mirror):
                    failures[need.id] = ""
                else:
                    fetch(need, mirror, say=say)
            except MirrorError as error:
                failures[need.id] = str(error)
                useless = useless or getattr(error.__cause__, "lasting", False)
    return failures


def is_fetched(need: Need, mirror: Path) -> bool:
    """Return whether the mirror has a need, complete and unchanged."""
    folder = mirror / need.id
    note = fetched_note(folder)
    return note is not None and note["revision"] == need.revision and is_unchanged(folder, note)


def fetch(need: Need, mirror: Path, *, say: Callable[[str], object] = print) -> Path:
    """Download one need into the mirror, unless it is there already.

    An interrupted download is resumed.

    Raises:
        MirrorError: the download fails, or would replace files that are not the hub's.
    """
    folder = mirror / need.id
    if is_fetched(need, mirror):
        say(f"  present  {need.id}")
        return folder
    say(f"  fetching {need.id} @ {(need.revision or 'main')[:12]}")
    partial = mirror / _PARTIAL / f"{need.kind}s--{need.id.replace('/', '--')}"
    model = need.kind == "model"
    try:
        files = download_into(
            partial, need.id, kind=need.kind, revision=need.revision,
            files=MODEL_FILES if model else None,
        )  # fmt: skip
    except HubError as error:
        raise MirrorError(f"{need.id}: download from the hub failed ({error})") from error
    if not files:
        raise MirrorError(f"{need.id}: the hub lists no file that is used of a {need.kind}")
    if fetched_note(folder) is None:
        _check_replaceable(folder, set(files))
    _complete(partial, need, set(files))
    _move(partial, folder)
    return folder


def _check_replaceable(folder: Path, listed: set[str]) -> None:
    """Raise if ``folder`` has files that the hub does not list, and so did not come from it."""
    own = [name for name in _files(folder) if name not in listed]
    if own:
        raise MirrorError(
            f"{folder}: has files that are not on the hub, such as {own[0]}; move the folder "
            "away to fetch it anew"
        )


def _complete(partial: Path, need: Need, listed: set[str]) -> None:
    """Remove what is left of other revisions, and note what came."""
    for name in _files(partial):
        if name not in listed:
            (partial / name).unlink()
    files = {name: sha256_file(partial / name) for name in sorted(listed)}
    note = {"id": need.id, "kind": need.kind, "revision": need.revision, "files": files}
    write_json(partial / NOTE, note)
    shutil.rmtree(partial / ".cache", ignore_errors=True)  # the hub library's own notes


def _move(partial: Path, folder: Path) -> None:
    """Let a complete download take the place of what is there."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    old = partial.with_name(f"{partial.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    partial.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
    if not any(partial.parent.iterdir()):
        partial.parent.rmdir()


def _files(folder: Path) -> list[str]:
    """Return the files of a copy, without the notes on it."""
    return [str(file.relative_to(folder)) for file in copied_files(folder)]


def sizes(
    needed: Iterable[Need], *, say: Callable[[str], object] = print
) -> Iterator[tuple[Need, str]]:
    """Yield each need with its size on the hub, as text; ``unknown`` if the hub fails.

    ``say`` is called once with the first reason.
    """
    reasons: list[str] = []
    with hub_session():
        for need in needed:
            try:
                _, files = listing(need.id, kind=need.kind, revision=need.revision)
                total = sum(facts.size or 0 for facts in files.values())
                size = f"{total / 1e6:,.1f} MB"
            except Exception as error:  # noqa: BLE001 - the libraries' errors pass through
                size = "unknown"
                if not reasons:
                    reasons.append(hub_reason(error))
                    say(f"{need.id}: {reasons[0]}")
            yield need, size
