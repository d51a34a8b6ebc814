"""Verify that an export computes what its source computes.

The source runs in the encoder-decoder's own class, under its own weight names; the export
is loaded from disk by the stock class. Errors in renamed weights, configuration or tokenizer
therefore show up as differences. Both models get texts of different lengths in padded
batches. Only one of them is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.extraction.onnx_graph import GRAPH
from qwen3nb.extraction.verify_graph import GraphVerification, verify_graph
from qwen3nb.models.modeling.configuration import Qwen3EncoderConfig
from qwen3nb.models.modeling.dtypes import torch_dtype
from qwen3nb.models.modeling.pooling import pool
from qwen3nb.models.modeling.qwen3_encoder import causal_leak, pad_rows
from qwen3nb.models.modeling.qwen3_seq2seq import Qwen3ForSeq2SeqLM, Qwen3Seq2SeqConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import Tensor

    from qwen3nb.extraction.export import ExportOptions

MAX_DIFFERENCE = 1e-5
# Short, long, in several scripts; none contains a special token.
TEXTS = (
    "Hi.",
    "Which planet is nearest to the sun?",
    "def mean(values):\n    return sum(values) / len(values)",
    "Größe, naïveté, 日本語の文章, Ελληνικά, עברית: one text in several scripts.",
    "A sentence that is said again and again, so that it grows long. " * 9,
)
_RANDOM_LENGTHS = (2, 7, 33, 120, 1)
_SIDES = ("right", "left")


@dataclass(frozen=True)
class Verification:
    """Differences between an export and its source.

    Attributes:
        max_difference: largest absolute difference of hidden states over all real tokens,
            in float32, between the export and the source with its weights rounded to the
            export's dtype.
        sentence_transformers_difference: largest difference of pooled vectors, between the
            source and sentence-transformers on the export.
        rounding: largest difference caused by the export's dtype; 0 for float32.
        leak: change of the first state when only the last token changes.
        lengths: number of tokens of each compared input.
        probe: a fixed input and its vector, for ``check_encoder.py``.
        graph: the comparison of the ONNX graph with the source; None without one.
    """

    max_difference: float
    sentence_transformers_difference: float
    rounding: float
    leak: float
    lengths: tuple[int, ...]
    probe: dict[str, Any]
    graph: GraphVerification | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the verification as stored in the provenance."""
        return {
            "max_difference": self.max_difference,
            "bound": MAX_DIFFERENCE,
            "sentence_transformers_difference": self.sentence_transformers_difference,
            "rounding": self.rounding,
            "causal_leak": self.leak,
            "texts": len(self.lengths),
            "tokens": list(self.lengths),
            "padding": list(_SIDES),
            **({"onnx": self.graph.as_dict()} if self.graph else {}),
        }


def verify_export(
    source: ModelFolder,
    embedding: str,
    export: Path,
    *,
    config: Qwen3EncoderConfig,
    options: ExportOptions,
    tokenizer: Tokenizer,
) -> Verification:
    """Compare the export in the folder ``export`` with the encoder of ``source``.

    Args:
        source: the encoder-decoder.
        embedding: name of the encoder's embedding tensor.
        export: a complete model directory, with an ONNX graph or without.
        config: the encoder's configuration, as read from the source.
        options: the options of the export.
        tokenizer: the source's tokenizer, with the prefix and end token of the options.

    Raises:
        CheckpointError: states or pooled vectors differ by more than `MAX_DIFFERENCE` in
            float32, transformers loads the tokenizer with different tokens, or the export
            runs causally; see `verify_graph` for an ONNX graph.
    """
    rows = _inputs(tokenizer, export, options, vocabulary=config.vocab_size)
    exact = _source_states(source, embedding, rows, config, dtype=torch.float32)
    theirs = exact
    if options.dtype != "float32":
        dtype = torch_dtype(options.dtype)
        theirs = _source_states(source, embedding, rows, config, dtype=dtype)
    rounding = max(
        float((a - b).abs().max()) for a, b in zip(exact["right"], theirs["right"], strict=True)
    )
    del exact
    difference, leak, probe = _compare(export, rows, theirs, source)
    vectors = torch.cat(
        [
            pool(
                states[None],
                torch.ones(1, len(states)),
                how=options.pooling,
                normalize=options.normalize,
            )
            for states in theirs["right"][: len(TEXTS)]
        ]
    )
    other = _sentence_transformers_difference(export, vectors)
    scale = 1.0 if options.normalize else max(1.0, float(vectors.abs().max()))
    if not other <= MAX_DIFFERENCE * scale:
        raise CheckpointError(
            f"{source}: vectors that sentence-transformers computes from the export differ "
            f"by {other:.2e}, more than {MAX_DIFFERENCE * scale:.0e}; nothing was written"
        )
    graph = None
    if (export / GRAPH).is_file():
        graph = verify_graph(
            export / GRAPH, rows, theirs, vocabulary=config.vocab_size, origin=source.path
        )
    lengths = tuple(len(row) for row in rows)
    return Verification(difference, other, rounding, leak, lengths, probe, graph)


def _inputs(
    tokenizer: Tokenizer, export: Path, options: ExportOptions, *, vocabulary: int
) -> list[list[int]]:
    """Return token ids to compare: tokenised texts, random ids, and the embedding's last row."""
    from transformers import AutoTokenizer

    tokenizer.no_padding()
    tokenizer.enable_truncation(options.max_length)
    rows = [encoding.ids for encoding in tokenizer.encode_batch(list(TEXTS))]
    try:
        loaded = AutoTokenizer.from_pretrained(export)
        again = loaded(list(TEXTS), truncation=True, max_length=options.max_length)["input_ids"]
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise CheckpointError(f"transformers cannot load the tokenizer ({error})") from None
    for text, row, other in zip(TEXTS, rows, again, strict=True):
        if row != list(other):
            raise CheckpointError(
                f"transformers reads other tokens from the same tokenizer files: for {text!r:.40} "
                f"expected {row[:8]} (tokenizer.json), got {list(other)[:8]}; "
                "check tokenizer_config.json"
            )
    generator = torch.Generator().manual_seed(0)
    random = [
        torch.randint(0, vocabulary, (length,), generator=generator).tolist()
        for length in _RANDOM_LENGTHS
    ]
    return [row for row in rows if row] + random + [[0, vocabulary - 1]]


def _source_states(
    source: ModelFolder,
    embedding: str,
    rows: Sequence[Sequence[int]],
    config: Qwen3EncoderConfig,
    *,
    dtype: torch.dtype,
) -> dict[str, list[Tensor]]:
    """Return states (T, H) of each row per padding side, with weights rounded to ``dtype``."""
    model = _source_model(source, embedding, config, dtype=dtype)
    states = {}
    for side in _SIDES:
        ids, mask = pad_rows(rows, side=side)
        with torch.inference_mode():
            out = model.encode(ids, mask)
        states[side] = [out[row][mask[row].bool()] for row in range(len(rows))]
    return states


def _source_model(
    source: ModelFolder, embedding: str, config: Qwen3EncoderConfig, *, dtype: torch.dtype
) -> Qwen3ForSeq2SeqLM:
    """Return the encoder-decoder with the encoder's weights; its decoder takes no memory."""
    kept = (
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "rms_norm_eps",
        "num_attention_heads",
        "num_key_value_heads",
        "max_position_embeddings",
    )
    fields = {key: getattr(config, key) for key in kept}
    theta = config.rope_parameters["rope_theta"]
    with torch.device("meta"):
        model = Qwen3ForSeq2SeqLM(
            Qwen3Seq2SeqConfig(**fields, _head_dim=config.head_dim, rope_theta=theta)
        )
    encoder = model.model.encoder
    prefix = "model.encoder."
    state = {
        name.removeprefix(prefix): source.weights.read(name).to(dtype).float()
        for name in source.weights.tensors
        if name.startswith(f"{prefix}layers.") or name == f"{prefix}norm.weight"
    }
    state["embed_tokens.weight"] = source.weights.read(embedding).to(dtype).float()
    encoder.load_state_dict(state, strict=True, assign=True)
    encoder.rotary_emb = type(encoder.rotary_emb)(config=encoder.config)  # with real buffers
    return model.eval()


def _compare(
    export: Path,
    rows: Sequence[Sequence[int]],
    theirs: dict[str, list[Tensor]],
    source: ModelFolder,
) -> tuple[float, float, dict[str, Any]]:
    """Return the largest difference, leak and probe of the export, loaded by the stock class."""
    from transformers import AutoModel

    model = AutoModel.from_pretrained(export, dtype=torch.float32).eval()
    apart = []
    for side in _SIDES:
        ids, mask = pad_rows(rows, side=side)
        with torch.inference_mode():
            states = model(input_ids=ids, attention_mask=mask).last_hidden_state
        for row, expected in enumerate(theirs[side]):
            ours = states[row][mask[row].bool()]
            apart.append((ours - expected).abs().max())
    difference = float(torch.stack(apart).max())  # NaN, if any is
    if not difference <= MAX_DIFFERENCE:
        raise CheckpointError(
            f"{source}: the export differs from its source by {difference:.2e}, "
            f"more than {MAX_DIFFERENCE:.0e}; nothing was written"
        )
    leak = causal_leak(model, vocab_size=model.config.vocab_size)
    if not leak > 0:
        raise CheckpointError(
            f"{source}: the export runs causally under this release of transformers; "
            "install 5.2 or newer. Nothing was written"
        )
    return difference, leak, _probe(model)


@torch.inference_mode()
def _probe(model: Any) -> dict[str, Any]:
    """Return a fixed input, another last token and the mean vector, for ``check_encoder.py``."""
    rows = model.config.vocab_size
    ids = [(11 * index + 5) % rows for index in range(12)]
    states = model(input_ids=torch.tensor([ids])).last_hidden_state[0]
    vector = torch.nn.functional.normalize(states.mean(0), dim=0)
    return {
        "ids": ids,
        "other_last": (ids[-1] + rows // 2) % rows,
        "mean_vector": [round(value, 6) for value in vector.tolist()],
    }


def _sentence_transformers_difference(export: Path, vectors: Tensor) -> float:
    from sentence_transformers import SentenceTransformer

    try:
        model = SentenceTransformer(
            str(export), device="cpu", model_kwargs={"dtype": torch.float32}
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise CheckpointError(
            f"sentence-transformers cannot load the export ({error}); nothing was written"
        ) from None
    theirs = model.encode(
        list(TEXTS),
        prompt="",
        batch_size=len(TEXTS),
        convert_to_tensor=True,
        show_progress_bar=False,
    )
    return float((theirs.float() - vectors).abs().max())
