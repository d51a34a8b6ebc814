"""Malformed weight files, by family: each case changes the weights of a good folder."""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile

from helpers.malformed_files import cut

LONG = struct.Struct("<Q")


def header(change):
    """Change the JSON header of model.safetensors."""

    def both(folder):
        file = folder / "model.safetensors"
        raw = file.read_bytes()
        length = LONG.unpack(raw[:8])[0]
        fields = change(json.loads(raw[8 : 8 + length]))
        text = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
        file.write_bytes(LONG.pack(len(text)) + text + raw[8 + length :])

    return both


def first(**changes):
    """Change the entry of the first tensor."""

    def change(fields):
        name = next(key for key in fields if key != "__metadata__")
        return {**fields, name: {**fields[name], **changes}}

    return header(change)


def renamed(new):
    def change(fields):
        name = next(key for key in fields if key != "__metadata__")
        return {(new if key == name else key): value for key, value in fields.items()}

    return header(change)


def overwritten(offset, raw):
    def change(folder):
        content = bytearray((folder / "model.safetensors").read_bytes())
        content[offset : offset + len(raw)] = raw
        (folder / "model.safetensors").write_bytes(content)

    return change


def all_at(value):
    """Overwrite the last bytes, which belong to a tensor, with a float32."""
    return lambda folder: overwritten(
        (folder / "model.safetensors").stat().st_size - 4, struct.pack("<f", value)
    )(folder)


HEADERS = {
    "length 2^63": overwritten(0, LONG.pack(1 << 63)),
    "length 2^64 - 1": overwritten(0, LONG.pack((1 << 64) - 1)),
    "length 0": overwritten(0, LONG.pack(0)),
    "length 30 MB": lambda f: (f / "model.safetensors").write_bytes(
        LONG.pack(30_000_000) + b" " * 30_000_000
    ),
    "truncated": cut("model.safetensors", 0.9),
    "no header": cut("model.safetensors", 0.0001),
    "offsets that overlap": first(data_offsets=[0, 4]),
    "offsets beyond the end": first(data_offsets=[0, 1 << 40], shape=[1 << 38]),
    "offsets that run back": first(data_offsets=[64, 0]),
    "offsets that are words": first(data_offsets=["0", "4"]),
    "a million axes": first(shape=[1 << 62] * 500_000),
    "a product that overflows": first(shape=[1 << 62, 1 << 62, 0]),
    "a huge whole number": header(
        lambda f: json.dumps(f).encode().replace(b"[0,", b"[" + b"9" * 9000 + b",", 1)
    ),
    "a negative shape": first(shape=[-1, -4]),
    "a shape of text": first(shape="12"),
    "an unknown dtype": first(dtype="F4"),
    "a dtype that is a list": first(dtype=["F32"]),
    "whole numbers": first(dtype="I32"),
    "metadata of numbers": header(lambda f: {**f, "__metadata__": {"format": 1}}),
    "metadata that is a list": header(lambda f: {**f, "__metadata__": ["pt"]}),
    "metadata that is nothing": header(lambda f: {**f, "__metadata__": None}),
    "an unknown format": header(lambda f: {**f, "__metadata__": {"format": "tf"}}),
    "a name in colour": renamed("\x1b[31mred"),
    "a name with a lone surrogate": renamed("a\ud800"),
    "an empty name": renamed(""),
    "a header that is a list": header(lambda f: [f]),
    "nested braces": header(lambda f: b'{"a":' * 100_000),
    "a name twice": header(lambda f: (lambda t: t[:-1] + b"," + t[1:])(json.dumps(f).encode())),
    "NaN": all_at(float("nan")),
    "infinity": all_at(float("inf")),
}


def torch_file(make):
    """Replace model.safetensors by the pytorch_model.bin that ``make`` gives."""

    def change(folder):
        import torch
        from safetensors.torch import load_file

        file = folder / "model.safetensors"
        state = load_file(file) if file.is_file() else {}
        file.unlink(missing_ok=True)
        target = folder / "pytorch_model.bin"
        if callable(make):
            made = make(state, torch)
            if isinstance(made, bytes):
                target.write_bytes(made)
            else:
                torch.save(made, target)

    return change


def saved(state, torch):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def zipped(members, *, compression=zipfile.ZIP_STORED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return buffer.getvalue()


def members_of(raw):
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        return [(info.filename, archive.read(info)) for info in archive.infolist()]


def rezipped(change, **options):
    """A torch file whose members ``change`` alters."""

    def make(state, torch):
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of names that appear twice
            return zipped(change(members_of(saved(state, torch))), **options)

    return torch_file(make)


def directory_lie(offset, size, value):
    """Change a number in the directory's first entry."""

    def make(state, torch):
        raw = bytearray(zipped(members_of(saved(state, torch))))
        at = raw.index(b"PK\1\2") + offset
        raw[at : at + size] = value.to_bytes(size, "little")
        return bytes(raw)

    return torch_file(make)


def with_pickle(raw):
    return rezipped(lambda held: [(n, raw if n.endswith("data.pkl") else c) for n, c in held])


def bomb(member, megabytes=60):
    """A file that expands a thousandfold, to ``megabytes``."""

    def make(state, torch):
        held = members_of(saved(state, torch))
        top = held[0][0].split("/")[0]
        kept = [(n, c) for n, c in held if not n.endswith(member)]
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in kept:
                archive.writestr(name, content, zipfile.ZIP_STORED)
            with archive.open(f"{top}/{member}", "w") as target:
                for _ in range(megabytes):
                    target.write(bytes(1 << 20))
        return buffer.getvalue()

    return torch_file(make)


class Runs:
    """Unpickling it runs a command."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return os.system, (f"touch {self.trace}",)


def running(folder):
    torch_file(lambda state, torch: {**state, "x": Runs(folder.parent / "hacked")})(folder)


ALLOCATE = b"\x80\x02cbuiltins\nbytearray\n\x8a\x05\0\0\0\0\x20\x85R."  # bytearray(2 ** 37)
SETS = b"\x80\x02" + b"\x8f" * 2_000_000 + b"."
LISTS = b"\x80\x02" + b"]" * 20_000_000 + b"."
CALLS = b"\x80\x02ccollections\nOrderedDict\nq\0" + b"h\0)R" * 310_000 + b"."
TORCH_FILES = {
    "compressed byteorder": bomb("byteorder"),
    "compressed pickle": bomb("data.pkl"),
    "compressed storage": bomb("data/0"),
    "all compressed": rezipped(lambda held: held, compression=zipfile.ZIP_DEFLATED),
    "a member twice": rezipped(lambda held: [*held, held[-1]]),
    "a pickle twice": rezipped(lambda held: [*held, held[0]]),
    "members of two folders": rezipped(lambda held: [(f"x{n}", c) for n, c in held[:2]] + held),
    "a member at the top": rezipped(lambda held: [*held, ("top", b"")]),
    "no pickle": rezipped(lambda held: held[1:]),
    "no storage": rezipped(lambda held: [each for each in held if "/data/" not in each[0]]),
    "thousands of members": rezipped(
        lambda held: held + [(f"archive/{i:060000}", b"") for i in range(200)]
    ),
    "a size that lies": directory_lie(24, 4, 1 << 30),
    "a compressed size that lies": directory_lie(20, 4, 1 << 30),
    "an offset that lies": directory_lie(42, 4, 1 << 20),
    "an offset into another member": directory_lie(42, 4, 400),
    "an encrypted member": directory_lie(8, 2, 1),
    "another method": directory_lie(10, 2, 12),
    "a 64-bit size": directory_lie(24, 4, 0xFFFFFFFF),
    "nothing but an end": torch_file(lambda state, torch: b"PK\5\6" + bytes(18)),
    "half of the file": torch_file(lambda state, torch: saved(state, torch)[: -(1 << 12)]),
    "bytes behind the end": torch_file(lambda state, torch: saved(state, torch) + bytes(99)),
    "bytes in front": torch_file(lambda state, torch: bytes(99) + saved(state, torch)),
    "code": running,
    "a pickle that allocates": with_pickle(ALLOCATE),
    "a pickle of sets": with_pickle(SETS),
    "a pickle of lists": with_pickle(LISTS),
    "a pickle of calls": with_pickle(CALLS),
    "a pickle of 30 MB": with_pickle(b"\x80\x02" + b"N0" * 15_000_000 + b"N."),
    "an empty pickle": with_pickle(b""),
    "a pickle of text": with_pickle(b"hello"),
    "a stack that is empty": with_pickle(b"\x80\x02u."),
    "big-endian": rezipped(
        lambda held: [(n, b"big" if n.endswith("byteorder") else c) for n, c in held]
    ),
    "a list": torch_file(lambda state, torch: list(state.values())),
    "a name that is a number": torch_file(lambda state, torch: {**state, 7: torch.ones(1)}),
    "tensors that share storage": torch_file(
        lambda state, torch: dict.fromkeys([*state, *map(str, range(2000))], torch.ones(50_000))
    ),
    "a stride of 0": torch_file(
        lambda state, torch: {**state, "x": torch.zeros(1).expand(10**6, 10**6)}
    ),
    "a module": torch_file(lambda state, torch: torch.nn.Linear(2, 2)),
    "NaN": torch_file(
        lambda state, torch: {**state, min(state): torch.full_like(state[min(state)], float("nan"))}
    ),
}
