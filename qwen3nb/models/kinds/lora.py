"""LoRA adapters, checked against their base and merged into it by PEFT.

An adapter of another model may load partly: tensors without a module are skipped, and modules
without a tensor keep random initial values. PEFT therefore first loads it into the base on torch's
``meta`` device, and unexpected or missing names are errors. PEFT also merges it (Hu et al. 2021,
https://arxiv.org/abs/2106.09685, section 4.1), in float32.

A model may use one matrix for its input embedding and its head. An adapter of either belongs to
that one alone, so the matrix is copied before merging; otherwise the merge would change both.

Adapters of causal language models name modules of ``AutoModelForCausalLM``, those of embedding
models mostly of ``AutoModel``, which lack its first part (``model.``). Both are loaded.

Only ``adapter_model.safetensors`` is read: a pickle can run code.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Required

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.checkpoints.weights import Weights
from qwen3nb.models.gate.tokenizer import TOKENIZER, rust_tokenizer
from qwen3nb.models.gate.weights import check_finite, check_types
from qwen3nb.models.kinds.lora_change import change_of, has_no_effect
from qwen3nb.models.kinds.prompts import stored_prompts
from qwen3nb.models.kinds.source import Source, StoredSettings, fingerprint
from qwen3nb.models.kinds.transformer import CausalKind, has_head
from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.models.options import ModelOptions
from qwen3nb.models.types import INSTRUCTION, SpecError, refusing
from qwen3nb.utils.atomic_files import sha256_json
from qwen3nb.utils.schema import field_problem

if TYPE_CHECKING:
    import torch

_log = logging.getLogger(__name__)
WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
# Fields of adapter_config.json that change what is computed, and their supported values.
_PLAIN: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "task_type": ("CAUSAL_LM", "FEATURE_EXTRACTION", None),
    "bias": ("none", None),
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
_SETS = {"target_modules", "exclude_modules", "modules_to_save"}
_Rank = Annotated[int, Field(ge=1, le=16_384)]  # PEFT allocates it before it compares shapes
_Layer = Annotated[int, Field(ge=0, le=10_000)]
_Names = Annotated[list[str], Field(max_length=10_000)]
# PEFT uses these as regular expressions; only names are accepted.
_Plain = Annotated[str, Field(pattern=r"^(\w+(\.\w+)*)?$", max_length=1_000)]
_FOREIGN = ("adapters.safetensors", "adapters.npz")  # what MLX writes
_OF_MLX = {"fine_tune_type", "lora_layers", "lora_parameters"}
# What follows the name of a module in the name of a tensor.
_IN_MODULE = re.compile(r"\.(lora_\w+|base_layer|weight|bias)(\.|$).*")
_PREFIX = "base_model.model."
_PADDING = re.compile(r"pad(ding)?(_?token)?\W*$", re.IGNORECASE)
_EMBEDDINGS = ("embed_tokens", "lm_head")  # what PEFT ties on request
_HEAD_MODULES = ("lm_head", "embed_out", "output")  # names of output matrices


class _Fields(TypedDict, total=False):
    """The fields of adapter_config.json that PEFT gets."""

    __pydantic_config__ = ConfigDict(strict=True)  # type: ignore[misc]
    r: Required[_Rank]
    lora_alpha: float
    use_rslora: bool | None
    use_dora: bool | None
    ensure_weight_tying: bool | None
    target_modules: str | _Names | None
    exclude_modules: str | _Names | None
    modules_to_save: Annotated[list[_Plain], Field(max_length=100)] | None
    layers_to_transform: _Layer | Annotated[list[_Layer], Field(max_length=10_000)] | None
    layers_pattern: _Plain | Annotated[list[_Plain], Field(max_length=100)] | None
    rank_pattern: dict[str, _Rank] | None
    alpha_pattern: dict[str, float] | None


class _Adapter(CausalKind):
    """A LoRA adapter, merged into its base.

    By default the last token is pooled, an end-of-text token that follows every input. An adapter
    of an embedding model has the pooling of its base, if that has one, and nothing is appended.
    """

    name = "adapter"
    of_others = False
    adapts = True
    adaptable = False

    def matches(self, folder: ModelFolder) -> bool:
        return False  # found by `resolve.adapter_source`, with its base

    def prompted(self, source: Source) -> Source:
        """Return the source with the prompts that its training used."""
        if source.own_folder.modules:
            return replace(source, prompts=stored_prompts(source.own_folder))
        if embeds(source):
            assert source.base is not None  # noqa: S101 - adapters have one
            return replace(source, prompts=source.base.prompts, instruction=source.base.instruction)
        trained = {"query": "Instruct: {instruction}\nQuery:"}
        return replace(source, prompts=trained, instruction=INSTRUCTION)

    def check(self, source: Source) -> None:
        if has_head(source.model_folder):
            self.check_causal(source)
        else:
            self._check_adapter(source, self.check_states(source))

    def check_causal(self, source: Source) -> Any:
        model = super().check_causal(source)
        self._check_adapter(source, model)
        return model

    def _check_adapter(self, source: Source, model: Any) -> None:
        """Check that an adapter fits its base, a ``model`` on the meta device."""
        import torch

        tensors = source.own_folder.weights_in(WEIGHTS).tensors
        check_types(tensors.values())
        shapes = {name: torch.empty(entry.shape, device="meta") for name, entry in tensors.items()}
        _adapted(model, source.own_folder, shapes, initialise=True)
        _check_vocabulary(source.own_folder, source.model_folder)

    def content(self, source: Source, folder: ModelFolder) -> dict[str, Any]:
        content = adapter_fingerprint(folder)
        return content | super().content(source, folder) if folder.modules else content

    def weights(self, folder: ModelFolder) -> Weights:
        return folder.weights_in(WEIGHTS)

    def fingerprint(self, source: Source) -> dict[str, Any]:
        assert source.base is not None  # noqa: S101 - adapters have one
        base, content = fingerprint(source.base), super().fingerprint(source)
        return {"kind": self.name, "base": base, "adapter": content}

    def stored(self, source: Source) -> StoredSettings:
        if source.own_folder.modules:
            return sentence_settings(source.own_folder, source.model_folder)
        if source.model_folder.modules and embeds(source):
            return sentence_settings(source.model_folder, source.model_folder)
        return {"pooling": "last", "normalize": True}

    def load(self, source: Source, options: ModelOptions) -> Any:
        if not (source.own_folder.modules or embeds(source)):
            options = replace(options, append_eos=True)
        return super().load(source, options)

    def build(self, source: Source, dtype: torch.dtype, *, bidirectional: bool) -> Any:
        if has_head(source.model_folder):
            model = self.causal(source, dtype).base_model
        else:
            model = self._merged(source, self.states(source, _float32())).to(dtype)
        if bidirectional:
            model.config.is_causal = False
        return model

    def causal(self, source: Source, dtype: torch.dtype) -> Any:
        return self._merged(source, super().causal(source, _float32())).to(dtype)

    def _merged(self, source: Source, model: Any) -> Any:
        """Return the base in float32, a ``model`` with or without its head, with its adapter."""
        folder = source.own_folder
        opened, config = folder.weights_in(WEIGHTS), adapter_config(folder)
        if has_no_effect(adapter_change(folder)):
            _log.warning(
                "%s: the adapter has no effect: its B matrices or its scale are all zero, so its "
                "scores are those of its base",
                folder,
            )
        method = config.get("init_lora_weights", True)  # two of the methods change the base
        adapted = _adapted(
            model,
            folder,
            dict(opened.read_each(opened.tensors)),
            initialise=method if method in ("olora", "pissa") else True,
        )
        with refusing(folder, "PEFT cannot merge it"):
            _untie(model)
            adapted.merge_and_unload(safe_merge=True)
        check_finite(model, folder)
        return model


ADAPTER = _Adapter()


def sentence_settings(folder: ModelFolder, base: ModelFolder) -> StoredSettings:
    """Return pooling, normalisation and maximum length in the files of sentence-transformers.

    Args:
        folder: has ``modules.json``: a transformer, a pooling and perhaps a normalisation.
        base: the folder of the transformer's ``config.json``.

    Raises:
        SpecError: other modules, or settings of theirs that are not supported with an adapter.
    """
    file, modules = folder.path / "modules.json", folder.modules
    names = [module.name for module in modules]
    if names not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise SpecError(
            f"{file}: {', '.join(names)}; with an adapter, expected Transformer, Pooling and "
            "perhaps Normalize. Merge the adapter into the model and save it again"
        )
    pooling, lowercase = modules[1], modules[0].fields.get("do_lower_case")
    name = _pooling_of(pooling.fields)
    if name is None or lowercase or not pooling.fields.get("include_prompt", True):
        modes = ", ".join(rule.stored for rule in POOLINGS.values())
        raise SpecError(
            f"{pooling.file}: with an adapter, expected one pooling ({modes}), prompts included, "
            "and no do_lower_case. Merge the adapter into the model and save it again"
        )
    limits = [
        base.config.get("max_position_embeddings"),
        folder.object("tokenizer_config.json").get("model_max_length"),
    ]
    known = [int(limit) for limit in limits if isinstance(limit, int | float)]
    return {
        "pooling": name,
        "normalize": "Normalize" in names,
        "max_length": modules[0].fields.get("max_seq_length") or min(known, default=None),
    }


def _pooling_of(fields: Mapping[str, Any]) -> str | None:
    """Return our name of the pooling in the settings of a module Pooling; None for others."""
    mode = fields.get("pooling_mode")
    flags = [name for name in fields if name.startswith("pooling_mode_") and fields[name] is True]
    for name, rule in POOLINGS.items():
        if mode in (rule.stored, [rule.stored]) or (mode is None and flags == [rule.flag]):
            return name
    return None


def adapter_change(folder: Path | ModelFolder) -> tuple[float, ...]:
    """Return what an adapter changes, see `qwen3nb.models.kinds.lora_change`.

    Raises:
        SpecError: not a LoRA adapter.
    """
    folder = folder if isinstance(folder, ModelFolder) else ModelFolder(folder)
    opened, config = folder.weights_in(WEIGHTS), adapter_config(folder)
    tensors = dict(opened.read_each(opened.tensors))
    modules = {_module_of(name): name for name in tensors}
    ranks = {
        _module_of(name): len(tensor)
        for name, tensor in tensors.items()
        if ".lora_A" in name or ".lora_embedding_A" in name
    }
    alphas = dict.fromkeys(modules, float(config.get("lora_alpha", 8)))
    for pattern, value in reversed((config.get("alpha_pattern") or {}).items()):
        for module in _matching(folder, rf"(.*\.)?({pattern})", list(modules)):
            alphas[module] = float(value)
    power = 0.5 if config.get("use_rslora") else 1.0
    scales = {_PREFIX + module: alphas[module] / ranks[module] ** power for module in ranks}
    return change_of(tensors, config, scales)


def embeds(source: Source) -> bool:
    """Return whether an adapter was trained on a model without a head, to embed texts."""
    folder = source.own_folder
    if adapter_config(folder).get("task_type") == "FEATURE_EXTRACTION":
        return True
    prefix = _causal_prefix(source.model_folder)
    modules = {_module_of(name) for name in folder.weights_in(WEIGHTS).tensors}
    roots = {module.partition(".")[0] for module in modules}
    return bool(prefix) and not roots & {prefix, *_HEAD_MODULES}


def _causal_prefix(folder: ModelFolder) -> str:
    """Return the first part of the names of modules in an architecture's class with a head."""
    import transformers

    model_type = folder.config.get("model_type")
    if model_type not in transformers.CONFIG_MAPPING:
        return ""
    config = transformers.CONFIG_MAPPING[model_type]
    kind = transformers.MODEL_FOR_CAUSAL_LM_MAPPING.get(config, None)
    return str(getattr(kind, "base_model_prefix", ""))


def _module_of(tensor: str) -> str:
    """Return the name of the module that a tensor of an adapter belongs to."""
    return _IN_MODULE.sub("", tensor.removeprefix(_PREFIX))


def _adapted(
    model: Any, folder: ModelFolder, tensors: dict[str, torch.Tensor], *, initialise: Any
) -> Any:
    """Return ``model`` (the base in float32) with the layers of the adapter, in place.

    PEFT only gets those fields of `adapter_config` that are checked, numbers or names of modules,
    because some fields name Python modules to import. Tensors and modules must match exactly.
    """
    from peft import LoraConfig, PeftModel, set_peft_model_state_dict

    file = folder.path / WEIGHTS
    part = _named_part(model, tensors)
    options = _lora_options(folder, [name for name, _ in part.named_modules()])
    with warnings.catch_warnings(), refusing(folder, "PEFT cannot load it into its base"):
        # PEFT still uses a property that transformers has renamed.
        warnings.filterwarnings("ignore", category=FutureWarning, module=r"transformers\..*")
        # Of tied matrices; they are untied here before merging.
        warnings.filterwarnings("ignore", message=r"Model has `tie_word_embeddings=True`")
        warnings.filterwarnings("ignore", message=r"You have requested `ensure_weight_tying`")
        lora = LoraConfig(**options, init_lora_weights=initialise, inference_mode=True)
        adapted = PeftModel(part, lora).eval()
        try:
            report = set_peft_model_state_dict(adapted, tensors)
        except KeyError as error:
            raise SpecError(
                f"{file}: {_shown(error.args[0])} is missing, though it is in modules_to_save of "
                "adapter_config.json"
            ) from None
    missing = [name for name in report.missing_keys if ".lora_" in name]
    for names, what in (
        (report.unexpected_keys, "has no module in the base"),
        (missing, "is missing, though it is a target of adapter_config.json"),
    ):
        if names:
            raise SpecError(
                f"{file}: {_shown(names[0])} {what} ({len(names)} such tensors); was it trained "
                "on another?"
            )
    return adapted


def _shown(tensor: str) -> str:
    """Return the name of a tensor as in an adapter's file, without the part of every name."""
    return str(tensor).removeprefix(_PREFIX).replace(".default", "")


def _named_part(model: Any, tensors: Iterable[str]) -> Any:
    """Return the part of a model whose modules an adapter names: the whole, or without its head."""
    named = {_module_of(tensor) for tensor in tensors}
    whole = {name for name, _ in model.named_modules()}
    inside = {name for name, _ in model.base_model.named_modules()}
    return model.base_model if named & inside and not named & whole else model


def _lora_options(folder: ModelFolder, modules: Sequence[str]) -> dict[str, Any]:
    """Return PEFT's options of an adapter of a model with these ``modules``.

    Patterns become the names that they match, so that PEFT runs none of a stranger's.
    """
    config = adapter_config(folder)
    tying = bool(config.get("ensure_weight_tying"))
    targets = config.get("target_modules") or []
    if isinstance(targets, str):
        # PEFT ties what a pattern targets only if it matches one of these names alone.
        saved = {name.rpartition(".")[2] for name in config.get("modules_to_save") or ()}
        tied = {*_EMBEDDINGS} & saved or _matching(folder, targets, _EMBEDDINGS)
        tying = tying and bool(tied)
        if targets.lower() != "all-linear":
            targets = _matching(folder, targets, modules)
    elif tying:
        targets = [name for name in modules if _ends_in(name, targets)]
    excluded = config.get("exclude_modules") or None
    if isinstance(excluded, str):
        excluded = _matching(folder, excluded, modules) or None
    patterns: dict[str, dict[str, Any]] = {}
    for field in ("rank_pattern", "alpha_pattern"):
        patterns[field] = {}
        for pattern, value in (config.get(field) or {}).items():
            # a pattern without a module stays, for the warning of PEFT
            names = _matching(folder, rf"(.*\.)?({pattern})", modules) or [pattern]
            patterns[field]["|".join(map(re.escape, names))] = value
    return {
        "r": config["r"],
        "lora_alpha": config.get("lora_alpha", 8),
        "use_rslora": bool(config.get("use_rslora")),
        "use_dora": bool(config.get("use_dora")),
        "ensure_weight_tying": tying,
        "target_modules": targets,
        "exclude_modules": excluded,
        "modules_to_save": config.get("modules_to_save") or None,
        "layers_to_transform": config.get("layers_to_transform"),
        "layers_pattern": config.get("layers_pattern") or None,
        **patterns,
    }


def _ends_in(name: str, ends: Iterable[str]) -> bool:
    """Return whether a module is one of ``ends``, or inside others by that name, as in PEFT."""
    return any(name == end or name.endswith(f".{end}") for end in ends)


def _untie(model: Any) -> None:
    """Give the head of an adapted model its own matrix if an adapter changes it or the embedding.

    Otherwise the merge would change the other one, too, which was not so in training.
    """
    import torch

    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    adapted = [module for module in (head, embedding) if hasattr(module, "base_layer")]
    saved = [module for module in (head, embedding) if hasattr(module, "modules_to_save")]
    if head is None or not (adapted or saved):
        return
    if adapted and head.weight is embedding.weight:
        plain = getattr(head, "base_layer", head)
        plain.weight = torch.nn.Parameter(plain.weight.detach().clone(), requires_grad=False)
    model.config.tie_word_embeddings = False


def _float32() -> torch.dtype:
    """Return the dtype that adapters are merged in."""
    import torch

    return torch.float32


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
    if is_foreign(folder):
        raise SpecError(
            f"{folder}: an adapter of MLX, not of PEFT. Fuse it into its base (`mlx_lm.fuse`) and "
            "give the fused model, or convert it to PEFT's format"
        )
    if not folder.has(CONFIG):
        raise SpecError(f"{folder}: no adapter_config.json, so this is not a LoRA adapter")
    if not folder.has(WEIGHTS):
        raise SpecError(f"{folder}: no {WEIGHTS}{_other_weights(folder)}")
    folder.check_files()
    config = folder.object(CONFIG)
    folder.weights_in(WEIGHTS)
    for name, known in _PLAIN.items():
        if config.get(name) not in known and not (name not in config and None in known):
            values = " or ".join(repr(value) for value in known if value is not None)
            raise SpecError(
                f"{folder.path / CONFIG}: {name} is {config.get(name)!r:.60}; only plain LoRA is "
                f"supported ({name} {values or None!s:.60})"
            )
    try:
        TypeAdapter(_Fields).validate_python(config)
    except ValidationError as error:
        raise SpecError(f"{folder.path / CONFIG}: {field_problem(error, config)}") from None
    return config


def is_foreign(folder: ModelFolder) -> bool:
    """Return whether a folder has an adapter of MLX, whose files have other names."""
    if folder.has(WEIGHTS):
        return False
    config = folder.object(CONFIG)
    return any(map(folder.has, _FOREIGN)) or (
        "peft_type" not in config and bool(_OF_MLX & {*config})
    )


def _other_weights(folder: ModelFolder) -> str:
    """Say which weights a folder has instead, why they are not read, and what to do."""
    names = sorted(file.name for file in folder.path.glob("adapter_model*"))
    if not names:
        return ""
    if any(name.endswith((".bin", ".pt", ".pth")) for name in names):
        return (
            f"; {names[0]} is not read, because such a file can run code. Load it with PEFT where "
            "you trust it, and save it again (save_pretrained): PEFT 0.7 and newer write "
            f"{WEIGHTS}"
        )
    return f", but {', '.join(names)[:100]}; save the adapter again with PEFT, as one {WEIGHTS}"


def _check_vocabulary(folder: ModelFolder, base: ModelFolder) -> None:
    """Check that a tokenizer next to the adapter has the vocabulary of its base."""
    if not (folder.has(TOKENIZER) and base.has(TOKENIZER)):
        return
    if folder.sha256(TOKENIZER) == base.sha256(TOKENIZER):
        return
    ours = rust_tokenizer(folder.path / TOKENIZER).get_vocab()
    theirs = rust_tokenizer(base.path / TOKENIZER).get_vocab()
    odd = sorted(dict(ours.items() ^ theirs.items()))
    added = sorted(ours.keys() - theirs.keys())
    if odd != added:
        raise SpecError(
            f"{folder.path / TOKENIZER}: the token {odd[0]!r:.60} is not the same in the base's "
            f"({len(odd)} such tokens); was the adapter trained on another base?"
        )
    # Trainers add a token for padding, which is in no text.
    if used := [token for token in added if not _PADDING.search(token)]:
        raise SpecError(
            f"{folder.path / TOKENIZER}: adds the token {used[0]!r:.60}, which its base lacks "
            f"({len(used)} such tokens). Merge the adapter into its base with PEFT, and save both "
            "with this tokenizer"
        )
