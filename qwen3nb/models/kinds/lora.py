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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Required

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.checkpoints.weights import Weights
from qwen3nb.models.gate.tokenizer import TOKENIZER, rust_tokenizer
from qwen3nb.models.gate.weights import check_finite, check_types
from qwen3nb.models.kinds.lora_change import (
    CHANGES_BASE,
    AdapterChanges,
    change_of,
    has_no_effect,
    is_of_base,
    module_changes,
)
from qwen3nb.models.kinds.prompts import stored_prompts
from qwen3nb.models.kinds.source import Fingerprint, Source, StoredSettings, fingerprint
from qwen3nb.models.kinds.transformer import CausalKind, has_head
from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.models.options import ModelOptions
from qwen3nb.models.types import INSTRUCTION, JsonObject, SpecError, refusing
from qwen3nb.utils.atomic_files import sha256_json
from qwen3nb.utils.schema import field_problem

if TYPE_CHECKING:
    import torch
    from peft import PeftModel
    from transformers import PreTrainedModel

_log = logging.getLogger(__name__)
WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
# Fields of adapter_config.json that change what is computed, and their supported values.
_SUPPORTED_VALUES: dict[str, tuple[object, ...]] = {
    "peft_type": ("LORA",),
    "task_type": ("CAUSAL_LM", "FEATURE_EXTRACTION", None),
    "bias": ("none", None),
    "layer_replication": (None,),
    "trainable_token_indices": (None,),
    "target_parameters": (None, []),
    "fan_in_fan_out": (False, None),
    "init_lora_weights": (True, False, None, "gaussian", "eva", "orthogonal", "olora", "pissa"),
    "alora_invocation_tokens": (None, False),
    "arrow_config": (None, False),
    "kasa_config": (None, False),
    "lora_bias": (None, False),
    "megatron_config": (None, False),
    "monteclora_config": (None, False),
    "use_bdlora": (None, False),
    "use_qalora": (None, False),
    "velora_config": (None, False),
}
_UNORDERED_FIELDS = {"target_modules", "exclude_modules", "modules_to_save"}
_Rank = Annotated[int, Field(ge=1, le=16_384)]  # PEFT allocates it before it compares shapes
_Layer = Annotated[int, Field(ge=0, le=10_000)]
_Names = Annotated[list[str], Field(max_length=10_000)]
# Room for a pattern that lists every module of a large model by its whole name.
_LONGEST_PATTERN = 100_000
# PEFT uses these as regular expressions; only names are accepted.
_Plain = Annotated[str, Field(pattern=r"^(\w+(\.\w+)*)?$", max_length=1_000)]
_MLX_FILES = ("adapters.safetensors", "adapters.npz")  # what MLX writes
_MLX_FIELDS = {"fine_tune_type", "lora_layers", "lora_parameters"}
# What follows the name of a module in the name of a tensor.
_AFTER_MODULE = re.compile(r"\.(lora_\w+|base_layer|weight|bias)(\.|$).*")
PREFIX = "base_model.model."
_PADDING_TOKEN = re.compile(r"pad(ding)?(_?token)?\W*$", re.IGNORECASE)
_TIED_MODULES = ("embed_tokens", "lm_head")  # what PEFT ties on request
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

    def check_causal(self, source: Source) -> PreTrainedModel:
        model = super().check_causal(source)
        self._check_adapter(source, model)
        return model

    def _check_adapter(self, source: Source, model: PreTrainedModel) -> None:
        """Check that an adapter fits its base, a ``model`` on the meta device."""
        import torch

        folder = source.own_folder
        tensors = folder.weights_in(WEIGHTS).tensors
        check_types(tensors.values())
        empty_tensors = {}
        for name, entry in tensors.items():
            empty_tensors[name] = torch.empty(entry.shape, device="meta")
        # Raises if names or shapes do not fit; without numbers, there is nothing to keep.
        _with_adapter_layers(model, folder, empty_tensors, initialisation=True)
        _check_vocabulary(folder, source.model_folder)

    def content(self, source: Source, folder: ModelFolder) -> Fingerprint:
        content = adapter_fingerprint(folder)
        if folder.modules:
            content |= super().content(source, folder)
        return content

    def weights(self, folder: ModelFolder) -> Weights:
        return folder.weights_in(WEIGHTS)

    def fingerprint(self, source: Source) -> Fingerprint:
        assert source.base is not None  # noqa: S101 - adapters have one
        return {
            "kind": self.name,
            "base": fingerprint(source.base),
            "adapter": super().fingerprint(source),
        }

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

    def build(self, source: Source, dtype: torch.dtype, *, bidirectional: bool) -> PreTrainedModel:
        if has_head(source.model_folder):
            model = self.causal(source, dtype).base_model
        else:
            model = self._merged(source, self.states(source, _float32())).to(dtype)
        if bidirectional:
            model.config.is_causal = False
        return model

    def causal(self, source: Source, dtype: torch.dtype) -> PreTrainedModel:
        return self._merged(source, super().causal(source, _float32())).to(dtype)

    def _merged(self, source: Source, model: PreTrainedModel) -> PreTrainedModel:
        """Merge the adapter into the base in float32, a ``model`` with or without its head."""
        folder = source.own_folder
        config = adapter_config(folder)
        tensors = adapter_tensors(folder)
        if has_no_effect(_change(folder, config, tensors)):
            _log.warning(
                "%s: the adapter has no effect: its B matrices or its scale are all zero, so its "
                "scores are those of its base",
                folder,
            )
        # Two ways to initialise an adapter also change the base; PEFT must do that again.
        initialisation = config.get("init_lora_weights", True)
        if initialisation not in CHANGES_BASE:
            initialisation = True
        adapted = _with_adapter_layers(model, folder, tensors, initialisation=initialisation)
        with refusing(folder, "PEFT cannot merge it"):
            _untie_head(model)
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
    names = [module.name for module in folder.modules]
    if names not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise SpecError(
            f"{folder.path / 'modules.json'}: {', '.join(names)}; with an adapter, expected "
            "Transformer, Pooling and perhaps Normalize. Merge the adapter into the model and "
            "save it again"
        )
    transformer, pooling = folder.modules[:2]
    pooling_name = _pooling_name(pooling.fields)
    pools_prompts = pooling.fields.get("include_prompt", True)
    lowers_case = transformer.fields.get("do_lower_case")
    if pooling_name is None or lowers_case or not pools_prompts:
        modes = ", ".join(rule.stored for rule in POOLINGS.values())
        raise SpecError(
            f"{pooling.file}: with an adapter, expected one pooling ({modes}), prompts included, "
            "and no do_lower_case. Merge the adapter into the model and save it again"
        )
    max_length = transformer.fields.get("max_seq_length")
    return {
        "pooling": pooling_name,
        "normalize": "Normalize" in names,
        "max_length": max_length or _length_limit(folder, base),
    }


def _length_limit(folder: ModelFolder, base: ModelFolder) -> int | None:
    """Return the smaller of the limits that the base and the tokenizer state, if any."""
    stated_limits = (
        base.config.get("max_position_embeddings"),
        folder.object("tokenizer_config.json").get("model_max_length"),
    )
    limits = [int(limit) for limit in stated_limits if isinstance(limit, int | float)]
    return min(limits, default=None)


def _pooling_name(fields: Mapping[str, object]) -> str | None:
    """Return our name of the pooling in the settings of a module Pooling; None for others."""
    mode = fields.get("pooling_mode")
    true_flags = []  # of releases that had no mode
    for name, value in fields.items():
        if name.startswith("pooling_mode_") and value is True:
            true_flags.append(name)
    for name, rule in POOLINGS.items():
        if mode in (rule.stored, [rule.stored]):  # a name, or a list of one
            return name
        if mode is None and true_flags == [rule.flag]:
            return name
    return None


def adapter_change(folder: Path | ModelFolder) -> tuple[float, ...]:
    """Return what an adapter changes, see `qwen3nb.models.kinds.lora_change`.

    Raises:
        SpecError: not a LoRA adapter.
    """
    folder = _opened(folder)
    return _change(folder, adapter_config(folder), adapter_tensors(folder))


def _change(
    folder: ModelFolder, config: JsonObject, tensors: Mapping[str, torch.Tensor]
) -> tuple[float, ...]:
    return change_of(tensors, config, adapter_scales(folder, config, tensors))


def adapter_tensors(folder: ModelFolder) -> dict[str, torch.Tensor]:
    """Return all tensors of an adapter by name."""
    weights = folder.weights_in(WEIGHTS)
    return dict(weights.read_each(weights.tensors))


def adapter_changes(
    folder: ModelFolder, config: JsonObject, tensors: Mapping[str, torch.Tensor]
) -> AdapterChanges:
    """Return what an adapter changes, by module."""
    changes = {}
    scales = adapter_scales(folder, config, tensors)
    for module, change in module_changes(tensors, scales).items():
        changes[module.removeprefix(PREFIX)] = change
    of_base = {name: tensor for name, tensor in tensors.items() if is_of_base(name)}
    return AdapterChanges(folder, config, changes, of_base)


def adapter_scales(
    folder: ModelFolder, config: JsonObject, tensors: Mapping[str, torch.Tensor]
) -> dict[str, float]:
    """Return what the product of a module's factors is multiplied with: alpha / rank.

    The keys are as in the names of tensors: ``base_model.model.`` and the name of the module.
    """
    ranks = {}
    for name, tensor in tensors.items():
        if ".lora_A" in name or ".lora_embedding_A" in name:
            ranks[_module_of(name)] = len(tensor)  # A is (r, I)
    modules = [_module_of(name) for name in tensors]
    alphas = dict.fromkeys(modules, float(config.get("lora_alpha", 8)))
    patterns = config.get("alpha_pattern") or {}
    for pattern, alpha in reversed(patterns.items()):  # the first one counts: it is set last
        # As PEFT does: "q_proj" also stands for "layers.0.self_attn.q_proj".
        for module in _matching(folder, rf"(.*\.)?({pattern})", alphas):
            alphas[module] = float(alpha)
    scales = {}
    for module, rank in ranks.items():
        # alpha / r; of rank-stabilised LoRA, alpha / sqrt(r).
        divisor = rank**0.5 if config.get("use_rslora") else rank
        # With the prefix that is part of every tensor's name.
        scales[PREFIX + module] = alphas[module] / divisor
    return scales


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

    model_type = folder.model_type
    if model_type not in transformers.CONFIG_MAPPING:
        return ""
    # The class that builds such a model with a head, such as LlamaForCausalLM: prefix "model".
    config = transformers.CONFIG_MAPPING[model_type]
    model_class = transformers.MODEL_FOR_CAUSAL_LM_MAPPING.get(config, None)
    return str(getattr(model_class, "base_model_prefix", ""))


def _module_of(tensor: str) -> str:
    """Return the name of the module that a tensor of an adapter belongs to."""
    return _AFTER_MODULE.sub("", tensor.removeprefix(PREFIX))


def _with_adapter_layers(
    model: PreTrainedModel,
    folder: ModelFolder,
    tensors: dict[str, torch.Tensor],
    *,
    initialisation: str | bool,
) -> PeftModel:
    """Return ``model`` (the base in float32) with the layers of the adapter, in place.

    PEFT only gets those fields of `adapter_config` that are checked, numbers or names of modules,
    because some fields name Python modules to import. Tensors and modules must match exactly.
    """
    from peft import LoraConfig, PeftModel, set_peft_model_state_dict

    file = folder.path / WEIGHTS
    part = _named_part(model, tensors)  # the model, or what it has below its head
    options = _lora_options(folder, [name for name, _ in part.named_modules()])
    with _quiet_peft(), refusing(folder, "PEFT cannot load it into its base"):
        lora_config = LoraConfig(**options, init_lora_weights=initialisation, inference_mode=True)
        adapted = PeftModel(part, lora_config).eval()
        try:
            report = set_peft_model_state_dict(adapted, tensors)
        except KeyError as error:
            raise SpecError(
                f"{file}: {_tensor_name(error.args[0])} is missing, though it is in "
                "modules_to_save of adapter_config.json"
            ) from None
    # The base's own weights are missing, too, but they are loaded already.
    missing_factors = [name for name in report.missing_keys if ".lora_" in name]
    if report.unexpected_keys:
        raise _other_base(file, report.unexpected_keys, "has no module in the base")
    if missing_factors:
        problem = "is missing, though it is a target of adapter_config.json"
        raise _other_base(file, missing_factors, problem)
    return adapted


@contextmanager
def _quiet_peft() -> Iterator[None]:
    """Suppress warnings of PEFT that are about nothing that happens here."""
    with warnings.catch_warnings():
        # PEFT still uses a property that transformers has renamed.
        warnings.filterwarnings("ignore", category=FutureWarning, module=r"transformers\..*")
        # Of tied matrices; they are untied here before merging.
        warnings.filterwarnings("ignore", message=r"Model has `tie_word_embeddings=True`")
        warnings.filterwarnings("ignore", message=r"You have requested `ensure_weight_tying`")
        yield


def _other_base(file: Path, tensors: Sequence[str], problem: str) -> SpecError:
    return SpecError(
        f"{file}: {_tensor_name(tensors[0])} {problem} ({len(tensors)} such tensors); was it "
        "trained on another?"
    )


def _tensor_name(tensor: str) -> str:
    """Return the name of a tensor as in an adapter's file, without the part of every name."""
    return str(tensor).removeprefix(PREFIX).replace(".default", "")


def _named_part(model: PreTrainedModel, tensors: Iterable[str]) -> PreTrainedModel:
    """Return the part of a model whose modules an adapter names: the whole, or without its head."""
    adapted_modules = {_module_of(tensor) for tensor in tensors}
    all_modules = {name for name, _ in model.named_modules()}
    modules_without_head = {name for name, _ in model.base_model.named_modules()}
    if adapted_modules & modules_without_head and not adapted_modules & all_modules:
        return model.base_model
    return model


def _lora_options(folder: ModelFolder, modules: Sequence[str]) -> dict[str, Any]:
    """Return PEFT's options of an adapter of a model with these ``modules``.

    Patterns become the names that they match, so that PEFT runs none of a stranger's.
    """
    config = adapter_config(folder)
    excluded = config.get("exclude_modules") or None
    if isinstance(excluded, str):  # a stranger's pattern: PEFT gets the names that it matches
        excluded = _matching(folder, excluded, modules) or None
    targets, ties_weights = _targets(folder, config, modules)
    # An empty list is as good as None.
    return {
        "r": config["r"],
        "lora_alpha": config.get("lora_alpha", 8),
        "use_rslora": bool(config.get("use_rslora")),
        "use_dora": bool(config.get("use_dora")),
        "ensure_weight_tying": ties_weights,
        "target_modules": targets,
        "exclude_modules": excluded,
        "modules_to_save": config.get("modules_to_save") or None,
        "layers_to_transform": config.get("layers_to_transform"),
        "layers_pattern": config.get("layers_pattern") or None,
        "rank_pattern": _by_names(folder, config.get("rank_pattern"), modules),
        "alpha_pattern": _by_names(folder, config.get("alpha_pattern"), modules),
    }


def _targets(
    folder: ModelFolder, config: JsonObject, modules: Sequence[str]
) -> tuple[str | Sequence[str], bool]:
    """Return the target modules, and whether PEFT ties weights."""
    targets = config.get("target_modules") or []
    ties_weights = bool(config.get("ensure_weight_tying"))
    if not isinstance(targets, str):
        if ties_weights:  # whole names in place of their ends, such as "q_proj"
            targets = [name for name in modules if _ends_in(name, targets)]
        return targets, ties_weights
    # PEFT ties what a pattern targets only if it matches "embed_tokens" or "lm_head" alone,
    # or if such a module is saved, by the last part of its name: "lm_head" of "model.lm_head".
    saved_modules = {name.rpartition(".")[2] for name in config.get("modules_to_save") or ()}
    saves_embedding = not saved_modules.isdisjoint(_TIED_MODULES)
    if not saves_embedding and not _matching(folder, targets, _TIED_MODULES):
        ties_weights = False
    if targets.lower() == "all-linear":  # PEFT's word for them, not a pattern
        return targets, ties_weights
    return _matching(folder, targets, modules), ties_weights


def _by_names(
    folder: ModelFolder, values: Mapping[str, float] | None, modules: Sequence[str]
) -> dict[str, float]:
    """Return values by pattern, with patterns that list the names that they match."""
    # PEFT reads keys as patterns; those made of escaped names match nothing else.
    by_names = {}
    for pattern, value in (values or {}).items():
        names = _matching(folder, rf"(.*\.)?({pattern})", modules)
        if not names:  # it stays, for the warning of PEFT
            names = [pattern]
        by_names["|".join(map(re.escape, names))] = value
    return by_names


def _ends_in(name: str, ends: Iterable[str]) -> bool:
    """Return whether a module is one of ``ends``, or inside others by that name, as in PEFT."""
    return any(name == end or name.endswith(f".{end}") for end in ends)


def _untie_head(model: PreTrainedModel) -> None:
    """Give the head of an adapted model its own matrix if an adapter changes it or the embedding.

    Otherwise the merge would change the other one, too, which was not so in training.
    """
    import torch

    head = model.get_output_embeddings()
    if head is None:
        return
    embedding = model.get_input_embeddings()
    is_adapted = hasattr(head, "base_layer") or hasattr(embedding, "base_layer")
    is_saved = hasattr(head, "modules_to_save") or hasattr(embedding, "modules_to_save")
    if not (is_adapted or is_saved):
        return
    # PEFT wraps an adapted layer, whose own matrix is then in `base_layer`.
    if is_adapted and head.weight is embedding.weight:
        plain_head = getattr(head, "base_layer", head)
        copied_weight = plain_head.weight.detach().clone()
        plain_head.weight = torch.nn.Parameter(copied_weight, requires_grad=False)
    model.config.tie_word_embeddings = False


def _float32() -> torch.dtype:
    """Return the dtype that adapters are merged in."""
    import torch

    return torch.float32


def _matching(folder: ModelFolder, pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names that match a pattern; refuse one that takes long, as in `re` many do."""
    import regex

    if len(pattern) > _LONGEST_PATTERN:
        raise SpecError(
            f"{folder.path / CONFIG}: the pattern {pattern!r:.60} has {len(pattern):,} characters; "
            f"expected at most {_LONGEST_PATTERN:,}"
        )
    try:
        return [name for name in names if regex.fullmatch(pattern, name, timeout=1.0)]
    except (regex.error, TimeoutError, RecursionError) as error:
        reason = str(error)
        if isinstance(error, RecursionError):
            reason = "nested too deeply"
        raise SpecError(
            f"{folder.path / CONFIG}: the pattern {pattern!r:.60} cannot be used ({reason}); "
            "expected names of modules, or a regular expression without repeats in repeats"
        ) from None


def adapter_fingerprint(folder: Path | ModelFolder) -> Fingerprint:
    """Return what identifies an adapter: its configuration and weights."""
    folder = _opened(folder)
    config = dict(adapter_config(folder))
    config.pop("base_model_name_or_path", None)  # the path of the base during training
    for name in _UNORDERED_FIELDS & config.keys():
        if isinstance(config[name], list):  # its order differs between processes
            config[name] = sorted(config[name], key=str)
    return {"weights": folder.weights_in(WEIGHTS).digest, "config": sha256_json(config)}


def _opened(folder: Path | ModelFolder) -> ModelFolder:
    if isinstance(folder, ModelFolder):
        return folder
    return ModelFolder(folder)


def adapter_config(folder: ModelFolder) -> JsonObject:
    """Return the content of ``adapter_config.json``.

    Raises:
        SpecError: no such file, or not the configuration of a plain LoRA adapter.
    """
    _check_is_adapter(folder)
    folder.check_files()
    config = folder.object(CONFIG)
    folder.weights_in(WEIGHTS)  # raises if the file is damaged
    for name in _SUPPORTED_VALUES:
        _check_plain(folder, config, name)
    try:
        TypeAdapter(_Fields).validate_python(config)
    except ValidationError as error:
        raise SpecError(f"{folder.path / CONFIG}: {field_problem(error, config)}") from None
    return config


def _check_is_adapter(folder: ModelFolder) -> None:
    """Refuse a folder without the files of an adapter of PEFT."""
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
        raise SpecError(f"{folder}: no {WEIGHTS}{_hint_of_weights(folder)}")


def _check_plain(folder: ModelFolder, config: JsonObject, name: str) -> None:
    """Refuse a value of a field that plain LoRA does not have."""
    supported_values = _SUPPORTED_VALUES[name]  # such as ("none", None); None also if not set
    value = config.get(name)
    may_be_absent = None in supported_values
    if value in supported_values or (name not in config and may_be_absent):
        return
    choices = [repr(choice) for choice in supported_values if choice is not None]
    expected = " or ".join(choices) or "None"
    raise SpecError(
        f"{folder.path / CONFIG}: {name} is {value!r:.60}; only plain LoRA is "
        f"supported ({name} {expected:.60})"
    )


def is_foreign(folder: ModelFolder) -> bool:
    """Return whether a folder has an adapter of MLX, whose files have other names."""
    if folder.has(WEIGHTS):
        return False
    if any(map(folder.has, _MLX_FILES)):
        return True
    config = folder.object(CONFIG)
    return "peft_type" not in config and not _MLX_FIELDS.isdisjoint(config)


def _hint_of_weights(folder: ModelFolder) -> str:
    """Say which weights a folder has instead, why they are not read, and what to do."""
    names = sorted(file.name for file in folder.path.glob("adapter_model*"))
    if not names:
        return ""
    has_pickle = any(name.endswith((".bin", ".pt", ".pth")) for name in names)
    if has_pickle:
        return (
            f"; {names[0]} is not read, because such a file can run code. Load it with PEFT where "
            "you trust it, and save it again (save_pretrained): PEFT 0.7 and newer write "
            f"{WEIGHTS}"
        )
    listed_names = ", ".join(names)
    return f", but {listed_names[:100]}; save the adapter again with PEFT, as one {WEIGHTS}"


def _check_vocabulary(folder: ModelFolder, base: ModelFolder) -> None:
    """Check that a tokenizer next to the adapter has the vocabulary of its base."""
    if not (folder.has(TOKENIZER) and base.has(TOKENIZER)):
        return
    if folder.sha256(TOKENIZER) == base.sha256(TOKENIZER):
        return
    file = folder.path / TOKENIZER
    vocabulary = rust_tokenizer(file).get_vocab()
    base_vocabulary = rust_tokenizer(base.path / TOKENIZER).get_vocab()
    # Tokens that only one of them has, or that have another id.
    different_tokens = sorted(dict(vocabulary.items() ^ base_vocabulary.items()))
    added_tokens = sorted(vocabulary.keys() - base_vocabulary.keys())
    if different_tokens != added_tokens:  # so one is missing, or has another id
        raise SpecError(
            f"{file}: the token {different_tokens[0]!r:.60} is not the same in the base's "
            f"({len(different_tokens)} such tokens); was the adapter trained on another base?"
        )
    # Trainers add a token for padding, which is in no text.
    text_tokens = [token for token in added_tokens if not _PADDING_TOKEN.search(token)]
    if text_tokens:
        raise SpecError(
            f"{file}: adds the token {text_tokens[0]!r:.60}, which its base lacks "
            f"({len(text_tokens)} such tokens). Merge the adapter into its base with PEFT, and "
            "save both with this tokenizer"
        )
