"""The parts of a language model that a yes/no reranker uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qwen3nb.models.types import SpecError

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class YesNoModel:
    """A causal language model, split into backbone and output matrix.

    Attributes:
        backbone: everything but the output matrix, on its device, in evaluation mode.
        head: the output matrix (vocabulary, hidden size), as stored.
        tokenizer: its tokenizer.
        dtype: name of the dtype it runs in.
        parameters: number of parameters; includes the output matrix unless it is tied to the
            embedding.
        content: the fingerprint of its files before they were loaded.
    """

    backbone: Any
    head: Tensor
    tokenizer: PreTrainedTokenizerBase
    dtype: str
    parameters: int
    content: Mapping[str, Any]

    @property
    def config(self) -> Any:
        """The model's configuration."""
        return self.backbone.config

    @property
    def library(self) -> tuple[str, str]:
        """Name and version of the library that runs it."""
        import transformers

        return "transformers", transformers.__version__

    def rows(self, yes: int, no: int) -> Tensor:
        """Return a float32 copy of the rows of ``no`` and ``yes``: (2, hidden size)."""
        if not 0 <= max(yes, no) < len(self.head):
            raise SpecError(
                f"the tokenizer's ids of yes and no ({yes}, {no}) exceed the output "
                f"matrix's {len(self.head)} rows; the tokenizer belongs to another model"
            )
        return self.head[[no, yes]].detach().float().clone()
