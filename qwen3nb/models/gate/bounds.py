"""The bounds of settings, declared once for the JSON files of models of any architecture.

Only what costs time, runs or reads something else, or would change vectors unseen is declared
here, by name and wherever it stands in a file (``text_config``, ``encoder``). transformers checks
the types of other settings, and the shapes they lead to are compared with those of the weights.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.models.types import ModelFolderError

_Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
_Length = Annotated[int, Field(strict=True, ge=1, le=1_000_000_000)]
# Names of settings, as patterns, and what they may be besides null.
_BOUNDS: Mapping[str, Any] = {
    # Modules that take their time to build before a weight is compared.
    r"n_layers?|\w*_(layers|experts|groups|group_num)": Annotated[int, Field(ge=0, le=10_000)],
    r"\w*norm\w*_eps(ilon)?": Annotated[_Number, Field(gt=0, le=1)],
    r"\w*rope_theta|rotary_emb_base": Annotated[_Number, Field(gt=0, le=1e12)],
    # A string such as "no" would be true.
    r"add_cross_attention|do_lower_case|is_(causal|decoder|encoder_decoder)|normalize|"
    r"tie_word_embeddings|use_(bidirectional_attention|sliding_window)": Annotated[
        bool, Field(strict=True)
    ],
    # Texts would be cut to nothing.
    r"max_(seq_)?length": _Length,
    r"model_max_length": Annotated[_Number, Field(ge=1)],
    r"truncate_dim": Annotated[int, Field(strict=True, ge=1, le=1_000_000)],
    r"model_type": Annotated[str, Field(strict=True)],
    # Another name is fetched from the hub, and its code run.
    r"_?attn_implementation": Literal[
        "eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention"
    ],
}
_COMPILED = [(re.compile(names), TypeAdapter(kind)) for names, kind in _BOUNDS.items()]
# Settings that make transformers read, build or run something else than what is checked here.
_FLOATS = "the original model, of plain float weights, or no such key if the weights are floats"
_OWN = "no such key, if the classes of transformers compute the same"
_DIVERTING = {
    "auto_map": ("code in the folder is the model, and it is never run", _OWN),
    "compression_config": ("the weights are quantised", _FLOATS),
    "fusion_config": ("modules would be replaced", _OWN),
    "quantization_config": ("the weights are quantised", _FLOATS),
    "transformers_weights": ("weights of another name would be read", _FLOATS),
}
_FREE = {"id2label", "label2id", "prompts", "task_specific_params"}  # names of the user's own


def check_bounds(fields: Mapping[str, Any], file: Path, *, path: str = "") -> None:
    """Check the content of a JSON file, at every level.

    Args:
        fields: its content.
        file: named in errors.
        path: the keys that lead to ``fields``, each with a dot behind it.

    Raises:
        ModelFolderError: a setting of another type or out of bounds; names file and setting.
    """
    for name, value in fields.items():
        where = f"{file}: {path}{name}"
        if value is None or name in _FREE:
            continue
        if isinstance(value, dict) and name not in _DIVERTING:
            check_bounds(value, file, path=f"{path}{name}.")
            continue
        for names, kind in _COMPILED:
            # Of numbers of modules, the library refuses other types; some are lists or flags.
            if names.fullmatch(name) and (kind is not _COMPILED[0][1] or type(value) is int):
                try:
                    kind.validate_python(value)
                except ValidationError as error:
                    reason = error.errors()[0]["msg"].replace("Input", "it")
                    raise ModelFolderError(f"{where} is {value!r:.60}; {reason}") from None


def check_diverting(fields: Mapping[str, Any], file: Path) -> None:
    """Refuse a ``config.json`` by which transformers would load something else than is checked.

    Raises:
        ModelFolderError: code in the folder, quantised weights or weights of another name.
    """
    for name, value in fields.items():
        if value is not None and name in _DIVERTING:
            effect, wanted = _DIVERTING[name]
            raise ModelFolderError(f"{file}: {name} is set, so {effect}; expected {wanted}")
        if isinstance(value, dict) and name not in _FREE:
            check_diverting(value, file)


def check_settings(folder: ModelFolder) -> None:
    """Check the settings of a model and of sentence-transformers in a folder.

    Raises:
        ModelFolderError: a setting out of bounds, code in the folder or quantised weights; names
            file and setting.
        CheckpointError: a JSON file that is malformed.
    """
    for name in (
        "config.json",
        "sentence_bert_config.json",
        "config_sentence_transformers.json",
        "generation_config.json",
    ):
        fields = folder.object(name)
        if name != "generation_config.json":
            check_bounds(fields, folder.path / name)
    check_diverting(folder.config, folder.path / "config.json")
