"""Verify that an export computes the same as its source.

The source runs in the encoder-decoder's own class, under its own weight names; the export
is loaded from disk by the stock class. Errors in renamed weights, configuration or tokenizer
therefore show up as differences. Both models get texts of different lengths in padded
batches. Only one of them is in memory at a time. An ONNX graph is compared likewise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

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
MAX_RELATIVE_DIFFERENCE = 1e-4
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
_SMALL_BATCHES = (1, 3)  # batch sizes for a graph, in addition to all inputs
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
    graph: Mapping[str, object] | None = None

    def as_dict(self) -> dict[str, object]:
        """Return the verification as stored in the provenance."""
        fields: dict[str, object] = {
            "max_difference": self.max_difference,
            "bound": MAX_DIFFERENCE,
            "sentence_transformers_difference": self.sentence_transformers_difference,
            "rounding": self.rounding,
            "causal_leak": self.leak,  # 0 if the model is causal
            "texts": len(self.lengths),
            "tokens": list(self.lengths),  # of each text
            "padding": list(_SIDES),
        }
        if self.graph:
            fields["onnx"] = {**self.graph, "bound": MAX_RELATIVE_DIFFERENCE}
        return fields


@dataclass(frozen=True)
class Reference:
    """Inputs, and what the source computes of them."""

    source: object  # named in errors
    vocabulary: int
    inputs: Sequence[Sequence[int]]  # token ids of each
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
            float32, or states of an ONNX graph by more than `MAX_RELATIVE_DIFFERENCE`; or the
            export or its graph runs causally.
    """
    inputs = _inputs(tokenizer, options, vocabulary=config.vocab_size)
    exact_states = _source_states(source, embedding, inputs, config, dtype=torch.float32)
    rounded_states = exact_states
    if options.dtype != "float32":
        dtype = getattr(torch, options.dtype)
        rounded_states = _source_states(source, embedding, inputs, config, dtype=dtype)
    # States do not depend on the side of the padding, but for rounding: one side is enough.
    rounding = _largest_difference(exact_states["right"], rounded_states["right"])
    del exact_states  # they would stay in memory
    reference = Reference(
        source,
        vocabulary=config.vocab_size,
        inputs=inputs,
        states=rounded_states,
    )
    model = AutoModel.from_pretrained(export, dtype=torch.float32).eval()
    comparison = _compare_export(model, reference)
    probe = _probe(model)
    del model  # two models are never in memory at once
    vector_difference = _compare_vectors(export, rounded_states["right"], options, origin=source)
    graph = None
    if (export / GRAPH).is_file():
        graph = verify_graph(export / GRAPH, reference)
    return Verification(
        max_difference=comparison.difference,
        sentence_transformers_difference=vector_difference,
        rounding=rounding,
        leak=comparison.leak,
        lengths=tuple(map(len, inputs)),
        probe=probe,
        graph=graph,
    )


def _largest_difference(exact: Sequence[Tensor], rounded: Sequence[Tensor]) -> float:
    """Return the largest absolute difference between states of the same inputs."""
    differences: list[float] = []
    for exact_states, rounded_states in zip(exact, rounded, strict=True):
        differences.append(float((exact_states - rounded_states).abs().max()))
    return max(differences)


def _inputs(tokenizer: Tokenizer, options: ExportOptions, *, vocabulary: int) -> list[list[int]]:
    """Return token ids to compare: tokenised texts, random ids, and the embedding's last row."""
    tokenizer.no_padding()
    tokenizer.enable_truncation(options.max_length)
    encodings = tokenizer.encode_batch(list(TEXTS))
    inputs = [encoding.ids for encoding in encodings if encoding.ids]
    generator = torch.Generator().manual_seed(0)
    # Random ids reach rows of the embedding that no text does.
    for length in _RANDOM_LENGTHS:
        random_ids = torch.randint(0, vocabulary, (length,), generator=generator)
        inputs.append(random_ids.tolist())
    last_id = vocabulary - 1
    inputs.append([0, last_id])  # the first and the last row of the embedding
    return inputs


def _source_states(
    source: ModelFolder,
    embedding: str,
    inputs: Sequence[Sequence[int]],
    config: Qwen3EncoderConfig,
    *,
    dtype: torch.dtype,
) -> dict[str, list[Tensor]]:
    """Return states (T, H) of each input per padding side, with weights rounded to ``dtype``."""
    model = _source_model(source, embedding, config, dtype=dtype)
    states_by_side: dict[str, list[Tensor]] = {}
    for side in _SIDES:
        ids, mask = pad_rows(inputs, side=side)
        with torch.inference_mode():
            padded_states = model.encode(ids, mask)
        states_by_side[side] = _without_padding(padded_states, mask)
    return states_by_side


def _without_padding(padded_states: Tensor, mask: Tensor) -> list[Tensor]:
    """Return the states (T, H) of the real tokens of each input, of states (B, T, H)."""
    states: list[Tensor] = []
    for row, is_token in zip(padded_states, mask.bool(), strict=True):
        states.append(row[is_token])
    return states


def _source_model(
    source: ModelFolder,
    embedding: str,
    config: Qwen3EncoderConfig,
    *,
    dtype: torch.dtype,
) -> Qwen3ForSeq2SeqLM:
    """Return the encoder-decoder with the encoder's weights, and a decoder without memory."""
    settings = {name: getattr(config, name) for name in _SETTINGS}
    # The class of the encoder-decoder has other names for these two.
    settings["_head_dim"] = config.head_dim
    settings["rope_theta"] = config.rope_parameters["rope_theta"]
    with torch.device("meta"):  # takes no memory
        model = Qwen3ForSeq2SeqLM(Qwen3Seq2SeqConfig(**settings))
    encoder = model.model.encoder
    weights = _encoder_weights(source, embedding, dtype=dtype)
    encoder.load_state_dict(weights, strict=True, assign=True)
    # Its buffers are not loaded but computed, which they were not on the meta device.
    encoder.rotary_emb = type(encoder.rotary_emb)(config=encoder.config)
    return model.eval()


def _encoder_weights(
    source: ModelFolder,
    embedding: str,
    *,
    dtype: torch.dtype,
) -> dict[str, Tensor]:
    """Return the encoder's weights in float32, rounded to ``dtype``, by the names in its class."""
    new_names = {embedding: "embed_tokens.weight"}
    for name in source.weights.tensors:
        if name.startswith(("model.encoder.layers.", "model.encoder.norm.weight")):
            new_names[name] = name.removeprefix("model.encoder.")
    weights: dict[str, Tensor] = {}
    # Rounded as in the export, but computed with in float32.
    for name, weight in source.weights.read_each(new_names):
        rounded = weight.to(dtype)
        weights[new_names[name]] = rounded.float()
    return weights


@dataclass(frozen=True)
class _Comparison:
    """Differences of states from the source."""

    difference: float  # the largest
    leak: float  # change of the first state when only the last token changes
    batches: tuple[tuple[int, int], ...]  # shapes (B, T)


def _compare_export(model: PreTrainedModel, reference: Reference) -> _Comparison:
    """Compare the export, as transformers loads it, with the source."""
    name = f"{reference.source}: the export"
    all_inputs = len(reference.inputs)
    comparison = _compare(states_of(model), reference, name=name, batch_sizes=[all_inputs])
    _check_difference(name, comparison.difference, MAX_DIFFERENCE)
    return comparison


def verify_graph(file: Path, reference: Reference) -> dict[str, object]:
    """Compare the graph in ``file`` with the source.

    Raises:
        CheckpointError: the graph is causal, or states differ by more than
            `MAX_RELATIVE_DIFFERENCE`.
    """
    name = f"{reference.source}: the ONNX graph"
    all_inputs = len(reference.inputs)
    batch_sizes = [all_inputs, *_SMALL_BATCHES]  # all inputs at once, then in small batches
    comparison = _compare(graph_states(file), reference, name=name, batch_sizes=batch_sizes)
    # Rounding grows with the states: the bound is relative to the largest, or to 1.
    largest_state = max(float(states.abs().max()) for states in reference.states["right"])
    relative_difference = comparison.difference / max(1.0, largest_state)
    _check_difference(name, relative_difference, MAX_RELATIVE_DIFFERENCE)
    return {
        "max_difference": relative_difference,
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
    batch_sizes: Sequence[int],
) -> _Comparison:
    """Compare states with those of the source, in batches of each of the sizes.

    ``run`` returns states (B, T, H) of ids and mask (B, T).
    """
    leak = _checked_leak(run, reference, name)
    differences: list[Tensor] = []
    shapes: list[tuple[int, int]] = []
    # The reference has states (T, H) of each input, for padding on either side.
    for side, batch_size in product(reference.states, batch_sizes):
        for start in range(0, len(reference.inputs), batch_size):
            batch = slice(start, start + batch_size)
            ids, mask = pad_rows(reference.inputs[batch], side=side)
            shapes.append((ids.shape[0], ids.shape[1]))
            computed_states = _without_padding(run(ids, mask), mask)
            expected_states = reference.states[side][batch]
            for computed, expected in zip(computed_states, expected_states, strict=True):
                differences.append((computed - expected).abs().max())
    largest = float(torch.stack(differences).max())  # NaN if any value is
    different_shapes = dict.fromkeys(shapes)
    return _Comparison(difference=largest, leak=leak, batches=tuple(different_shapes))


def _checked_leak(
    run: Callable[[Tensor, Tensor], Tensor],
    reference: Reference,
    name: str,
) -> float:
    """Return how far the first state moves with the last token; refuse a model that is causal."""
    # How the first state moves when only the last token changes: not at all in a causal model.
    leak = causal_leak(run, reference.vocabulary)
    if leak != 0:
        return leak
    # Even a causal model lets the last state depend on the first token.
    leak_forwards = causal_leak(run, reference.vocabulary, of=0, on=-1)
    if leak_forwards == 0:
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
    vocabulary = model.config.vocab_size
    # Any ids would do; these are in a vocabulary of any size, and differ in most.
    ids = [(11 * position + 5) % vocabulary for position in range(12)]
    another_id = (ids[-1] + vocabulary // 2) % vocabulary  # replaces the last token
    states = model(input_ids=torch.tensor([ids])).last_hidden_state[0]
    mean_vector = torch.nn.functional.normalize(states.mean(0), dim=0)
    return {
        "ids": ids,
        "other_last": another_id,
        "mean_vector": [round(value, 6) for value in mean_vector.tolist()],
    }


def _compare_vectors(
    export: Path,
    states: Sequence[Tensor],
    options: ExportOptions,
    *,
    origin: object,
) -> float:
    """Return the largest difference of sentence-transformers' vectors from the pooled states."""
    vectors = _pooled(states[: len(TEXTS)], options)  # the texts come first
    library_vectors = _vectors_of_sentence_transformers(export, origin=origin)
    difference = float((library_vectors.float() - vectors).abs().max())
    # Rounding grows with the values, which are below 1 in vectors of length 1.
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


def _pooled(states: Sequence[Tensor], options: ExportOptions) -> Tensor:
    """Return the vectors (B, H) of texts by their states (T, H), none of which is padding."""
    vectors: list[Tensor] = []
    for text_states in states:
        mask = torch.ones(1, len(text_states))
        batch = text_states.unsqueeze(0)
        vectors.append(pool(batch, mask, pooling=options.pooling, normalize=options.normalize))
    return torch.cat(vectors)


def _vectors_of_sentence_transformers(export: Path, *, origin: object) -> Tensor:
    """Return the vectors of `TEXTS`; raise CheckpointError if the export cannot be loaded."""
    from sentence_transformers import SentenceTransformer

    with refusing(origin, "sentence-transformers cannot load the export; nothing was written"):
        model = SentenceTransformer(
            str(export),
            device="cpu",
            model_kwargs={"dtype": torch.float32},
        )
    return model.encode(
        list(TEXTS),
        prompt="",
        batch_size=len(TEXTS),
        convert_to_tensor=True,
        show_progress_bar=False,
    )
