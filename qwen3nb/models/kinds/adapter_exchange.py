"""Exchange the change of some modules of a LoRA adapter for that of another.

An adapter changes the matrix of a module by s B A, with the scale s (alpha / rank, or alpha / root
of rank). The written adapter has A and B of each module as they are, and states rank and alpha by
module. So its changes equal those of the two adapters exactly, whatever their ranks, scales and
modules are. A module that only one of the two adapts is exchanged for no change, or the reverse.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from qwen3nb.checkpoints.folder import TOKENIZER_FILES, ModelFolder, copy_present
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.models.kinds.lora import (
    CONFIG,
    WEIGHTS,
    adapter_changes,
    adapter_config,
    adapter_tensors,
)
from qwen3nb.models.kinds.lora_change import (
    CHANGES_BASE,
    PLAIN_SELECTION,
    AdapterChanges,
    ModuleChange,
    factor_names,
    is_whole_change,
)
from qwen3nb.models.types import JsonObject, SpecError
from qwen3nb.utils.atomic_files import new_folder, write_json
from qwen3nb.utils.choices import check_choice
from qwen3nb.utils.format import by_number

_NUMBER_OF_LAYER = re.compile(r"\.(\d+)(\.|$)")  # in the name of a module


def read_changes(folder: Path | str) -> AdapterChanges:
    """Read the changes of a LoRA adapter.

    Raises:
        SpecError: no LoRA adapter, or one whose beginning changes the base (PiSSA, OLoRA).
        CheckpointError: its changes are not those of pairs of factors alone: a saved module, DoRA,
            a factor without the other, or no factors at all.
    """
    opened = ModelFolder(Path(folder))
    config = adapter_config(opened)
    beginning = config.get("init_lora_weights")
    if beginning in CHANGES_BASE:
        raise SpecError(
            f"{opened.path / CONFIG}: init_lora_weights is {beginning!r}, which also changes the "
            "base, so the factors alone are not the change. Save it with PEFT's "
            "path_initial_model_for_weight_conversion, or leave it out"
        )
    tensors = adapter_tensors(opened)
    for name in tensors:
        if is_whole_change(name):
            raise CheckpointError(
                f"{opened.path / WEIGHTS}: {name} is no factor of LoRA (a saved module, or a "
                "magnitude of DoRA), and can be neither exchanged nor merged. Leave this adapter "
                "out, or merge it into its base with PEFT"
            )
    _check_factors(opened, factor_names(tensors))
    return adapter_changes(opened, config, tensors)


def _check_factors(folder: ModelFolder, factors: Mapping[str, Mapping[str, str]]) -> None:
    """Refuse an adapter without changes, and a module with one of its two factors."""
    if not factors:
        raise CheckpointError(
            f"{folder.path / WEIGHTS}: no factors of LoRA; copy the adapter again"
        )
    for module, names in factors.items():
        if len(names) < 2:
            (present,) = names.values()
            raise CheckpointError(
                f"{folder.path / WEIGHTS}: {present} has no other factor, and a change of {module} "
                "needs both; copy the adapter again"
            )


def _layer(module: str) -> str:
    number = _NUMBER_OF_LAYER.search(module)
    if number is None:  # an embedding, or a head
        return module.rpartition(".")[2]
    return number[1]


def _kind(module: str) -> str:
    return module.rpartition(".")[2]


def _whole_name(module: str) -> str:
    return module.removeprefix("model.")


# What is exchanged at once: by its name, the part that a module belongs to.
PARTS: dict[str, Callable[[str], str]] = {
    "layer": _layer,  # all modules of a layer
    "kind": _kind,  # one kind of module, such as q_proj, in all layers
    "module": _whole_name,  # a single module
}


def parts_of(first: AdapterChanges, second: AdapterChanges, *, by: str) -> dict[str, list[str]]:
    """Return the modules of each part in which two adapters differ, in the order of the model.

    Args:
        first: one of the adapters.
        second: the other, of the same base.
        by: ``layer``, ``kind`` or ``module``.

    Raises:
        SpecError: adapters that have no module in common, or one of unlike shapes.
        ValueError: another ``by``.
    """
    part_of = PARTS[check_choice("part", by, PARTS)]
    _check_one_base(first, second)
    parts: dict[str, list[str]] = {}
    for module in sorted(first.by_module.keys() | second.by_module.keys(), key=by_number):
        if not _is_equal(first.by_module.get(module), second.by_module.get(module)):
            parts.setdefault(part_of(module), []).append(module)
    return parts


def _is_equal(first: ModuleChange | None, second: ModuleChange | None) -> bool:
    if first is None or second is None:
        present = first or second
        return present is None or present.is_nothing
    return first.equals(second)


def _check_one_base(first: AdapterChanges, second: AdapterChanges) -> None:
    """Refuse adapters whose modules have other names or shapes."""
    common = first.by_module.keys() & second.by_module.keys()
    if not common:
        raise SpecError(
            f"{second.folder.path}: adapts modules such as {min(second.by_module, default='none')}"
            f", and {first.folder.path} such as {min(first.by_module, default='none')}; expected "
            "adapters of one base, with a module in common"
        )
    for module in sorted(common):
        shape, expected = second.by_module[module].shape, first.by_module[module].shape
        if shape != expected:
            raise SpecError(
                f"{second.folder.path / WEIGHTS}: {module} is {shape[0]} x {shape[1]}, "
                f"that of {first.folder.path} is {expected[0]} x {expected[1]}; expected "
                "adapters of one base"
            )


def write_exchanged(
    adapter: AdapterChanges,
    donor: AdapterChanges,
    modules: Collection[str],
    output: Path | str,
) -> Path:
    """Write an adapter with the changes of some modules taken from a donor; return its folder.

    Args:
        adapter: has the changes of all other modules, and the tokenizer.
        donor: has those of ``modules``.
        modules: names of modules that one of them adapts.
        output: the folder to write, which must not exist.
    """
    from safetensors.torch import save_file

    changes: dict[str, ModuleChange] = {}
    for module in sorted(adapter.by_module.keys() | donor.by_module.keys()):
        source = donor if module in modules else adapter
        change = source.by_module.get(module)
        if change is not None:
            changes[module] = change
    if not changes:  # nothing is changed: an adapter without tensors is none
        changes = _without_effect(adapter)
    tensors = {**donor.of_base, **adapter.of_base}
    for change in changes.values():
        tensors[change.a_name] = change.a.contiguous()
        tensors[change.b_name] = change.b.contiguous()
    with new_folder(Path(output)) as work:
        save_file(tensors, work / WEIGHTS, metadata={"format": "pt"})
        write_json(work / CONFIG, _config(adapter.config, changes))
        copy_present(TOKENIZER_FILES, adapter.folder, work)
    return Path(output)


def _without_effect(adapter: AdapterChanges) -> dict[str, ModuleChange]:
    """Return one of the adapter's modules with a change of 0."""
    module, change = min(adapter.by_module.items())
    nothing = ModuleChange(
        change.a_name, change.a, change.b_name, change.b.new_zeros(change.b.shape), change.scale
    )
    return {module: nothing}


def _config(config: JsonObject, changes: Mapping[str, ModuleChange]) -> JsonObject:
    """Return a configuration that states rank and alpha of each module by its whole name."""
    # A pattern also matches the end of a longer name: the longest name comes first, and counts.
    modules = sorted(changes, key=_longest_first)
    ranks: dict[str, int] = {}
    alphas: dict[str, float] = {}
    for module in modules:
        rank = len(changes[module].a)
        ranks[module] = rank
        alphas[module] = changes[module].scale * rank
    return {
        **config,
        **PLAIN_SELECTION,
        "r": max(ranks.values()),
        "lora_alpha": max(ranks.values()),
        "rank_pattern": ranks,
        "alpha_pattern": alphas,
        "target_modules": sorted(modules),
        "init_lora_weights": True,
    }


def _longest_first(module: str) -> tuple[int, str]:
    return -len(module), module
