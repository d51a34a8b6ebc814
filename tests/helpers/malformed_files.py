"""Malformed files of a model's folder, by family: each case changes a copy of a good folder."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

SECRET = "certainly-private"  # noqa: S105


def edit(file, **changes):
    """Change keys of a JSON file."""
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def outside(folder):
    """A folder next to a model's."""
    other = folder.parent / "outside"
    other.mkdir(exist_ok=True)
    return other


def away(folder, name):
    """Move a file of the folder next to it and return where it is."""
    return Path(shutil.move(folder / name, outside(folder) / name.replace("/", "-")))


def written(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def linked(name, *, hops=0):
    """Replace a file by a link to it outside, through ``hops`` more links inside."""

    def change(folder):
        target = away(folder, name)
        for hop in range(hops):
            link = (folder / name).parent / f"hop-{hop}"
            link.symlink_to(target)
            target = link.name
        (folder / name).symlink_to(target)

    return change


def replaced(name, kind):
    """Replace a file by a pipe, or by a link that leads nowhere."""

    def change(folder):
        file = folder / name
        file.unlink(missing_ok=True)
        os.mkfifo(file) if kind == "pipe" else file.symlink_to("nowhere")

    return change


def secret(name):
    """Add a link to a private file."""

    def change(folder):
        (outside(folder) / "diary").write_text(SECRET)
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(outside(folder) / "diary")

    return change


# Of every kind of model.
LINKS = {
    "absolute link of the weights": linked("model.safetensors"),
    "chain of links": linked("tokenizer.json", hops=3),
    **{f"{name} links to a secret": secret(name) for name in ("config.json", "merges.txt")},
    **{
        f"pipe {name}": replaced(name, "pipe")
        for name in ("config.json", "model.safetensors", "merges.txt", "adapter_config.json")
    },
    "broken link tokenizer.json": replaced("tokenizer.json", "nothing"),
}


def sharded(shard):
    def change(folder):
        away(folder, "model.safetensors")
        index = {"weight_map": {"model.norm.weight": shard}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    return change


INDEXES = {
    f"shard {shard!r:.20}": sharded(shard)
    for shard in ("../outside/model.safetensors", "/etc/passwd", "a\0b", "", "..", "nowhere")
} | {
    "an index that is a list": lambda folder: (
        away(folder, "model.safetensors"),
        (folder / "model.safetensors.index.json").write_text("[1]"),
    )
}


def modules(*paths):
    def change(folder):
        file = folder / "modules.json"
        held = json.loads(file.read_text())
        for index, path in enumerate(paths, 1):
            if isinstance(path, str) and "outside" in path:
                away(folder, held[index]["path"])
            held[index]["path"] = path
        file.write_text(json.dumps(held))

    return change


def linked_module(folder):
    shutil.move(folder / "1_Pooling", folder.parent / "outside-pooling")
    (folder / "1_Pooling").symlink_to(folder.parent / "outside-pooling")


# Of sentence-transformers' folders.
MODULES = {
    "module in ../outside": modules("../outside/1_Pooling"),
    "module's folder is a link": linked_module,
    "module's config is a link": linked("1_Pooling/config.json"),
    "modules.json links to a secret": secret("modules.json"),
}


def rust(**changes):
    return lambda folder: edit(folder / "tokenizer.json", **changes)


def config(**changes):
    return lambda folder: edit(folder / "tokenizer_config.json", **changes)


def inside(change):
    """Change the parsed ``tokenizer.json`` in place."""

    def do(folder):
        fields = json.loads((folder / "tokenizer.json").read_text())
        change(fields)
        (folder / "tokenizer.json").write_text(json.dumps(fields))

    return do


def negative(fields):
    token = {**fields["added_tokens"][-1], "id": -1, "content": "<more>"}
    fields["added_tokens"].append(token)


def crowded(fields):
    added = [
        {**fields["added_tokens"][-1], "id": 10_000 + n, "content": f"<{n}>"} for n in range(9)
    ]
    fields["added_tokens"] += added * 6_000


def multiplied(pattern):
    """Normalizers that each make a text 16 times as long."""
    one = {"type": "Replace", "pattern": pattern, "content": "a" * 16}
    nested = {"type": "Sequence", "normalizers": [one, one]}
    return rust(normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}, nested, one]})


def cut(name, share=0.5):
    def change(folder):
        raw = (folder / name).read_bytes()
        (folder / name).write_bytes(raw[: int(len(raw) * share)])

    return change


def without(*names):
    return lambda folder: [(folder / name).unlink(missing_ok=True) for name in names]


def elsewhere(folder):
    copied = shutil.copyfile(folder / "tokenizer.json", outside(folder) / "tokenizer.json")
    config(tokenizer_file=str(copied))(folder)


def needs_code(folder):
    """Put a module next to the tokenizer that leaves a trace when it is imported."""
    code = {"AutoTokenizer": ["own.OwnTokenizer", None]}
    edit(folder / "tokenizer_config.json", tokenizer_class="OwnTokenizer", auto_map=code)
    trace = f"open({str(folder.parent / 'hacked')!r}, 'w').close()"
    (folder / "own.py").write_text(f"{trace}\nclass OwnTokenizer: ...\n")


# The vocabulary of a larger model.
_WORDS = {f"word{i}": 10_000 + i for i in range(1000)}
FILES = (
    "tokenizer.json",
    "vocab.json",
    "merges.txt",
    "tokenizer_config.json",
    "vocab.txt",
    "special_tokens_map.json",
    "added_tokens.json",
)
TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "x", "type_id": 0}},
    ],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
    "special_tokens": {"x": {"id": "x", "ids": [99_999], "tokens": ["x"]}},
}
TOKENIZERS = {
    "no tokenizer at all": without(*FILES),
    "half of tokenizer.json": cut("tokenizer.json"),
    "nested brackets": written("tokenizer.json", b"[" * 200_000),
    "a larger vocabulary": inside(lambda fields: fields["model"]["vocab"].update(_WORDS)),
    "an added token with a negative id": inside(negative),
    "tens of thousands of added tokens": inside(crowded),
    "normalizers that multiply a text": multiplied({"String": "a"}),
    "normalizers that multiply matches": multiplied({"Regex": "a|b"}),
    "a template with an id beyond the embedding": rust(post_processor=TEMPLATE),
    "a template of a token that it lacks": rust(post_processor=TEMPLATE | {"special_tokens": {}}),
    "pad_token outside the vocabulary": config(**{"pad_token": "<unheard>"}),
    "a class that needs code": needs_code,
    "tokenizer_file elsewhere": elsewhere,
    "fast_tokenizer_files": config(fast_tokenizer_files=["../tokenizer.1.0.0.json"]),
    "added_tokens_decoder with words": config(added_tokens_decoder={"x": {"content": "<more>"}}),
}
