"""Types shared by all kinds of models: vectors, dtypes, counters and errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from qwen3nb.checkpoints.types import CheckpointError as CheckpointError
from qwen3nb.checkpoints.types import SpecError as SpecError
from qwen3nb.utils.atomic_files import sha256_json
from qwen3nb.utils.choices import check_choice

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

JsonObject: TypeAlias = Mapping[str, Any]  # the content of a file
Settings: TypeAlias = dict[str, Any]  # everything that results depend on, as JSON
Vectors: TypeAlias = "NDArray[np.float32]"
# dtypes a model can run in; ``int8``: linear layers in 8 bits, the rest in float32
DTYPES = ("float32", "bfloat16", "float16", "int8")
CACHED = ("float32", "float16")  # dtypes of cached vectors
MOST_TOKENS = 1_000_000_000  # of a text; libraries overflow at some number above
# Specs of what was made last in a study; see `qwen3nb.models.kinds.newest`.
NEWEST_EXPORT, NEWEST_TRAINING, NEWEST_ADAPTER = (
    "newest-export",
    "newest-training",
    "newest-adapter",
)
NEWEST = (NEWEST_EXPORT, NEWEST_TRAINING, NEWEST_ADAPTER)
RANDOM_QWEN3 = "qwen3-60M-random"  # a Qwen3 with random weights, whose speed is measured
# How adapters are merged; see `qwen3nb.models.kinds.adapter_merging`.
ADAPTER_METHODS = ("cat", "svd", "linear")
# prompt templates of rerankers: of Qwen3-Reranker's model card, and of this project's LoRA adapters
TEMPLATE_NAMES = ("qwen3-reranker", "double-newline")
# of rerankers, and of encoders whose prompts take one
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"


class Identified:
    """A model whose results depend on its ``settings`` alone, which are JSON."""

    settings: Settings

    @property
    def identity(self) -> str:
        """SHA-256 of the settings."""
        return sha256_json(self.settings)

    @property
    def only_searches(self) -> str:
        """Why it does no other tasks, such as ``has no vectors``; empty if it does."""
        return ""

    @property
    def parts(self) -> Sequence[Any]:
        """The models whose rankings it fuses; the model alone if it fuses none."""
        return (self,)


@dataclass
class Stats:
    """Work done by an encoder so far."""

    texts: int = 0  # texts requested, duplicates included
    encoded: int = 0  # distinct texts that went through the model: cache misses
    cached: int = 0  # distinct texts read from the cache: cache hits
    damaged: int = 0  # stored vectors that failed their checksum and were computed again
    seconds: float = 0.0  # time spent in the model
    cut: int = 0  # distinct texts truncated to the maximum length
    empty: int = 0  # empty or blank texts, duplicates included
    # texts containing a special token, such as ``<|endoftext|>``, tokenised as that token;
    # duplicates included
    special: int = 0
    tokens: int = 0  # tokens that a server counted, which it may charge for


class EncoderError(ValueError):
    """A text that cannot be encoded, or a vector that must not be used."""


@contextmanager
def refusing(file: object, what: str) -> Iterator[None]:
    """Translate errors of libraries within the block into a one-line `CheckpointError`.

    It names the ``file`` or folder at fault and ``what`` failed, such as ``the tokenizer cannot be
    loaded``. Errors of this package are not changed.
    """
    try:
        yield
    except SpecError:
        raise
    except Exception as error:  # libraries also raise bare Exceptions  # noqa: BLE001
        reason = " ".join(str(error).split())[:300]
        raise CheckpointError(f"{file}: {what} ({type(error).__name__}: {reason})") from None


def torch_dtype(name: str) -> torch.dtype:
    """Return the torch dtype of the weights that are loaded to run in the dtype called ``name``.

    Raises:
        ValueError: not one of `DTYPES`; lists the choices.
    """
    import torch

    check_choice("dtype", name, DTYPES)
    dtype: torch.dtype = torch.float32 if name == "int8" else getattr(torch, name)
    return dtype
