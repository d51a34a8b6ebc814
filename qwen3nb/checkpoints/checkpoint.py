"""Open, list and fingerprint checkpoint folders.

A `Checkpoint` is a folder that was looked at, not read: its configuration, and per
tensor where the bytes lie. Values are read when asked for, straight from the file,
never mapped: a mapped file that is cut short kills the process.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qwen3nb import paths
from qwen3nb.checkpoints.safetensors_header import (
    CheckpointError,
    TensorEntry,
    read_safetensors,
    read_torch,
)
from qwen3nb.checkpoints.tensor_io import combined_digest, read_tensor, sha256_of
from qwen3nb.utils.atomic_files import file_stamp, read_json, remember_digest, remembered_digest

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "list_checkpoints",
    "metric_of",
    "open_checkpoint",
    "step_of",
    "strip_wrappers",
]

SINGLE = "model.safetensors"
# Per format: one file, its index of shards, and how to read a header. Tried in this order.
_FORMATS = (
    (SINGLE, "model.safetensors.index.json", read_safetensors),
    ("pytorch_model.bin", "pytorch_model.bin.index.json", read_torch),
)
# What torch.compile, FSDP and activation checkpointing put into a name, wherever they wrap.
_WRAPPERS = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
_NUMBERED = re.compile(r"checkpoint-(?:step-)?(\d{1,18})")
_JSON_LIMIT = 50_000_000


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint folder, opened but not read.

    Attributes:
        folder: the folder.
        config: its ``config.json``.
        tensors: entry per tensor name, wrapper prefixes stripped, sorted by name.
        stamps: what told each file apart when it was opened; see `check_unchanged`.
    """

    folder: Path
    config: dict[str, Any]
    tensors: dict[str, TensorEntry]
    stamps: dict[Path, list[Any]] = field(default_factory=dict, repr=False)

    @property
    def files(self) -> list[Path]:
        """The weight files."""
        return sorted({entry.file for entry in self.tensors.values()})

    def read(self, name: str) -> Tensor:
        """One weight, in the dtype it is stored in.

        Raises:
            CheckpointError: it is not of a float type (integers and unscaled 8-bit
                floats are no weights), or holds NaN or infinity.
        """
        return read_tensor(self.tensors[name])

    def digest(self) -> str:
        """SHA-256 of the weights: every tensor's name, dtype, shape and bytes.

        The same weights in one file, in shards or in another file format have the same.
        """
        return remembered_digest(self.files, self._digest, memory=_memory())

    def _digest(self) -> str:
        return combined_digest(
            self.tensors, {name: sha256_of(entry) for name, entry in self.tensors.items()}
        )

    def remember(self, digest: str) -> None:
        """Spare the next `digest` the reading; ``digest`` was taken on the way by a copy."""
        remember_digest(self.files, digest, memory=_memory())

    def check_unchanged(self) -> None:
        """Make sure that what was read is what was opened.

        Raises:
            CheckpointError: a file has changed, or is gone.
        """
        for file, stamp in self.stamps.items():
            try:
                same = file_stamp(file) == stamp
            except OSError:
                same = False
            if not same:
                raise CheckpointError(
                    f"{file}: changed while it was being read; "
                    "wait until the training has finished saving, and start again"
                )


def _memory() -> Path:
    return paths.cache() / "digests.json"


def open_checkpoint(folder: Path | str) -> Checkpoint:
    """Open a folder with ``config.json`` and weights, in one file or in shards.

    Safetensors are taken if there are any, else ``pytorch_model.bin``.

    Raises:
        CheckpointError: no such folder, no configuration, no weights, two sources
            of them, or a weight file that is not what it should be.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: no such folder; expected a checkpoint folder")
    config_file = folder / "config.json"
    if not config_file.is_file():
        raise CheckpointError(f"{folder}: no config.json, so this is not a checkpoint folder")
    if (folder / "adapter_config.json").is_file():
        raise CheckpointError(
            f"{folder}: holds adapter_config.json beside a whole model; libraries would apply "
            "that adapter without a word. Move one of the two elsewhere"
        )
    stamps = {config_file: file_stamp(config_file)}
    config = _read_object(config_file)
    files = _weight_files(folder)
    stamps |= {file: file_stamp(file) for file in files}
    tensors: dict[str, TensorEntry] = {}
    for file, (read_header, announced) in files.items():
        entries = read_header(file)
        if announced is not None and (odd := sorted(entries.keys() ^ announced)):
            raise CheckpointError(
                f"{file}: {odd[0]} is not in both this shard and the index "
                f"({len(odd)} such); it is another model's shard, or another step's"
            )
        for stored, entry in entries.items():
            name = strip_wrappers(stored)
            if name in tensors:
                raise CheckpointError(f"{file}: {name} is also in {tensors[name].file}")
            tensors[name] = entry
    if not tensors:
        raise CheckpointError(f"{folder}: its weight files hold no tensor")
    return Checkpoint(folder, config, dict(sorted(tensors.items())), stamps)


def _read_object(file: Path) -> dict[str, Any]:
    if file.stat().st_size > _JSON_LIMIT:
        raise CheckpointError(f"{file}: {file.stat().st_size:,} bytes; no such file is so large")
    try:
        value = read_json(file)
    except ValueError as error:
        raise CheckpointError(str(error)) from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{file}: expected an object, got {value!r:.60}")
    return value


def strip_wrappers(name: str) -> str:
    """``name`` without what torch.compile or a parallel wrapper put into it.

    >>> strip_wrappers("module._orig_mod.model.encoder._orig_mod.norm.weight")
    'model.encoder.norm.weight'
    """
    parts = [part for part in name.split(".") if part not in _WRAPPERS]
    while len(parts) > 1 and parts[0] == "module":  # (D)DP wraps the whole only
        parts.pop(0)
    return ".".join(parts)


def _weight_files(folder: Path) -> dict[Path, tuple[Any, set[str] | None]]:
    """Per weight file how to read its header, and the names its index announces for it."""
    for single_name, index_name, read_header in _FORMATS:
        single, index = folder / single_name, folder / index_name
        if single.exists() and index.exists():
            raise CheckpointError(
                f"{folder}: holds both {single_name} and {index_name}; remove the one that is stale"
            )
        if single.exists():
            _check_link(single)
            return {single: (read_header, None)}
        if index.exists():
            return {folder / shard: (read_header, names) for shard, names in _shards(index).items()}
    others = sorted(path.name for path in folder.iterdir() if path.suffix in (".pt", ".pth"))
    pickles = f" ({', '.join(others)}: a pickle, never loaded)" if others else ""
    raise CheckpointError(
        f"{folder}: no weights: expected {' or '.join(name for name, *_ in _FORMATS)}, or shards "
        f"with their index{pickles}"
    )


def _shards(index: Path) -> dict[str, set[str]]:
    """The names in each shard of an index."""
    weight_map = _read_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{index}: not a shard index (no weight_map)")
    shards: dict[str, set[str]] = {}
    for name, shard in weight_map.items():
        if not isinstance(shard, str) or shard in ("", ".", "..") or Path(shard).name != shard:
            raise CheckpointError(f"{index}: {shard!r} is not a bare file name")
        shards.setdefault(shard, set()).add(name)
    for shard in shards:
        _check_link(index.parent / shard)
    return dict(sorted(shards.items()))


def _check_link(file: Path) -> None:
    """A weight file may link only to where the hub's own cache keeps its blobs."""
    if not file.is_symlink():
        return
    target, folder = file.resolve(), file.parent.resolve()
    in_cache = folder.parent.name == "snapshots" and target.parent == (
        folder.parent.parent / "blobs"
    )
    if target.parent != folder and not in_cache:
        raise CheckpointError(f"{file}: links out of its folder, to {target}; copy the file here")


def step_of(folder: Path) -> int | None:
    """The step in a folder's name, or None for ``-best``, ``-final`` and the like.

    >>> step_of(Path("checkpoint-200")), step_of(Path("checkpoint-step-3"))
    (200, 3)
    >>> step_of(Path("checkpoint-best")) is None
    True
    """
    match = _NUMBERED.fullmatch(folder.name)
    return int(match[1]) if match else None


def list_checkpoints(folder: Path | str) -> list[Path]:
    """The numbered checkpoints in ``folder``, by step.

    Raises:
        CheckpointError: there are none, or two of the same step.
    """
    folder = Path(folder)
    numbered = sorted(
        (step, path)
        for path in (folder.iterdir() if folder.is_dir() else ())
        if path.is_dir() and (step := step_of(path)) is not None
    )
    if not numbered:
        raise CheckpointError(f"{folder}: holds no checkpoint-N folder")
    for (step, path), (next_step, other) in pairwise(numbered):
        if step == next_step:
            raise CheckpointError(f"{folder}: {path.name} and {other.name} are of the same step")
    return [path for _, path in numbered]


def metric_of(folder: Path, metric: str = "eval_loss") -> float:
    """A metric of *this* checkpoint's step, from its ``trainer_state.json``.

    The log there is cumulative, so its last entry may belong to an earlier step;
    only the entry of the checkpoint's own step counts.

    Raises:
        CheckpointError: no such file, no such metric at that step, or not a finite number.
    """
    file = folder / "trainer_state.json"
    if not file.is_file():
        raise CheckpointError(
            f"{folder}: no trainer_state.json, so its {metric} is not known; "
            "average the last N, or name the folders"
        )
    state = trainer_state(folder)
    step = state.get("global_step", step_of(folder))
    log = [entry for entry in state.get("log_history", ()) if isinstance(entry, dict)]
    values = [entry[metric] for entry in log if entry.get("step") == step and metric in entry]
    if not values:
        seen = sorted({key for entry in log for key in entry})
        raise CheckpointError(f"{file}: no {metric} at step {step}; it logs: {', '.join(seen)}")
    value = values[-1]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise CheckpointError(f"{file}: {metric} at step {step} is {value!r}")
    return float(value)


def trainer_state(folder: Path) -> dict[str, Any]:
    """The trainer's own record; empty for a training that keeps none.

    Read leniently: trainers log gradients that are NaN.

    Raises:
        CheckpointError: it is not what a trainer writes.
    """
    file = folder / "trainer_state.json"
    if not file.is_file():
        return {}
    try:
        state = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file}: not a trainer's state ({error})") from None
    if not isinstance(state, dict) or not isinstance(state.get("log_history", []), list):
        raise CheckpointError(f"{file}: not a trainer's state (expected an object with a log)")
    return state
