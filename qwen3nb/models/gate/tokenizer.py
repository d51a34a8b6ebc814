"""Check a tokenizer against its model, from its files, before a library loads it.

Libraries build a tokenizer from whatever is there: without its files an empty one, with a
token that its vocabulary lacks a larger one. Its ids then point beyond the embedding, or at
rows that were never trained.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qwen3nb.checkpoints.inside import JSON_LIMIT, check_inside, module_folders, read_object
from qwen3nb.checkpoints.provenance import read_provenance
from qwen3nb.checkpoints.safetensors_header import read_safetensors
from qwen3nb.checkpoints.types import CheckpointError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = [
    "TOKENIZER",
    "check_loaded",
    "check_modules",
    "check_tokenizer",
    "read_vocabulary",
    "rust_tokenizer",
    "table_tokenizer",
]

TOKENIZER = "tokenizer.json"
_CONFIG, _MAP = "tokenizer_config.json", "special_tokens_map.json"
# Any one of these sets of files makes a tokenizer complete.
_COMPLETE = (
    (TOKENIZER,),
    ("vocab.json", "merges.txt"),
    ("vocab.txt",),
    ("*.model",),
    ("*.spm",),
    ("*.tiktoken",),
    ("tekken.json",),
)
# Classes that need no file: their tokens are bytes or characters.
_WITHOUT_FILES = ("ByT5Tokenizer", "CanineTokenizer", "PerceiverTokenizer")
# Roles whose tokens become part of texts; a token outside the vocabulary would be added to it.
_ROLES = ("bos_token", "eos_token", "cls_token", "sep_token", "pad_token")
_IDS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
_FILES = ("vocab_file", "merges_file", "tokenizer_file", "spm_file", "source_spm", "target_spm")


def check_tokenizer(folder: Path, *, rows: int, config: Mapping[str, Any] | None = None) -> None:
    """Check that the tokenizer in ``folder`` is complete and fits an embedding of ``rows`` rows.

    Args:
        folder: the folder with the tokenizer's files.
        rows: rows of the model's embedding.
        config: the model's configuration, whose special ids must lie within, too.

    Raises:
        CheckpointError: a file that is missing, malformed or outside the folder; a vocabulary,
            a special token, an id of the template or of ``config`` that does not fit; a
            tokenizer with code of its own; or an export without its template.
    """
    settings = _settings(folder)
    _check_complete(folder)
    file = folder / TOKENIZER
    fields = read_object(file) if file.exists() else {}
    vocabulary = _of_rust(file, fields) if fields else read_vocabulary(folder)
    _check_largest(folder, vocabulary, rows)
    for source, values in settings.items():
        _check_settings(source, values, vocabulary, rows)
    for name in _IDS:
        _check_id(folder / "config.json", name, (config or {}).get(name), rows)
    for name, token in _template_ids(fields.get("post_processor")):
        _check_id(file, f"{name} of its post_processor", token, rows)
    _check_export(folder)


def check_modules(folder: Path) -> None:
    """Check the tokenizer of each module of a sentence-transformers folder that has weights.

    Raises:
        CheckpointError: see `check_tokenizer`.
    """
    for name in dict.fromkeys(module_folders(folder)):
        module = folder / name
        if (module / "config.json").is_file():
            config = read_object(module / "config.json", folder)
            rows = config.get("vocab_size")
            if type(rows) is int:
                check_tokenizer(module, rows=rows, config=config)
        elif (module / TOKENIZER).is_file() and (module / "model.safetensors").is_file():
            entries = read_safetensors(module / "model.safetensors")
            tables = [each.shape[0] for each in entries.values() if len(each.shape) == 2]
            rows = entries["mapping"].shape[0] if "mapping" in entries else max(tables, default=0)
            check_tokenizer(module, rows=rows)


def check_loaded(tokenizer: Any, *, rows: int, folder: Path) -> None:
    """Check a tokenizer as a library has loaded it; the library may have added tokens.

    Raises:
        CheckpointError: no token at all, or an id beyond the embedding's ``rows``.
    """
    _check_largest(folder, tokenizer.get_vocab(), rows)


def read_vocabulary(folder: Path) -> dict[str, int]:
    """Return the id of each token, those added to the vocabulary included.

    Raises:
        CheckpointError: a file that is missing, malformed or outside the folder.
    """
    _check_complete(folder)
    if (folder / TOKENIZER).exists():
        return _of_rust(folder / TOKENIZER, read_object(folder / TOKENIZER))
    if (folder / "vocab.json").exists():
        vocabulary = read_object(folder / "vocab.json")
    elif (folder / "vocab.txt").exists() and not (folder / "bpe.codes").exists():
        vocabulary = _of_lines(folder / "vocab.txt")
    else:
        vocabulary = _of_library(folder)
    added = folder / "added_tokens.json"
    vocabulary |= read_object(added) if added.exists() else {}
    return _checked(folder, vocabulary)


def rust_tokenizer(file: Path) -> Tokenizer:
    """Return the tokenizer in a ``tokenizer.json``.

    Raises:
        CheckpointError: not a tokenizer.
    """
    from tokenizers import Tokenizer

    check_inside(file)
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises bare Exceptions  # noqa: BLE001
        raise CheckpointError(f"{file}: not a valid tokenizer ({error!s:.200})") from None


def table_tokenizer(file: Path, *, rows: int) -> Tokenizer:
    """Return the tokenizer of a static model, whose table has a row for each of its tokens.

    Raises:
        CheckpointError: no valid tokenizer, or another number of tokens than rows.
    """
    vocabulary = _of_rust(file, read_object(file))
    _check_largest(file.parent, vocabulary, rows)
    tokenizer = rust_tokenizer(file)
    check_loaded(tokenizer, rows=rows, folder=file.parent)
    if (count := tokenizer.get_vocab_size()) != rows:
        raise CheckpointError(
            f"{file}: has {count} tokens, but the table has {rows} rows; the tokenizer belongs to "
            "another model"
        )
    return tokenizer


def _check_complete(folder: Path) -> None:
    for name in (TOKENIZER, "vocab.json", "merges.txt", "vocab.txt", "added_tokens.json"):
        if os.path.lexists(folder / name):
            check_inside(folder / name)
            if not (folder / name).stat().st_size:
                raise CheckpointError(f"{folder / name}: empty; copy the tokenizer again")
    if (_settings(folder).get(folder / _CONFIG) or {}).get("tokenizer_class") in _WITHOUT_FILES:
        return
    if not any(all(any(folder.glob(name)) for name in names) for names in _COMPLETE):
        ways = "; or ".join(" and ".join(names) for names in _COMPLETE)
        raise CheckpointError(
            f"{folder}: the tokenizer is missing or incomplete; expected {ways}; copy the "
            "tokenizer of the training into the folder"
        )


def _of_rust(file: Path, fields: Mapping[str, Any]) -> dict[str, int]:
    """Return the vocabulary in the ``fields`` of a ``tokenizer.json``."""
    model, added = fields.get("model"), fields.get("added_tokens") or []
    held = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(held, list):  # Unigram: pairs of a piece and its score, by id
        pieces = [each[0] if isinstance(each, list) and each else None for each in held]
        held = {piece: index for index, piece in enumerate(pieces)}
    if not isinstance(held, dict) or not held or not isinstance(added, list):
        raise CheckpointError(f"{file}: not a valid tokenizer (no vocabulary); copy it again")
    for token in added:
        if not isinstance(token, dict) or not isinstance(token.get("content"), str):
            raise CheckpointError(f"{file}: {token!r:.60} is not an added token")
        held.setdefault(token["content"], token.get("id"))
    return _checked(file, held)


def _of_lines(file: Path) -> dict[str, Any]:
    """Return the vocabulary of a file with one token a line."""
    if (size := file.stat().st_size) > JSON_LIMIT:
        raise CheckpointError(f"{file}: {size:,} bytes; expected at most {JSON_LIMIT:,}")
    lines = file.read_text(encoding="utf-8", errors="replace").split("\n")
    return {line: index for index, line in enumerate(lines) if line}


def _of_library(folder: Path) -> dict[str, Any]:
    """Return the vocabulary of a format that only a library reads, such as SentencePiece's."""
    from transformers import AutoTokenizer

    try:
        return dict(AutoTokenizer.from_pretrained(folder, trust_remote_code=False).get_vocab())
    except Exception as error:  # whatever a malformed file provokes  # noqa: BLE001
        reason = str(error).strip().partition("\n")[0]
        raise CheckpointError(f"{folder}: the tokenizer cannot be loaded ({reason:.200})") from None


def _checked(origin: Path, vocabulary: dict[Any, Any]) -> dict[str, int]:
    for token, number in vocabulary.items():
        if not isinstance(token, str) or type(number) is not int or number < 0:
            raise CheckpointError(
                f"{origin}: the token {token!r:.60} has the id {number!r:.40}; expected a string "
                "and a whole number from 0"
            )
    return vocabulary


def _check_largest(folder: Path, vocabulary: Mapping[str, int], rows: int) -> None:
    token = max(vocabulary, key=vocabulary.__getitem__, default=None)
    if token is None:
        raise CheckpointError(f"{folder}: the tokenizer has no token; copy it again")
    if (largest := vocabulary[token]) >= rows:
        raise CheckpointError(
            f"{folder}: the tokenizer has the id {largest} ({token!r:.40}), but the embedding has "
            f"only {rows} rows; the tokenizer belongs to another model"
        )


def _settings(folder: Path) -> dict[Path, dict[str, Any]]:
    """Return the content of the tokenizer's settings, by file."""
    files = [folder / name for name in (_MAP, _CONFIG) if os.path.lexists(folder / name)]
    return {file: read_object(file) for file in files}


def _check_settings(
    file: Path, values: Mapping[str, Any], vocabulary: Mapping[str, int], rows: int
) -> None:
    _check_code(file, values)
    for role in _ROLES:
        token = values.get(role)
        token = token.get("content") if isinstance(token, dict) else token
        if token is not None and (not isinstance(token, str) or token not in vocabulary):
            raise CheckpointError(
                f"{file}: {role} is {token!r:.60}, which is not in the vocabulary of "
                f"{len(vocabulary)} tokens; does the tokenizer belong to another model?"
            )
    longest = values.get("model_max_length", 1)
    number = isinstance(longest, int | float) and not isinstance(longest, bool)
    if longest is not None and (not number or not 1 <= longest < float("inf")):
        raise CheckpointError(
            f"{file}: model_max_length is {longest!r:.40}; expected a number of tokens from 1"
        )
    decoder = values.get("added_tokens_decoder")
    for number in decoder if isinstance(decoder, dict) else ():
        if not number.isdecimal() or len(number) > 9 or int(number) >= rows:
            raise CheckpointError(
                f"{file}: added_tokens_decoder has the id {number!r:.40}, but the embedding has "
                f"only {rows} rows; the tokenizer belongs to another model"
            )


def _check_code(file: Path, values: Mapping[str, Any]) -> None:
    """Refuse a tokenizer with code of its own, and one that names files elsewhere."""
    kind = values.get("tokenizer_class")
    if values.get("auto_map") and not _is_known(kind):
        raise CheckpointError(
            f"{file}: {kind!r:.60} needs code that comes with the model (auto_map), which is "
            "never run; save its tokenizer.json and remove auto_map"
        )
    for name in _FILES:
        value = values.get(name)
        if isinstance(value, str) and value != Path(value).name and Path(value).exists():
            raise CheckpointError(
                f"{file}: {name} is {value!r:.80}, outside of the folder; remove that key"
            )
    if values.get("fast_tokenizer_files"):
        raise CheckpointError(
            f"{file}: fast_tokenizer_files names other files than {TOKENIZER}; remove that key"
        )


def _is_known(kind: Any) -> bool:
    import transformers

    return isinstance(kind, str) and hasattr(transformers, kind)


def _template_ids(processor: Any) -> Iterator[tuple[str, Any]]:
    """Yield the tokens that a post-processor adds, with their ids."""
    if not isinstance(processor, dict):
        return
    for part in processor.get("processors") or ():
        yield from _template_ids(part)
    special = processor.get("special_tokens")
    for name, entry in (special if isinstance(special, dict) else {}).items():
        yield from ((name, token) for token in (entry.get("ids") or ()))
    for key in ("cls", "sep"):
        if isinstance(pair := processor.get(key), list) and len(pair) == 2:
            yield str(pair[0]), pair[1]


def _check_id(file: Path, name: str, value: Any, rows: int) -> None:
    """Refuse an id beyond the embedding; -1 means none in old configurations."""
    for number in value if isinstance(value, list) else [value]:
        if number is not None and (type(number) is not int or not -1 <= number < rows):
            raise CheckpointError(
                f"{file}: {name:.60} is {number!r:.40}, but the embedding has {rows} rows; "
                "does it belong to another model?"
            )


def _check_export(folder: Path) -> None:
    """Check that the tokenizer of an export adds the prefix and end token of its training."""
    provenance = read_provenance(folder) or {}
    prefix, end = provenance.get("prefix") or "", bool(provenance.get("append_eos"))
    if not prefix and not end:
        return
    tokenizer = rust_tokenizer(folder / TOKENIZER)
    tokenizer.no_truncation()
    before = tokenizer.encode(str(prefix), add_special_tokens=False).ids
    row = tokenizer.encode("a").ids
    plain = tokenizer.encode("a", add_special_tokens=False).ids
    if row[: len(before)] != before or len(row) != len(before) + len(plain) + end:
        raise CheckpointError(
            f"{folder / TOKENIZER}: lacks the template of this export (prefix {prefix!r:.40}, "
            f"end token {'yes' if end else 'no'}); extract the model again"
        )
