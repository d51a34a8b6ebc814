"""A hub on this machine that serves folders, well or badly: what the hub's clients ask for."""

import gzip
import hashlib
import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np
from safetensors.numpy import save_file

_API = re.compile(r"api/(?:datasets|models)/([^/]+/[^/]+)(?:/(revision|tree)/([^/]+)(?:/(.*))?)?")
_FILE = re.compile(r"(?:datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
LARGE = (".safetensors", ".gz", ".parquet")  # listed by their SHA-256, not by git's id
COMMIT = "1" * 40


@contextmanager
def local_hub(root: Path, fault=None):
    """Serve ``root/<organisation>/<name>`` under any revision; yield the address.

    ``fault(handler, file)`` is called before each answer, with the path of the file that is asked
    for, or an empty string. It returns whether it has answered itself; see `helpers.hub_faults`.
    """
    handler = type("Handler", (HubHandler,), {"root": root, "fault": staticmethod(fault)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.closing = threading.Event()
    server.handle_error = lambda *_: None  # a client that gives up is nothing to report
    server.requests = []
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        hub = LocalHub(f"http://127.0.0.1:{server.server_port}")
        hub.requests = server.requests
        yield hub
    finally:
        server.closing.set()
        server.shutdown()
        server.server_close()


class LocalHub(str):
    """The address of a hub, with the requests it got: method, path and authorization."""

    requests: list


def write_repositories(root):
    """Write a model and a data set of a few kilobytes; return the model's files."""
    model, data = root / "org" / "model", root / "mteb" / "stsbenchmark-sts"
    for folder in (model, data):
        folder.mkdir(parents=True)
    config = {"model_type": "qwen3", "is_causal": False, "padding": "x" * 3000}
    (model / "config.json").write_text(json.dumps(config))
    (model / "tokenizer.json").write_text("{}" + " " * 2000)
    save_file({"w": np.arange(5000, dtype=np.float32)}, model / "model.safetensors")
    rows = [{"sentence1": f"a {i}", "sentence2": f"b {i * i}", "score": i % 5} for i in range(3000)]
    lines = [json.dumps(row) + "\n" for row in rows]
    (data / "train.jsonl").write_text(lines[0])
    (data / "test.jsonl.gz").write_bytes(gzip.compress("".join(lines).encode()))
    (data / "README.md").write_text("# A card\n" + "text\n" * 500)
    return {file.name: file.read_bytes() for file in model.iterdir()}


def use_hub(monkeypatch, address, folder, *, seconds=20.0):
    """Let the hub's libraries use the hub at ``address``, with caches in ``folder``.

    Pauses between tries take no time.
    """
    import datasets
    from huggingface_hub import HfFileSystem, constants

    address = str(address)
    hub = {
        "ENDPOINT": address,
        "HUGGINGFACE_CO_URL_TEMPLATE": f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}",
        "HF_HUB_CACHE": str(folder / "hub"),
        "DOWNLOAD_CHUNK_SIZE": 16,  # of which a cut leaves whole ones
    }
    data = {"HF_ENDPOINT": address, "HF_DATASETS_CACHE": str(folder / "datasets")}
    for module, settings in ((constants, hub), (datasets.config, data)):
        for name, value in {**settings, "HF_HUB_OFFLINE": False}.items():
            monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(datasets.config, "HF_UPDATE_DOWNLOAD_COUNTS", False)
    HfFileSystem.clear_instance_cache()
    monkeypatch.setattr("time.sleep", lambda _: None)
    monkeypatch.setenv("QWEN3NB_HUB_TIMEOUT", str(seconds))


class HubHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    root: Path
    fault = None

    def do_GET(self):
        self.server.requests.append((self.command, self.path, self.headers.get("Authorization")))
        address = urlsplit(self.path)
        path = unquote(address.path).strip("/")
        file = _FILE.fullmatch(path)
        if self.fault is not None and self.fault(self, file.group(3) if file else ""):
            return
        if file:
            self.send_file(*file.groups())
        elif match := _API.fullmatch(path):
            self._listing(*match.groups(), deep="true" in str(parse_qs(address.query)).lower())
        elif path == "api/models":
            self.send_json([])
        else:
            self.missing("no such endpoint")

    do_HEAD = do_POST = do_PUT = do_GET  # noqa: N815 - likewise

    def _listing(self, name, kind, revision, below, *, deep):
        folder = self.root / name
        if not folder.is_dir():
            return self.missing("RepoNotFound")
        files = sorted(file for file in folder.rglob("*") if file.is_file())
        if kind != "tree":
            siblings = [{"rfilename": str(file.relative_to(folder))} for file in files]
            return self.send_json({"id": name, "sha": _commit(revision), "siblings": siblings})
        base = folder / (below or "")
        if not base.is_dir():
            return self.missing("EntryNotFound")
        listed = base.rglob("*") if deep else base.iterdir()
        return self.send_json([_entry(each, folder) for each in sorted(listed)])

    def send_file(self, name, revision, path, *, change=lambda content: content):
        """Send a file, from where it is asked for; ``change`` is what befalls its bytes."""
        file = self.root / name / path
        if not file.is_file():
            missing = "EntryNotFound" if (self.root / name).is_dir() else "RepoNotFound"
            return self.missing(missing)
        content = file.read_bytes()
        headers = {"ETag": f'"{_id(path, content)}"', "X-Repo-Commit": _commit(revision)}
        content, status = change(content), 200
        if match := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or ""):
            start, status = int(match[1]), 206
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            content = content[start:]
        return self.send(content, headers, status=status, kind="application/octet-stream")

    def send_json(self, value):
        self.send(json.dumps(value).encode())

    def missing(self, code):
        self.send(b"{}", {"X-Error-Code": code, "X-Error-Message": code}, status=404)

    def send(self, body, headers=None, *, status=200, kind="application/json"):
        self.send_response(status)
        lines = {"Content-Type": kind, "Content-Length": str(len(body)), **(headers or {})}
        for name, value in lines.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_):
        """Say nothing on the terminal."""


def _commit(revision):
    """The revision itself if it is a commit, else one made up."""
    return revision if re.fullmatch("[0-9a-f]{40}", revision or "") else COMMIT


def _id(path, content):
    if str(path).endswith(LARGE):
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()  # noqa: S324 - as git


def _entry(path, folder):
    name = str(path.relative_to(folder))
    if path.is_dir():
        return {"type": "directory", "path": name, "oid": "0" * 40, "size": 0}
    content = path.read_bytes()
    entry = {"type": "file", "path": name, "oid": _id(name, content), "size": len(content)}
    if name.endswith(LARGE):
        entry["lfs"] = {"oid": entry["oid"], "size": len(content), "pointerSize": 130}
    return entry


def hub_runner(root, monkeypatch, tmp_path):
    """Return what runs something while a hub with a fault is there, and says what was asked."""

    def run(action, fault=None, *, seconds=20.0):
        with local_hub(root, fault) as address:
            use_hub(monkeypatch, address, tmp_path, seconds=seconds)
            action()
            return address.requests

    return run
