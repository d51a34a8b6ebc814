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
from qwen3nb.utils.bounded_files import FileBoundError, read_json_bytes
from qwen3nb.utils.journal import remembered_digest
from qwen3nb.utils.strict_json import first_duplicate, parse_json

SINGLE = "model.safetensors"
_WEIGHT_FILES = (SINGLE, "pytorch_model.bin")  # tried in this order; shards are in NAME.index.json
TOKENIZER_FILES = """
added_tokens.json chat_template.jinja merges.txt special_tokens_map.json tokenizer.json
tokenizer_config.json vocab.json
""".split()  # noqa: SIM905 - a list of words reads better as lines
# Parts that torch.compile, FSDP and activation checkpointing insert into names, at any level.
_WRAPPERS = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
# Bytes of a JSON file. The largest tokenizers in use have 35 MB; a malicious file can take twenty
# times its size when parsed.
JSON_LIMIT = 50_000_000
_LARGEST_KEPT = 1_000_000  # bytes of a JSON file whose parsed value is kept
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

    def __init__(self, path: Path | str, *, model: ModelFolder | None = None) -> None:
        """Open a folder; files are read when needed.

        Args:
            path: the folder.
            model: the model that this folder is a module of; files may be anywhere in it.
        """
        self.path = Path(path)
        if model is None:
            self._root = self.path
            self.stamps: dict[Path, FileStamp] = {}
        else:
            # A module may use files anywhere in its model, whose changes are noticed there.
            self._root = model.path
            self.stamps = model.stamps
        self._json_values: dict[str, object] = {}
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
        if name in self._json_values:
            return self._json_values[name]
        file = self.path / name
        check_inside(file, self._root)
        size = file.stat().st_size
        if size > JSON_LIMIT:
            raise CheckpointError(f"{file}: {size:,} bytes; expected at most {JSON_LIMIT:,}")
        self._note_stamp(file)  # before reading, so that no change is missed
        raw = file.read_bytes()
        self._digests[name] = hashlib.sha256(raw).hexdigest()
        try:
            value = parse_json(raw.decode("utf-8"))
        except ValueError as error:
            raise CheckpointError(f"{file}: invalid JSON ({error})") from None
        if len(raw) <= _LARGEST_KEPT:  # a larger one is parsed again when needed
            self._json_values[name] = value
        return value

    def _note_stamp(self, file: Path) -> None:
        """Note the stamp of a file before it is read, by which a change is noticed."""
        self.stamps.setdefault(file, file_stamp(file))

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
        if name in self._digests:
            return self._digests[name]
        file = self.path / name
        self._note_stamp(file)
        # The digest of a large file, as of weights, is cached on disk for later runs.
        if file.stat().st_size > JSON_LIMIT:
            digest = remembered_digest([file], lambda: sha256_file(file), kind="sha256")
        else:
            digest = sha256_file(file)
        self._digests[name] = digest
        return digest

    @cached_property
    def config(self) -> dict[str, Any]:
        """The content of ``config.json``; empty without one."""
        return self.object("config.json")

    @property
    def model_type(self) -> str:
        """The architecture that ``config.json`` names; empty if that is no text."""
        model_type = self.config.get("model_type")
        return model_type if isinstance(model_type, str) else ""

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
            _check_module_entry(file, entry)
            modules.append(self._module(entry["type"], self.path / entry["path"]))
        duplicate = first_duplicate(entry["name"] for entry in entries)
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
        for name in _WEIGHT_FILES:
            index = f"{name}.index.json"
            has_file = os.path.lexists(self.path / name)
            has_index = self.has(index)
            if has_file and has_index:
                raise CheckpointError(
                    f"{self.path}: contains both {name} and {index}; remove the stale one"
                )
            if has_file:
                return self._weights_of_files([name])
            if has_index:
                return self._weights_of_shards(self.path / index)
        problem = f"no weights; expected {' or '.join(_WEIGHT_FILES)}, or shards with an index"
        # The hub's cache keeps a model in models--acme--e5/snapshots/COMMIT.
        is_from_hub = "snapshots" in self.path.parts
        if is_from_hub:  # a pickle is not downloaded unasked
            problem += (
                ". If the hub has them as .bin alone, `hf download ID --local-dir DIR` gets them"
            )
        raise CheckpointError(f"{self.path}: {problem}")

    def weights_in(self, name: str) -> Weights:
        """Return the weights in the file ``name``, read once.

        The suffix decides between safetensors and ``torch.save``.
        """
        if name in self._weights:
            return self._weights[name]
        file = self.path / name
        check_inside(file, self._root)
        self._note_stamp(file)
        if file.suffix == ".bin":
            weights = Weights(read_torch(file))
        else:
            weights = Weights(read_safetensors(file))
        self._weights[name] = weights
        return weights

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
        # Both properties are read now, so that a malformed file is an error here.
        _ = self.config
        _ = self.weights

    def touched_file(self) -> Path | None:
        """Return a file that may have changed since it was read, or None."""
        for file, stamp in self._stamps_now():
            if stamp != self.stamps[file]:
                return file
        return None

    def rewritten_file(self) -> Path | None:
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

    def _has_same_content(self, tensor_hashes: Mapping[str, str] | None) -> bool:
        """Return whether the files are known to have the content that was read."""
        reopened = ModelFolder(self.path)
        for name, digest in self._digests.items():
            if reopened.sha256(name) != digest:
                return False
        # The caller hashed the very bytes that it read: compare with those.
        if tensor_hashes is not None:
            return reopened.weights.sha256_each(tensor_hashes) == dict(tensor_hashes)
        if not self._weights:  # none were read
            return True
        # Without a digest from before, nothing is known of the earlier content.
        digest_before = self._computed_digest()
        return digest_before is not None and reopened.weights.digest == digest_before

    def _computed_digest(self) -> str | None:
        """Return the digest of the weights; None if it was not computed, which takes long."""
        if "weights" not in vars(self) or "digest" not in vars(self.weights):  # cached properties
            return None
        return self.weights.digest

    def check_unchanged(self, tensor_hashes: Mapping[str, str] | None = None) -> None:
        """Check that no file has changed since it was read.

        If only the ctime of a file differs, its content decides.

        Args:
            tensor_hashes: the SHA-256 of tensors as they were read, by name; by default, the digest
                of the weights is compared.

        Raises:
            CheckpointError: a file has changed or is gone.
        """
        changed_file = self.rewritten_file()
        touched_file = self.touched_file()
        # Touched: only the ctime differs, as after a hard link or a backup; the content decides.
        is_only_touched = changed_file is None and touched_file is not None
        if is_only_touched and not self._has_same_content(tensor_hashes):
            changed_file = touched_file
        if changed_file is not None:
            raise CheckpointError(
                f"{changed_file}: changed while it was being read; "
                "wait until the training has finished saving, then try again"
            )

    def current(self) -> ModelFolder:
        """Return this folder, reopened if one of its files has changed since it was read."""
        if self.touched_file() is None:
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

    def _module(self, class_name: str, path: Path) -> SentenceModule:
        """Return the module of a class, such as ``sentence_transformers.models.Dense``."""
        _check_target(path, self.path)
        folder = self
        if path != self.path:  # for the path "", it is the model's own folder
            folder = ModelFolder(path, model=self)
        short_name = class_name.rpartition(".")[2]
        settings_file = folder._settings_file(short_name)
        return SentenceModule(
            name=short_name,
            type=class_name,
            folder=folder,
            fields=folder.object(settings_file),
            file=path / settings_file,
        )

    def _settings_file(self, module: str) -> str:
        """Return the name of a module's configuration file: the first that is there."""
        names = _SETTINGS.get(module, ())
        for name in names:
            if (self.path / name).exists():
                return name
        if len(names) > 1:
            return names[0]
        return "config.json"

    def _weights_of_files(self, files: Iterable[str]) -> Weights:
        """Return the weights in files of the folder, without wrappers in the tensors' names."""
        tensors: dict[str, TensorEntry] = {}
        for file in files:
            for stored_name, entry in self.weights_in(file).tensors.items():
                name = strip_wrappers(stored_name)
                if name in tensors:
                    raise CheckpointError(f"{entry.file}: {name} is also in {tensors[name].file}")
                tensors[name] = entry
        if not tensors:
            raise CheckpointError(f"{self.path}: its weight files contain no tensors")
        return Weights(tensors)

    def _weights_of_shards(self, index: Path) -> Weights:
        """Return the weights in the shards of an index, which must match the shards exactly."""
        indexed_shards = self.object(index.name).get("weight_map")
        if not isinstance(indexed_shards, dict) or not indexed_shards:
            raise CheckpointError(f"{index}: not a shard index (no weight_map)")
        for shard in indexed_shards.values():
            if not _is_bare_file_name(shard):
                raise CheckpointError(f"{index}: {shard!r} is not a bare file name")
        weights = self._weights_of_files(sorted(set(indexed_shards.values())))
        actual_shards: dict[str, str] = {}
        for entry in weights.tensors.values():
            actual_shards[entry.stored_name] = entry.file.name
        # Index and shards must agree on the shard of each tensor.
        misplaced: list[str] = []
        for name in sorted(indexed_shards.keys() | actual_shards.keys()):
            if indexed_shards.get(name) != actual_shards.get(name):
                misplaced.append(name)
        if misplaced:
            name = misplaced[0]
            shard = actual_shards.get(name) or indexed_shards[name]
            raise CheckpointError(
                f"{self.path / shard}: {name} is not in both this shard and the index "
                f"({len(misplaced)} such tensors); the shard belongs to another model or another "
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
    if folder is None:
        folder = file.parent
    _check_target(file, folder)
    try:
        mode = file.stat().st_mode
    except OSError as error:
        raise CheckpointError(f"{file!s:.500}: cannot be read ({error.strerror})") from None
    if stat.S_ISREG(mode):
        return
    actual_kind = "a pipe, a socket or a device"
    if stat.S_ISDIR(mode):
        actual_kind = "a folder"
    raise CheckpointError(f"{file}: not a regular file but {actual_kind}; remove or replace it")


def _check_target(path: Path, folder: Path) -> None:
    """Refuse a path that leads out of ``folder``, except to the blobs of its hub cache."""
    try:
        target = Path(os.path.realpath(path))
        root = Path(os.path.realpath(folder))
    except ValueError:  # a NUL in the name
        raise CheckpointError(f"{folder}: {str(path)!r:.80} is not a file name") from None
    if not target.is_relative_to(root) and target.parent not in _blobs_of(root):
        raise CheckpointError(f"{path}: links out of its folder, to {target}; copy the file here")


def _is_bare_file_name(name: object) -> bool:
    """Return whether a value names a file without a folder."""
    return isinstance(name, str) and name not in ("", ".", "..") and Path(name).name == name


def _check_module_entry(file: Path, entry: object) -> None:
    """Refuse an entry of ``modules.json`` that would run other code, or leave the folder."""
    # Anything but an object is refused below as one that lacks its fields.
    fields: Mapping[str, object] = {}
    if isinstance(entry, dict):
        fields = entry
    for key in ("name", "path", "type"):
        if not isinstance(fields.get(key), str):
            raise CheckpointError(
                f"{file}: a module's {key} is {fields.get(key)!r:.60}; expected a string"
            )
    class_name = str(fields["type"])
    path = str(fields["path"])
    # sentence-transformers replaces PyLate's dense layer by its own: no other code runs.
    if class_name != _PYLATE_DENSE and not class_name.startswith(_LIBRARY):
        raise CheckpointError(
            f"{file}: the module type {class_name!r:.80} needs code from elsewhere, which is never "
            f"run; expected a class of {_LIBRARY.rstrip('.')}"
        )
    is_absolute = PurePosixPath(path).is_absolute()
    if is_absolute or ".." in PurePosixPath(path).parts or "\\" in path:
        raise CheckpointError(
            f"{file}: the path {path!r:.80} leaves the folder; expected one inside"
        )


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
    values: list[object] = []
    logged_names: set[str] = set()
    # The log covers the whole training: only entries of this checkpoint's step count.
    for entry in state.entries:
        logged_names.update(entry)
        if entry.get("step") == step and metric in entry:
            values.append(entry[metric])
    if not values:
        raise MetricError(
            f"{file}: no {metric} at step {step}; it logs: {', '.join(sorted(logged_names))}",
            reason=f"no {metric} is logged at its step",
        )
    last_value = values[-1]  # a step may be logged twice
    value = finite_number(last_value)
    if value is None:
        raise MetricError(
            f"{file}: {metric} at step {step} is {last_value!r:.40}, expected a number",
            reason=f"its {metric} is {last_value!r:.40}",
        )
    return float(value)


def finite_number(value: object) -> float | None:
    """Return a finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        is_finite = math.isfinite(value)
    except OverflowError:  # a whole number that no float holds
        return None
    if not is_finite:
        return None
    return value


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
    # A broken link exists here, too; check_inside refuses it.
    if not os.path.lexists(file):
        return {}
    check_inside(file)
    try:
        content = read_json_bytes(file)
        state = json.loads(content)  # accepts NaN, which trainers log for gradients
    except FileBoundError as error:
        raise CheckpointError(str(error)) from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file}: not a trainer state ({error})") from None
    if not isinstance(state, dict) or not isinstance(state.get("log_history", []), list):
        raise CheckpointError(
            f"{file}: not a trainer state (expected an object with the list log_history)"
        )
    return state
