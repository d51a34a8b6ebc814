"""A classification head on an export: transformers' own classes, loaded so that nothing is lost.

``AutoModelForSequenceClassification`` and ``AutoModelForTokenClassification`` load an export as it
is, in both directions, and compute the hidden states of the encoder. Four things can go wrong
without an error, and `load_classifier` sees to them:

- transformers 5.0 and 5.1 run the export causally. They are refused.
- An export in 16 bits is loaded in 16 bits, in which small steps of a training are rounded away.
  The weights are loaded in float32.
- The head of a sequence reads the last token that is not padding. If the token for padding also
  ends each text, it reads the token before. Padding gets a token of its own.
- ``config.json`` of an export may name no token for padding; then batches are refused.

The head of a sequence reads that one token whatever the export's pooling is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from qwen3nb.models.gate.weights import check_finite, own_weights
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.modeling import runtime
from qwen3nb.models.modeling.qwen3_encoder import check_direction
from qwen3nb.models.types import SpecError, refusing
from qwen3nb.utils.choices import check_choice

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PreTrainedModel, PreTrainedTokenizerBase

HEADS = ("sequence", "token")
PADDING = "<|pad|>"  # the token for padding, where the export's own one ends each text
_TRIED_TEXT = "a"


class Classifier(NamedTuple):
    """A model of transformers with an untrained head, and its tokenizer."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase


def load_classifier(
    export: str | Path,
    labels: Sequence[str],
    *,
    head: str = "sequence",
    device: str = "cpu",
) -> Classifier:
    """Load an export with a new head that gives each text, or each token, one of the labels.

    The head is random until it is trained; transformers reports its weights as missing.

    Args:
        export: a folder from ``qwen3nb extract``, or a name for it such as ``newest-export``.
        labels: at least two, in the order of the logits.
        head: ``sequence`` for a label per text, ``token`` for a label per token.
        device: where the model is put; ``auto`` takes a GPU if there is one.

    Returns:
        The model, in float32 and evaluation mode, and its tokenizer.

    Raises:
        SpecError: no such export, or a model that is none; or a release of transformers that runs
            it causally.
        ValueError: another ``head``, a ``device`` that is not here, or labels that are fewer than
            two or not distinct.
    """
    check_choice("head", head, HEADS)
    names = list(labels)
    if len(names) < 2 or len(set(names)) < len(names):
        raise ValueError(f"expected at least two labels, each once; got {names!r:.80}")
    source = find_source(str(export))
    if source.kind.name != "encoder":
        raise SpecError(
            f"{source.label} is of kind {source.kind.name!r}; expected a folder that `qwen3nb "
            "extract` wrote. Heads of other models are loaded by transformers itself"
        )
    source.kind.check(source)
    folder = source.own_folder
    with refusing(folder, "cannot be loaded with a head"):
        model = _class_of(head).from_pretrained(
            folder,
            dtype="float32",
            id2label=dict(enumerate(names)),
            label2id={name: number for number, name in enumerate(names)},
            trust_remote_code=False,
        )
    own_weights(model)
    check_finite(model, folder)
    check_direction(model.base_model, folder)
    tokenizer = runtime.load_tokenizer(folder, model.config)
    _set_padding(model, tokenizer)
    return Classifier(model.to(runtime.pick_device(device)).eval(), tokenizer)


def _class_of(head: str) -> Any:
    """Return the class of transformers that builds a model with such a head."""
    from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification

    if head == "sequence":
        return AutoModelForSequenceClassification
    return AutoModelForTokenClassification


def _set_padding(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Let model and tokenizer agree on a token for padding that ends no text."""
    last_token = tokenizer(_TRIED_TEXT)["input_ids"][-1]
    if last_token == tokenizer.pad_token_id:
        tokenizer.add_special_tokens({"pad_token": PADDING})
        rows = model.get_input_embeddings().num_embeddings
        if len(tokenizer) > rows:  # padding is masked, so its vector is never read
            model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    model.config.pad_token_id = tokenizer.pad_token_id
