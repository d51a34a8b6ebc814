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
from transformers import AutoModel, PreTrainedModel

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
    probe: Mapping[str, object]  # a fixed input and its vector, for ``check_encoder.py``
    # of the ONNX graph, if there is one: the ``max_difference`` relative to the largest state of
    # the source (at least 1), the ``leak``, and the shapes of the ``batches``
    graph: Mapping[str, Any] | None = None

    def as_dict(self) -> dict[str, object]:
        """Return the verification as stored in the provenance."""
        fields: dict[str, object] = {
            "max_difference": self.max_difference,
            "bound": MAX_DIFFERENCE,
            "sentence_transformers_difference": self.sentence_transformers_difference,
            "rounding": self.rounding,
            "causal_leak": self.leak,
            "texts": len(self.lengths),
            "tokens": list(self.lengths),
            "padding": list(_SIDES),
        }
        if self.graph:
            fields["onnx"] = {**self.graph, "bound": MAX_PART}
        return fields


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
    exact = _source_states(source, embedding, rows, config, dtype=torch.float32)
    states = exact
    if options.dtype != "float32":
        dtype = getattr(torch, options.dtype)
        states = _source_states(source, embedding, rows, config, dtype=dtype)
    rounding = _largest_difference(exact["right"], states["right"])
    del exact
    reference = Reference(source, config.vocab_size, rows, states)
    difference, leak, probe = _compare_export(export, reference)
    vector_difference = _compare_vectors(export, states["right"], options, origin=source)
    graph = None
    if (export / GRAPH).is_file():
        graph = verify_graph(export / GRAPH, reference)
    lengths = tuple(map(len, rows))
    return Verification(difference, vector_difference, rounding, leak, lengths, probe, graph)


def _largest_difference(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> float:
    """Return the largest absolute difference between states of the same rows."""
    pairs = zip(ours, theirs, strict=True)
    return max(float((expected - actual).abs().max()) for expected, actual in pairs)


def _inputs(tokenizer: Tokenizer, options: ExportOptions, *, vocabulary: int) -> list[list[int]]:
    """Return token ids to compare: tokenised texts, random ids, and the embedding's last row."""
    tokenizer.no_padding()
    tokenizer.enable_truncation(options.max_length)
    rows = [encoding.ids for encoding in tokenizer.encode_batch(list(TEXTS)) if encoding.ids]
    generator = torch.Generator().manual_seed(0)
    for length in _RANDOM_LENGTHS:
        ids = torch.randint(0, vocabulary, (length,), generator=generator)
        rows.append(ids.tolist())
    rows.append([0, vocabulary - 1])
    return rows


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
            batch = model.encode(ids, mask)
        states[side] = [row[real] for row, real in zip(batch, mask.bool(), strict=True)]
    return states


def _source_model(
    source: ModelFolder,
    embedding: str,
    config: Qwen3EncoderConfig,
    *,
    dtype: torch.dtype,
) -> Qwen3ForSeq2SeqLM:
    """Return the encoder-decoder with the encoder's weights, and a decoder without memory."""
    fields = {key: getattr(config, key) for key in _SETTINGS}
    fields |= {"_head_dim": config.head_dim, "rope_theta": config.rope_parameters["rope_theta"]}
    with torch.device("meta"):
        model = Qwen3ForSeq2SeqLM(Qwen3Seq2SeqConfig(**fields))
    encoder = model.model.encoder
    names = {embedding: "embed_tokens.weight"}
    for name in source.weights.tensors:
        if name.startswith(("model.encoder.layers.", "model.encoder.norm.weight")):
            names[name] = name.removeprefix("model.encoder.")
    state: dict[str, Tensor] = {}
    for name, weight in source.weights.read_each(names):
        state[names[name]] = weight.to(dtype).float()
    encoder.load_state_dict(state, strict=True, assign=True)
    encoder.rotary_emb = type(encoder.rotary_emb)(config=encoder.config)  # with real buffers
    return model.eval()


@dataclass(frozen=True)
class _Comparison:
    """Differences of states from the source."""

    difference: float  # the largest
    leak: float  # change of the first state when only the last token changes
    batches: tuple[tuple[int, int], ...]  # shapes (B, T)


def _compare_export(export: Path, reference: Reference) -> tuple[float, float, dict[str, object]]:
    """Return the largest difference of the export's states, the leak, and the probe."""
    model = AutoModel.from_pretrained(export, dtype=torch.float32).eval()
    name = f"{reference.source}: the export"
    sizes = [len(reference.rows)]
    comparison = _compare(states_of(model), reference, name=name, sizes=sizes)
    _check_difference(name, comparison.difference, MAX_DIFFERENCE)
    return comparison.difference, comparison.leak, _probe(model)


def verify_graph(file: Path, reference: Reference) -> dict[str, Any]:
    """Compare the graph in ``file`` with the source.

    Raises:
        CheckpointError: the graph is causal, or states differ by more than `MAX_PART`.
    """
    name = f"{reference.source}: the ONNX graph"
    sizes = [len(reference.rows), *_TOGETHER]
    comparison = _compare(graph_states(file), reference, name=name, sizes=sizes)
    largest_state = max(float(states.abs().max()) for states in reference.states["right"])
    difference = comparison.difference / max(1.0, largest_state)
    _check_difference(name, difference, MAX_PART)
    return {
        "max_difference": difference,
        "leak": comparison.leak,
        "batches": comparison.batches,
    }


def _check_difference(name: str, difference: float, bound: float) -> None:
    is_within = difference <= bound  # NaN is not
    if not is_within:
        raise CheckpointError(
            f"{name} differs from its source by {difference:.2e}, more than {bound:.0e}; nothing "
            "was written"
        )


@torch.inference_mode()
def _compare(
    run: Callable[[Tensor, Tensor], Tensor],
    reference: Reference,
    *,
    name: str,
    sizes: Sequence[int],
) -> _Comparison:
    """Compare states with those of the source, in batches of each of the ``sizes``.

    ``run`` returns states (B, T, H) of ids and mask (B, T).
    """
    leak = _checked_leak(run, reference, name)
    differences: list[Tensor] = []
    batches: dict[tuple[int, int], None] = {}
    for side, states in reference.states.items():
        for size in sizes:
            for start in range(0, len(reference.rows), size):
                part = slice(start, start + size)
                ids, mask = pad_rows(reference.rows[part], side=side)
                batches[ids.shape[0], ids.shape[1]] = None
                batch = zip(run(ids, mask), mask.bool(), states[part], strict=True)
                for row, real, expected in batch:
                    differences.append((row[real] - expected).abs().max())
    largest = float(torch.stack(differences).max())  # NaN if any value is
    return _Comparison(largest, leak, tuple(batches))


def _checked_leak(
    run: Callable[[Tensor, Tensor], Tensor],
    reference: Reference,
    name: str,
) -> float:
    """Return how far the first state moves with the last token; refuse a model that is causal."""
    leak = causal_leak(run, reference.vocabulary)
    if leak != 0:
        return leak
    if causal_leak(run, reference.vocabulary, of=0, on=-1) == 0:
        raise CheckpointError(
            f"{name} does not attend: no state depends on another token. Nothing was written; the "
            "weights are damaged, as if cut off or filled with one number"
        )
    raise CheckpointError(
        f"{name} runs causally: its first state does not depend on the last token. Nothing "
        "was written; install transformers 5.2 or newer, and the newest PyTorch"
    )


@torch.inference_mode()
def _probe(model: PreTrainedModel) -> dict[str, object]:
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
    export: Path,
    states: Sequence[Tensor],
    options: ExportOptions,
    *,
    origin: object,
) -> float:
    """Return the largest difference of sentence-transformers' vectors from the pooled states."""
    from sentence_transformers import SentenceTransformer

    rows: list[Tensor] = []
    for text_states in states[: len(TEXTS)]:
        mask = torch.ones(1, len(text_states))
        rows.append(pool(text_states[None], mask, how=options.pooling, normalize=options.normalize))
    vectors = torch.cat(rows)
    with refusing(origin, "sentence-transformers cannot load the export; nothing was written"):
        model = SentenceTransformer(
            str(export),
            device="cpu",
            model_kwargs={"dtype": torch.float32},
        )
    theirs = model.encode(
        list(TEXTS),
        prompt="",
        batch_size=len(TEXTS),
        convert_to_tensor=True,
        show_progress_bar=False,
    )
    difference = float((theirs.float() - vectors).abs().max())
    bound = MAX_DIFFERENCE
    if not options.normalize:
        bound *= max(1.0, float(vectors.abs().max()))
    is_within = difference <= bound  # NaN is not
    if not is_within:
        raise CheckpointError(
            f"{origin}: vectors that sentence-transformers computes from the export differ "
            f"by {difference:.2e}, more than {bound:.0e}; nothing was written"
        )
    return difference
