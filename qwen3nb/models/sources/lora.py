"""LoRA adapters: checked against their base model by headers alone, and merged into it.

PEFT hardly complains if an adapter does not fit: a tensor without a module is skipped, a
module without a tensor keeps its random initial values. Here, names and shapes of adapter
and base are compared in both directions before anything is loaded. PEFT does the merging
(Hu et al. 2021, https://arxiv.org/abs/2106.09685, section 4.1), in float32.

Only ``adapter_model.safetensors`` is read: a pickle can run code.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

from qwen3nb.checkpoints.checkpoint import Checkpoint, open_checkpoint
from qwen3nb.checkpoints.safetensors_header import read_safetensors
from qwen3nb.checkpoints.types import CheckpointError, TensorEntry
from qwen3nb.models.sources.source import Source
from qwen3nb.models.types import SpecError
from qwen3nb.utils.atomic_files import read_json, sha256_json

__all__ = ["adapter_config", "adapter_fingerprint", "check_fit", "load_merged"]

WEIGHTS = "adapter_model.safetensors"
_TENSOR = re.compile(
    r"base_model\.model\.(?P<module>.+)\.lora_(?P<side>[AB])(?:\.default)?\.weight"
)
# Fields of adapter_config.json that change what is computed, and their supported values.
_PLAIN: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none", None),
    "modules_to_save": (None, []),
    "use_dora": (False, None),
    "layers_to_transform": (None,),
    "layer_replication": (None,),
    "trainable_token_indices": (None,),
    "target_parameters": (None, []),
    "fan_in_fan_out": (False, None),
}


def adapter_fingerprint(folder: Path) -> dict[str, Any]:
    """Return what the effect of the adapter depends on: its configuration and weights."""
    # The path of the base during training is no part of its content.
    config = {k: v for k, v in adapter_config(folder).items() if k != "base_model_name_or_path"}
    return {"weights": _opened(folder).digest(), "config": sha256_json(config)}


def load_merged(source: Source, model: Any) -> Any:
    """Merge the adapter into ``model`` (the base in float32, with its head) and return it.

    Raises:
        CheckpointError: a tensor of the adapter is not of a float type, or not finite.
    """
    from peft import PeftModel

    assert source.folder is not None  # noqa: S101 - adapters have one
    opened = _opened(source.folder)
    for name in opened.tensors:
        opened.read(name)  # checks every value
    with warnings.catch_warnings():
        # PEFT still uses a property that transformers has renamed.
        warnings.filterwarnings("ignore", category=FutureWarning, module=r"transformers\..*")
        adapted = PeftModel.from_pretrained(model, str(source.folder), is_trainable=False)
        return adapted.merge_and_unload(safe_merge=True)


def _opened(folder: Path) -> Checkpoint:
    return Checkpoint(folder, {}, read_safetensors(folder / WEIGHTS))


def adapter_config(folder: Path) -> dict[str, Any]:
    """Return the content of ``adapter_config.json``.

    Raises:
        SpecError: no such file, or not the configuration of a plain LoRA adapter.
    """
    file = folder / "adapter_config.json"
    if not file.is_file():
        raise SpecError(f"{folder}: no adapter_config.json, so this is not a LoRA adapter")
    if not (folder / WEIGHTS).is_file():
        pickled = ", ".join(sorted(each.name for each in folder.glob("adapter_model.*")))
        raise SpecError(
            f"{folder}: no {WEIGHTS}"
            + (f"; {pickled} is not read, because such a file can run code" if pickled else "")
        )
    try:
        config = read_json(file)
    except ValueError as error:
        raise SpecError(str(error)) from None
    if not isinstance(config, dict):
        raise SpecError(f"{file}: expected an object, got {type(config).__name__}")
    for name, known in _PLAIN.items():
        if config.get(name) not in known and not (name not in config and None in known):
            raise SpecError(
                f"{file}: {name} is {config.get(name)!r}; only plain LoRA is supported "
                f"({name} {known[0]!r})"
            )
    rank = config.get("r")
    if not isinstance(rank, int) or rank < 1:
        raise SpecError(f"{file}: r is {rank!r}, expected a positive whole number")
    return config


def check_fit(folder: Path, config: dict[str, Any], base: Path) -> None:
    """Compare names and shapes of the adapter's and the base's tensors, in both directions.

    Raises:
        SpecError: a tensor that does not fit; names it.
    """
    file = folder / WEIGHTS
    try:
        adapter, tensors = read_safetensors(file), open_checkpoint(base).tensors
    except CheckpointError as error:
        raise SpecError(str(error)) from None
    pairs: dict[str, dict[str, TensorEntry]] = {}
    for name, entry in adapter.items():
        match = _TENSOR.fullmatch(name)
        if match is None:
            raise SpecError(f"{file}: {name} is not a tensor of a plain LoRA adapter")
        pairs.setdefault(match["module"], {})[match["side"]] = entry
    if not pairs:
        raise SpecError(f"{file}: contains no tensors")
    for module, sides in pairs.items():
        _check_module(file, config, module, sides, tensors.get(f"{module}.weight"))
    _check_targets(file, config, set(pairs), [name for name in tensors if name.endswith(".weight")])


def _check_module(
    file: Path,
    config: dict[str, Any],
    module: str,
    sides: dict[str, TensorEntry],
    base: TensorEntry | None,
) -> None:
    if base is None:
        raise SpecError(
            f"{file}: adapts {module}, which the base does not have; was it trained on another?"
        )
    if missing := {"A", "B"} - sides.keys():
        raise SpecError(f"{file}: {module} has no lora_{missing.pop()}")
    rank = _rank(config, module)
    if len(base.shape) != 2:
        raise SpecError(f"{file}: adapts {module}, which is not a linear layer: {list(base.shape)}")
    outputs, inputs = base.shape
    for side, expected in (("A", (rank, inputs)), ("B", (outputs, rank))):
        if tuple(sides[side].shape) != expected:
            raise SpecError(
                f"{file}: lora_{side} of {module} has shape {list(sides[side].shape)}; rank "
                f"{rank} of adapter_config.json and the base's weight {list(base.shape)} "
                f"need {list(expected)}"
            )


def _rank(config: dict[str, Any], module: str) -> int:
    """Return the rank of a module, with the exceptions in ``rank_pattern`` as PEFT reads them."""
    for pattern, rank in (config.get("rank_pattern") or {}).items():
        if re.match(rf"(.*\.)?({pattern})$", module):
            return int(rank)
    return int(config["r"])


def _check_targets(
    file: Path, config: dict[str, Any], adapted: set[str], weights: list[str]
) -> None:
    """Check that all target modules have tensors, and no other modules do."""
    targets = config.get("target_modules")
    if isinstance(targets, str):
        if targets == "all-linear":
            return
        pattern = re.compile(targets)
        wanted = {n for w in weights if pattern.fullmatch(n := w.removesuffix(".weight"))}
    else:
        endings = tuple(targets or ())
        modules = [name.removesuffix(".weight") for name in weights]
        wanted = {m for m in modules if m in endings or m.endswith(tuple(f".{e}" for e in endings))}
        for ending in endings:
            if not any(m == ending or m.endswith(f".{ending}") for m in modules):
                raise SpecError(f"{file}: its target module {ending!r} is not in the base")
    if odd := sorted(wanted ^ adapted):
        what = "has no tensors" if odd[0] in wanted else "is not a target of adapter_config.json"
        raise SpecError(f"{file}: {odd[0]} {what} ({len(odd)} such modules)")
