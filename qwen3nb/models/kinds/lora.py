"""LoRA adapters, checked against their base and merged into it by PEFT.

An adapter of another model may load partly: tensors without a module are skipped, and modules
without a tensor keep random initial values. PEFT therefore first loads it into the base on torch's
``meta`` device, and unexpected or missing names are errors. PEFT also merges it (Hu et al. 2021,
https://arxiv.org/abs/2106.09685, section 4.1), in float32.

Only ``adapter_model.safetensors`` is read: a pickle can run code.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Required

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.models.gate.tokenizer import TOKENIZER, rust_tokenizer
from qwen3nb.models.gate.weights import check_types
from qwen3nb.models.kinds.source import Settings, Source, fingerprint
from qwen3nb.models.kinds.transformer import CausalKind
from qwen3nb.models.types import SpecError, refusing
from qwen3nb.utils.atomic_files import sha256_json
from qwen3nb.utils.schema import field_problem

if TYPE_CHECKING:
    import torch

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
# Fields of adapter_config.json that change what is computed, and their supported values.
_PLAIN: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "task_type": ("CAUSAL_LM", None),
    "bias": ("none", None),
    "modules_to_save": (None, []),
    "use_dora": (False, None),
    "layers_to_transform": (None,),
    "layer_replication": (None,),
    "trainable_token_indices": (None,),
    "target_parameters": (None, []),
    "fan_in_fan_out": (False, None),
    "init_lora_weights": (True, False, None, "gaussian", "eva", "orthogonal", "olora", "pissa"),
    **dict.fromkeys(
        (
            *("alora_invocation_tokens", "arrow_config", "kasa_config", "lora_bias"),
            *("megatron_config", "monteclora_config", "use_bdlora", "use_qalora", "velora_config"),
        ),
        (None, False),
    ),
}
_SETS = {"target_modules", "exclude_modules"}
_Rank = Annotated[int, Field(ge=1, le=16_384)]  # PEFT allocates it before it compares shapes


class _Fields(TypedDict, total=False):
    """The fields of adapter_config.json that PEFT gets."""

    __pydantic_config__ = ConfigDict(strict=True)  # type: ignore[misc]
    r: Required[_Rank]
    lora_alpha: float
    use_rslora: bool | None
    target_modules: str | Annotated[list[str], Field(max_length=10_000)] | None
    rank_pattern: dict[str, _Rank] | None
    alpha_pattern: dict[str, float] | None


class _Adapter(CausalKind):
    """A LoRA adapter, merged into its base, with last-token pooling."""

    name = "adapter"
    of_others = False
    adapts = True
    adaptable = False

    def matches(self, folder: ModelFolder) -> bool:
        return False  # found by `resolve.adapter_source`, with its base

    def check(self, source: Source) -> None:
        self.check_causal(source)

    def check_causal(self, source: Source) -> Any:
        import torch

        model = super().check_causal(source)
        tensors = source.own_folder.weights_in(WEIGHTS).tensors
        check_types(tensors.values())
        shapes = {name: torch.empty(each.shape, device="meta") for name, each in tensors.items()}
        _adapted(model, source.own_folder, shapes, initialise=True)
        _check_vocabulary(source.own_folder, source.model_folder)
        return model

    def content(self, source: Source, folder: ModelFolder) -> dict[str, Any]:
        return adapter_fingerprint(folder)

    def fingerprint(self, source: Source) -> dict[str, Any]:
        assert source.base is not None  # noqa: S101 - adapters have one
        base, content = fingerprint(source.base), super().fingerprint(source)
        return {"kind": self.name, "base": base, "adapter": content}

    def stored(self, folder: ModelFolder) -> dict[str, Any]:
        return {"pooling": "last", "normalize": True}

    def load(self, source: Source, settings: Settings) -> Any:
        return super().load(source, replace(settings, append_eos=True))

    def build(self, source: Source, dtype: torch.dtype, *, bidirectional: bool) -> Any:
        model = self.causal(source, dtype).model
        if bidirectional:
            model.config.is_causal = False
        return model

    def causal(self, source: Source, dtype: torch.dtype) -> Any:
        import torch

        folder = source.own_folder
        opened, config = folder.weights_in(WEIGHTS), adapter_config(folder)
        way = config.get("init_lora_weights", True)  # two of the methods change the base
        adapted = _adapted(
            super().causal(source, torch.float32),
            folder,
            dict(opened.read_each(opened.tensors)),
            initialise=way if way in ("olora", "pissa") else True,
        )
        with refusing(folder, "PEFT cannot merge it"):
            return adapted.merge_and_unload(safe_merge=True).to(dtype)


ADAPTER = _Adapter()


def _adapted(
    model: Any, folder: ModelFolder, tensors: dict[str, torch.Tensor], *, initialise: Any
) -> Any:
    """Return ``model`` (the base in float32, with its head) with the layers of the adapter.

    PEFT only gets those fields of `adapter_config` that are checked, numbers or names of modules,
    because some fields name Python modules to import. Tensors and modules must match exactly.
    """
    from peft import LoraConfig, PeftModel, set_peft_model_state_dict

    config, file = adapter_config(folder), folder.path / WEIGHTS
    modules = [name for name, _ in model.named_modules()]
    targets = config.get("target_modules") or []
    if isinstance(targets, str) and targets.lower() != "all-linear":
        targets = _matching(folder, targets, modules)
    ranks, alphas = (
        {
            # a key without a module stays, for the warning of PEFT
            "|".join(map(re.escape, _matching(folder, rf"(.*\.)?({key})", modules) or [key])): value
            for key, value in (config.get(name) or {}).items()
        }
        for name in ("rank_pattern", "alpha_pattern")
    )
    with warnings.catch_warnings(), refusing(folder, "PEFT cannot load it into its base"):
        # PEFT still uses a property that transformers has renamed.
        warnings.filterwarnings("ignore", category=FutureWarning, module=r"transformers\..*")
        lora = LoraConfig(
            r=config["r"],
            lora_alpha=config.get("lora_alpha", 8),
            use_rslora=bool(config.get("use_rslora")),
            init_lora_weights=initialise,
            target_modules=targets,
            rank_pattern=ranks,
            alpha_pattern=alphas,
            inference_mode=True,
        )
        adapted = PeftModel(model, lora).eval()
        report = set_peft_model_state_dict(adapted, tensors)
    missing = [name for name in report.missing_keys if ".lora_" in name]
    for names, what in (
        (report.unexpected_keys, "has no module in the base"),
        (missing, "is missing, though it is a target of adapter_config.json"),
    ):
        if names:
            name = names[0].removeprefix("base_model.model.").replace(".default", "")
            raise SpecError(
                f"{file}: {name} {what} ({len(names)} such tensors); was it trained on another?"
            )
    return adapted


def _matching(folder: ModelFolder, pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names that match a pattern; refuse one that takes long, as in `re` many do."""
    import regex

    try:
        return [name for name in names if regex.fullmatch(pattern, name, timeout=1.0)]
    except (regex.error, TimeoutError) as error:
        raise SpecError(
            f"{folder.path / CONFIG}: the pattern {pattern!r:.60} cannot be used ({error}); "
            "expected names of modules, or a regular expression without repeats in repeats"
        ) from None


def adapter_fingerprint(folder: Path | ModelFolder) -> dict[str, Any]:
    """Return what identifies an adapter: its configuration and weights."""
    folder = folder if isinstance(folder, ModelFolder) else ModelFolder(folder)
    # Without the path of the base during training, and with sorted sets of modules, whose order
    # differs between processes.
    config = {
        name: sorted(value, key=str) if name in _SETS and isinstance(value, list) else value
        for name, value in adapter_config(folder).items()
        if name != "base_model_name_or_path"
    }
    return {"weights": folder.weights_in(WEIGHTS).digest, "config": sha256_json(config)}


def adapter_config(folder: ModelFolder) -> dict[str, Any]:
    """Return the content of ``adapter_config.json``.

    Raises:
        SpecError: no such file, or not the configuration of a plain LoRA adapter.
    """
    if not folder.path.is_dir():
        raise SpecError(f"{folder}: no such folder; expected a LoRA adapter")
    if not folder.has(CONFIG):
        raise SpecError(f"{folder}: no adapter_config.json, so this is not a LoRA adapter")
    if not folder.has(WEIGHTS):
        pickled = ", ".join(sorted(each.name for each in folder.path.glob("adapter_model.*")))
        raise SpecError(
            f"{folder}: no {WEIGHTS}"
            + (f"; {pickled} is not read, because such a file can run code" if pickled else "")
        )
    folder.check_files()
    config = folder.object(CONFIG)
    folder.weights_in(WEIGHTS)
    for name, known in _PLAIN.items():
        if config.get(name) not in known and not (name not in config and None in known):
            raise SpecError(
                f"{folder.path / CONFIG}: {name} is {config.get(name)!r:.60}; only plain LoRA is "
                f"supported ({name} {known[0]!r})"
            )
    try:
        TypeAdapter(_Fields).validate_python(config)
    except ValidationError as error:
        raise SpecError(f"{folder.path / CONFIG}: {field_problem(error, config)}") from None
    return config


def _check_vocabulary(folder: ModelFolder, base: ModelFolder) -> None:
    """Check that a tokenizer next to the adapter has the vocabulary of its base."""
    both = [each for each in (folder, base) if each.has(TOKENIZER)]
    if len({each.sha256(TOKENIZER) for each in both}) < 2:
        return
    ours, theirs = (rust_tokenizer(each.path / TOKENIZER).get_vocab() for each in both)
    if odd := sorted(dict(ours.items() ^ theirs.items())):
        raise SpecError(
            f"{folder.path / TOKENIZER}: the token {odd[0]!r:.60} is not the same in the base's "
            f"({len(odd)} such tokens); was the adapter trained on another base?"
        )
