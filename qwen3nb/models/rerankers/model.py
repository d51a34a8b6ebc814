"""What a yes/no reranker keeps of a language model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qwen3nb.models.types import SpecError

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class YesNoModel:
    """A causal language model, taken apart.

    Attributes:
        backbone: everything but the output matrix, on its device, in evaluation mode.
        head: the output matrix (vocabulary, hidden size), as it is stored.
        tokenizer: its tokenizer.
        dtype: the name of the number format it runs in.
        parameters: how many it has; the output matrix counts where it is not the embedding.
    """

    backbone: Any
    head: Tensor
    tokenizer: PreTrainedTokenizerBase
    dtype: str
    parameters: int

    @property
    def config(self) -> Any:
        """The model's configuration."""
        return self.backbone.config

    @property
    def library(self) -> tuple[str, str]:
        """The library that runs it, and its version."""
        import transformers

        return "transformers", transformers.__version__

    def rows(self, yes: int, no: int) -> Tensor:
        """The rows of no and yes, float32: (2, hidden size), a copy."""
        if not 0 <= max(yes, no) < len(self.head):
            raise SpecError(
                f"the tokenizer's ids of yes and no ({yes}, {no}) are beyond the output "
                f"matrix's {len(self.head)} rows; tokenizer and model do not belong together"
            )
        return self.head[[no, yes]].detach().float().clone()
