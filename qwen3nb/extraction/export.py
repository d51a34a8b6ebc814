"""The files beside the weights that make a directory load everywhere.

``config.json`` in both rope spellings, sentence-transformers' module files in both
the old and the new keys, a README that is honest about what is not measured yet, and
the provenance of the whole.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from qwen3nb.extraction.checkpoint import CheckpointError
from qwen3nb.files import read_json, write_json, write_text

if TYPE_CHECKING:
    from qwen3nb.models.encoder import Qwen3EncoderConfig

__all__ = ["PROVENANCE", "TOKENIZER_FILES", "copy_tokenizer", "write_model_files"]

PROVENANCE = "qwen3nb.json"
TOKENIZER_FILES = (
    "added_tokens.json",
    "chat_template.jinja",
    "merges.txt",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
)
_SINCE_5_4 = {"mean": "mean", "cls": "cls", "last": "lasttoken", "weighted_mean": "weightedmean"}
_BEFORE_5_4 = {
    "mean": "pooling_mode_mean_tokens",
    "cls": "pooling_mode_cls_token",
    "last": "pooling_mode_lasttoken",
    "weighted_mean": "pooling_mode_weightedmean_tokens",
}

_README = Template("""\
---
library_name: transformers
pipeline_tag: sentence-similarity
tags: [sentence-transformers, feature-extraction, sentence-similarity, qwen3, encoder]
---

# $label

A bidirectional Qwen3 text encoder of $parameters parameters, taken from the
encoder-decoder checkpoint `$checkpoint` by qwen3nb $version.

- pooling: `$pooling`, vectors $normalised, $dimension dimensions
- texts are cut at $max_length tokens
- verified after writing: the greatest difference between this directory, loaded by
  the stock class, and the source encoder is $difference

**It needs transformers 5.2 or newer.** Older releases ignore `is_causal: false` and
run this model causally without a word; the vectors are then wrong.

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("path/to/this/folder")
vectors = model.encode(["a text", "another text"])
```

Evaluation: pending. `qwen3nb eval --checkpoint THIS_FOLDER --tier smoke`, then
`qwen3nb card --model THIS_FOLDER` writes the full card from the results.
""")


def copy_tokenizer(source: Path, target: Path, *, rows: int) -> None:
    """Copy the tokenizer's files as they are and check that they fit the embedding.

    They are not re-saved: transformers 5 writes files that transformers 4.57 cannot read.

    Raises:
        CheckpointError: no ``tokenizer.json``, or a token id beyond the embedding's ``rows``.
    """
    from tokenizers import Tokenizer

    if not (source / "tokenizer.json").is_file():
        raise CheckpointError(
            f"{source}: no tokenizer.json; copy the tokenizer the training used into the checkpoint"
        )
    for name in TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
    tokenizer = Tokenizer.from_file(str(target / "tokenizer.json"))
    largest = max(tokenizer.get_vocab(with_added_tokens=True).values())
    if largest >= rows:
        raise CheckpointError(
            f"{source}: the tokenizer has an id {largest} but the embedding only {rows} rows; "
            "this is another model's tokenizer"
        )


def write_model_files(
    folder: Path, config: Qwen3EncoderConfig, *, max_length: int, dtype: str
) -> None:
    """``config.json`` and sentence-transformers' files, for weights already in ``folder``."""
    config.architectures = ["Qwen3Model"]
    fields = json.loads(config.to_json_string(use_diff=False))
    fields["dtype"] = dtype
    fields["rope_theta"] = fields["rope_parameters"]["rope_theta"]
    fields["torch_dtype"] = dtype
    write_json(folder / "config.json", fields, indent=2)

    modules = ["Transformer", "Pooling"] + ["Normalize"] * config.normalize
    write_json(
        folder / "modules.json",
        [
            {
                "idx": index,
                "name": str(index),
                "path": f"{index}_{kind}" if index else "",
                "type": f"sentence_transformers.models.{kind}",
            }
            for index, kind in enumerate(modules)
        ],
        indent=2,
    )
    for index, kind in enumerate(modules[1:], start=1):
        (folder / f"{index}_{kind}").mkdir()
    pooling: dict[str, Any] = dict.fromkeys(_BEFORE_5_4.values(), False)
    pooling[_BEFORE_5_4[config.pooling_mode]] = True
    pooling |= {
        "word_embedding_dimension": config.hidden_size,
        "embedding_dimension": config.hidden_size,
        "pooling_mode": _SINCE_5_4[config.pooling_mode],
        "include_prompt": True,
    }
    write_json(folder / "1_Pooling" / "config.json", pooling, indent=2)
    if config.normalize:
        write_json(folder / "2_Normalize" / "config.json", {}, indent=2)
    write_json(
        folder / "sentence_bert_config.json",
        {"max_seq_length": max_length, "do_lower_case": False},
        indent=2,
    )
    write_json(
        folder / "config_sentence_transformers.json",
        {"prompts": {}, "default_prompt_name": None, "similarity_fn_name": "cosine"},
        indent=2,
    )


def write_readme(folder: Path, provenance: dict[str, Any]) -> None:
    """A README from the provenance, until `qwen3nb card` writes the card from results."""
    values = {
        **{key: str(value) for key, value in provenance.items()},
        "parameters": f"{provenance['parameters']:,}",
        "normalised": "of length 1" if provenance["normalize"] else "not normalised",
        "difference": f"{provenance['verification']['max_difference']:.1e}",
        "version": provenance["qwen3nb"],
        "checkpoint": Path(provenance["source"]["folder"]).name,
    }
    write_text(folder / "README.md", _README.substitute(values))


def read_provenance(folder: Path) -> dict[str, Any] | None:
    """The provenance of an extracted directory, or None for any other folder."""
    file = folder / PROVENANCE
    return dict(read_json(file)) if file.is_file() else None
