"""sentence-transformers models, on this package's fast path where possible.

sentence-transformers loads every model and tokenises its texts. Models that consist of a packable
transformer, a known pooling and optionally a normalisation run on this package's fast path; others,
such as static ones, run in sentence-transformers. Tests check that the vectors agree. Vectors are
normalised only if the model's files say so, or on request.
"""

import importlib.metadata
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from qwen3nb.models.encoders.base import ADDED, Encoder, beside_blanks
from qwen3nb.models.encoders.padding import UNPADDED, check_repeatable, depends_on_padding
from qwen3nb.models.encoders.static import whole_lengths
from qwen3nb.models.gate.tokenizer import check_loaded, check_tokenizer
from qwen3nb.models.gate.weights import (
    check_finite,
    check_length,
    own_weights,
    warn_of_constants,
)
from qwen3nb.models.inference.int8_layers import COMPUTATION, calibration_rows
from qwen3nb.models.inference.int8_linear import no_int8
from qwen3nb.models.inference.packing import packing_of, varlen_kernel
from qwen3nb.models.inference.runner import Runner
from qwen3nb.models.kinds.source import Source
from qwen3nb.models.modeling import runtime
from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.models.modeling.qwen3_encoder import check_direction
from qwen3nb.models.options import ModelOptions
from qwen3nb.models.types import Settings, SpecError, Vectors, refusing, torch_dtype

_POOLING_BY_STORED_NAME = {rule.stored: name for name, rule in POOLINGS.items()}
_PLAIN_TEXT_CONFIG = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
_TOKEN_FEATURES = {"input_ids", "attention_mask", "token_type_ids", "modality"}


class SentenceTransformerEncoder(Encoder):
    """A sentence-transformers model.

    Attributes:
        runner: runs the model; None if sentence-transformers runs it.
        parameters: number of parameters, embeddings included.
    """

    def __init__(self, source: Source, options: ModelOptions) -> None:
        _check_options(source, options)
        dtype = torch_dtype(options.dtype)
        self._model = _load(source, device=runtime.pick_device(options.device), dtype=dtype)
        self.device = str(self._model.device)
        self.width = self._model.get_embedding_dimension()
        self.parameters = sum(parameter.numel() for parameter in self._model.parameters())
        self.tokenizer = self._model.tokenizer
        self._special = runtime.special_tokens(self.tokenizer)
        modules = list(self._model)
        first_class = type(modules[0]).__name__
        last_class = type(modules[-1]).__name__
        self.supports_prompts = all(getattr(module, "include_prompt", True) for module in modules)
        # The tokenizer of a table of vectors, which is not one of transformers.
        self._static = modules[0].tokenizer if first_class == "StaticEmbedding" else None
        self._tokenless = None
        if first_class in ("StaticEmbedding", "WordEmbeddings"):
            self._tokenless = self._has_no_token
        self.max_length: int | None = self._set_max_length(source, options)
        model_normalizes = last_class == "Normalize"
        if model_normalizes and options.normalize is False:
            raise SpecError(
                f"{source.label} normalises its vectors (modules.json); normalize=False is for "
                "Qwen3 encoders and language models"
            )
        self.normalize = model_normalizes or bool(options.normalize)
        self.runner = _runner(self._model, options, normalize=self.normalize)
        self._may_pad = True  # whether sentence-transformers may pad texts
        if self.runner is None and self._static is None:
            self._check_padding(source, options)
        super().__init__(source, options, settings=self._settings(source, options))
        self.prompted(self.prompts)  # raises if they are not supported

    def _set_max_length(self, source: Source, options: ModelOptions) -> int | None:
        """Set the maximum length that the user gives, and return the one in use."""
        option_name = f"{source.label}: max_length"
        check_length(self._model, options.max_length, option_name)
        length: int | None
        if self._static is not None:
            if options.max_length is not None:
                self._static.enable_truncation(options.max_length)
            truncation = self._static.truncation or {}  # such as {"max_length": 512, …}, or None
            length = truncation.get("max_length")
            return length
        if options.max_length is not None:
            self._model.max_seq_length = options.max_length
        length = self._model.max_seq_length
        runtime.check_room(self._model.tokenizer, length, option_name)
        return length

    def _settings(self, source: Source, options: ModelOptions) -> Settings:
        """Return all that the vectors depend on, apart from content and prompts."""
        release = importlib.metadata.version("sentence-transformers").split(".")[0]
        settings = {"max_length": self.max_length, **self._comparison(source, options)}
        settings["versions"] = {**runtime.library_versions(), "sentence-transformers": release}
        if self.runner:
            attention = self.runner.attention
        else:  # BigBird attends to all tokens from its first short text on.
            transformer = getattr(self._model[0], "model", None)
            attention = getattr(transformer, "attention_type", None)
        if attention:
            settings["attention"] = attention
        if not self._may_pad:
            settings.update(UNPADDED)
        if options.dtype == "int8":
            settings["int8"] = COMPUTATION
        return settings

    def _embed(self, texts: Sequence[str]) -> Vectors:
        if self.runner is not None:
            self.runner.batch_size = self.batch_size
            return self.runner.encode(texts, self._tokenise, done=self._report_done)
        self.stats.cut += self._truncated(texts)
        if self._may_pad:
            return beside_blanks(self._encode_by_library, texts)
        # Padding would change vectors, so that only texts of equal length share a batch.
        rows_by_length: dict[int, list[int]] = {}
        for row, length in enumerate(self._lengths(texts)):
            rows_by_length.setdefault(length, []).append(row)
        vectors = np.empty((len(texts), self.width), dtype=np.float32)
        for rows in rows_by_length.values():
            texts_of_length = [texts[row] for row in rows]
            vectors[rows] = beside_blanks(self._encode_by_library, texts_of_length)
        return vectors

    def _lengths(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text."""
        from transformers import PreTrainedTokenizerBase

        if not isinstance(self.tokenizer, PreTrainedTokenizerBase):
            return [len(self.tokenizer.tokenize(text)) for text in texts]
        rows, _ = runtime.token_rows(self.tokenizer, texts, max_length=self.max_length)
        return [len(row) for row in rows]

    def _check_padding(self, source: Source, options: ModelOptions) -> None:
        """Run without padding if it changes vectors; see `qwen3nb.models.encoders.padding`."""

        def encode(texts: Sequence[str]) -> Vectors:
            vectors: Vectors = self._model.encode(
                list(texts), prompt="", batch_size=len(texts), show_progress_bar=False
            )
            return np.asarray(vectors, dtype=np.float32)

        words = "a text"
        if self._tokenless is not None and self._tokenless(words):  # a vocabulary without it
            first_words = list(self.tokenizer.get_vocab())[:2]  # any two that it has
            words = " ".join(first_words)
        dtype = options.dtype
        with refusing(source.own_folder, "it cannot run a text"):
            self._may_pad = not depends_on_padding(encode, words=words, dtype=dtype)
            if not self._may_pad:
                check_repeatable(encode, source.label, words=words, dtype=dtype)

    def _encode_by_library(self, texts: Sequence[str]) -> Vectors:
        """Return vectors computed by sentence-transformers."""
        batch_size = self.batch_size
        if self._static:  # nothing is padded
            batch_size = len(texts)
        vectors: Vectors = self._model.encode(
            list(texts),
            prompt="",  # it is already part of the text; a default would be added again
            batch_size=batch_size,
            show_progress_bar=False,
            convert_to_numpy=True,
            normalize_embeddings=self.normalize,
        )
        return vectors.astype(np.float32, copy=False)

    def _tokenise(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of sentence-transformers, without its padding."""
        rows, cut = runtime.token_rows(self.tokenizer, texts, max_length=self.max_length)
        self.stats.cut += cut if self.tokenizer.is_fast else self._truncated(texts)
        return rows

    @property
    def longest(self) -> int | None:
        """Most tokens of a text; None for any, or if its tokenizer counts none."""
        from transformers import PreTrainedTokenizerBase

        if self._static or isinstance(self._model.tokenizer, PreTrainedTokenizerBase):
            return self.max_length
        return None

    def token_counts(self, texts: Sequence[str]) -> list[int]:
        """Return how many tokens each text has, however long it is, with those that are added."""
        if self._static:
            return whole_lengths(self._static, texts)
        return runtime.token_counts(self._model.tokenizer, texts)

    def _truncated(self, texts: Sequence[str]) -> int:
        """Return how many texts are truncated.

        A text has at most one token per byte, and a few added by the tokenizer.
        """
        limit = self.longest
        if limit is None:
            return 0
        # A text has at most a token per byte, and the few that are added to it.
        long_texts = [text for text in texts if len(text.encode("utf-8")) + ADDED > limit]
        return sum(length > limit for length in self.token_counts(long_texts))

    def _has_no_token(self, text: str) -> bool:
        if self._static is None:
            return not self._model.tokenizer.tokenize(text)
        return not self._static.encode(text, add_special_tokens=False).ids


def _check_options(source: Source, options: ModelOptions) -> None:
    """Refuse options that the files of sentence-transformers decide."""
    if options.prefix or options.append_eos:
        raise SpecError(
            f"{source.label} runs as its sentence-transformers files define; prefix and "
            "append_eos are for Qwen3 encoders and language models"
        )
    if options.pooling is not None:
        raise SpecError(
            f"{source.label} defines its own pooling (modules.json); "
            f"leave pooling at 'auto', not {options.pooling!r}"
        )


def _load(source: Source, *, device: str, dtype: torch.dtype) -> Any:
    from sentence_transformers import SentenceTransformer

    folder = source.own_folder
    modules = folder.modules
    for module in modules:
        if module.name in ("StaticEmbedding", "Transformer"):
            check_tokenizer(module.folder)
    # A pickle was checked to have only tensors, which is how transformers reads it.
    safe = True
    if modules[0].name == "Transformer":
        files = modules[0].folder.weights.files
        safe = all(file.suffix == ".safetensors" for file in files)
    with refusing(folder, "sentence-transformers cannot load it"):
        model = SentenceTransformer(
            str(folder), device=device, model_kwargs={"dtype": dtype, "use_safetensors": safe}
        ).eval()
    if modules[0].name == "StaticEmbedding":
        check_loaded(model.tokenizer, rows=model[0].num_embeddings, folder=folder)
        model.to(dtype)  # sentence-transformers converts only transformers
    elif modules[0].name == "Transformer":
        config = model[0].model.config
        config.return_dict = True
        rows = config.get_text_config().vocab_size
        if modules[0].folder.config.get("is_causal") is False:
            check_direction(model[0].model, modules[0].folder)
        check_loaded(model.tokenizer, rows=rows, folder=modules[0].folder)
    own_weights(model)
    check_finite(model, folder)
    warn_of_constants(model, folder)
    with refusing(folder, "its modules do not fit each other"):
        width = model.encode(["a text"], prompt="").shape[1]
        stated_width = model.get_embedding_dimension()
        if width != stated_width:
            raise ValueError(f"vectors of {width} numbers, its configuration says {stated_width}")
    return model


def _runner(model: Any, options: ModelOptions, *, normalize: bool) -> Runner | None:
    """Return the runner for ``model``, or None if sentence-transformers must run it."""
    in_int8 = options.dtype == "int8"
    pooling = known_pooling(model)
    if pooling is None or packing_of(model[0].model) is None:
        if in_int8:
            raise SpecError(no_int8(getattr(model[0], "model", model)))
        return None
    transformer = model[0].model
    if in_int8:
        linear = "int8"
        examples = calibration_rows(model)
    elif transformer.device.type == "cpu" or varlen_kernel(transformer) is not None:
        linear = "auto"
        examples = ()
    else:
        return None  # it would be padded here, too
    return Runner(
        transformer,
        pooling=pooling,
        normalize=normalize,
        batch_size=options.batch_size,
        linear=linear,
        examples=examples,
    )


def known_pooling(model: Any) -> str | None:
    """Return this package's name of the pooling, or None for more than a pooled transformer.

    Only classes of sentence-transformers itself are recognised, in this order: Transformer with
    plain text as its only input, Pooling by one of four rules, and optionally Normalize.
    """
    modules = list(model)
    classes = [type(module) for module in modules]
    for module_class in classes:  # a class of the same name elsewhere may do something else
        if not module_class.__module__.startswith("sentence_transformers."):
            return None
    names = [module_class.__name__ for module_class in classes]
    if names not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        return None
    transformer, pooling, *rest = modules
    for normalize in rest:  # one, or none
        if normalize.module_output_name != "sentence_embedding":
            return None
    truncates_vectors = getattr(model, "truncate_dim", None) is not None
    includes_prompt = getattr(pooling, "include_prompt", False)
    if truncates_vectors or not includes_prompt:
        return None
    mode = getattr(pooling, "pooling_mode", None)
    if not isinstance(mode, str) or not _reads_plain_text(model, transformer):
        return None
    return _POOLING_BY_STORED_NAME.get(mode)


def _reads_plain_text(model: Any, transformer: object) -> bool:
    """Return whether a transformer takes tokens of a text alone, and gives their states."""
    if getattr(transformer, "modality_config", None) != _PLAIN_TEXT_CONFIG:
        return False
    if getattr(transformer, "module_output_name", None) != "token_embeddings":
        return False
    if getattr(transformer, "query_expansion", None) is not None:
        return False
    if getattr(transformer, "processing_kwargs", None):
        return False
    # Tokens alone, not images or sound.
    inputs = model.preprocess(["a text"], prompt="")
    return set(inputs) <= _TOKEN_FEATURES
