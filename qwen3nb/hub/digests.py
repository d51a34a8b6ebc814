"""What a hub says of its files: size and digest, from listings and headers.

Large files have a SHA-256. Small ones have the id that git gives their content, a SHA-1 of
length and bytes. Some look-alikes of the hub make these ids up; see `FileFacts.git_certain`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from qwen3nb.hub.errors import HubError

_SHA256, _GIT = re.compile("[0-9a-f]{64}"), re.compile("[0-9a-f]{40}")
_REPOSITORY = r"(?P<id>[^/]+(?:/[^/]+)?)"
_FILE = re.compile(rf"(?P<kind>datasets/|spaces/)?{_REPOSITORY}/resolve/(?P<revision>[^/]+)/(.+)")
_LISTING = re.compile(
    rf"api/(?P<kind>[a-z]+)s/{_REPOSITORY}/(?:tree|paths-info)/(?P<revision>[^/]+)(?:/.*)?"
)
_REPOSITORY_INFO = re.compile(r"api/(?:model|dataset)s/[^/]+/[^/]+(?:/revision/[^/]+)?")
_BLOCK = 1 << 20


@dataclass(frozen=True)
class FileKey:
    """A file of a repository at a revision."""

    kind: str
    id: str
    revision: str
    path: str


@dataclass(frozen=True)
class FileFacts:
    """What is known of a file before it is downloaded.

    Attributes:
        size: in bytes.
        sha256: digest of its content.
        git: git's id of its content, or what a look-alike of the hub gives for it.
        git_certain: whether ``git`` is a digest for sure.
    """

    size: int | None = None
    sha256: str | None = None
    git: str | None = None
    git_certain: bool = False

    def also(self, other: FileFacts) -> FileFacts:
        """Return these facts, with what only ``other`` knows."""
        return FileFacts(
            self.size if self.size is not None else other.size,
            self.sha256 or other.sha256,
            self.git or other.git,
            self.git_certain or other.git_certain,
        )

    @classmethod
    def of_headers(cls, headers: Mapping[str, str], *, own: bool) -> FileFacts:
        """Read the headers of an answer for a file.

        Args:
            headers: of the answer.
            own: whether the length is the file's, not that of a redirect.
        """
        linked = _etag(headers.get("x-linked-etag"))
        etag = linked or _etag(headers.get("etag"))
        plain = headers.get("content-encoding", "identity") == "identity"
        length = headers.get("x-linked-size") or (
            headers.get("content-length") if own and plain else None
        )
        size = int(length) if length is not None and length.isdecimal() else None
        if etag and _SHA256.fullmatch(etag):
            return cls(size, sha256=etag)
        git = etag if etag and _GIT.fullmatch(etag) else None
        return cls(size, git=git, git_certain=git is not None and bool(linked))

    def problem(self, digest: FileDigest) -> str | None:
        """Return how a content differs from these facts; None if it does not, or is unknown."""
        if self.size is not None and digest.size != self.size:
            return f"expected {self.size:,} bytes, got {digest.size:,}"
        expected = self.sha256 or (self.git if self.size is not None else None)
        got = digest.hexdigest()
        if expected is None or got == expected:
            return None
        return f"expected {'sha256' if self.sha256 else 'git id'} {expected[:12]}…, got {got[:12]}…"


class FileDigest:
    """Size and digest of a content that comes in pieces: the digest that its facts have."""

    def __init__(self, facts: FileFacts) -> None:
        self.size = 0
        git = facts.sha256 is None and facts.git is not None
        self._digest = hashlib.sha1(usedforsecurity=False) if git else hashlib.sha256()
        if git:
            self._digest.update(b"blob %d\0" % (facts.size or 0))

    def update(self, data: bytes) -> None:
        """Add a piece."""
        self.size += len(data)
        self._digest.update(data)

    def hexdigest(self) -> str:
        """Return the digest of all pieces."""
        return self._digest.hexdigest()


def file_digest(file: Path, facts: FileFacts) -> FileDigest:
    """Return size and digest of a file."""
    digest = FileDigest(facts)
    with file.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    return digest


def file_key(address: str, endpoint: str) -> FileKey | None:
    """Return which file of the hub an address is of; None if of none."""
    if match := _FILE.fullmatch(hub_path(address, endpoint)):
        kind = (match["kind"] or "models/").rstrip("s/")
        return FileKey(kind, match["id"], unquote(match["revision"]), unquote(match[4]))
    return None


def listed_files(address: str, endpoint: str, content: bytes) -> dict[FileKey, FileFacts]:
    """Return the files of an answer of the hub's interface, if it is a listing of files.

    Raises:
        HubError: a name that leads out of the folder.
        ValueError: not what a hub answers with.
    """
    path, value = hub_path(address, endpoint), json.loads(content)
    if _REPOSITORY_INFO.fullmatch(path) and not (isinstance(value, dict) and "id" in value):
        raise ValueError("not what a hub says of a repository")
    match = _LISTING.fullmatch(path)
    if match is None:
        return {}
    if not isinstance(value, list) or not all(isinstance(e, dict) and "path" in e for e in value):
        raise ValueError("not a listing of files")
    repository = FileKey(match["kind"], match["id"], unquote(match["revision"]), "")
    return {
        replace(repository, path=_inside(str(entry["path"]))): _entry_facts(entry)
        for entry in value
        if entry.get("type", "file") == "file"
    }


def _inside(path: str) -> str:
    """Return the path of a file if it stays in the folder it is downloaded to."""
    parts = path.replace("\\", "/").split("/")
    drive = re.match(r"[A-Za-z]:", path)
    if drive or {"", ".", ".."} & set(parts) or not path.isprintable() or parts[0] == ".cache":
        raise HubError(
            f"the repository lists a file named {ascii(path)[:100]}, which would be written "
            "outside of its folder or hide there; nothing was downloaded; tell its owner"
        )
    return path


def _entry_facts(entry: Mapping[str, Any]) -> FileFacts:
    large = entry.get("lfs")
    large = large if isinstance(large, dict) else {}
    size, sha256, git = entry.get("size"), large.get("oid") or large.get("sha256"), entry.get("oid")
    return FileFacts(
        size if isinstance(size, int) else None,
        sha256 if isinstance(sha256, str) and _SHA256.fullmatch(sha256) else None,
        # Of a large file, the id is that of a pointer.
        git if not large and isinstance(git, str) and _GIT.fullmatch(git) else None,
    )


def hub_path(address: str, endpoint: str) -> str:
    """Return the path of an address below the hub's, without slashes around it."""
    base = urlsplit(endpoint).path.strip("/")
    return urlsplit(address).path.strip("/").removeprefix(base).strip("/")


def _etag(value: str | None) -> str | None:
    return value.removeprefix("W/").strip('"') if value else None
