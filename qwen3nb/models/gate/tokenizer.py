"""Check a tokenizer, before a library loads it and against its model.

Libraries accept incomplete files: they build an empty tokenizer without files, and a larger one for
a special token missing in the vocabulary. Its ids then exceed the embedding, or refer to rows that
were never trained. Malformed files are refused by the libraries themselves.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.models.gate.bounds import check_bounds

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
# Any one of these sets of files makes a tokenizer complete.
_COMPLETE = (
    *((TOKENIZER,), ("vocab.json", "merges.txt"), ("vocab.txt",)),
    *(("*.model",), ("*.spm",), ("*.tiktoken",), ("tekken.json",)),
)
# Classes that need no file: their tokens are bytes or characters.
_WITHOUT_FILES = ("ByT5Tokenizer", "CanineTokenizer", "PerceiverTokenizer")
# Roles of tokens that become part of texts; unknown tokens would be added to the vocabulary.
_ROLES = ("bos_token", "eos_token", "cls_token", "sep_token", "pad_token")


def check_tokenizer(folder: ModelFolder) -> tuple[Tokenizer | None, dict[str, str]]:
    """Check the files of a tokenizer before a library loads them.

    Returns:
        The tokenizer in ``tokenizer.json``, if there is one, and the special tokens in its
        settings, by role, such as ``eos_token``.

    Raises:
        CheckpointError: files that are missing, empty, malformed or outside the folder; or a
            special token that is not in the vocabulary.
    """
    import transformers

    for name in (TOKENIZER, "vocab.json", "merges.txt", "vocab.txt", "added_tokens.json"):
        if folder.has(name) and not (folder.path / name).stat().st_size:
            raise CheckpointError(f"{folder.path / name}: empty; copy the tokenizer again")
    files = (TOKENIZER_CONFIG, "special_tokens_map.json")
    settings = {folder.path / name: folder.object(name) for name in files}
    held = any(all(any(folder.path.glob(name)) for name in names) for names in _COMPLETE)
    if not held and folder.object(TOKENIZER_CONFIG).get("tokenizer_class") not in _WITHOUT_FILES:
        ways = "; or ".join(" and ".join(names) for names in _COMPLETE)
        raise CheckpointError(
            f"{folder}: the tokenizer is missing or incomplete; expected {ways}; copy the "
            "tokenizer of the training into the folder"
        )
    tokenizer = rust_tokenizer(folder.path / TOKENIZER) if folder.has(TOKENIZER) else None
    if tokenizer is not None and not tokenizer.get_vocab_size(with_added_tokens=False):
        raise CheckpointError(f"{folder.path / TOKENIZER}: its vocabulary is empty; copy it again")
    tokens: dict[str, str] = {}
    for file, values in settings.items():
        kind = values.get("tokenizer_class")  # auto_map is not read if this is known
        known = isinstance(kind, str) and hasattr(transformers, kind)
        check_bounds(values, file, free=("auto_map",) if known else ())
        for role in _ROLES:
            token = values.get(role)
            token = token.get("content") if isinstance(token, dict) else token
            if token is None:
                continue
            unknown = tokenizer is not None and not (
                isinstance(token, str) and tokenizer.token_to_id(token) is not None
            )
            if unknown:
                raise CheckpointError(
                    f"{file}: {role} is {token!r:.60}, which is not in the vocabulary; does the "
                    "tokenizer belong to another model?"
                )
            tokens.setdefault(role, token)
    return tokenizer, tokens


def check_loaded(tokenizer: Any, *, rows: int, folder: ModelFolder) -> None:
    """Check that a loaded tokenizer fits an embedding of ``rows`` rows.

    Raises:
        CheckpointError: no token, or an id that exceeds the embedding, in the vocabulary or in the
            tokens added to every text.
    """
    vocabulary = tokenizer.get_vocab()
    token = max(vocabulary, key=vocabulary.__getitem__, default=None)
    if token is None:
        raise CheckpointError(f"{folder}: the tokenizer has no token; copy it again")
    row = tokenizer.encode("a")
    largest = max(vocabulary[token], *getattr(row, "ids", row), 0)
    if largest >= rows:
        known = f" ({token!r:.40})" if largest == vocabulary[token] else ""
        raise CheckpointError(
            f"{folder}: the tokenizer has the id {largest}{known}, but the embedding has only "
            f"{rows} rows; the tokenizer belongs to another model"
        )


def rust_tokenizer(file: Path) -> Tokenizer:
    """Return the tokenizer in a ``tokenizer.json``."""
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(file))
        tokenizer.encode("a")  # its template may name tokens that it lacks
        return tokenizer
    except BaseException as error:  # bare Exceptions, and panics of Rust, which are none
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        raise CheckpointError(f"{file}: not a valid tokenizer ({error!s:.200})") from None
