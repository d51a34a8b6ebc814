"""Bounds of settings in the JSON files of models, modules and tokenizers.

Declared here, by name and for any level of a file (``text_config``, ``encoder``), are only settings
that take excessive time, load or run other files, or silently change vectors. transformers checks
the types of other settings, and the resulting shapes are compared with those of the weights.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.models.types import MOST_TOKENS, CheckpointError, JsonObject

_Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]


def _refused(effect: str, expected: str) -> Any:
    """Return the type of a setting that must not be set, with the effect that it would have."""

    def refuse(value: object) -> None:
        raise ValueError(f"is set, so {effect}; expected {expected}")

    return Annotated[Any, AfterValidator(refuse)]


def _inside(name: object) -> object:
    """Refuse the path of a file outside of the folder."""
    if isinstance(name, str) and name != Path(name).name and Path(name).exists():
        raise ValueError("it is outside of the folder; remove that key")
    return name


_FLOATS = "the original model, of plain float weights, or no such key if the weights are floats"
_STOCK = "no such key, if the classes of transformers compute the same"
_COUNTS = r"n_layers?|\w*_(layers|experts|groups|group_num)"
# Patterns of names of settings, and their allowed values other than null.
_BOUNDS: Mapping[str, Any] = {
    # Modules that take long to build before weights are compared.
    _COUNTS: Annotated[int, Field(ge=0, le=1_000)],
    r"\w*norm\w*_eps(ilon)?": Annotated[_Number, Field(gt=0, le=1)],
    r"(?!layer_)\w*rope_theta|rotary_emb_base": Annotated[_Number, Field(gt=0, le=1e12)],
    # One per layer, 0 for a layer without positions.
    r"layer_rope_theta": Annotated[
        list[Annotated[_Number, Field(ge=0, le=1e12)]], Field(max_length=1_000)
    ],
    # A string such as "no" would be true.
    r"add_cross_attention|do_lower_case|is_(causal|decoder|encoder_decoder)|normalize|"
    r"tie_word_embeddings|use_sliding_window": Annotated[bool, Field(strict=True)],
    # A string names the tokens that attend in both directions.
    r"use_bidirectional_attention": Annotated[bool, Field(strict=True)] | Literal["all", "vision"],
    # Texts would be truncated to nothing.
    r"max_(seq_)?length": Annotated[int, Field(strict=True, ge=1, le=MOST_TOKENS)],
    r"model_max_length": Annotated[_Number, Field(ge=1)],
    r"truncate_dim": Annotated[int, Field(strict=True, ge=1, le=1_000_000)],
    r"model_type|(torch_)?dtype": Annotated[str, Field(strict=True)],
    r"pooling_mode": str | list[str],
    # Other names are fetched from the hub, and their code is run.
    r"_?attn_implementation": Literal[
        "eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention"
    ],
    # transformers would load, build or run something not checked here.
    r"auto_map": _refused("code in the folder is the model, and it is never run", _STOCK),
    r"(compression|quantization)_config": _refused("the weights are quantised", _FLOATS),
    r"fusion_config": _refused("modules would be replaced", _STOCK),
    r"transformers_weights": _refused("weights of another name would be read", _FLOATS),
    r"fast_tokenizer_files": _refused("other files are read", "tokenizer.json, and no such key"),
    r"(vocab|merges|tokenizer|spm)_file|(source|target)_spm": Annotated[
        Any, AfterValidator(_inside)
    ],
}
_COMPILED = [(re.compile(names), TypeAdapter(allowed)) for names, allowed in _BOUNDS.items()]
# By type of model, counts of rows of a matrix instead of modules.
_MOST_EXPERTS = 100_000  # in all layers; the largest models known have a quarter of that
_ROWS: Mapping[str, tuple[str, ...]] = {"doge": ("num_experts",)}
_FREE = {"id2label", "label2id", "prompts", "task_specific_params"}  # keys chosen by the user


def check_bounds(
    fields: JsonObject, file: Path, *, path: str = "", free: tuple[str, ...] = ()
) -> None:
    """Check the content of a JSON file, at every level.

    Args:
        fields: its content.
        file: named in errors.
        path: the keys that lead to ``fields``, each followed by a dot.
        free: names of settings that are not checked, because nothing reads them.

    Raises:
        CheckpointError: a setting of another type or out of bounds; names file and setting.
    """
    for name, value in fields.items():
        if value is None or name in _FREE or name in free:
            continue
        adapters = _adapters_of(name, value)
        for adapter in adapters:
            try:
                adapter.validate_python(value)
            except ValidationError as error:
                problem = _problem(error, value)
                raise CheckpointError(f"{file}: {path}{name} {problem}") from None
        # Settings of a part, such as "text_config".
        if isinstance(value, dict) and not adapters:
            check_bounds(value, file, path=f"{path}{name}.", free=free)


def _problem(error: ValidationError, value: object) -> str:
    """Return what is wrong with a value, such as ``is -1; it should be greater than 0``."""
    message = error.errors()[0]["msg"].removeprefix("Value error, ")
    if message.startswith("is set"):  # one of ours, without the value
        return message
    return f"is {value!r:.60}; {message.replace('Input', 'it')}"


def _adapters_of(name: str, value: object) -> list[TypeAdapter[Any]]:
    """Return what validates a setting; several patterns may match its name."""
    adapters = []
    for pattern, adapter in _COMPILED:
        # Numbers of modules may be lists or flags; the library refuses other types.
        is_list_or_flag = pattern.pattern == _COUNTS and type(value) is not int
        if pattern.fullmatch(name) and not is_list_or_flag:
            adapters.append(adapter)
    return adapters


def check_settings(folder: ModelFolder) -> None:
    """Check the settings of a model and of sentence-transformers in a folder; see `check_bounds`.

    Raises:
        CheckpointError: a JSON file that is malformed.
    """
    rows = _ROWS.get(folder.model_type, ())
    check_bounds(folder.config, folder.path / "config.json", free=rows)
    _check_experts(folder.config, folder.path / "config.json", rows)
    for name in ("sentence_bert_config.json", "config_sentence_transformers.json"):
        check_bounds(folder.object(name), folder.path / name)
    folder.object("generation_config.json")


def _check_experts(config: JsonObject, file: Path, rows: tuple[str, ...]) -> None:
    """Refuse more experts in all layers than can be built: each count alone is within bounds."""
    layers, experts = 1, 1
    for name, value in config.items():
        if type(value) is not int or name in rows:
            continue
        if name.endswith("_layers"):
            layers = max(layers, value)
        elif name.endswith("_experts"):
            experts = max(experts, value)
    if layers * experts > _MOST_EXPERTS:
        raise CheckpointError(
            f"{file}: {layers:,} layers of {experts:,} experts; expected at most "
            f"{_MOST_EXPERTS:,} experts in all layers"
        )
    for part in config.values():  # such as "text_config"
        if isinstance(part, dict):
            _check_experts(part, file, rows)
