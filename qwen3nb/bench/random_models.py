"""Random models with the shapes of real ones, and the libraries that they are compared in."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import Qwen3Config, Qwen3ForCausalLM

from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.modeling.configuration import encoder_config
from qwen3nb.models.modeling.qwen3_encoder import Qwen3EncoderModel
from qwen3nb.models.modeling.tiny_tokenizer import write_tokenizer
from qwen3nb.models.rerankers import TEMPLATES, Floats
from qwen3nb.models.types import INSTRUCTION, RANDOM_QWEN3, Vectors, torch_dtype

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder, SentenceTransformer

QWEN3 = RANDOM_QWEN3
VOCABULARY = 151_936  # rows of the output matrix of Qwen3
QUERY = "how to sort the rows of a table by several columns and keep the order of equal rows"
_SIZES = (
    *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "head_dim"),
)


def qwen3_shape(*sizes: int, **more: Any) -> dict[str, Any]:
    """Return the fields of a configuration of these ``sizes``, and ``more`` fields.

    The sizes are hidden, intermediate, layers and heads; those of a Qwen3 go on with key-value
    heads and the size of a head.
    """
    return dict(zip(_SIZES, sizes, strict=False)) | more


SHAPE = qwen3_shape(
    *(640, 2048, 10, 10, 5, 64),
    vocab_size=8448,
    max_position_embeddings=2048,
    rms_norm_eps=1e-6,
    rope_theta=1e6,
)


@contextmanager
def model_folder(model: str, texts: Sequence[str]) -> Iterator[Path]:
    """Yield the folder of the model; a random model is written first and removed afterwards.

    Raises:
        ValueError: the model is not on this machine.
    """
    if model != QWEN3:
        source = find_source(model)
        if source.folder is None:
            raise ValueError(f"{model}: not on this machine; expected a folder or a registry name")
        yield source.folder.path
        return
    with tempfile.TemporaryDirectory() as folder:
        write_random_encoder(Path(folder), texts)
        yield Path(folder)


def save_random(
    model: Any, folder: Path, config: Any, *, device: str = "cpu", **options: Any
) -> None:
    """Save a model whose weights are random, and the same every time."""
    with torch.random.fork_rng(devices=None if device != "cpu" else []), torch.device(device):
        torch.manual_seed(0)
        model(config, **options).save_pretrained(folder)


def write_random_encoder(
    folder: Path, texts: Sequence[str], *, shape: dict[str, Any] | None = None
) -> None:
    """Write a random bidirectional Qwen3 and a tokenizer trained on ``texts``."""
    from qwen3nb.extraction.export import ExportOptions, write_model_files

    shape = shape or SHAPE
    # Special tokens come on top, for which 256 rows of the embedding are free.
    tokenizer = write_tokenizer(texts, folder, vocabulary=shape["vocab_size"] - 256)
    end_token = tokenizer.token_to_id("<|endoftext|>")
    config = encoder_config({**shape, "pad_token_id": end_token, "eos_token_id": end_token})
    save_random(Qwen3EncoderModel, folder, config)
    write_model_files(folder, config, ExportOptions())


def write_random_reranker(folder: Path, shape: Sequence[int]) -> None:
    """Write a random Qwen3 language model, its template, and a tokenizer of docstrings."""
    template = TEMPLATES["qwen3-reranker"]
    prompt = template.prefix + template.head(INSTRUCTION, "yes no") + " " + template.suffix
    texts_of_prompt = [prompt, "yes", "no"] * 200  # often enough to become whole tokens
    write_tokenizer([*documents(), *texts_of_prompt], folder, vocabulary=16_000)
    hidden_size = shape[0]  # whose inverse root keeps the states at one scale
    fields = qwen3_shape(*shape, vocab_size=VOCABULARY, max_position_embeddings=4096)
    config = Qwen3Config(**fields, tie_word_embeddings=True, initializer_range=hidden_size**-0.5)
    save_random(Qwen3ForCausalLM, folder, config)
    # For sentence-transformers, which renders a pair as a chat with two roles. The file is a
    # Jinja template, in which ``{{ }}`` holds an expression: a newline, or the text of a role.
    suffix = template.suffix.replace("\n", "{{ '\n' }}")
    chat_template = (
        f"{template.prefix}<Instruct>: {INSTRUCTION}"
        f"{template.gap}<Query>: {{{{ messages[0].content }}}}"
        f"{template.gap}<Document>: {{{{ messages[1].content }}}}"
        f"{suffix}"
    )
    (folder / "chat_template.jinja").write_text(chat_template, encoding="utf-8")


def documents() -> list[str]:
    """Return the documents of PyDocs."""
    from qwen3nb.datasets.pydocs.build import load_pydocs

    return [entry.text for entry in load_pydocs().entries]


def load_peer(
    folder: Path, *, device: str, dtype: str, attention: str | None = None
) -> SentenceTransformer:
    """Load the model in sentence-transformers, with weights in ``dtype``.

    ``attention`` is one of transformers' implementations, such as ``sdpa``; None for its choice.
    """
    from sentence_transformers import SentenceTransformer

    options: dict[str, object] = {"dtype": torch_dtype(dtype)}
    if attention:
        options["attn_implementation"] = attention
    return SentenceTransformer(str(folder), device=device, model_kwargs=options).eval()


def peer_vectors(peer: SentenceTransformer, texts: list[str], *, batch_size: int) -> Vectors:
    """Return the unit vectors (N, D) of sentence-transformers."""
    vectors: Vectors = peer.encode(
        texts, batch_size=batch_size, show_progress_bar=False, normalize_embeddings=True
    )
    return vectors


def unit(vectors: Vectors) -> NDArray[np.float64]:
    """Return vectors (N, D) with length 1, which those of 16 bits have to their rounding only."""
    wide = vectors.astype(np.float64)
    return np.asarray(wide / np.linalg.norm(wide, axis=1, keepdims=True))


def cross_encoder(folder: Path, *, device: str = "cpu", dtype: str = "float32") -> CrossEncoder:
    """Load the reranker in sentence-transformers, with the same weights and template."""
    from sentence_transformers import CrossEncoder

    options = {"dtype": torch_dtype(dtype)}
    return CrossEncoder(str(folder), device=device, max_length=512, model_kwargs=options)


def predict(peer: CrossEncoder, texts: list[str]) -> Floats:
    """Return the P(yes) of sentence-transformers, at its default batch size."""
    pairs = [(QUERY, text) for text in texts]
    scores = peer.predict(pairs, activation_fn=torch.nn.Sigmoid(), show_progress_bar=False)
    return np.asarray(scores, dtype=np.float64)
