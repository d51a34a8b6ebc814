"""Open, list and digest checkpoint folders.

Opening a `Checkpoint` reads its configuration and the position of each tensor, but no
values. Values are read from the file on request.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qwen3nb.checkpoints.inside import (
    check_all_inside,
    check_inside,
    configured_inside,
    read_object,
)
from qwen3nb.checkpoints.safetensors_header import read_safetensors
from qwen3nb.checkpoints.tensor_io import combined_digest, read_tensor, sha256_of
from qwen3nb.checkpoints.torch_header import read_torch
from qwen3nb.checkpoints.types import CheckpointError, TensorEntry
from qwen3nb.utils.atomic_files import file_stamp, recover_folder
from qwen3nb.utils.files.digest_memory import remember_digest, remembered_digest

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "Checkpoint",
    "list_checkpoints",
    "metric_of",
    "open_checkpoint",
    "step_of",
    "strip_wrappers",
    "unread_weights",
]

SINGLE = "model.safetensors"
# Per format: the single file, the index of shards, and the reader. Tried in this order.
_FORMATS = (
    (SINGLE, "model.safetensors.index.json", read_safetensors),
    ("pytorch_model.bin", "pytorch_model.bin.index.json", read_torch),
)
# What else may hold weights, by the end of a file's name.
_UNREAD = {
    ".pt": "a pickle, never loaded",
    ".pth": "a pickle, never loaded",
    ".gguf": "GGUF, which is not read; expected the model it was made from",
    ".onnx": "ONNX, which is not read; expected the model it was made from",
    ".xml": "OpenVINO, which is not read; expected the model it was made from",
    ".h5": "TensorFlow, which is not read; save it in PyTorch",
    ".msgpack": "Flax, which is not read; save it in PyTorch",
}
# Parts that torch.compile, FSDP and activation checkpointing insert into names, at any level.
_WRAPPERS = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
_NUMBERED = re.compile(r"checkpoint-(?:step-)?(\d{1,18})")


@dataclass(frozen=True)
class Checkpoint:
    """An opened checkpoint folder.

    Attributes:
        folder: the folder.
        config: the content of ``config.json``.
        tensors: entry per tensor name, wrapper prefixes stripped, sorted by name.
        stamps: the `file_stamp` of each file when it was opened; see `check_unchanged`.
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
        """Return one weight in its stored dtype.

        Raises:
            CheckpointError: see `qwen3nb.checkpoints.tensor_io.read_tensor`.
        """
        return read_tensor(self.tensors[name])

    def digest(self) -> str:
        """Return the SHA-256 of the weights: name, dtype, shape and bytes of every tensor.

        It does not depend on the file format or the number of shards.
        """
        return remembered_digest(self.files, self._digest)

    def _digest(self) -> str:
        return combined_digest(
            self.tensors, {name: sha256_of(entry) for name, entry in self.tensors.items()}
        )

    def remember(self, digest: str) -> None:
        """Store a ``digest`` computed while copying, so that `digest` need not read the files."""
        remember_digest(self.files, digest)

    def check_unchanged(self) -> None:
        """Check that no file has changed since the checkpoint was opened.

        Raises:
            CheckpointError: a file has changed or is gone.
        """
        for file, stamp in self.stamps.items():
            try:
                same = file_stamp(file) == stamp
            except OSError:
                same = False
            if not same:
                raise CheckpointError(
                    f"{file}: changed while it was being read; "
                    "wait until the training has finished saving, then try again"
                )


def open_checkpoint(folder: Path | str) -> Checkpoint:
    """Open a folder with ``config.json`` and weights, in one file or in shards.

    Safetensors are preferred to ``pytorch_model.bin``.

    Raises:
        CheckpointError: no such folder, no configuration, no weights, ambiguous weights,
            an invalid weight file, or a file outside; see `qwen3nb.checkpoints.inside`.
    """
    folder = Path(folder)
    recover_folder(folder)
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: no such folder; expected a checkpoint folder")
    check_all_inside(folder)
    config_file = folder / "config.json"
    if not config_file.is_file():
        raise CheckpointError(
            f"{folder}: no config.json, so this is not a checkpoint folder."
            f"{configured_inside(folder)}"
        )
    if (folder / "adapter_config.json").is_file():
        raise CheckpointError(
            f"{folder}: contains adapter_config.json next to a full model; libraries would "
            "silently apply that adapter. Move one of the two elsewhere"
        )
    stamps = {config_file: file_stamp(config_file)}
    config = read_object(config_file)
    files = _weight_files(folder)
    stamps |= {file: file_stamp(file) for file in files}
    tensors = _read_headers(files)
    if not tensors:
        raise CheckpointError(f"{folder}: its weight files contain no tensors")
    return Checkpoint(folder, config, dict(sorted(tensors.items())), stamps)


def _read_headers(files: Mapping[Path, tuple[Any, set[str] | None]]) -> dict[str, TensorEntry]:
    """Read the headers of all weight files and check them against the index."""
    tensors: dict[str, TensorEntry] = {}
    for file, (read_header, listed) in files.items():
        entries = read_header(file)
        if listed is not None and (odd := sorted(entries.keys() ^ listed)):
            raise CheckpointError(
                f"{file}: {odd[0]} is not in both this shard and the index ({len(odd)} such "
                "tensors); the shard belongs to another model or another step"
            )
        for stored, entry in entries.items():
            name = strip_wrappers(stored)
            if name in tensors:
                raise CheckpointError(f"{file}: {name} is also in {tensors[name].file}")
            tensors[name] = entry
    return tensors


def strip_wrappers(name: str) -> str:
    """Strip the parts that torch.compile and parallel wrappers insert into a name.

    >>> strip_wrappers("module._orig_mod.model.encoder._orig_mod.norm.weight")
    'model.encoder.norm.weight'
    """
    parts = [part for part in name.split(".") if part not in _WRAPPERS]
    while len(parts) > 1 and parts[0] == "module":  # (D)DP wraps whole models only
        parts.pop(0)
    return ".".join(parts)


def _weight_files(folder: Path) -> dict[Path, tuple[Any, set[str] | None]]:
    """Map each weight file to its header reader and to the names that the index lists for it."""
    for single_name, index_name, read_header in _FORMATS:
        single, index = folder / single_name, folder / index_name
        if single.exists() and index.exists():
            raise CheckpointError(
                f"{folder}: contains both {single_name} and {index_name}; remove the stale one"
            )
        if single.exists():
            check_inside(single)
            return {single: (read_header, None)}
        if index.exists():
            return {folder / shard: (read_header, names) for shard, names in _shards(index).items()}
    raise CheckpointError(
        f"{folder}: no weights; expected {' or '.join(name for name, *_ in _FORMATS)}, or shards "
        f"with an index{unread_weights(folder)}"
    )


def unread_weights(folder: Path) -> str:
    """Return a remark on weights in formats that are not read, if ``folder`` holds any."""
    files = sorted(path for path in folder.rglob("*") if path.suffix in _UNREAD)
    return f" ({files[0].relative_to(folder)}: {_UNREAD[files[0].suffix]})" if files else ""


def _shards(index: Path) -> dict[str, set[str]]:
    """Return the tensor names of each shard in an index."""
    weight_map = read_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{index}: not a shard index (no weight_map)")
    shards: dict[str, set[str]] = {}
    for name, shard in weight_map.items():
        if not isinstance(shard, str) or shard in ("", ".", "..") or Path(shard).name != shard:
            raise CheckpointError(f"{index}: {shard!r} is not a bare file name")
        shards.setdefault(shard, set()).add(name)
    for shard in shards:
        check_inside(index.parent / shard)
    return dict(sorted(shards.items()))


def step_of(folder: Path) -> int | None:
    """Return the step in a folder name, or None for ``-best``, ``-final`` and the like.

    >>> step_of(Path("checkpoint-200")), step_of(Path("checkpoint-step-3"))
    (200, 3)
    >>> step_of(Path("checkpoint-best")) is None
    True
    """
    match = _NUMBERED.fullmatch(folder.name)
    return int(match[1]) if match else None


def list_checkpoints(folder: Path | str) -> list[Path]:
    """Return the numbered checkpoints in ``folder``, sorted by step.

    Raises:
        CheckpointError: there are none, or two have the same step.
    """
    folder = Path(folder)
    numbered = sorted(
        (step, path)
        for path in (folder.iterdir() if folder.is_dir() else ())
        if path.is_dir() and (step := step_of(path)) is not None
    )
    if not numbered:
        raise CheckpointError(f"{folder}: expected folders named checkpoint-N, found none")
    for (step, path), (next_step, other) in pairwise(numbered):
        if step == next_step:
            raise CheckpointError(f"{folder}: {path.name} and {other.name} have the same step")
    return [path for _, path in numbered]


def metric_of(folder: Path, metric: str = "eval_loss") -> float:
    """Return a metric at the checkpoint's own step, from its ``trainer_state.json``.

    The log in that file is cumulative, so its last entry may belong to an earlier step.

    Raises:
        CheckpointError: no such file, no such metric at that step, or not a finite number.
    """
    file = folder / "trainer_state.json"
    if not file.is_file():
        raise CheckpointError(
            f"{folder}: no trainer_state.json, so its {metric} is unknown; average the last N"
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
        raise CheckpointError(f"{file}: {metric} at step {step} is {value!r}, expected a number")
    return float(value)


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
