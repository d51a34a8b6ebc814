"""A hub on this machine that serves folders: what the hub's clients ask for, read only."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

_API = re.compile(r"api/(?:datasets|models)/([^/]+/[^/]+)(?:/(revision|tree)/([^/]+)(?:/(.*))?)?")
_FILE = re.compile(r"(?:datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)")


@contextmanager
def local_hub(root: Path):
    """Serve ``root/<organisation>/<name>`` under any revision; yield the address."""
    handler = type("Handler", (_Handler,), {"root": root})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    root: Path

    def do_GET(self):
        address = urlsplit(self.path)
        path = unquote(address.path).strip("/")
        if match := _FILE.fullmatch(path):
            self._file(*match.groups())
        elif match := _API.fullmatch(path):
            self._listing(*match.groups(), deep="true" in str(parse_qs(address.query)).lower())
        else:
            self._missing("no such endpoint")

    do_HEAD = do_GET  # noqa: N815 - likewise

    def _listing(self, name, kind, revision, below, *, deep):
        folder = self.root / name
        if not folder.is_dir():
            return self._missing("RepoNotFound")
        if kind != "tree":
            siblings = [{"rfilename": str(f.relative_to(folder))} for f in _files(folder)]
            return self._json({"id": name, "sha": _commit(revision), "siblings": siblings})
        base = folder / (below or "")
        if not base.is_dir():
            return self._missing("EntryNotFound")
        listed = base.rglob("*") if deep else base.iterdir()
        return self._json([_entry(each, folder) for each in sorted(listed)])

    def _file(self, name, revision, path):
        file = self.root / name / path
        if not file.is_file():
            missing = "EntryNotFound" if (self.root / name).is_dir() else "RepoNotFound"
            return self._missing(missing)
        content = file.read_bytes()
        digest = hashlib.sha1(content).hexdigest()  # noqa: S324 - a name
        return self._send(
            content, {"ETag": f'"{digest}"', "X-Repo-Commit": _commit(revision)},
            kind="application/octet-stream",
        )  # fmt: skip

    def _json(self, value):
        self._send(json.dumps(value).encode())

    def _missing(self, code):
        self._send(b"{}", {"X-Error-Code": code, "X-Error-Message": code}, status=404)

    def _send(self, body, headers=None, *, status=200, kind="application/json"):
        self.send_response(status)
        lines = {"Content-Type": kind, "Content-Length": str(len(body)), **(headers or {})}
        for name, value in lines.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_):
        """Say nothing on the terminal."""


def _files(folder):
    return sorted(file for file in folder.rglob("*") if file.is_file())


def _commit(revision):
    """The revision itself if it is a commit, else one made up."""
    return revision if re.fullmatch("[0-9a-f]{40}", revision or "") else "1" * 40


def _entry(path, folder):
    name, oid = str(path.relative_to(folder)), hashlib.sha1(str(path).encode()).hexdigest()  # noqa: S324
    if path.is_dir():
        return {"type": "directory", "path": name, "oid": oid, "size": 0}
    return {"type": "file", "path": name, "oid": oid, "size": path.stat().st_size}
