"""The rerankers that `qwen3nb.bench.rerank` compares, and the random model they run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from qwen3nb.models.rerankers.yes_no import Floats

__all__ = [
    "QUERY",
    "SHAPES",
    "VOCABULARY",
    "cross_encoder",
    "ours",
    "padded_scores",
    "plain_model",
    "predict",
    "write_random_reranker",
]

VOCABULARY = 151_936  # rows of the output matrix of Qwen3
# hidden, intermediate, layers, heads, key-value heads, head size
SHAPES = {
    "tiny": (64, 96, 2, 4, 2, 16),
    "100M": (512, 1536, 8, 8, 4, 64),
    "0.6B": (1024, 3072, 28, 16, 8, 128),
}
QUERY = "how to sort the rows of a table by several columns and keep the order of equal rows"
_BATCH = 16  # batch size of the two references


def write_random_reranker(folder: Path, size: str) -> None:
    """Write a random Qwen3 language model, its template, and a tokenizer of docstrings."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from qwen3nb.datasets.pydocs.build import load_pydocs
    from qwen3nb.models.modeling.tiny_tokenizer import write_tokenizer
    from qwen3nb.models.rerankers.prompt_template import INSTRUCTION, TEMPLATES

    template = TEMPLATES["qwen3-reranker"]
    prompt = template.prefix + template.head(INSTRUCTION, "yes no") + " " + template.suffix
    texts = [entry.text for entry in load_pydocs().entries]
    write_tokenizer([*texts, *[prompt, "yes", "no"] * 200], folder, vocabulary=16_000)
    hidden, inner, layers, heads, groups, head = SHAPES[size]
    config = Qwen3Config(
        vocab_size=VOCABULARY, hidden_size=hidden, intermediate_size=inner,
        num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=groups,
        head_dim=head, max_position_embeddings=4096, tie_word_embeddings=True,
        initializer_range=hidden**-0.5,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        Qwen3ForCausalLM(config).save_pretrained(folder)
    # For sentence-transformers, which renders a pair as a chat with two roles.
    (folder / "chat_template.jinja").write_text(
        f"{template.prefix}<Instruct>: {INSTRUCTION}{template.gap}<Query>: "
        "{{ messages[0].content }}" + template.gap + "<Document>: {{ messages[1].content }}"
        + template.suffix.replace("\n", "{{ '\n' }}"),
        encoding="utf-8",
    )  # fmt: skip


def ours(folder: Path, *, onednn: bool) -> Any:
    """Our reranker, with or without oneDNN; None if this PyTorch lacks oneDNN."""
    from qwen3nb.models.inference.fused_layers import fuse_layers
    from qwen3nb.models.rerankers import load as yes_no
    from qwen3nb.models.rerankers.yes_no import Reranker
    from qwen3nb.models.sources.resolve import find_source

    source = find_source(str(folder))
    model = yes_no.load_yes_no(source, device="cpu", linears="torch")
    if onednn and not fuse_layers(model.backbone, force=True):
        return None
    return Reranker(source, model)


def plain_model(folder: Path) -> tuple[Any, Any]:
    """The model with its head, and its tokenizer."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    return model, AutoTokenizer.from_pretrained(folder)


def cross_encoder(folder: Path, *, device: str = "cpu", dtype: str = "float32") -> Any:
    """The peer: sentence-transformers on the same weights and template."""
    from sentence_transformers import CrossEncoder

    from qwen3nb.models.modeling.dtypes import torch_dtype

    kwargs = {"dtype": torch_dtype(dtype)}
    return CrossEncoder(str(folder), device=device, max_length=512, model_kwargs=kwargs)


def predict(peer: Any, texts: list[str]) -> Floats:
    """The peer's P(yes), at its default batch size."""
    import torch

    pairs = [(QUERY, text) for text in texts]
    scores = peer.predict(pairs, activation_fn=torch.nn.Sigmoid(), show_progress_bar=False)
    return np.asarray(scores, dtype=np.float64)


def padded_scores(model: Any, words: list[int], rows: list[list[int]], *, keep: int) -> Floats:
    """P(yes) in left-padded batches; logits of the last ``keep`` positions, 0 for all."""
    import torch

    scores = []
    for start in range(0, len(rows), _BATCH):
        batch = rows[start : start + _BATCH]
        width = max(map(len, batch))
        ids = torch.tensor([[0] * (width - len(row)) + row for row in batch])
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in batch])
        with torch.inference_mode():
            logits = model(
                input_ids=ids, attention_mask=mask, logits_to_keep=keep, use_cache=False
            ).logits[:, -1]
            scores.append(logits[:, words].log_softmax(-1)[:, 1].exp())
    return torch.cat(scores).double().numpy()
