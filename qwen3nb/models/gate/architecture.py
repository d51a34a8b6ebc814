"""Whether the class that a folder names is one of transformers, so that it runs as it was trained.

transformers builds a model from ``model_type`` and ignores ``architectures``. A class of another
author, such as ``LlamaBiModel``, has the weights of a stock model and may attend in another
direction, which no file says. Such a folder is refused, unless its direction is known:

- ``is_causal: false``, or the option ``bidirectional``: the loaded model is then measured;
- an architecture for masked language models, which attends in both directions;
- another spelling of a stock class, or one that transformers has dropped or renamed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.models.types import CheckpointError

# Classes of the same family that differ in their head alone, of releases that had them.
_HEAD_SUFFIXES = (
    "",
    "DoubleHeads",
    "ForCausalLM",
    "ForConditionalGeneration",
    "LMHead",
    "WithLMHead",
)
_FRAMEWORK_PREFIX = re.compile(r"^(Flax|TF)")
# Names by which a class of an encoder's family says that it reads in one direction.
_ONE_DIRECTION = re.compile("caus|decoder|lmhead|unidirectional", re.IGNORECASE)


def check_architecture(folder: ModelFolder, *, advice: str = "") -> None:
    """Check that a folder's ``architectures`` are those of its ``model_type`` in transformers.

    Args:
        folder: a model of transformers.
        advice: another way out, for the error.

    Raises:
        CheckpointError: a class whose direction of attention is not known.
    """
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    config = folder.config
    if config.get("is_causal") is False:  # measured when it is loaded
        return
    model_type = folder.model_type
    if model_type not in CONFIG_MAPPING_NAMES:  # refused where it is built
        return
    is_decoder = bool(config.get("is_decoder"))
    names = config.get("architectures") or []
    if not isinstance(names, list):
        names = [names]
    for name in names:
        if name == "":  # says as much as no name
            continue
        if not _has_known_direction(str(name), model_type, is_decoder=is_decoder):
            raise CheckpointError(
                f"{folder.path / 'config.json'}: architectures names {name!r:.80}, a class that "
                f"transformers lacks for {model_type!r:.40}: it may attend in another direction. "
                "If it is causal, name the stock class there; if not, set is_causal to "
                f"false{advice}"
            )


def _has_known_direction(class_name: str, model_type: str, *, is_decoder: bool) -> bool:
    """Return whether the direction of a class is known, for a model of this type."""
    from transformers.models.auto import modeling_auto

    plain_name = _FRAMEWORK_PREFIX.sub("", class_name).casefold()  # "bertmodel" of TFBertModel
    if plain_name in _in_lower_case(_stock_classes(model_type)):
        return True
    if _is_outside_tables(class_name, model_type):  # one of transformers, without a task
        return True
    has_masked_model = model_type in modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    is_encoder = has_masked_model and not is_decoder
    if is_encoder and _ONE_DIRECTION.search(class_name):  # such as "BertCausal"
        return False
    if plain_name in _in_lower_case(_spellings(model_type)):
        return True
    types_with_class = _types_with_class(plain_name)
    if not types_with_class:  # an unknown class: most likely, it reads as its family does
        return is_encoder
    # A class of another family, which some authors name.
    return _share_direction(types_with_class, both_directions=has_masked_model)


def _share_direction(model_types: set[str], *, both_directions: bool) -> bool:
    """Return whether one of ``model_types`` attends in both directions, or in one only."""
    from transformers.models.auto import modeling_auto

    # Models for masked words see both sides of a gap; those for the next word see one side.
    masked = set(modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES)
    if both_directions:
        return bool(model_types & masked)
    causal = set(modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    encoder_decoders = set(modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES)
    only_causal = causal - masked - encoder_decoders
    return bool(model_types & only_causal)


def _in_lower_case(names: Iterable[str]) -> set[str]:
    return {name.casefold() for name in names}


def _mappings() -> Iterator[dict[str, str | tuple[str, ...]]]:
    """Yield the tables of transformers from types of models to classes, one per task."""
    from transformers.models.auto import modeling_auto

    for name in dir(modeling_auto):
        if name.endswith("_MAPPING_NAMES") and name != "CONFIG_MAPPING_NAMES":
            yield getattr(modeling_auto, name)


def _classes(entry: str | tuple[str, ...]) -> tuple[str, ...]:
    if isinstance(entry, str):
        return (entry,)
    return tuple(entry)


def _stock_classes(model_type: str) -> set[str]:
    """Return the classes of transformers for a type of model, as its tables have them."""
    names: set[str] = set()
    for table in _mappings():
        names.update(_classes(table.get(model_type, ())))
    return names


def _is_outside_tables(class_name: str, model_type: str) -> bool:
    """Return whether transformers has a class that none of its tables names."""
    import transformers

    # Such as "BertPreTrainedModel", which builds nothing.
    is_base_of_family = class_name.endswith("PreTrainedModel")
    if is_base_of_family or not class_name.isidentifier():
        return False
    model_class = getattr(transformers, class_name, None)
    config_class = getattr(model_class, "config_class", None)
    return getattr(config_class, "model_type", None) == model_type


def _spellings(model_type: str) -> set[str]:
    """Return names of classes with other heads than transformers has for a type of model."""
    from transformers.models.auto import modeling_auto

    spellings = set()
    for name in _classes(modeling_auto.MODEL_MAPPING_NAMES.get(model_type, ())):
        family = name.removesuffix("Model")  # "Llama", for LlamaForCausalLM or LlamaLMHeadModel
        for head in _HEAD_SUFFIXES:
            spellings.add(f"{family}{head}")
            spellings.add(f"{family}{head}Model")
    return spellings


def _types_with_class(name: str) -> set[str]:
    """Return the types of models that have a class, whose ``name`` is in lower case."""
    model_types = set()
    for table in _mappings():
        for model_type, entry in table.items():
            if name in _in_lower_case(_classes(entry)):
                model_types.add(model_type)
    return model_types
