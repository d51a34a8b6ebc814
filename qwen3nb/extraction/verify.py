"""Verify that an export computes the same as its source.

The source runs in the encoder-decoder's own class, under its own weight names; the export
is loaded from disk by the stock class. Errors in renamed weights, configuration or tokenizer
therefore show up as differences. Both models get texts of different lengths in padded
batches. Only one of them is in memory at a time. An ONNX graph is compared likewise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import AutoModel

from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.extraction.onnx_graph import GRAPH, graph_states
from qwen3nb.models.modeling.configuration import Qwen3EncoderConfig
from qwen3nb.models.modeling.pooling import pool
from qwen3nb.models.modeling.qwen3_encoder import causal_leak, pad_rows, states_of
from qwen3nb.models.modeling.qwen3_seq2seq import Qwen3ForSeq2SeqLM, Qwen3Seq2SeqConfig
from qwen3nb.models.types import refusing

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from qwen3nb.extraction.export import ExportOptions

MAX_DIFFERENCE = 1e-5
# Relative to the largest state, for a graph. Another library sums in another order, with other
# rounding, which grows with the size of the terms.
MAX_PART = 1e-4
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
_TOGETHER = (1, 3)  # batch sizes for a graph, in addition to all texts
_SETTINGS = """
vocab_size hidden_size intermediate_size num_hidden_layers rms_norm_eps num_attention_heads
num_key_value_heads max_position_embeddings
""".split()  # noqa: SIM905 - a list of words reads better as lines


@dataclass(frozen=True)
class Verification:
    """Differences between an export and its source."""

    # largest absolute difference of hidden states over all real tokens, in float32, between the
    # export and the source with its weights rounded to the export's dtype
    max_difference: float
    # largest difference of pooled vectors, between the source and sentence-transformers on the
    # export
    sentence_transformers_difference: float
    rounding: float  # largest difference caused by the export's dtype; 0 for float32
    leak: float  # change of the first state when only the last token changes
    lengths: tuple[int, ...]  # number of tokens of each compared input
    probe: dict[str, Any]  # a fixed input and its vector, for ``check_encoder.py``
    # of the ONNX graph, if there is one: the ``max_difference`` relative to the largest state of
    # the source (at least 1), the ``leak``, and the shapes of the ``batches``
    graph: Mapping[str, Any] | None = None

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
            **({"onnx": {**self.graph, "bound": MAX_PART}} if self.graph else {}),
        }


@dataclass(frozen=True)
class Reference:
    """Inputs, and what the source computes of them."""

    source: object  # named in errors
    vocabulary: int
    rows: Sequence[Sequence[int]]  # token ids of each input
    states: Mapping[str, Sequence[Tensor]]  # (T, H) of each, per padding side


def verify_export(
    source: ModelFolder,
    embedding: str,
    export: Path,
    config: Qwen3EncoderConfig,
    options: ExportOptions,
    tokenizer: Tokenizer,
) -> Verification:
    """Compare the export in the folder ``export`` with the encoder of ``source``.

    The export is complete, with or without an ONNX graph. Configuration and tokenizer are as read
    from the source, the latter with the prefix and end token of the options; ``embedding`` is the
    name of the encoder's embedding tensor there.

    Raises:
        CheckpointError: states or pooled vectors differ by more than `MAX_DIFFERENCE` in
            float32, or states of an ONNX graph by more than `MAX_PART`; or the export or its graph
            runs causally.
    """
    rows = _inputs(tokenizer, options, vocabulary=config.vocab_size)
    exact = theirs = _source_states(source, embedding, rows, config, dtype=torch.float32)
    if options.dtype != "float32":
        dtype = getattr(torch, options.dtype)
        theirs = _source_states(source, embedding, rows, config, dtype=dtype)
    both = zip(exact["right"], theirs["right"], strict=True)
    rounding = max(float((a - b).abs().max()) for a, b in both)
    del exact
    reference = Reference(source, config.vocab_size, rows, theirs)
    difference, leak, probe = _compare_export(export, reference)
    other = _compare_vectors(export, theirs["right"], options, origin=source)
    graph = verify_graph(file, reference) if (file := export / GRAPH).is_file() else None
    lengths = tuple(map(len, rows))
    return Verification(difference, other, rounding, leak, lengths, probe, graph)


def _inputs(tokenizer: Tokenizer, options: ExportOptions, *, vocabulary: int) -> list[list[int]]:
    """Return token ids to compare: tokenised texts, random ids, and the embedding's last row."""
    tokenizer.no_padding()
    tokenizer.enable_truncation(options.max_length)
    rows = [encoding.ids for encoding in tokenizer.encode_batch(list(TEXTS))]
    draws = torch.Generator().manual_seed(0)
    random = [
        torch.randint(0, vocabulary, (length,), generator=draws).tolist()
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
    """Return the encoder-decoder with the encoder's weights, and a decoder without memory."""
    fields = {key: getattr(config, key) for key in _SETTINGS}
    fields |= {"_head_dim": config.head_dim, "rope_theta": config.rope_parameters["rope_theta"]}
    with torch.device("meta"):
        model = Qwen3ForSeq2SeqLM(Qwen3Seq2SeqConfig(**fields))
    encoder, prefix = model.model.encoder, "model.encoder."
    kept = (f"{prefix}layers.", f"{prefix}norm.weight")
    names = {n: n.removeprefix(prefix) for n in source.weights.tensors if n.startswith(kept)}
    names[embedding] = "embed_tokens.weight"
    state = {
        names[name]: weight.to(dtype).float() for name, weight in source.weights.read_each(names)
    }
    encoder.load_state_dict(state, strict=True, assign=True)
    encoder.rotary_emb = type(encoder.rotary_emb)(config=encoder.config)  # with real buffers
    return model.eval()


def _compare_export(export: Path, reference: Reference) -> tuple[float, float, dict[str, Any]]:
    """Return the largest difference of the export's states, the leak, and the probe."""
    model = AutoModel.from_pretrained(export, dtype=torch.float32).eval()
    difference, leak, _ = _compare(states_of(model), reference)
    return difference, leak, _probe(model)


def verify_graph(file: Path, reference: Reference) -> dict[str, Any]:
    """Compare the graph in ``file`` with the source.

    Raises:
        CheckpointError: the graph is causal, or states differ by more than `MAX_PART`.
    """
    compared = _compare(graph_states(file), reference, graph=True)
    return dict(zip(("max_difference", "leak", "batches"), compared, strict=True))


@torch.inference_mode()
def _compare(
    run: Callable[[Tensor, Tensor], Tensor], reference: Reference, *, graph: bool = False
) -> tuple[float, float, tuple[tuple[int, int], ...]]:
    """Return the largest difference of states, the leak, and the batches (B, T).

    ``run`` returns states (B, T, H) of ids and mask (B, T). All rows form one batch; for a
    ``graph``, also small batches, and the difference is relative to the largest state.
    """
    rows, theirs = reference.rows, reference.states
    what = f"{reference.source}: the {'ONNX graph' if graph else 'export'}"
    bound, unit, sizes = MAX_DIFFERENCE, 1.0, [len(rows)]
    if graph:
        bound, sizes = MAX_PART, [*sizes, *_TOGETHER]
        unit = max(1.0, *(float(each.abs().max()) for each in theirs["right"]))
    leak = causal_leak(run, reference.vocabulary)
    if leak == causal_leak(run, reference.vocabulary, of=0, on=-1) == 0:
        raise CheckpointError(
            f"{what} does not attend: no state depends on another token. Nothing was written; the "
            "weights are damaged, as if cut off or filled with one number"
        )
    if leak == 0:
        raise CheckpointError(
            f"{what} runs causally: its first state does not depend on the last token. Nothing "
            "was written; install transformers 5.2 or newer, and the newest PyTorch"
        )
    apart, batches = [], []
    for side, states in theirs.items():
        for size in sizes:
            for start in range(0, len(rows), size):
                part = slice(start, start + size)
                ids, mask = pad_rows(rows[part], side=side)
                batches.append((ids.shape[0], ids.shape[1]))
                real = zip(run(ids, mask), mask.bool(), states[part], strict=True)
                apart += [(ours[kept] - other).abs().max() for ours, kept, other in real]
    difference = float(torch.stack(apart).max()) / unit  # NaN if any value is
    if not difference <= bound:
        raise CheckpointError(
            f"{what} differs from its source by {difference:.2e}, more than {bound:.0e}; nothing "
            "was written"
        )
    return difference, leak, tuple(dict.fromkeys(batches))


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


def _compare_vectors(
    export: Path, states: Sequence[Tensor], options: ExportOptions, *, origin: object
) -> float:
    """Return the largest difference of sentence-transformers' vectors from the pooled states."""
    from sentence_transformers import SentenceTransformer

    how: dict[str, Any] = {"how": options.pooling, "normalize": options.normalize}
    vectors = torch.cat(
        [pool(each[None], torch.ones(1, len(each)), **how) for each in states[: len(TEXTS)]]
    )
    with refusing(origin, "sentence-transformers cannot load the export; nothing was written"):
        model = SentenceTransformer(
            str(export), device="cpu", model_kwargs={"dtype": torch.float32}
        )
    theirs = model.encode(
        list(TEXTS),
        prompt="",
        batch_size=len(TEXTS),
        convert_to_tensor=True,
        show_progress_bar=False,
    )
    difference = float((theirs.float() - vectors).abs().max())
    bound = MAX_DIFFERENCE * max(1.0, 0.0 if options.normalize else float(vectors.abs().max()))
    if not difference <= bound:
        raise CheckpointError(
            f"{origin}: vectors that sentence-transformers computes from the export differ "
            f"by {difference:.2e}, more than {bound:.0e}; nothing was written"
        )
    return difference
