"""A model's folder, opened once and passed on.

`ModelFolder` reads each JSON file, the headers of the weights and every digest at most once;
`ModelFolder.check_unchanged` checks that no file has changed since.

Every file that is read or copied must be inside the folder. A link that leaves it is refused: its
target would be copied into an export and uploaded. Snapshots of the hub's cache may link to that
cache's ``blobs/``. Pipes, devices and sockets are refused, because reading one may never end. The
folder itself may be a link.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cached_property
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import BaseModel

from qwen3nb.checkpoints.types import CheckpointError, TensorEntry
from qwen3nb.checkpoints.weights import Weights, read_safetensors, read_torch
from qwen3nb.utils.atomic_files import FileStamp, file_stamp, sha256_file, without_ctime
from qwen3nb.utils.journal import remembered_digest
from qwen3nb.utils.strict_json import first_duplicate, parse_json

SINGLE = "model.safetensors"
_FORMATS = (SINGLE, "pytorch_model.bin")  # tried in this order; shards are in NAME.index.json
TOKENIZER_FILES = """
added_tokens.json chat_template.jinja merges.txt special_tokens_map.json tokenizer.json
tokenizer_config.json vocab.json
""".split()  # noqa: SIM905 - a list of words reads better as lines
# Parts that torch.compile, FSDP and activation checkpointing insert into names, at any level.
_WRAPPERS = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
# Bytes of a JSON file. The largest tokenizers in use have 35 MB; a malicious file can take twenty
# times its size when parsed.
JSON_LIMIT = 50_000_000
_REMEMBERED = 1_000_000  # bytes of a JSON file whose parsed value is kept
# Files that a library may read: configurations, tokenizers, weights, the card.
_READ = {
    *(".bin", ".jinja", ".json", ".md", ".model", ".safetensors"),
    *(".spm", ".tiktoken", ".txt", ".vocab"),
}
_LIBRARY = "sentence_transformers."
# A module that sentence-transformers replaces by its own, so that no code of PyLate runs.
_PYLATE_DENSE = "pylate.models.Dense.Dense"
# Configuration files of sentence-transformers modules other than config.json.
_TRANSFORMER_SETTINGS = (
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
)
_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "CNN": ("cnn_config.json",),
    "LSTM": ("lstm_config.json",),
    "WordEmbeddings": ("wordembedding_config.json",),
    "CLIPModel": _TRANSFORMER_SETTINGS,
    "Transformer": _TRANSFORMER_SETTINGS,
}


@dataclass(frozen=True)
class SentenceModule:
    """One entry of the ``modules.json`` of sentence-transformers."""

    name: str  # the name of its class, such as ``Dense``
    type: str  # the full name of its class
    folder: ModelFolder  # the module's folder; the model's own for the path ``""``
    fields: Mapping[str, Any]  # its configuration; empty if it has no such file
    file: Path  # the file of its configuration


class ModelFolder(os.PathLike[str]):
    """The folder of a model, or of one of its modules; libraries take it as its path.

    Attributes:
        path: the folder.
        stamps: the `file_stamp` of each file when it was read; see `check_unchanged`.
    """

    def __init__(self, path: Path | str, *, whole: ModelFolder | None = None) -> None:
        """Open a folder; files are read when needed.

        Args:
            path: the folder.
            whole: the model that this folder is a module of; files may be anywhere in it.
        """
        self.path = Path(path)
        self._root = self.path
        self.stamps: dict[Path, FileStamp] = {}
        if whole is not None:
            self._root = whole.path
            self.stamps = whole.stamps
        self._parsed: dict[str, object] = {}
        self._digests: dict[str, str] = {}
        self._weights: dict[str, Weights] = {}

    def __fspath__(self) -> str:
        return str(self.path)

    __str__ = __fspath__

    def has(self, name: str) -> bool:
        """Return whether there is a file of this name."""
        return (self.path / name).is_file()

    def json(self, name: str) -> Any:
        """Return the JSON value in a file; it must be unambiguous.

        Raises:
            CheckpointError: see `check_inside`; or more than `JSON_LIMIT` bytes, not JSON in UTF-8,
                or a duplicate key.
        """
        if name in self._parsed:
            return self._parsed[name]
        file = self.path / name
        check_inside(file, self._root)
        size = file.stat().st_size
        if size > JSON_LIMIT:
            raise CheckpointError(f"{file}: {size:,} bytes; expected at most {JSON_LIMIT:,}")
        self.stamps.setdefault(file, file_stamp(file))
        raw = file.read_bytes()
        self._digests[name] = hashlib.sha256(raw).hexdigest()
        try:
            value = parse_json(raw.decode("utf-8"))
        except ValueError as error:
            raise CheckpointError(f"{file}: invalid JSON ({error})") from None
        if len(raw) <= _REMEMBERED:
            self._parsed[name] = value
        return value

    def object(self, name: str) -> dict[str, Any]:
        """Return the JSON object in a file; empty if there is no such file.

        Raises:
            CheckpointError: see `json`; or not an object.
        """
        if not os.path.lexists(self.path / name):
            return {}
        value = self.json(name)
        if not isinstance(value, dict):
            raise CheckpointError(f"{self.path / name}: expected an object, got {value!r:.60}")
        return value

    def sha256(self, name: str) -> str:
        """Return the SHA-256 of a file's bytes; those of large files are cached on disk."""
        file = self.path / name
        if name not in self._digests:
            self.stamps.setdefault(file, file_stamp(file))
            if file.stat().st_size > JSON_LIMIT:
                self._digests[name] = remembered_digest(
                    [file],
                    lambda: sha256_file(file),
                    kind="sha256",
                )
            else:
                self._digests[name] = sha256_file(file)
        return self._digests[name]

    @cached_property
    def config(self) -> dict[str, Any]:
        """The content of ``config.json``; empty without one."""
        return self.object("config.json")

    @cached_property
    def modules(self) -> list[SentenceModule]:
        """The modules of sentence-transformers; none without ``modules.json``.

        Raises:
            CheckpointError: a malformed file, a class that is not one of the library's own, or a
                module outside the folder.
        """
        file = self.path / "modules.json"
        if not file.is_file():
            return []
        entries = self.json(file.name)
        if not isinstance(entries, list) or not entries:
            raise CheckpointError(f"{file}: expected a list of modules, got {entries!r:.60}")
        modules: list[SentenceModule] = []
        for entry in entries:
            if not isinstance(entry, dict):
                entry = {}
            modules.append(self._module(file, entry))
        duplicate = first_duplicate(str(entry["name"]) for entry in entries)
        if duplicate is not None:
            raise CheckpointError(f"{file}: two modules are called {duplicate!r}; rename one")
        return modules

    @cached_property
    def weights(self) -> Weights:
        """The weights in the folder, in one file or in shards; safetensors are preferred.

        Raises:
            CheckpointError: no weights, ambiguous weights, an invalid weight file, or an index that
                names files outside.
        """
        for single in _FORMATS:
            index = f"{single}.index.json"
            if os.path.lexists(self.path / single):
                if self.has(index):
                    raise CheckpointError(
                        f"{self.path}: contains both {single} and {index}; remove the stale one"
                    )
                return self._stripped(single)
            if self.has(index):
                return self._sharded(self.path / index)
        hint = ""
        if "snapshots" in self.path.parts:  # a pickle is not downloaded unasked
            hint = ". If the hub has them as .bin alone, `hf download ID --local-dir DIR` gets them"
        raise CheckpointError(
            f"{self.path}: no weights; expected {' or '.join(_FORMATS)}, or shards with an index"
            f"{hint}"
        )

    def weights_in(self, name: str) -> Weights:
        """Return the weights in the file ``name``, read once.

        The suffix decides between safetensors and ``torch.save``.
        """
        if name not in self._weights:
            file = self.path / name
            check_inside(file, self._root)
            self.stamps.setdefault(file, file_stamp(file))
            if file.suffix == ".bin":
                self._weights[name] = Weights(read_torch(file))
            else:
                self._weights[name] = Weights(read_safetensors(file))
        return self._weights[name]

    def check_files(self) -> None:
        """Check every file that a library may read, at any depth; see `check_inside`."""
        for path in sorted(self.path.rglob("*")):
            if path.suffix.lower() in _READ and (path.is_symlink() or not path.is_dir()):
                check_inside(path, self._root)

    def check_whole(self) -> None:
        """Check that this is a model with ``config.json`` and weights, and read their headers.

        Raises:
            CheckpointError: no configuration, no weights, an adapter next to them, or a file that
                is malformed.
        """
        if not self.has("config.json"):
            raise CheckpointError(
                f"{self}: no config.json, so this is not a checkpoint folder."
                f"{self.configured_inside()}"
            )
        if self.has("adapter_config.json"):
            raise CheckpointError(
                f"{self}: contains adapter_config.json next to a full model; libraries would "
                "silently apply that adapter. Move one of the two elsewhere"
            )
        self.config, self.weights  # noqa: B018 - raise if malformed

    def changed(self) -> Path | None:
        """Return a file that may have changed since it was read, or None."""
        for file, stamp in self._stamps_now():
            if stamp != self.stamps[file]:
                return file
        return None

    def rewritten(self) -> Path | None:
        """Return a file that was written, replaced or removed since it was read, or None.

        A file of which only the ctime differs is none: a hard link, other permissions, a backup, or
        a name that was changed and changed back. Its content has to be compared.
        """
        for file, stamp in self._stamps_now():
            if without_ctime(stamp) != without_ctime(self.stamps[file]):
                return file
        return None

    def _stamps_now(self) -> Iterator[tuple[Path, FileStamp]]:
        """Yield each file that was read, and its present stamp; an empty one if it is gone."""
        for file in self.stamps:
            try:
                yield file, file_stamp(file)
            except OSError:
                yield file, []

    def _same_content(self, hashes: Mapping[str, str] | None) -> bool:
        """Return whether the files are known to have the content that was read."""
        present = ModelFolder(self.path)
        if any(present.sha256(name) != digest for name, digest in self._digests.items()):
            return False
        if hashes is not None:
            return present.weights.sha256_each(hashes) == dict(hashes)
        weights = vars(self).get("weights")  # cached properties
        if weights is None:
            return not self._weights
        return "digest" in vars(weights) and bool(present.weights.digest == weights.digest)

    def check_unchanged(self, hashes: Mapping[str, str] | None = None) -> None:
        """Check that no file has changed since it was read.

        If only the ctime of a file differs, its content decides.

        Args:
            hashes: the SHA-256 of tensors as they were read, by name; by default, the digest of the
                weights is compared.

        Raises:
            CheckpointError: a file has changed or is gone.
        """
        file = self.rewritten() or self.changed()
        if file is not None and self.rewritten() is None and self._same_content(hashes):
            file = None
        if file is not None:
            raise CheckpointError(
                f"{file}: changed while it was being read; "
                "wait until the training has finished saving, then try again"
            )

    def current(self) -> ModelFolder:
        """Return this folder, reopened if one of its files has changed since it was read."""
        if self.changed() is None:
            return self
        return ModelFolder(self.path)

    def configured_inside(self) -> str:
        """Return a sentence naming the subfolders with a ``config.json``, or an empty string."""
        names: list[str] = []
        for path in sorted(self.path.glob("*/")):
            if (path / "config.json").is_file():
                names.append(path.name)
        if not names:
            return ""
        return f" Folders in it that have one: {', '.join(names)}."

    def _module(self, file: Path, entry: Mapping[str, Any]) -> SentenceModule:
        for key in ("name", "path", "type"):
            if not isinstance(entry.get(key), str):
                raise CheckpointError(
                    f"{file}: a module's {key} is {entry.get(key)!r:.60}; expected a string"
                )
        kind = entry["type"]
        path = PurePosixPath(entry["path"])
        if kind != _PYLATE_DENSE and not kind.startswith(_LIBRARY):
            raise CheckpointError(
                f"{file}: the module type {kind!r:.80} needs code from elsewhere, which is never "
                f"run; expected a class of {_LIBRARY.rstrip('.')}"
            )
        if path.is_absolute() or ".." in path.parts or "\\" in entry["path"]:
            raise CheckpointError(
                f"{file}: the path {entry['path']!r:.80} leaves the folder; expected one inside"
            )
        _check_target(self.path / path, self.path)
        name = kind.rpartition(".")[2]
        folder = self
        if path.parts:
            folder = ModelFolder(self.path / path, whole=self)
        settings = folder._settings_of(name)
        return SentenceModule(
            name,
            kind,
            folder,
            folder.object(settings),
            self.path / path / settings,
        )

    def _settings_of(self, module: str) -> str:
        """Return the name of a module's configuration file: the first that is there."""
        names = _SETTINGS.get(module, ())
        for name in names:
            if (self.path / name).exists():
                return name
        if len(names) > 1:
            return names[0]
        return "config.json"

    def _stripped(self, *names: str) -> Weights:
        """Return the weights in the files ``names``, without wrapper prefixes in tensor names."""
        tensors: dict[str, TensorEntry] = {}
        for name in names:
            for stored_name, entry in self.weights_in(name).tensors.items():
                plain = strip_wrappers(stored_name)
                if plain in tensors:
                    raise CheckpointError(f"{entry.file}: {plain} is also in {tensors[plain].file}")
                tensors[plain] = entry
        if not tensors:
            raise CheckpointError(f"{self.path}: its weight files contain no tensors")
        return Weights(tensors)

    def _sharded(self, index: Path) -> Weights:
        """Return the weights in the shards of an index, which must match the shards exactly."""
        shard_of = self.object(index.name).get("weight_map")
        if not isinstance(shard_of, dict) or not shard_of:
            raise CheckpointError(f"{index}: not a shard index (no weight_map)")
        for shard in shard_of.values():
            if not isinstance(shard, str) or shard in ("", ".", "..") or Path(shard).name != shard:
                raise CheckpointError(f"{index}: {shard!r} is not a bare file name")
        weights = self._stripped(*sorted(set(shard_of.values())))
        file_of = {entry.stored_name: entry.file.name for entry in weights.tensors.values()}
        differing = sorted({name for name, _ in file_of.items() ^ shard_of.items()})
        if differing:
            name = differing[0]
            shard = file_of.get(name) or shard_of[name]
            raise CheckpointError(
                f"{self.path / shard}: {name} is not in both this shard and the index "
                f"({len(differing)} such tensors); the shard belongs to another model or another "
                "step"
            )
        return weights


def open_checkpoint(folder: Path | str) -> ModelFolder:
    """Open a folder with ``config.json`` and weights, and read the headers of the weights.

    Raises:
        CheckpointError: no such folder, or an invalid file; see `ModelFolder.check_whole`.
    """
    opened = ModelFolder(folder)
    if not opened.path.is_dir():
        raise CheckpointError(f"{folder}: no such folder; expected a checkpoint folder")
    opened.check_files()
    opened.check_whole()
    return opened


def strip_wrappers(name: str) -> str:
    """Strip the parts that torch.compile and parallel wrappers insert into a name.

    >>> strip_wrappers("module._orig_mod.model.encoder._orig_mod.norm.weight")
    'model.encoder.norm.weight'
    """
    parts = [part for part in name.split(".") if part not in _WRAPPERS]
    while len(parts) > 1 and parts[0] == "module":  # (D)DP wraps whole models only
        parts.pop(0)
    return ".".join(parts)


def check_inside(file: Path, folder: Path | None = None) -> None:
    """Check that ``file`` is a regular file inside ``folder``.

    Args:
        file: an existing file.
        folder: the model's folder; by default the parent of ``file``.

    Raises:
        CheckpointError: a link out of the folder or to nothing, or not a regular file.
    """
    _check_target(file, folder or file.parent)
    try:
        mode = file.stat().st_mode
    except OSError as error:
        raise CheckpointError(f"{file!s:.500}: cannot be read ({error.strerror})") from None
    if not stat.S_ISREG(mode):
        kind = "a pipe, a socket or a device"
        if stat.S_ISDIR(mode):
            kind = "a folder"
        raise CheckpointError(f"{file}: not a regular file but {kind}; remove or replace it")


def _check_target(path: Path, folder: Path) -> None:
    """Refuse a path that leads out of ``folder``, except to the blobs of its hub cache."""
    try:
        target = Path(os.path.realpath(path))
        root = Path(os.path.realpath(folder))
    except ValueError:  # a NUL in the name
        raise CheckpointError(f"{folder}: {str(path)!r:.80} is not a file name") from None
    if not target.is_relative_to(root) and target.parent not in _blobs_of(root):
        raise CheckpointError(f"{path}: links out of its folder, to {target}; copy the file here")


def _blobs_of(folder: Path) -> list[Path]:
    """Return the folders of content of the hub's cache that a model's folder or module is in."""
    blobs: list[Path] = []
    for parent in [folder, *folder.parents][:3]:
        if parent.parent.name == "snapshots":
            blobs.append(parent.parent.parent / "blobs")
    return blobs


def copy_present(names: Iterable[str], source: ModelFolder, target: Path) -> None:
    """Copy those files that exist in ``source`` to ``target``.

    Raises:
        CheckpointError: see `check_inside`.
    """
    for name in names:
        if os.path.lexists(source.path / name):
            check_inside(source.path / name)
            shutil.copyfile(source.path / name, target / name)


_NUMBERED = re.compile(r"checkpoint-(?:step-)?(\d{1,18})")


def step_of(folder: Path) -> int | None:
    """Return the step in a folder name, or None for ``-best``, ``-final`` and the like.

    >>> step_of(Path("checkpoint-200")), step_of(Path("checkpoint-step-3"))
    (200, 3)
    >>> step_of(Path("checkpoint-best")) is None
    True
    """
    match = _NUMBERED.fullmatch(folder.name)
    if match is None:
        return None
    return int(match[1])


def list_checkpoints(folder: Path | str, pattern: str = "*") -> list[Path]:
    """Return the numbered checkpoints in ``folder`` whose names match ``pattern``, sorted by step.

    Raises:
        CheckpointError: there are none, or two have the same step.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: no such folder; {_no_checkpoints(folder, pattern)}")
    numbered: list[tuple[int, Path]] = []
    for path in folder.iterdir():
        step = step_of(path)
        if step is not None and path.is_dir() and fnmatch(path.name, pattern):
            numbered.append((step, path))
    if not numbered:
        raise CheckpointError(f"{folder}: {_no_checkpoints(folder, pattern)}")
    numbered.sort()
    for (step, path), (next_step, next_path) in pairwise(numbered):
        if step == next_step:
            raise CheckpointError(f"{folder}: {path.name} and {next_path.name} have the same step")
    return [path for _, path in numbered]


def _no_checkpoints(folder: Path, pattern: str) -> str:
    """Return what a folder without checkpoints should have, for a message."""
    text = "expected folders named checkpoint-N"
    if pattern != "*":
        text += f" that match {pattern!r}"
    text += ", found none"
    if step_of(folder):
        text += f"; {folder.name} is one: give {folder.parent}"
    return text


class MetricError(CheckpointError):
    """A checkpoint without a value of a metric; ``reason`` says why, in a clause about it."""

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


def metric_of(folder: Path, metric: str = "eval_loss") -> float:
    """Return a metric at the checkpoint's own step, from its ``trainer_state.json``.

    The log in that file is cumulative, so its last entry may belong to an earlier step.

    Raises:
        MetricError: no such metric at that step, or not a finite number.
        CheckpointError: the file cannot be read.
    """
    file = folder / "trainer_state.json"
    state = TrainerState.of(folder)
    step = state.global_step
    if step is None:
        step = step_of(folder)
    log = state.entries
    values = [entry[metric] for entry in log if entry.get("step") == step and metric in entry]
    if not values:
        names: set[str] = set()
        for entry in log:
            names.update(entry)
        reason = f"no {metric} is logged at its step"
        message = f"{file}: no {metric} at step {step}; it logs: {', '.join(sorted(names))}"
        raise MetricError(message, reason=reason)
    value = values[-1]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        reason = f"its {metric} is {value!r:.40}"
        message = f"{file}: {metric} at step {step} is {value!r:.40}, expected a number"
        raise MetricError(message, reason=reason)
    return float(value)


class TrainerState(BaseModel):
    """What is read of a training's ``trainer_state.json``; other fields are ignored."""

    global_step: object = None
    best_metric: object = None  # the value of the metric that the Trainer kept
    log_history: list[object] = []

    @classmethod
    def of(cls, folder: Path) -> TrainerState:
        """Read the state in a checkpoint; without a file, it is empty. See `trainer_state`."""
        return cls.model_validate(trainer_state(folder))

    @property
    def entries(self) -> list[dict[str, object]]:
        """The entries of the log."""
        return [entry for entry in self.log_history if isinstance(entry, dict)]


def trainer_state(folder: Path) -> dict[str, Any]:
    """Return the content of ``trainer_state.json``; empty if there is no such file.

    NaN is accepted, because trainers log gradient norms that are NaN.

    Raises:
        CheckpointError: the file is not a trainer state.
    """
    file = folder / "trainer_state.json"
    if not os.path.lexists(file):
        return {}
    check_inside(file)
    try:
        state = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file}: not a trainer state ({error})") from None
    if not isinstance(state, dict) or not isinstance(state.get("log_history", []), list):
        raise CheckpointError(
            f"{file}: not a trainer state (expected an object with the list log_history)"
        )
    return state
