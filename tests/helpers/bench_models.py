"""A small Qwen3 for benchmarks."""

from qwen3nb.bench.random_models import SHAPE as LARGER
from qwen3nb.bench.random_models import qwen3_shape

SHAPE = {**LARGER, **qwen3_shape(32, 48, 2, 4, 2, 8, vocab_size=600)}
