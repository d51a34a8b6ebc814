"""The shape of a small Qwen3 for benchmarks."""

from qwen3nb.bench import encode

SHAPE = {
    **encode._SHAPE,
    "vocab_size": 600,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}
