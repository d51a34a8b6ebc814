"""Verify a release of a study with Python 3.9 or newer alone: ``python3 verify.py [FOLDER]``."""

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

TAGS, PAYLOAD = "tagmanifest-sha256.txt", "manifest-sha256.txt"  # of BagIt, RFC 8493


def digest_of(file: Path) -> str:
    """Return the SHA-256 of a file, which may be larger than the memory."""
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def problems(folder: Path) -> Iterator[str]:
    """Compare the files of a release with its lists and its records; yield the differences."""
    text = "".join((folder / name).read_text(encoding="utf-8") for name in (TAGS, PAYLOAD))
    listed = {unquote(line[66:]): line[:64] for line in text.split("\n") if line}
    files = [file for file in folder.rglob("*") if file.is_symlink() or not file.is_dir()]
    present = {file.relative_to(folder).as_posix() for file in files} - {TAGS, f"{TAGS}.sig"}
    yield from (f"{name} is missing" for name in sorted(listed.keys() - present))
    yield from (f"{name} was added" for name in sorted(present - listed.keys()))
    for name in sorted(present & listed.keys()):
        if (folder / name).is_symlink() or digest_of(folder / name) != listed[name]:
            yield f"{name} was changed"
    for file in sorted(folder.glob("data/results/**/seed_*/*.json")):
        record = json.loads(file.read_bytes())
        checksum = record.pop("checksum")
        content = json.dumps(record, sort_keys=True, separators=(",", ":")).encode()
        if hashlib.sha256(content).hexdigest() != checksum:
            yield f"{file}: its content is not that of its checksum"
        for table in (record.get("scores") or {}, record.get("top") or {}):
            beside = file.with_name(table.get("file", file.name))
            name = beside.relative_to(folder).as_posix()
            if "file" in table and listed.get(name) != table["sha256"]:
                yield f"{name} is not the file of its record"


if __name__ == "__main__":
    release = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    found = "\n".join(problems(release))
    print(found or f"{release} is as it was frozen; SHA-256 of {TAGS}: {digest_of(release / TAGS)}")
    sys.exit(1 if found else 0)
