"""Encoders that run a transformer and pool its states.

Supported models: bidirectional Qwen3 directories; encoder-decoder checkpoints (the encoder
is extracted in memory); causal language models, causal or made bidirectional, with or
without a LoRA adapter; and the encoders of other encoder-decoders such as T5Gemma 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.encoders.padding import LONGEST, UNPADDED, check_repeatable, depends_on_padding
from qwen3nb.models.gate.weights import check_length
from qwen3nb.models.inference.runner import Runner
from qwen3nb.models.kinds.source import Source
from qwen3nb.models.modeling import runtime
from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.models.modeling.tokenizer_template import surround
from qwen3nb.models.options import ModelOptions
from qwen3nb.models.types import SpecError, Vectors, refusing, torch_dtype

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MAX_LENGTH = 512


class TransformerEncoder(Encoder):
    """A Qwen3 encoder, or any causal language model, with pooling.

    Attributes:
        runner: runs the model.
        parameters: number of parameters, embeddings included.
    """

    def __init__(self, source: Source, options: ModelOptions) -> None:
        self.device = runtime.pick_device(options.device)
        stored = source.kind.stored(source)
        pooling = options.pooling or stored.get("pooling") or source.pooling
        if pooling is None:
            raise SpecError(
                f"{source.folder}: a pre-trained model, which does not define a pooling; "
                f"choose one of: {', '.join(POOLINGS)} (--pooling)"
            )
        self.normalize = bool(stored.get("normalize", True))
        if options.normalize is not None:
            self.normalize = options.normalize
        self.max_length = options.max_length or stored.get("max_length") or MAX_LENGTH
        model = self._load_model(source, options)
        self.parameters = sum(parameter.numel() for parameter in model.parameters())
        self.width = int(model.config.get_text_config().hidden_size)
        attention = model.config._attn_implementation
        self.runner = Runner(
            model,
            pooling=pooling,
            normalize=self.normalize,
            batch_size=options.batch_size,
            linear="int8" if options.dtype == "int8" else "auto",
        )
        if self.runner.way == "padded":
            self._check_padding(source, options)
        # BigBird attends to all tokens from its first short text on.
        attention = getattr(model, "attention_type", attention)
        settings = {
            "pooling": pooling,
            **self._comparison(source, options),
            "max_length": self.max_length,
            "prefix": options.prefix,
            "append_eos": options.append_eos,
            "causal": source.kind.directed and not options.bidirectional,
            # Packing changes nothing beyond rounding; another kernel in 16 bits does.
            "attention": self.runner.attention or attention,
            "versions": runtime.library_versions(),
        }
        if not self.runner.padding:
            settings.update(UNPADDED)
        super().__init__(source, options, settings=settings)

    def _load_model(self, source: Source, options: ModelOptions) -> PreTrainedModel:
        """Return the transformer on its device, and set its tokenizer."""
        option_name = f"{source.label}: max_length"
        dtype = torch_dtype(options.dtype)
        model = source.kind.model(source, dtype, bidirectional=options.bidirectional)
        check_length(model, options.max_length, option_name)
        model = model.to(self.device)
        self.tokenizer = runtime.load_tokenizer(source.tokenizer_folder, model.config)
        self._special = runtime.special_tokens(self.tokenizer)
        end_token = None
        if options.append_eos:
            end_token = self.tokenizer.eos_token
        if options.prefix or options.append_eos:
            surround(self.tokenizer.backend_tokenizer, prefix=options.prefix, end=end_token)
        runtime.check_room(self.tokenizer, self.max_length, option_name)
        return model

    def _check_padding(self, source: Source, options: ModelOptions) -> None:
        """Run without padding if it changes vectors; see `qwen3nb.models.encoders.padding`."""
        longest = min(LONGEST, self.max_length)
        positions = getattr(self.runner.model.config, "max_position_embeddings", None)
        if positions:
            usable_positions = max(positions - 4, 1)  # some models leave out the last ones
            longest = min(longest, usable_positions)

        def encode(texts: Sequence[str]) -> Vectors:
            rows, _ = runtime.token_rows(self.tokenizer, texts, max_length=longest)
            return self.runner.vectors(rows)

        self.runner.batch_size = None  # short and long texts share a batch, for the comparison
        with refusing(source.own_folder, "it cannot run a text"):
            self.runner.padding = not depends_on_padding(encode, dtype=options.dtype)
            if not self.runner.padding:
                check_repeatable(encode, source.label, dtype=options.dtype)
        self.runner.batch_size = options.batch_size

    def _embed(self, texts: Sequence[str]) -> Vectors:
        self.runner.batch_size = self.batch_size
        return self.runner.encode(texts, self._tokenise, done=self._report_done)

    def _tokenise(self, texts: Sequence[str]) -> list[list[int]]:
        rows, cut = runtime.token_rows(self.tokenizer, texts, max_length=self.max_length)
        self.stats.cut += cut
        return rows

    def token_counts(self, texts: Sequence[str]) -> list[int]:
        """Return how many tokens each text has, however long it is, with those that are added."""
        return runtime.token_counts(self.tokenizer, texts)

    def _truncated(self, texts: Sequence[str]) -> int:
        return runtime.token_rows(self.tokenizer, texts, max_length=self.max_length)[1]
