"""Kinds of models that run as a transformer: pooled encoders and yes/no rerankers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.checkpoints.names import MODEL_TYPES, encoder_tensors
from qwen3nb.models.gate.architecture import check_architecture
from qwen3nb.models.gate.bounds import check_settings
from qwen3nb.models.gate.declared import answers_yes_or_no, as_exported, check_head
from qwen3nb.models.gate.weights import (
    check_encoder,
    check_finite,
    check_weights,
    own_weights,
    warn_of_constants,
)
from qwen3nb.models.kinds.source import FolderKind, Source, StoredSettings
from qwen3nb.models.options import ModelOptions
from qwen3nb.models.types import CheckpointError, SpecError, refusing

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

_log = logging.getLogger(__name__)
# Tasks in transformers with text architectures, other such architectures, and their parts.
_TEXT_TASKS = ("CAUSAL_LM", "MASKED_LM", "SEQ_TO_SEQ_CAUSAL_LM", "TEXT_ENCODING")
_TEXT_TYPES = ("canine", "splinter")
# Encoder-decoders whose encoder is used alone.
ENCODER_DECODERS = {
    "blenderbot",
    "blenderbot-small",
    "longt5",
    "mt5",
    "prophetnet",
    "switch_transformers",
    "t5",
    "t5gemma",
    "t5gemma2",
    "udop",
    "umt5",
}
_TEXT_PARTS = {"attn_config", "decoder", "encoder", "ffn_config"}
_HEAD_SUFFIXES = ("ForCausalLM", "LMHeadModel")  # of classes with an output matrix


class _Transformer(FolderKind):
    """A transformer whose states are pooled."""

    bidirectional = False  # whether it must be bidirectional
    encoder_only = False  # whether it is the encoder of an encoder-decoder
    of_transformers = True  # whether ``architectures`` are classes of transformers

    def check(self, source: Source) -> None:
        folder = source.model_folder
        check_opened(folder)
        model = check_weights(folder, encoder=self.encoder_only)
        check_reads_text(model, folder, alone=True)

    def stored(self, source: Source) -> StoredSettings:
        folder = source.own_folder
        return {
            "pooling": folder.config.get("pooling_mode"),
            "normalize": folder.config.get("normalize", True),
            "max_length": folder.object("sentence_bert_config.json").get("max_seq_length"),
        }

    def load(self, source: Source, options: ModelOptions) -> Any:
        from qwen3nb.models.encoders.transformer import TransformerEncoder

        return TransformerEncoder(source, options)

    def model(
        self, source: Source, dtype: torch.dtype, *, bidirectional: bool = False
    ) -> PreTrainedModel:
        from qwen3nb.models.modeling.qwen3_encoder import check_direction

        folder = source.model_folder
        # A direction that is forced or declared is measured below; any other must be known.
        if self.of_transformers and not bidirectional:
            advice = ""
            if self.directed:
                advice = "; or run it with bidirectional (--bidirectional)"
            check_architecture(folder, advice=advice)
        model = self.build(source, dtype, bidirectional=bidirectional).eval()
        declares_direction = folder.config.get("is_causal") is False
        if bidirectional or self.bidirectional or declares_direction:
            check_direction(model, folder)
        return model

    def build(self, source: Source, dtype: torch.dtype, *, bidirectional: bool) -> PreTrainedModel:
        """Load the transformer."""
        return _stock(source.model_folder, dtype, bidirectional=bidirectional)


class _Encoder(_Transformer):
    """A bidirectional Qwen3, as this package extracts and exports it."""

    name = "encoder"
    bidirectional = True

    def matches(self, folder: ModelFolder) -> bool:
        config = folder.config
        if folder.model_type != "qwen3" or config.get("is_causal") is not False:
            return False
        return not folder.modules or as_exported(folder)

    def build(self, source: Source, dtype: torch.dtype, *, bidirectional: bool) -> PreTrainedModel:
        from qwen3nb.models.modeling.qwen3_encoder import Qwen3EncoderModel

        return _stock(source.model_folder, dtype, model_class=Qwen3EncoderModel)


class _Seq2Seq(_Transformer):
    """An encoder-decoder checkpoint of a Qwen3, whose encoder is extracted in memory."""

    name = "seq2seq"
    bidirectional = True
    of_transformers = False

    def matches(self, folder: ModelFolder) -> bool:
        return folder.model_type in MODEL_TYPES

    def check(self, source: Source) -> None:
        folder = source.model_folder
        check_opened(folder)
        # Any copy of the embedding: they are compared when the model is loaded.
        check_encoder(folder, encoder_tensors(folder, untied=True))

    def stored(self, source: Source) -> StoredSettings:
        return {"pooling": "mean", "normalize": True}

    def build(self, source: Source, dtype: torch.dtype, *, bidirectional: bool) -> PreTrainedModel:
        from qwen3nb.models.modeling.configuration import encoder_config, ignored_settings
        from qwen3nb.models.modeling.qwen3_encoder import Qwen3EncoderModel

        folder = source.model_folder
        model = Qwen3EncoderModel(encoder_config(folder.config))
        stored_names = encoder_tensors(folder)  # by name in the encoder, the name in the checkpoint
        stored_tensors = dict(folder.weights.read_each(stored_names.values()))  # those alone
        weights = {}
        for encoder_name, stored_name in stored_names.items():
            weights[encoder_name] = stored_tensors[stored_name]
        model.load_state_dict(weights)
        check_finite(model, folder)
        warn_of_constants(model, folder)
        for setting in ignored_settings(folder.config):
            _log.warning("%s: %s", folder, setting)
        return model.to(dtype)


class _EncoderDecoder(_Transformer):
    """Another encoder-decoder such as T5Gemma 2, whose encoder is used."""

    name = "t5"
    of_others = True
    encoder_only = True

    def matches(self, folder: ModelFolder) -> bool:
        head = check_head(folder)
        if folder.config.get("is_encoder_decoder"):
            return True
        return head.endswith("EncoderModel") and folder.model_type in ENCODER_DECODERS

    def build(self, source: Source, dtype: torch.dtype, *, bidirectional: bool) -> PreTrainedModel:
        return _stock(source.model_folder, dtype).get_encoder()


class CausalKind(_Transformer):
    """A pre-trained model, such as a causal language model, without pooling."""

    name = "decoder"
    of_others = True
    directed = True
    adaptable = True

    def matches(self, folder: ModelFolder) -> bool:
        """Return whether states of the model's class can be pooled."""
        check_head(folder)
        return True

    def causal(self, source: Source, dtype: torch.dtype) -> PreTrainedModel:
        """Load the model with its output matrix."""
        from transformers import AutoModelForCausalLM

        return _stock(source.model_folder, dtype, model_class=AutoModelForCausalLM)

    def states(self, source: Source, dtype: torch.dtype) -> PreTrainedModel:
        """Load the model without an output matrix."""
        return _stock(source.model_folder, dtype)

    def check_states(self, source: Source) -> PreTrainedModel:
        """Check the model without an output matrix; return it on the meta device."""
        folder = source.model_folder
        check_opened(folder)
        model = check_weights(folder)
        check_reads_text(model, folder, alone=True)
        return model

    def check_causal(self, source: Source) -> PreTrainedModel:
        """Check the model and its output matrix; return it on the meta device."""
        folder = source.model_folder
        check_opened(folder)
        if not has_head(folder):
            raise SpecError(
                f"{folder}: {folder.config['architectures'][0]!r:.80} is not a causal language "
                "model, as a yes/no reranker is; expected a class that ends in "
                f"{' or '.join(_HEAD_SUFFIXES)}"
            )
        check_architecture(folder)
        model = check_weights(folder, head=True)
        check_reads_text(model, folder, alone=True)
        return model


class _Reranker(CausalKind):
    """A causal language model with the files of a cross-encoder of sentence-transformers."""

    name = "reranker"
    of_others = False
    directed = False
    scores_pairs = True

    def matches(self, folder: ModelFolder) -> bool:
        return answers_yes_or_no(folder)

    def load(self, source: Source, options: ModelOptions) -> Any:
        raise SpecError(
            f"{source.folder}: a cross-encoder, which scores pairs and has no vectors; "
            "`qwen3nb rerank pairs` and load_reranker run it"
        )


def has_head(folder: ModelFolder) -> bool:
    """Return whether a folder declares a causal language model with its output matrix."""
    architectures = folder.config.get("architectures") or ()
    return all(str(name).endswith(_HEAD_SUFFIXES) for name in architectures)


def check_opened(folder: ModelFolder) -> None:
    """Check that a folder contains one model, with settings within bounds."""
    folder.check_whole()
    check_settings(folder)


def check_reads_text(model: PreTrainedModel, folder: ModelFolder, *, alone: bool) -> None:
    """Refuse an architecture of transformers for images or sound.

    Args:
        model: from `check_weights`.
        folder: its folder.
        alone: whether it must read only texts, because no module of sentence-transformers handles
            other inputs.
    """
    from transformers.models.auto import modeling_auto

    model_type = model.config.model_type
    types_for_text = set(_TEXT_TYPES)
    for task in _TEXT_TASKS:
        # transformers' own tables, such as MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.
        types_for_text.update(getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES"))
    parts = set(getattr(model.config, "sub_configs", ()))  # such as "vision_config"
    has_other_parts = bool(parts - _TEXT_PARTS)
    is_for_text = model_type in types_for_text and not has_other_parts
    takes_tokens = model.main_input_name == "input_ids"
    if not takes_tokens or (alone and not is_for_text):
        raise CheckpointError(
            f"{folder.path / 'config.json'}: model_type is {model_type!r}, which is not an "
            "architecture for texts alone; expected one such as 'bert' or 'qwen3', or a "
            "multi-modal model with the modules of sentence-transformers"
        )


def _stock(
    folder: ModelFolder, dtype: torch.dtype, *, model_class: Any = None, bidirectional: bool = False
) -> PreTrainedModel:
    """Load a model from a checked folder in transformers' own class."""
    from transformers import AutoConfig, AutoModel

    options: dict[str, object] = {"dtype": dtype}
    # A pickle, which could run code, was checked to contain only tensors.
    options["use_safetensors"] = folder.weights.files[0].suffix == ".safetensors"
    if bidirectional:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        config.is_causal = False
        options["config"] = config
    if model_class is None:
        model_class = AutoModel
    with refusing(folder, "cannot be loaded"):
        model: PreTrainedModel = model_class.from_pretrained(folder, **options)
    model.config.return_dict = True  # whatever config.json says
    own_weights(model)
    check_finite(model, folder)
    warn_of_constants(model, folder)
    return model


ENCODER, SEQ2SEQ, ENCODER_DECODER = _Encoder(), _Seq2Seq(), _EncoderDecoder()
DECODER, RERANKER = CausalKind(), _Reranker()
