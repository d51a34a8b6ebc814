"""What a model's folder must be before anything is built from it.

`check_model_folder` runs before a model of any kind is loaded. It reads JSON files and the
headers of weight files, builds nothing that has values, and runs no code of the folder.
"""

from __future__ import annotations

import re
from pathlib import Path

from qwen3nb.checkpoints.checkpoint import Checkpoint, open_checkpoint
from qwen3nb.models.gate.configuration_bounds import check_configuration, check_settings
from qwen3nb.models.gate.expected_weights import (
    check_encoder_weights,
    check_length,
    check_reads_text,
    check_weights,
)
from qwen3nb.models.gate.sentence_modules import (
    check_sentence_modules,
    check_widths,
    sentence_modules,
    starts_static,
    states_alone,
    static_width,
)
from qwen3nb.models.gate.static_tables import check_static_folder
from qwen3nb.models.types import ModelFolderError

__all__ = ["check_model_folder"]

# transformers would read these instead of the weights that are checked.
_OTHER_SHARDS = re.compile(r"shard-\d{5}-model-\d{5}-of-\d{5}\.safetensors")
# Encoder-decoders of which sentence-transformers loads the encoder alone.
_ENCODER_ONLY = {
    "blenderbot", "blenderbot-small", "longt5", "mt5", "prophetnet", "switch_transformers", "t5",
    "t5gemma", "t5gemma2", "udop", "umt5",
}  # fmt: skip


def check_model_folder(folder: Path, *, kind: str) -> None:
    """Refuse a folder that cannot be loaded as what it says it is.

    Args:
        folder: the model's folder.
        kind: as in `Source.kind`: ``encoder``, ``seq2seq``, ``sentence-transformers``,
            ``static``, ``t5`` or ``decoder``; or ``causal`` for a causal language model with its
            output matrix.

    Raises:
        ModelFolderError: names the file and the key or tensor, what was expected, what it
            contains, and what to do.
        CheckpointError: a JSON or weight file that is malformed.
    """
    if kind == "static":
        check_static_folder(folder)
        return
    if kind == "sentence-transformers" and not (folder / "config.json").is_file():
        check_settings(folder)
        _check_sentence_transformer(folder)
        return
    opened = _opened(folder)
    if kind == "sentence-transformers":
        _check_sentence_transformer(folder)
    elif kind == "seq2seq":
        check_encoder_weights(opened)
    else:
        model = check_weights(opened, head=kind == "causal", encoder=kind == "t5")
        check_reads_text(model, folder / "config.json", alone=True)
    # The tokenizer: gate/tokenizer.py.


def _opened(folder: Path) -> Checkpoint:
    """Open a folder whose configurations are within bounds."""
    # Files inside the folder: gate/inside.py.
    opened = open_checkpoint(folder)
    if other := next((f for f in folder.iterdir() if _OTHER_SHARDS.fullmatch(f.name)), None):
        raise ModelFolderError(
            f"{other}: a shard of another format beside {opened.files[0].name}; remove one of them"
        )
    check_configuration(opened.config, folder / "config.json")
    check_settings(folder)
    return opened


def _check_sentence_transformer(folder: Path) -> None:
    modules = sentence_modules(folder)
    check_sentence_modules(modules)
    if starts_static(modules):
        check_widths(modules, static_width(modules[0]))
    for module in modules:
        if module.name in ("CLIPModel", "Transformer"):
            opened = _opened(module.folder)
            encoder = opened.config.get("model_type") in _ENCODER_ONLY
            model = check_weights(opened, encoder=encoder, whole=not states_alone(module))
            if states_alone(module):
                check_reads_text(model, module.folder / "config.json", alone=False)
            length = module.fields.get("max_seq_length")
            check_length(model, length, f"{module.file}: max_seq_length")
            if module is modules[0] and states_alone(module):
                check_widths(modules, model.config.get_text_config().hidden_size)
