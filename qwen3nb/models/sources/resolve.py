"""What a model's name stands for, found and identified without loading it.

A model is given by a *spec*: a folder, a name from ``registry.toml``, the id of a
model on the Hugging Face hub, ``random`` or ``bm25``. `find_source` says which kind
of thing it is and where, and refuses what cannot be loaded with the list of what can.

The identity of a model is its content: weights, tokenizer, configuration and the
settings it is used with. Its label is only a name.
"""

from __future__ import annotations

import difflib
import importlib.util
import re
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.checkpoints.checkpoint import (
    Checkpoint,
    CheckpointError,
    list_checkpoints,
    open_checkpoint,
)
from qwen3nb.checkpoints.safetensors_header import read_safetensors
from qwen3nb.extraction.export import PROVENANCE
from qwen3nb.utils.atomic_files import read_json, sha256_file, sha256_json

__all__ = ["Source", "SpecError", "fetch", "find_source", "find_training", "registry"]

# Files other than the weights that decide what a model computes.
_DECIDING = re.compile(
    r"(config|config_sentence_transformers|modules|sentence_bert_config|tokenizer|"
    r"tokenizer_config|special_tokens_map|added_tokens|vocab)\.json|"
    r"(merges|vocab)\.txt|.*\.model|chat_template\.jinja"
)
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_LABEL = re.compile(r"[^A-Za-z0-9._-]+")
DEMO = "demo"


class SpecError(ValueError):
    """A spec that names no model; the message lists what would have."""


@dataclass(frozen=True)
class Source:
    """A model, found.

    Attributes:
        spec: what was asked for.
        kind: ``encoder`` (a bidirectional Qwen3 directory), ``seq2seq`` (an
            encoder-decoder checkpoint), ``sentence-transformers``, ``t5`` (another
            encoder-decoder, of which the encoder is used), ``decoder`` (a causal
            language model), ``adapter`` (LoRA), ``fusion``, ``hub``, ``random`` or ``bm25``.
        label: a name fit for files and tables.
        folder: where it lies, if it lies somewhere.
        prompts: text put before a text, per role or task; see `prompt_for`.
        instruction: what ``{instruction}`` in a prompt stands for by default.
        pooling: what the registry says, where the model says nothing.
        max_length: likewise.
        revision: the pinned revision of a hub model.
        id: its id on the hub.
        base: the model an adapter belongs to; see `qwen3nb.models.sources.lora`.
        parts: what a fusion (``a+b``) is made of.
    """

    spec: str
    kind: str
    label: str
    folder: Path | None = None
    prompts: dict[str, str] = field(default_factory=dict)
    revision: str | None = None
    id: str | None = None
    base: Source | None = None
    parts: tuple[Source, ...] = ()
    instruction: str = ""
    pooling: str | None = None
    max_length: int | None = None

    def fingerprint(self) -> dict[str, Any]:
        """What decides the vectors, apart from the settings a model is used with."""
        if self.parts:
            return {"kind": self.kind, "of": [part.fingerprint() for part in self.parts]}
        if self.folder is None:
            return {"kind": self.kind, "spec": self.spec, "revision": self.revision}
        if self.kind == "adapter":
            return self._adapter_fingerprint()
        small = {
            str(file.relative_to(self.folder)): sha256_file(file)
            for file in sorted(self.folder.rglob("*"))
            if _DECIDING.fullmatch(file.name) and file.is_file()
        }
        weights = open_checkpoint(self.folder).digest()
        found: dict[str, Any] = {"kind": self.kind, "weights": weights, "files": sha256_json(small)}
        # Modules of sentence-transformers with weights of their own, such as 2_Dense.
        if parts := sorted(self.folder.glob("*_*/model.safetensors")):
            modules = {file.parent.name: read_safetensors(file) for file in parts}
            found["modules"] = {
                name: Checkpoint(self.folder, {}, tensors).digest()
                for name, tensors in modules.items()
            }
        return found

    def _adapter_fingerprint(self) -> dict[str, Any]:
        from qwen3nb.models.sources.lora import adapter_fingerprint

        assert self.folder is not None  # noqa: S101 - adapters have both
        assert self.base is not None  # noqa: S101
        adapter = adapter_fingerprint(self.folder)
        return {"kind": self.kind, "base": self.base.fingerprint(), "adapter": adapter}


def registry() -> dict[str, dict[str, Any]]:
    """The baselines, by name."""
    return tomllib.loads(Path(__file__).with_name("registry.toml").read_text(encoding="utf-8"))


def find_source(spec: str) -> Source:
    """What ``spec`` stands for.

    Raises:
        SpecError: nothing; the message lists what it could have been.
    """
    spec = str(spec)
    known = registry()
    if spec == DEMO:
        return _demo()
    if spec == "bm25" or re.fullmatch(r"random(:[1-9]\d{0,4})?", spec):
        return Source(spec, spec.split(":")[0], _LABEL.sub("-", spec))
    if spec in known:
        return _registered(spec, known[spec])
    if folder := _existing(spec):
        return _folder(paths.shown(folder), folder)
    if "+" in spec:
        parts = tuple(find_source(each) for each in spec.split("+"))
        return Source(spec, "fusion", "-plus-".join(p.label for p in parts), parts=parts)
    if _HUB_ID.fullmatch(spec) and not spec.startswith(("runs/", "results/")):
        return Source(spec, "hub", _LABEL.sub("-", spec), id=spec)
    raise SpecError(_unknown(spec, known))


def find_training(spec: str) -> Path:
    """The folder of a training's checkpoints: a path, or ``demo``.

    Raises:
        SpecError: no such folder, or no ``checkpoint-N`` in it.
    """
    folder = paths.runs() / "demo" / "train" if spec == DEMO else _existing(spec)
    if folder is None or not folder.is_dir():
        hint = "; `qwen3nb demo` trains it" if spec == DEMO else ""
        raise SpecError(f"no folder {spec!r} with the checkpoints of a training{hint}")
    try:
        list_checkpoints(folder)
    except CheckpointError as error:
        raise SpecError(str(error)) from None
    return folder


def _existing(spec: str) -> Path | None:
    """The folder of this name, seen from the working directory or from the root.

    A notebook works in ``notebooks/``, a command at the top; both may say ``runs/x``.
    """
    if not spec:
        return None
    for folder in (Path(spec).expanduser(), paths.root() / spec):
        if folder.is_dir():
            return folder
    return None


def fetch(source: Source) -> Source:
    """A hub model, downloaded to the hub's own cache and looked at as a folder.

    Only weights in safetensors, configuration and tokenizer files are fetched.

    Raises:
        SpecError: it is not to be had; says why.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    assert source.id is not None  # noqa: S101 - a hub source has an id
    if (mirror := paths.mirror()) is not None and (mirror / source.id).is_dir():
        return _as_fetched(source, mirror / source.id)
    try:
        folder = snapshot_download(
            source.id,
            revision=source.revision,
            allow_patterns=["*.safetensors", "*.json", "*.txt", "*.model", "*.jinja"],
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise SpecError(
            f"{source.id}: no folder of this name, and from the hub not to be had ({reason}). "
            "On a machine without a network, give the folder of a copy instead, or set "
            f"QWEN3NB_MIRROR to a mirror; `qwen3nb fetch --models {source.spec} --mirror DIR` "
            "fills one on a connected machine"
        ) from None
    return _as_fetched(source, Path(folder))


def _as_fetched(source: Source, folder: Path) -> Source:
    """What lies in ``folder``, under the name and with the settings it was asked for by."""
    found = _folder(source.spec, folder)
    return replace(
        found,
        label=source.label,
        prompts=source.prompts,
        instruction=source.instruction,
        pooling=source.pooling,
        max_length=source.max_length,
        revision=source.revision,
        id=source.id,
    )


def _unknown(spec: str, known: dict[str, Any]) -> str:
    names = ["bm25", "random", DEMO, *known]
    near = difflib.get_close_matches(spec, names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return (
        f"no model {spec!r}: no folder of this name and none of {', '.join(names)}, "
        f"nor an id on the hub (organisation/name).{hint}"
    )


def _demo() -> Source:
    folder = paths.runs() / "demo" / "encoder" / "average"
    if not folder.is_dir():
        raise SpecError(
            f"the demo's model is not there yet ({folder}); "
            "`qwen3nb demo` trains and extracts it in a few minutes"
        )
    return _folder(DEMO, folder)


def _registered(name: str, entry: dict[str, Any]) -> Source:
    common: dict[str, Any] = {
        "prompts": dict(entry.get("prompts", {})),
        "revision": entry["revision"],
        "id": entry["id"],
        **{key: entry[key] for key in ("instruction", "pooling", "max_length") if key in entry},
    }
    if package := entry.get("package"):
        found = importlib.util.find_spec(package)
        if found and found.submodule_search_locations:
            folder = Path(found.submodule_search_locations[0]) / entry["folder"]
            return Source(name, "sentence-transformers", name, folder=folder, **common)
    return Source(name, "hub", name, **common)


def _folder(spec: str, folder: Path) -> Source:
    if (folder / "adapter_config.json").is_file() and not (folder / "config.json").is_file():
        from qwen3nb.models.sources.lora import adapter_source

        return adapter_source(folder)
    if not (folder / "config.json").is_file():
        inside = sorted(path.name for path in folder.glob("*/") if (path / "config.json").is_file())
        found = f" Folders in it that have one: {', '.join(inside)}." if inside else ""
        raise SpecError(f"{folder}: no config.json, so no model.{found}")
    try:
        config = read_json(folder / "config.json")
    except ValueError as error:
        raise SpecError(str(error)) from None
    if not isinstance(config, dict):
        raise SpecError(f"{folder / 'config.json'}: expected an object, so this is no model")
    model_type = config.get("model_type")
    label = _label(folder)
    if model_type in ("qwen3_encdec", "qwen3_encoder_decoder"):
        return Source(spec, "seq2seq", label, folder=folder)
    if model_type == "qwen3" and config.get("is_causal") is False:
        return Source(spec, "encoder", label, folder=folder)
    if (folder / "modules.json").is_file():
        return Source(spec, "sentence-transformers", label, folder=folder)
    if config.get("is_encoder_decoder"):
        return Source(spec, "t5", label, folder=folder)
    return Source(spec, "decoder", label, folder=folder)


def _label(folder: Path) -> str:
    """The label an extraction gave the folder, else the last two parts of its path."""
    if (folder / PROVENANCE).is_file():
        label = str(read_json(folder / PROVENANCE).get("label", folder.name))
    else:
        folder = folder.resolve()
        label = f"{folder.parent.name}-{folder.name}" if folder.parent.name else folder.name
    return _LABEL.sub("-", label).strip("-.") or "model"
