"""Verify a release of a study with Python 3.9 or newer alone: ``python3 verify.py [FOLDER]``."""

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

TAGS, PAYLOAD = "tagmanifest-sha256.txt", "manifest-sha256.txt"  # of BagIt, RFC 8493


def digest_of(file: Path) -> str:
    """Return the SHA-256 of a file; empty for a link, a folder, or a pipe, which never ends."""
    digest = hashlib.sha256()
    if file.is_symlink() or not file.is_file():
        return ""
    with file.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def problems(folder: Path) -> Iterator[str]:
    """Compare the files of a release with its lists and its records; yield the differences."""
    lists = [folder / name for name in (TAGS, PAYLOAD) if digest_of(folder / name)]
    text = "".join(file.read_text(encoding="utf-8", errors="replace") for file in lists)
    listed = {unquote(line[66:]): line[:64] for line in text.split("\n") if line[66:]}
    files = [file for file in folder.rglob("*") if file.is_symlink() or not file.is_dir()]
    present = {file.relative_to(folder).as_posix() for file in files} - {f"{TAGS}.sig"}
    listed |= {TAGS: digest_of(folder / TAGS) or "none"}
    yield from (f"{name} is missing" for name in sorted({*listed, PAYLOAD} - present))
    if len(lists) == 2:  # else all would be
        yield from (f"{name} was added" for name in sorted(present - listed.keys()))
    for name in sorted(present & listed.keys()):
        if digest_of(folder / name) != listed[name]:
            yield f"{name} was changed"
    for file in sorted(folder.glob("data/results/**/seed_*/*.json")):
        try:
            record = json.loads(file.read_bytes() if digest_of(file) else b"")
            checksum, tables = record.pop("checksum"), (record.get("scores"), record.get("top"))
            content = json.dumps(record, sort_keys=True, separators=(",", ":")).encode()
            if hashlib.sha256(content).hexdigest() != checksum:
                yield f"{file}: its content is not that of its checksum"
            for table in [table for table in tables if table and "file" in table]:
                name = file.with_name(table["file"]).relative_to(folder).as_posix()
                if listed.get(name) != table["sha256"]:
                    yield f"{name} is not the file of its record"
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            yield f"{file}: it is not a record"


if __name__ == "__main__":
    release = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    found = [text if text.isprintable() else ascii(text) for text in problems(release)]
    whole = f"{release} is as it was frozen; SHA-256 of {TAGS}: {digest_of(release / TAGS)}"
    print("\n".join(found) or whole)
    sys.exit(1 if found else 0)
