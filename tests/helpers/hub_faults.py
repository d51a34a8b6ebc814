"""Ways in which a hub, or what stands before it, misbehaves; faults of `helpers.hub.local_hub`."""

import gzip
import json
from time import sleep

LARGE = (".safetensors", ".gz")
TOKEN = "hf_" + "secretsecretsecretsecret"
PAGE = b"<!DOCTYPE html><html><title>Welcome to our network</title>Log in</html>"


def silent(hub, file):
    hub.server.closing.wait()
    hub.close_connection = True
    return True


def stops(hub, file):
    return part(hub, file) and silent(hub, file)


def part(hub, file, *, share=0.5):
    """Send the first half of what is asked for; False for a request without a body."""
    body = bytes_of(hub, file)
    if hub.command == "HEAD" or body is None:
        return False
    hub.close_connection = True
    hub.send_response(200)
    hub.send_header("Content-Type", "application/json" if not file else "application/octet-stream")
    hub.send_header("Content-Length", str(len(body)))
    hub.end_headers()
    hub.wfile.write(body[: int(len(body) * share)])
    return True


def bytes_of(hub, file):
    if not file:
        return b"[" + b" " * 5000 + b"]"
    path = next(iter(hub.root.glob(f"*/*/{file}")), None)
    return path.read_bytes() if path is not None else None


def slow(hub, file):
    """Slow, but it goes on: not to be cut."""
    body = bytes_of(hub, file)
    if hub.command == "HEAD" or not file or body is None or hub.headers.get("Range"):
        return False
    part(hub, file, share=0)
    step = max(200, len(body) // 20)
    for start in range(0, len(body), step):
        hub.wfile.write(body[start : start + step])
        sleep(0.08)
    return True


def status(code, headers=None, *, times=None):
    def fault(hub, file):
        counts = hub.server.__dict__.setdefault("counts", {})
        key = hub.command, hub.path
        counts[key] = counts.get(key, 0) + 1
        if times is not None and counts[key] > times:
            return False
        text = {"X-Error-Message": f"no {TOKEN}\x1b[31m", "X-HF-Warning": f"t; {TOKEN}"}
        hub.send(json.dumps({"error": TOKEN}).encode(), {**text, **(headers or {})}, status=code)
        return True

    return fault


def cut_once(hub, file):
    return not hub.headers.get("Range") and bool(file) and part(hub, file)


def changed(change, *, endings):
    """Send some files with other bytes, or another number of them, than they are listed with."""

    def fault(hub, file):
        if not file.endswith(endings) or hub.command == "HEAD":
            return False
        path = hub.path.split("?")[0].split("/resolve/")
        revision = path[1].split("/")[0]
        name = "/".join(path[0].split("/")[-2:])
        hub.send_file(name, revision, file, change=change)
        return True

    return fault


def flip(content):
    return content[:-1] + bytes([content[-1] ^ 1]) if content else content


def page(hub, file):
    hub.send(PAGE, kind="text/html")
    return True


def redirect(location):
    def fault(hub, file):
        hub.send(b"", {"Location": location}, status=302)
        return True

    return fault


def listed(name):
    """Add a file to every listing."""

    def fault(hub, file):
        if "/tree/" not in hub.path:
            return False
        entry = {"type": "file", "path": name, "oid": "2" * 40, "size": 3}
        config = {"type": "file", "path": "config.json", "oid": "3" * 40, "size": 3}
        hub.send_json([config, entry])
        return True

    return fault


def listing(body, headers=None):
    """Answer what is no file with these bytes."""

    def fault(hub, file):
        if file or hub.command == "HEAD":
            return False
        hub.send(body, headers)
        return True

    return fault


def endless(hub, file):
    """A listing that goes on, as fast as it is read."""
    if file or hub.command == "HEAD":
        return False
    hub.close_connection = True
    hub.send_response(200)
    hub.end_headers()
    while True:
        hub.wfile.write(b"[" + b" " * (1 << 20))


def endless_file(hub, file):
    """A file without a length, as a hub sends small texts, that goes on."""
    if not file or hub.command == "HEAD":
        return False
    hub.close_connection = True
    hub.send_response(200)
    hub.end_headers()
    while True:
        hub.wfile.write(b" " * (1 << 16))


def file_bomb(hub, file):
    """A file that unpacks to another size than it has."""
    if not file or hub.command == "HEAD":
        return False
    hub.send(gzip.compress(b" " * (1 << 20)), {"Content-Encoding": "gzip"})
    return True


def to_itself(hub, file):
    hub.send(b"", {"Location": hub.path}, status=302)
    return True


# Each fault with a word of the message that names it.
FAULTS = {
    "silent": (silent, "sent nothing"),
    "stops in a body": (stops, "sent nothing"),
    "403 gated": (status(403, {"X-Error-Code": "GatedRepo"}), "403"),
    "429": (status(429), "429"),
    "429 for an hour": (status(429, {"Retry-After": "3600"}), "wait 3,600 s"),
    "503": (status(503), "503"),
    "cut": (part, "cut"),
    "page": (page, "login page"),
    "redirect to a file": (redirect("file:///etc/passwd"), "HF_ENDPOINT"),
    "redirect to nowhere": (redirect(f"http://nowhere.invalid/?token={TOKEN}"), "nowhere.invalid"),
    "flipped": (changed(flip, endings=LARGE), "not what the hub lists"),
    "truncated": (changed(lambda content: content[:99], endings=LARGE), "not what the hub lists"),
    "endless listing": (endless, "more than 33,554,432 bytes"),
    "bomb": (
        listing(gzip.compress(b" " * (1 << 26)), {"Content-Encoding": "gzip"}),
        "more than 33,554,432 bytes",
    ),
    "endless file": (endless_file, "not what the hub lists (more than"),
    "file bomb": (file_bomb, "not what the hub lists (more than"),
    "packed otherwise": (listing(b"[]", {"Content-Encoding": "br"}), "packed by 'br'"),
    "not packed": (listing(b"[]", {"Content-Encoding": "gzip"}), "not packed by 'gzip'"),
    "deep": (listing(b"[" * 200_000), "not from a hub"),
    "redirect to itself": (to_itself, "redirect in a loop"),
    "429 in the past": (status(429, {"Retry-After": "-5"}), "429"),
    "name above": (listed("../above.json"), "above.json"),
}
_SILENT = ("silent", "stops in a body")


def limit(name):
    """Seconds that a hub may be silent: few only where it is, as the tests share the cores."""
    return 0.4 if name in _SILENT else 20.0


# Faults that pass.
PASSING = {
    "503 once": status(503, times=1),
    "cut once": cut_once,
    "slow": slow,
}
