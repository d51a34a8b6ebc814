"""Merge LoRA adapters of one base to one adapter.

An adapter changes the matrix of a module by s B A: B of shape (O, r), A of shape (r, I), and its
scale s. Of adapters with weights w, the methods write::

    cat     [B1, B2, ...] and [w1 s1 A1; w2 s2 A2; ...]: exactly the sum of w s B A. Ranks add up.
    svd     that sum at a given rank: the closest matrix of this rank, by singular values.
    linear  the sums of sqrt(w s) B and of sqrt(w s) A: of equal ranks only, and no more than a
            rough stand-in for the sum, as each B is also multiplied with each other A.
    ties    as linear, but each sum is merged by TIES (`qwen3nb.checkpoints.merging`), by PEFT.

They equal PEFT's ``add_weighted_adapter``
(https://huggingface.co/docs/peft/developer_guides/model_merging), which needs the base in memory.
Of rank-stabilised adapters, PEFT's merge has another strength; here, the formulas hold for all.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from qwen3nb.checkpoints.folder import TOKENIZER_FILES, copy_present
from qwen3nb.checkpoints.merging import DENSITIES, check_density, check_weights
from qwen3nb.checkpoints.provenance import AVERAGING
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.checkpoints.writer import check_given_once, check_output
from qwen3nb.models.kinds.adapter_exchange import read_changes
from qwen3nb.models.kinds.lora import CONFIG, WEIGHTS
from qwen3nb.models.kinds.lora_change import PLAIN_SELECTION, AdapterChanges, ModuleChange
from qwen3nb.models.types import ADAPTER_METHODS, SpecError
from qwen3nb.utils.atomic_files import new_folder, write_json
from qwen3nb.utils.choices import check_choice
from qwen3nb.utils.format import short_names

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_METHODS = (*ADAPTER_METHODS, "ties")
_BASE = "base_model_name_or_path"
_INNER_MODEL = "model."  # what the names of modules begin with in a model with a head
_Pair: TypeAlias = "tuple[Tensor, Tensor]"  # A (r, I) and B (O, r) of a module


def merge_adapters(
    adapters: Sequence[Path | str],
    output: Path | str,
    *,
    method: str = "cat",
    weights: Sequence[float] | None = None,
    rank: int | None = None,
    density: float | None = None,
) -> Path:
    """Write one adapter that merges LoRA adapters of one base; return its folder.

    Args:
        adapters: folders of adapters, in their order.
        output: the folder to write.
        method: ``cat``, ``svd``, ``linear`` or ``ties``; the module has their formulas.
        weights: what each adapter's change is multiplied with; by default 1 / number of adapters.
        rank: of the merged adapter, for ``svd``; by default the largest one.
        density: share of values that stay, for ``ties``; by default 0.2.

    Raises:
        SpecError: not LoRA adapters, or of several bases.
        CheckpointError: a tensor that cannot be merged, which is named.
        ValueError: a setting is outside its range, or does not belong to the method.
    """
    output = Path(output)
    check_choice("method", method, _METHODS)
    all_weights = _checked_weights(adapters, weights)
    _check_settings(method, rank=rank, density=density)
    loaded: list[AdapterChanges] = []
    for path, weight in zip(adapters, all_weights, strict=True):
        loaded.append(_weighted(read_changes(path), weight))
    check_output(output, [adapter.folder for adapter in loaded], mark=AVERAGING)
    _check_one_base(loaded)
    if method == "ties" and density is None:
        density = DENSITIES["ties"]
    tensors, merged_rank = _merged_tensors(loaded, method, rank, density)
    merge: dict[str, object] = {"method": method, "weights": list(all_weights), "rank": merged_rank}
    if density is not None:
        merge["density"] = density
    with new_folder(output) as work:
        _write(work, loaded, tensors, merged_rank, merge)
        for adapter in loaded:
            adapter.folder.check_unchanged()
    return output


def _checked_weights(
    adapters: Sequence[Path | str],
    weights: Sequence[float] | None,
) -> tuple[float, ...]:
    """Return a weight per adapter; refuse other numbers of weights, and adapters given twice."""
    if not adapters:
        raise ValueError("no adapters to merge; name two or more folders")
    check_given_once(map(Path, adapters))
    if weights is None:
        return (1 / len(adapters),) * len(adapters)
    check_weights(weights)
    if len(weights) != len(adapters):
        raise ValueError(
            f"{len(weights)} weights for {len(adapters)} adapters; give one weight per adapter, "
            "in the order of the adapters"
        )
    return tuple(weights)


def _check_settings(method: str, *, rank: int | None, density: float | None) -> None:
    check_density(density)
    if density is not None and method != "ties":
        raise ValueError(f"density is of 'ties'; {method!r} has none")
    if rank is not None and method != "svd":
        raise ValueError(f"rank is of 'svd'; that of {method!r} follows from the adapters")
    if rank is not None and rank < 1:
        raise ValueError(f"rank is {rank}, expected 1 or more")


def _weighted(adapter: AdapterChanges, weight: float) -> AdapterChanges:
    """Return an adapter with its changes multiplied by its weight."""
    changes = {}
    for module, change in adapter.by_module.items():
        changes[module] = replace(change, scale=weight * change.scale)
    return replace(adapter, by_module=changes)


def _check_one_base(adapters: Sequence[AdapterChanges]) -> None:
    """Refuse adapters that were trained on different bases."""
    first, *others = adapters
    _check_one_class(adapters)
    base = first.config.get(_BASE)
    for adapter in others:
        other_base = adapter.config.get(_BASE)
        if other_base != base:
            raise SpecError(
                f"{adapter.folder.path / CONFIG}: {_BASE} is {other_base!r:.80}, but that of "
                f"{first.folder.path.name} is {base!r:.80}; merge adapters of one base"
            )


def _check_one_class(adapters: Sequence[AdapterChanges]) -> None:
    """Refuse a module that adapters of two classes of one model name differently.

    A causal model has "model.layers.0", its inner model "layers.0": no model would have both.
    """
    owners: dict[str, AdapterChanges] = {}
    for adapter in adapters:
        for module in adapter.by_module:
            owners.setdefault(module, adapter)
    for module, owner in owners.items():
        other = owners.get(f"{_INNER_MODEL}{module}")
        if other is not None:
            raise CheckpointError(
                f"{owner.folder.path / WEIGHTS}: {module} is {_INNER_MODEL}{module} in "
                f"{other.folder.path / WEIGHTS}; train both on one class, such as "
                "AutoModelForCausalLM"
            )


def _merged_tensors(
    adapters: Sequence[AdapterChanges],
    method: str,
    rank: int | None,
    density: float | None,
) -> tuple[dict[str, Tensor], int]:
    """Return the tensors of the merged adapter, and its rank."""
    modules = sorted({module for adapter in adapters for module in adapter.by_module})
    ranks = [_rank(adapter) for adapter in adapters]
    merged_rank = rank or max(ranks)
    if method == "cat":
        merged_rank = sum(ranks)
    tensors = _tensors_of_base(adapters)
    for module in modules:
        changes_by_file = _changes(adapters, module)
        changes = list(changes_by_file.values())
        if method == "cat":
            a, b = _concatenated(changes)
        elif method == "svd":
            a, b = _closest(changes, merged_rank)
        else:
            _check_equal_ranks(changes_by_file, merged_rank)
            a, b = _sums_of_factors(changes, density)
        dtype = _widest([change.a.dtype for change in changes])
        last = changes[-1]  # the names are those of the last adapter
        tensors[last.a_name] = _padded(a, merged_rank, dim=0).to(dtype)
        tensors[last.b_name] = _padded(b, merged_rank, dim=1).to(dtype)
        for name in (last.a_name, last.b_name):
            _check_finite(name, tensors[name])
    return tensors, merged_rank


def _check_finite(name: str, merged: Tensor) -> None:
    """Refuse a merged tensor with values that its dtype cannot hold."""
    if not merged.isfinite().all():
        raise CheckpointError(
            f"{name}: the merged values are too large for {merged.dtype}, or an adapter has NaN; "
            "give smaller weights"
        )


def _widest(dtypes: Sequence[torch.dtype]) -> torch.dtype:
    """Return the dtype that holds the values of all."""
    import torch

    return functools.reduce(torch.promote_types, dtypes)


def _tensors_of_base(adapters: Sequence[AdapterChanges]) -> dict[str, Tensor]:
    """Return the base's tensors among those of the adapters; refuse those that differ."""
    tensors: dict[str, Tensor] = {}
    for adapter in adapters:
        for name, tensor in adapter.of_base.items():
            if name in tensors and not tensors[name].equal(tensor):
                raise CheckpointError(
                    f"{adapter.folder.path / WEIGHTS}: {name} is of the base, and differs from "
                    "that of another adapter; merge adapters of one base"
                )
            tensors[name] = tensor
    return tensors


def _rank(adapter: AdapterChanges) -> int:
    """Return the largest rank of a module: A is (r, I)."""
    return max(len(change.a) for change in adapter.by_module.values())


def _changes(adapters: Sequence[AdapterChanges], module: str) -> dict[Path, ModuleChange]:
    """Return the changes of a module, by the file of each adapter that has it."""
    changes: dict[Path, ModuleChange] = {}
    for adapter in adapters:
        change = adapter.by_module.get(module)
        if change is None:
            continue
        file = adapter.folder.path / WEIGHTS
        changes[file] = change
        first = next(iter(changes.values()))
        if change.shape != first.shape:
            raise CheckpointError(
                f"{file}: {change.a_name} changes a matrix of "
                f"{change.shape[0]} x {change.shape[1]}, that of {adapters[0].folder.path.name} "
                f"one of {first.shape[0]} x {first.shape[1]}; are they of one base?"
            )
    return changes


def _concatenated(changes: Sequence[ModuleChange]) -> _Pair:
    """Return factors whose product is the sum of the changes."""
    import torch

    a = torch.cat([change.scale * change.a.double() for change in changes])
    b = torch.cat([change.b.double() for change in changes], dim=1)
    return a, b


def _closest(changes: Sequence[ModuleChange], rank: int) -> _Pair:
    """Return factors of the matrix of this rank that is closest to the sum of the changes.

    With B = Q1 R1 and the transpose of A = Q2 R2, the singular values of B A are those of the small
    matrix R1 R2'.
    """
    import torch

    a, b = _concatenated(changes)
    outputs, outputs_factor = torch.linalg.qr(b)
    inputs, inputs_factor = torch.linalg.qr(a.T)
    left, values, right = torch.linalg.svd(outputs_factor @ inputs_factor.T)
    rank = min(rank, len(values))
    closest_b = outputs @ left[:, :rank] * values[:rank]
    closest_a = right[:rank] @ inputs.T
    return closest_a, closest_b


def _sums_of_factors(changes: Sequence[ModuleChange], density: float | None) -> _Pair:
    """Return the sum of all A and that of all B, or with a density their merge by TIES."""
    import torch
    from peft.utils.merge_utils import task_arithmetic, ties

    def merged(matrices: Sequence[Tensor], factors: Sequence[float]) -> Tensor:
        in_float64 = [matrix.double() for matrix in matrices]
        weights = torch.tensor(factors, dtype=torch.float64)
        if density is None:
            return task_arithmetic(in_float64, weights)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The density", UserWarning)  # that of 1
            return ties(in_float64, weights, density)

    # A scale is the product of the factors on both sides; its sign is that of A's.
    roots = [math.sqrt(abs(change.scale)) for change in changes]
    signed_roots = []
    for root, change in zip(roots, changes, strict=True):
        signed_roots.append(math.copysign(root, change.scale))
    a = merged([change.a for change in changes], signed_roots)
    b = merged([change.b for change in changes], roots)
    return a, b


def _check_equal_ranks(changes_by_file: Mapping[Path, ModuleChange], rank: int) -> None:
    """Refuse ranks that differ: sums of factors need matrices of one shape."""
    for file, change in changes_by_file.items():
        if len(change.a) != rank:
            raise CheckpointError(
                f"{file}: the rank of {change.a_name} is {len(change.a)}, that of others {rank}; "
                "'linear' and 'ties' need equal ranks. Use 'cat' or 'svd'"
            )


def _padded(matrix: Tensor, rank: int, *, dim: int) -> Tensor:
    """Return the matrix with zeros up to the rank, which add nothing to the product."""
    import torch

    shape = list(matrix.shape)
    shape[dim] = rank - shape[dim]
    return torch.cat([matrix, matrix.new_zeros(shape)], dim=dim).contiguous()


def _write(
    folder: Path,
    adapters: Sequence[AdapterChanges],
    tensors: Mapping[str, Tensor],
    rank: int,
    merge: Mapping[str, object],
) -> None:
    """Write the merged adapter, with the tokenizer of the last one."""
    from safetensors.torch import save_file

    save_file(dict(tensors), folder / WEIGHTS, metadata={"format": "pt"})
    modules = {module for adapter in adapters for module in adapter.by_module}
    # With alpha = r, the scale of every module is 1.
    config = {
        **adapters[0].config,
        **PLAIN_SELECTION,
        "r": rank,
        "lora_alpha": rank,
        "target_modules": sorted(modules),
        "init_lora_weights": True,
    }
    write_json(folder / CONFIG, config)
    copy_present(TOKENIZER_FILES, adapters[-1].folder, folder)
    names = short_names([str(adapter.folder.path) for adapter in adapters])
    digests = [adapter.folder.weights_in(WEIGHTS).digest for adapter in adapters]
    fields = {
        "averaged_from": names,
        "num_checkpoints": len(adapters),
        "rule": "as given",
        "merge": merge,
        "digests": dict(zip(names, digests, strict=True)),
    }
    write_json(folder / AVERAGING, fields)
