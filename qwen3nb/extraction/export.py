"""Write the files of an export other than its weights.

These are ``config.json`` with both spellings of the rope settings, the module files of
sentence-transformers with both the old and the new keys, and a script that checks the export on any
machine. The README is the model card (`qwen3nb.report.card`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from qwen3nb.checkpoints.folder import TOKENIZER_FILES, ModelFolder, copy_present
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.models.gate.tokenizer import TOKENIZER, TOKENIZER_CONFIG, check_loaded, check_tokenizer
from qwen3nb.models.kinds.prompts import exported_prompts
from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.models.modeling.tokenizer_template import surround
from qwen3nb.models.options import check_length, check_prefix
from qwen3nb.models.types import DTYPES
from qwen3nb.utils.atomic_files import write_json, write_text
from qwen3nb.utils.choices import check_choice

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from qwen3nb.models.modeling.configuration import Qwen3EncoderConfig

CHECK = "check_encoder.py"
# The first releases that load an export. Older sentence-transformers warn about newer versions; the
# installed versions would become part of the model's identity and cause needless warnings.
_OLDEST_RELEASES = {"sentence_transformers": "5.4.0", "transformers": "5.2.0"}
# Read by other servers, some of which refuse a file that lacks one.
_BEFORE_5_4 = """
pooling_mode_cls_token pooling_mode_max_tokens pooling_mode_mean_tokens
pooling_mode_mean_sqrt_len_tokens pooling_mode_weightedmean_tokens pooling_mode_lasttoken
""".split()  # noqa: SIM905 - a list of words reads better as lines


@dataclass(frozen=True)
class ExportOptions:
    """Options of an exported encoder, stored with the export."""

    pooling: str = "mean"  # one of `qwen3nb.models.modeling.pooling.POOLINGS`
    normalize: bool = True  # whether vectors are scaled to length 1
    max_length: int = 512  # maximum number of tokens per text, including prefix and end token
    dtype: str = "float32"  # dtype of the stored weights: ``float32``, ``bfloat16`` or ``float16``
    prefix: str = ""  # text prepended to every input, such as the training's ``[R]``
    # whether the end-of-text token is appended to every input; truncation keeps it
    append_eos: bool = False
    # prompts by name, such as ``query``, ``document`` (or ``passage``) and ``symmetric``; see
    # `qwen3nb.models.kinds.prompts`
    prompts: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_choice("pooling", self.pooling, POOLINGS)
        check_choice("dtype", self.dtype, DTYPES)
        if self.max_length < 1:
            raise ValueError(f"expected a max_length of at least 1; got {self.max_length}")
        check_length(self.max_length)
        check_prefix(self.prefix)


class ExportFields(TypedDict, total=False):
    """The fields of `ExportOptions`, to pass them on."""

    pooling: str
    normalize: bool
    max_length: int
    dtype: str
    prefix: str
    append_eos: bool
    prompts: Mapping[str, str]


def copy_tokenizer(
    source: ModelFolder,
    target: Path,
    *,
    rows: int,
    options: ExportOptions,
) -> tuple[Tokenizer, list[str]]:
    """Copy the tokenizer files and check that they match the embedding.

    The files are copied, not saved again: transformers 5 writes files that transformers 4.57 cannot
    read. A prefix or an end token changes only the template in ``tokenizer.json``; in
    ``tokenizer_config.json``, only the maximum length is set and, for ``last`` pooling, the padding
    side: transformers.js takes the last column, even if it is padding.

    Returns:
        The tokenizer as written, and warnings.

    Raises:
        CheckpointError: no ``tokenizer.json``, or one that does not match the embedding's ``rows``,
            see `qwen3nb.models.gate.tokenizer`; no padding token; or a maximum length too small for
            prefix, text and end token.
    """
    tokenizer, special_tokens = check_tokenizer(source)
    if tokenizer is None:
        raise CheckpointError(
            f"{source}: no {TOKENIZER}; copy the tokenizer of the training into the checkpoint"
        )
    # Each token needs a row of the embedding.
    check_loaded(tokenizer, rows=rows, folder=source)
    required_tokens = ["pad_token"]
    if options.append_eos:
        required_tokens.append("eos_token")
    for token in required_tokens:
        if token not in special_tokens:
            raise CheckpointError(f"{source}: tokenizer_config.json names no {token}")
    end_token = special_tokens.get("eos_token")
    end_id_of_model = source.config.get("eos_token_id")
    warnings = _end_warnings(tokenizer, end_token, end_id_of_model, options)
    copy_present(TOKENIZER_FILES, source, target)
    _write_tokenizer_config(source, target, options)
    if options.prefix or options.append_eos:
        _add_prefix_and_end(source, tokenizer, end_token, options)
        # Of the changed tokenizer, only the template is written: older libraries refuse the rest.
        fields = source.object(TOKENIZER)
        fields["post_processor"] = json.loads(tokenizer.to_str())["post_processor"]
        write_text(target / TOKENIZER, json.dumps(fields, ensure_ascii=False, indent=2) + "\n")
    return tokenizer, warnings


def _add_prefix_and_end(
    source: ModelFolder,
    tokenizer: Tokenizer,
    end_token: str | None,
    options: ExportOptions,
) -> None:
    """Make prefix and end token part of the tokenizer's template; refuse what leaves no room."""
    appended_token = None
    if options.append_eos:
        appended_token = end_token
    # Both become part of the template by which the tokenizer surrounds every text.
    try:
        surround(tokenizer, prefix=options.prefix, end=appended_token)
    except ValueError as error:
        raise CheckpointError(f"{source}: {error}") from None
    added_tokens = tokenizer.num_special_tokens_to_add(is_pair=False)
    if options.max_length <= added_tokens:
        raise CheckpointError(
            f"max_length {options.max_length} leaves no room for text: prefix and end token "
            f"take {added_tokens} tokens"
        )


def _write_tokenizer_config(source: ModelFolder, target: Path, options: ExportOptions) -> None:
    """Write the maximum length and, for ``last`` pooling, the padding side, if they differ."""
    original = source.object(TOKENIZER_CONFIG)
    config = original | {"model_max_length": options.max_length}
    if options.pooling == "last":
        config["padding_side"] = "left"
    if config != original:
        write_json(target / TOKENIZER_CONFIG, config, indent=2)


def _end_warnings(
    tokenizer: Tokenizer,
    end_token: str | None,
    end_id_of_model: object,
    options: ExportOptions,
) -> list[str]:
    """Return warnings about the end-of-text token, which may follow every text."""
    warnings: list[str] = []
    if options.pooling == "last" and not options.append_eos:
        warnings.append(
            "last-token pooling without an end-of-text token: the vector is that of the text's "
            "own last token (use --append-eos if the training appended one)"
        )
    if end_token is None:
        warnings.append("the tokenizer configuration names no eos_token")
        return warnings
    if not isinstance(end_id_of_model, int):
        return warnings
    for token_id, token in tokenizer.get_added_tokens_decoder().items():
        if token.content == end_token and token_id != end_id_of_model:
            warnings.append(
                f"config.json says eos_token_id {end_id_of_model}, but the tokenizer's {end_token} "
                f"is {token_id}"
            )
    return warnings


def listed_modules(kinds: Sequence[str]) -> list[dict[str, object]]:
    """Return the content of sentence-transformers' ``modules.json`` for names of classes."""
    modules: list[dict[str, object]] = []
    for index, kind in enumerate(kinds):
        path = f"{index}_{kind}"
        if index == 0:  # the first one's files are those of the model's folder
            path = ""
        module = {
            "idx": index,
            "name": str(index),
            "path": path,
            "type": f"sentence_transformers.models.{kind}",
        }
        modules.append(module)
    return modules


def write_model_files(folder: Path, config: Qwen3EncoderConfig, options: ExportOptions) -> None:
    """Write ``config.json`` and the sentence-transformers files next to the weights."""
    config.architectures = ["Qwen3Model"]
    fields = json.loads(config.to_json_string(use_diff=False))
    fields["dtype"] = options.dtype
    # Older releases of transformers read these two names.
    fields["torch_dtype"] = options.dtype
    fields["rope_theta"] = fields["rope_parameters"]["rope_theta"]
    write_json(folder / "config.json", fields, indent=2)
    modules = ["Transformer", "Pooling"]
    similarity = "dot"
    if options.normalize:
        modules.append("Normalize")
        similarity = "cosine"
        write_json(folder / "2_Normalize" / "config.json", {}, indent=2)
    write_json(folder / "modules.json", listed_modules(modules), indent=2)
    pooling = _pooling_settings(options.pooling, config.hidden_size)
    write_json(folder / "1_Pooling" / "config.json", pooling, indent=2)
    tokenization = {"max_seq_length": options.max_length, "do_lower_case": False}
    write_json(folder / "sentence_bert_config.json", tokenization, indent=2)
    settings = {
        "__version__": _OLDEST_RELEASES,
        **exported_prompts(options.prompts),
        "similarity_fn_name": similarity,
    }
    write_json(folder / "config_sentence_transformers.json", settings, indent=2)
    shutil.copyfile(Path(__file__).with_name(CHECK), folder / CHECK)


def _pooling_settings(pooling: str, dimension: int) -> dict[str, object]:
    """Return the settings of the pooling module, under its old and new names.

    The dimension has its new name only. With the old one as well, each load would print a
    deprecation warning; with the old one alone, sentence-transformers before 5.4 would load the
    model, most often with a transformers that runs it causally.
    """
    rule = POOLINGS[pooling]
    settings: dict[str, object] = dict.fromkeys(_BEFORE_5_4, False)
    settings[rule.flag] = True
    settings["embedding_dimension"] = dimension
    settings["pooling_mode"] = rule.stored
    settings["include_prompt"] = True
    return settings
