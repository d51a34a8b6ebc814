"""Kinds of models that run as a transformer whose states are pooled, or that answers yes or no."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.checkpoints.names import embedding_name, encoder_name
from qwen3nb.checkpoints.provenance import check_checksums
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.checkpoints.weights import Weights
from qwen3nb.models.gate.bounds import check_settings
from qwen3nb.models.gate.declared import answers_yes_or_no, as_exported, check_head
from qwen3nb.models.gate.weights import (
    check_encoder_weights,
    check_finite,
    check_weights,
    own_weights,
    refusing,
)
from qwen3nb.models.kinds.lora import WEIGHTS, adapter_config, load_merged
from qwen3nb.models.kinds.source import Kind, Source, fingerprint, require_expected
from qwen3nb.models.types import ModelFolderError, SpecError
from qwen3nb.utils.atomic_files import sha256_json

if TYPE_CHECKING:
    import torch

# transformers would read these instead of the weights that are checked.
_OTHER_SHARDS = re.compile(r"shard-\d{5}-model-\d{5}-of-\d{5}\.safetensors")
# Files other than the weights that affect what a model computes.
_IDENTIFYING = re.compile(
    r"(config|config_sentence_transformers|modules|sentence_\w+_config|tokenizer|"
    r"tokenizer_config|special_tokens_map|added_tokens|vocab|"
    r"(cnn|lstm|wordembedding|whitespacetokenizer|phrasetokenizer)_config)\.json|"
    r"(merges|vocab)\.txt|.*\.model|chat_template\.jinja"
)
# Tasks of transformers whose architectures read texts, others that do, and what they consist of.
_TEXT = ("CAUSAL_LM", "MASKED_LM", "SEQ_TO_SEQ_CAUSAL_LM", "TEXT_ENCODING")
_TEXT_TYPES = ("canine", "splinter")
_TEXT_PARTS = {"attn_config", "decoder", "encoder", "ffn_config"}
_HEADS = ("ForCausalLM", "LMHeadModel")  # of classes with an output matrix
_SEQ2SEQ = ("qwen3_encdec", "qwen3_encoder_decoder")


class FolderKind(Kind):
    """A model in a folder, identified by its weights and by the files that affect its vectors."""

    framework = ("PyTorch", "Transformers")

    def content(self, source: Source, folder: ModelFolder) -> dict[str, Any]:
        """Return digests of the weights, the other files and those of modules in their folders."""
        extra = self.files(folder)
        files = {
            name: folder.sha256(name)
            for file in sorted(folder.path.rglob("*"))
            if (name := file.relative_to(folder.path).as_posix()) in extra
            or (_IDENTIFYING.fullmatch(file.name) and file.is_file())
        }
        weights = self.weights(folder)
        check_checksums(folder)
        content: dict[str, Any] = {
            "kind": self.name,
            "weights": weights.digest,
            "files": sha256_json(files),
        }
        if modules := self.modules(folder):
            content["modules"] = {path: each.digest for path, each in sorted(modules.items())}
        return content

    def files(self, folder: ModelFolder) -> tuple[str, ...]:
        """Return names of files that affect the vectors, besides those of every kind."""
        return ()

    def weights(self, folder: ModelFolder) -> Weights:
        """Return the weights, without those of modules in folders of their own."""
        folder.check_whole()
        return folder.weights

    def modules(self, folder: ModelFolder) -> dict[str, Weights]:
        """Return the weights of modules of sentence-transformers, such as 2_Dense, by path."""
        return {
            file.parent.name: folder.weights_in(file.relative_to(folder.path).as_posix())
            for file in folder.path.glob("*_*/model.safetensors")
        }


class _Transformer(FolderKind):
    """A transformer whose states are pooled."""

    bidirectional = False  # whether it must prove to be

    def check(self, source: Source) -> None:
        folder = source.model_folder
        check_opened(folder)
        check_reads_text(self.check_model(folder), folder, alone=True)

    def check_model(self, folder: ModelFolder) -> Any:
        """Check the weights, and return the model without values."""
        return check_weights(folder)

    def stored(self, folder: ModelFolder) -> dict[str, Any]:
        return {
            "pooling": folder.config.get("pooling_mode"),
            "normalize": folder.config.get("normalize", True),
            "max_length": folder.object("sentence_bert_config.json").get("max_seq_length"),
        }

    def load(self, source: Source, options: dict[str, Any]) -> Any:
        from qwen3nb.models.encoders.transformer import TransformerEncoder

        kept = {k: v for k, v in options.items() if k not in ("seed", "bidirectional")}
        if options["bidirectional"]:
            kept["bidirectional"] = True
        return TransformerEncoder(source, **kept)

    def model(self, source: Source, dtype: torch.dtype, *, bidirectional: bool = False) -> Any:
        model = self.build(source, dtype, bidirectional=bidirectional)
        if bidirectional or self.bidirectional:
            _check_bidirectional(model, source.model_folder)
        return model

    def build(self, source: Source, dtype: torch.dtype, *, bidirectional: bool) -> Any:
        """Load the transformer."""
        return _stock(source.model_folder, dtype, bidirectional=bidirectional)


class _Encoder(_Transformer):
    """A bidirectional Qwen3, as this package extracts and exports it."""

    name = "encoder"
    bidirectional = True

    def matches(self, folder: ModelFolder) -> bool:
        ours = (
            folder.config.get("model_type") == "qwen3" and folder.config.get("is_causal") is False
        )
        return ours and (not folder.modules or as_exported(folder))

    def build(self, source: Source, dtype: torch.dtype, *, bidirectional: bool) -> Any:
        from qwen3nb.models.modeling.qwen3_encoder import Qwen3EncoderModel

        return _stock(source.model_folder, dtype, kind=Qwen3EncoderModel)


class _Seq2Seq(_Transformer):
    """An encoder-decoder checkpoint of a Qwen3, whose encoder is extracted in memory."""

    name = "seq2seq"
    bidirectional = True

    def matches(self, folder: ModelFolder) -> bool:
        return folder.config.get("model_type") in _SEQ2SEQ

    def check(self, source: Source) -> None:
        check_seq2seq(source.model_folder)

    def stored(self, folder: ModelFolder) -> dict[str, Any]:
        return {"pooling": "mean", "normalize": True}

    def build(self, source: Source, dtype: torch.dtype, *, bidirectional: bool) -> Any:
        from qwen3nb.models.modeling.configuration import encoder_config
        from qwen3nb.models.modeling.qwen3_encoder import Qwen3EncoderModel

        folder, weights = source.model_folder, source.model_folder.weights
        model = Qwen3EncoderModel(encoder_config(folder.config))
        names = {new: name for name in weights.tensors if (new := encoder_name(name)) is not None}
        if embedding := embedding_name(folder):
            names["embed_tokens.weight"] = embedding
        try:
            model.load_state_dict({new: weights.read(name) for new, name in names.items()})
        except RuntimeError as error:
            raise CheckpointError(
                f"{folder}: the weights do not match config.json\n{error}"
            ) from None
        return model.to(dtype)


class _EncoderDecoder(_Transformer):
    """Another encoder-decoder such as T5Gemma 2, whose encoder is used."""

    name = "t5"
    of_others = True

    def matches(self, folder: ModelFolder) -> bool:
        head = check_head(folder)
        return bool(folder.config.get("is_encoder_decoder")) or "EncoderModel" in head

    def check_model(self, folder: ModelFolder) -> Any:
        return check_weights(folder, encoder=True)

    def build(self, source: Source, dtype: torch.dtype, *, bidirectional: bool) -> Any:
        return _stock(source.model_folder, dtype).get_encoder()


class _Decoder(_Transformer):
    """A pre-trained model, such as a causal language model; it has no pooling of its own."""

    name = "decoder"
    of_others = True
    directed = True
    adaptable = True

    def matches(self, folder: ModelFolder) -> bool:
        check_head(folder)
        return True

    def causal(self, source: Source, dtype: torch.dtype) -> Any:
        from transformers import AutoModelForCausalLM

        return _stock(source.model_folder, dtype, kind=AutoModelForCausalLM)

    def check_causal(self, source: Source) -> None:
        folder = source.model_folder
        check_opened(folder)
        for name in folder.config.get("architectures") or ():
            if not str(name).endswith(_HEADS):
                raise SpecError(
                    f"{folder}: {name!r:.80} is not a causal language model, as a yes/no reranker "
                    f"is; expected a class that ends in {' or '.join(_HEADS)}"
                )
        check_reads_text(check_weights(folder, head=True), folder, alone=True)


class _Reranker(_Decoder):
    """A causal language model with the files of a cross-encoder of sentence-transformers."""

    name = "reranker"
    of_others = False
    directed = False

    def matches(self, folder: ModelFolder) -> bool:
        return answers_yes_or_no(folder)

    def load(self, source: Source, options: dict[str, Any]) -> Any:
        raise SpecError(
            f"{source.folder}: a cross-encoder, which scores pairs and has no vectors; "
            "`qwen3nb rerank` and load_reranker run it"
        )


class _Adapter(_Decoder):
    """A LoRA adapter, merged into its base; it pools the end of the text."""

    name = "adapter"
    of_others = False
    adapts = True
    adaptable = False

    def matches(self, folder: ModelFolder) -> bool:
        return False  # `qwen3nb.models.kinds.resolve.adapter_source` looks for its base, too

    def check(self, source: Source) -> None:
        self.check_causal(source)

    def content(self, source: Source, folder: ModelFolder) -> dict[str, Any]:
        return adapter_fingerprint(folder)

    def fingerprint(self, source: Source) -> dict[str, Any]:
        assert source.folder is not None  # noqa: S101 - adapters have one
        assert source.base is not None  # noqa: S101 - and a base
        content = adapter_fingerprint(source.folder.current())
        require_expected(source.folder.path, content)
        return {"kind": self.name, "base": fingerprint(source.base), "adapter": content}

    def stored(self, folder: ModelFolder) -> dict[str, Any]:
        return {"pooling": "last", "normalize": True}

    def load(self, source: Source, options: dict[str, Any]) -> Any:
        return super().load(source, options | {"append_eos": True})

    def build(self, source: Source, dtype: torch.dtype, *, bidirectional: bool) -> Any:
        model = self.causal(source, dtype).model
        if bidirectional:
            model.config.is_causal = False
        return model

    def causal(self, source: Source, dtype: torch.dtype) -> Any:
        import torch

        return load_merged(source, super().causal(source, torch.float32)).to(dtype)


def adapter_fingerprint(folder: Path | ModelFolder) -> dict[str, Any]:
    """Return what the effect of an adapter depends on: its configuration and weights."""
    folder = folder if isinstance(folder, ModelFolder) else ModelFolder(folder)
    # The path of the base during training is no part of its content.
    config = {k: v for k, v in adapter_config(folder).items() if k != "base_model_name_or_path"}
    return {"weights": folder.weights_in(WEIGHTS).digest, "config": sha256_json(config)}


def check_opened(folder: ModelFolder) -> None:
    """Check that there is one model in a folder, and that its settings are within bounds.

    Raises:
        ModelFolderError: a setting out of bounds, or weights that transformers would read instead.
        CheckpointError: see `ModelFolder.check_whole`.
    """
    folder.check_whole()
    if other := next((f for f in folder.path.iterdir() if _OTHER_SHARDS.fullmatch(f.name)), None):
        raise ModelFolderError(f"{other}: a shard of another format next to the model's; remove it")
    check_settings(folder)


def check_seq2seq(folder: ModelFolder) -> None:
    """Check a Qwen3 encoder-decoder, of which only the encoder is used.

    Raises:
        ModelFolderError: see `check_opened` and `check_encoder_weights`.
    """
    check_opened(folder)
    check_encoder_weights(folder)


def check_reads_text(model: Any, folder: ModelFolder, *, alone: bool) -> None:
    """Refuse an architecture of transformers that does not read texts.

    Args:
        model: from `check_weights`.
        folder: its folder.
        alone: whether texts must be all that it reads, as no module of sentence-transformers says
            what becomes of the rest.

    Raises:
        ModelFolderError: an architecture for images or sound, or for several modalities.
    """
    from transformers.models.auto import modeling_auto

    kind = model.config.model_type
    known = any(kind in getattr(modeling_auto, f"MODEL_FOR_{each}_MAPPING_NAMES") for each in _TEXT)
    parts = set(getattr(model.config, "sub_configs", ())) - _TEXT_PARTS
    others = alone and (parts or not (known or kind in _TEXT_TYPES))
    if model.main_input_name != "input_ids" or others:
        raise ModelFolderError(
            f"{folder.path / 'config.json'}: model_type is {kind!r}, which is not an architecture "
            "for texts alone; expected one such as 'bert' or 'qwen3', or a multi-modal model with "
            "the modules of sentence-transformers"
        )


def _stock(
    folder: ModelFolder, dtype: torch.dtype, *, kind: Any = None, bidirectional: bool = False
) -> Any:
    """Load a model, whose folder has been checked, in transformers' own class.

    Raises:
        SpecError: it cannot be loaded, or a weight is not finite.
    """
    from transformers import AutoConfig, AutoModel

    # Without safetensors: a state dict that was checked for tensors only.
    safe = folder.weights.files[0].suffix == ".safetensors"
    options: dict[str, Any] = {"dtype": dtype, "use_safetensors": safe}
    if bidirectional:
        options["config"] = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        options["config"].is_causal = False
    with refusing(folder, "cannot be loaded"):
        model = (kind or AutoModel).from_pretrained(folder, **options)
    own_weights(model)
    check_finite(model, folder)
    return model


def _check_bidirectional(model: Any, folder: ModelFolder) -> None:
    from qwen3nb.models.modeling.qwen3_encoder import causal_leak

    if not causal_leak(model.eval(), vocab_size=model.config.vocab_size) > 0:
        raise SpecError(
            f"{folder}: this transformers release runs the model causally although it should be "
            "bidirectional, so its vectors would be wrong. Install transformers 5.2 or newer; "
            "not every architecture can be made bidirectional"
        )


ENCODER, SEQ2SEQ, ENCODER_DECODER = _Encoder(), _Seq2Seq(), _EncoderDecoder()
DECODER, RERANKER, ADAPTER = _Decoder(), _Reranker(), _Adapter()
