"""Tiny models of many architectures, and the vectors that a fast forward must equal."""

import torch
import transformers

from qwen3nb.models.inference.runner import Runner
from qwen3nb.models.modeling.configuration import Qwen3EncoderConfig
from qwen3nb.models.modeling.pooling import pool
from qwen3nb.models.modeling.qwen3_encoder import Qwen3EncoderModel

VOCABULARY = 97
ROWS = [[5, 6, 7], [8], [9, 10, 11, 12, 13], [5, 6, 7], [14, 15, 16], list(range(3, 60)), [17]]
COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 80,
    "initializer_range": 0.3,
}
BERT = COMMON
LLAMA = {**COMMON, "num_key_value_heads": 2}
QWEN = {**LLAMA, "head_dim": 16}


def of(family, **fields):
    """The classes of an architecture of transformers, and the fields of its configuration."""
    return *(getattr(transformers, f"{family}{each}") for each in ("Model", "Config")), fields


PACKED = {
    "qwen3 encoder": (Qwen3EncoderModel, Qwen3EncoderConfig, QWEN),
    "qwen3 causal": of("Qwen3", **QWEN),
    "qwen3 stock, bidirectional": of("Qwen3", **QWEN, is_causal=False),
    "qwen2": of("Qwen2", **LLAMA),
    "llama": of("Llama", **LLAMA),
    "bert": of("Bert", **BERT),
    "roberta": of("Roberta", **BERT, pad_token_id=1),
    "xlm-roberta": of("XLMRoberta", **BERT, pad_token_id=1),
}
SLIDING = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
PADDED = {
    "unknown architecture": of("Electra", **BERT, embedding_size=32),
    "sliding windows": of("Qwen3", **QWEN, **SLIDING),
    "frequencies that depend on the batch": of("Qwen3", **QWEN, rope_parameters=DYNAMIC),
    "a BERT that decodes": of("Bert", **BERT, is_decoder=True),
}
EVERY = PACKED | PADDED


def build(name):
    """A tiny model with random weights, always the same."""
    kind, config, fields = EVERY[name]
    torch.manual_seed(0)
    return kind(config(**fields)).eval()


@torch.inference_mode()
def one_by_one(model, rows, *, how="mean"):
    """Vectors of rows that go through the model alone, so that nothing is padded."""
    vectors = []
    for row in rows:
        ids = torch.tensor([row])
        states = model(input_ids=ids).last_hidden_state
        vectors.append(pool(states, torch.ones_like(ids), pooling=how, normalize=True)[0])
    return torch.stack(vectors).numpy()


def runner(name, *, how="mean", **options):
    return Runner(build(name), pooling=how, normalize=True, **options)
