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
from qwen3nb.models.types import JsonObject

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
_MOST_ADDED_TOKENS = 50_000  # some take time by the square of their number
_MOST_GROWTH = 64  # times; those of published models are 3 at most
# Any one of these sets of files makes a tokenizer complete.
_COMPLETE_SETS = (
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
# Roles of tokens that become part of texts; unknown tokens would be added to the vocabulary.
_TOKEN_ROLES = ("bos_token", "eos_token", "cls_token", "sep_token", "pad_token")


def check_tokenizer(folder: ModelFolder) -> tuple[Tokenizer | None, dict[str, str]]:
    """Check the files of a tokenizer before a library loads them.

    Returns:
        The tokenizer in ``tokenizer.json``, if there is one, and the special tokens in its
        settings, by role, such as ``eos_token``.

    Raises:
        CheckpointError: files that are missing, empty, malformed or outside the folder; or a
            special token that is not in the vocabulary.
    """
    _check_files(folder)
    tokenizer = None
    if folder.has(TOKENIZER):
        file = folder.path / TOKENIZER
        _check_growth(folder.object(TOKENIZER), file)
        tokenizer = rust_tokenizer(file)
        if not tokenizer.get_vocab_size(with_added_tokens=False):
            raise CheckpointError(f"{file}: its vocabulary is empty; copy it again")
    tokens: dict[str, str] = {}
    for name in (TOKENIZER_CONFIG, "special_tokens_map.json"):
        file = folder.path / name
        settings = folder.object(name)
        check_bounds(settings, file, free=_unread_settings(settings))
        for role, token in _special_tokens(settings).items():
            if tokenizer is not None:
                _check_in_vocabulary(token, tokenizer, f"{file}: {role}")
            if role not in tokens:  # the first file counts
                tokens[role] = token
    return tokenizer, tokens


def _check_growth(settings: JsonObject, file: Path) -> None:
    """Refuse a tokenizer that takes hours to load, or makes texts many times as long.

    Raises:
        CheckpointError: too many added tokens, or normalizers that multiply a text.
    """
    added_tokens = settings.get("added_tokens")
    if isinstance(added_tokens, list) and len(added_tokens) > _MOST_ADDED_TOKENS:
        raise CheckpointError(
            f"{file}: {len(added_tokens):,} added tokens; expected at most {_MOST_ADDED_TOKENS:,}"
        )
    growth = _growth(settings.get("normalizer"))
    if growth > _MOST_GROWTH:
        raise CheckpointError(
            f"{file}: its normalizers make a text up to {growth:.4g} times as long; expected at "
            f"most {_MOST_GROWTH} times"
        )


def _growth(normalizer: object) -> float:
    """Return how many times as long a normalizer of tokenizer.json may make a text."""
    if not isinstance(normalizer, dict):
        return 1.0
    growth = 1.0
    # Of a sequence: each sees the text of the one before.
    members = normalizer.get("normalizers")
    if isinstance(members, list):
        for member in members:
            growth *= _growth(member)
    content = normalizer.get("content")
    if normalizer.get("type") == "Replace" and isinstance(content, str):
        pattern = normalizer.get("pattern")
        shortest = 1  # of a regular expression, a match may be a character
        if isinstance(pattern, dict) and isinstance(pattern.get("String"), str):
            shortest = max(1, len(pattern["String"]))
        growth *= max(1.0, len(content) / shortest)
    return growth


def _check_in_vocabulary(token: object, tokenizer: Tokenizer, place: str) -> None:
    if isinstance(token, str) and tokenizer.token_to_id(token) is not None:
        return
    raise CheckpointError(
        f"{place} is {token!r:.60}, which is not in the vocabulary; does the "
        "tokenizer belong to another model?"
    )


def _check_files(folder: ModelFolder) -> None:
    """Refuse empty files, and a folder without all files of a tokenizer."""
    for name in (TOKENIZER, "vocab.json", "merges.txt", "vocab.txt", "added_tokens.json"):
        file = folder.path / name
        if folder.has(name) and file.stat().st_size == 0:
            raise CheckpointError(f"{file}: empty; copy the tokenizer again")
    if folder.object(TOKENIZER_CONFIG).get("tokenizer_class") in _WITHOUT_FILES:
        return
    for patterns in _COMPLETE_SETS:  # such as ("vocab.json", "merges.txt"), which need each other
        if all(_has_file(folder, pattern) for pattern in patterns):
            return
    complete_sets = "; or ".join(" and ".join(patterns) for patterns in _COMPLETE_SETS)
    raise CheckpointError(
        f"{folder}: the tokenizer is missing or incomplete; expected {complete_sets}; copy the "
        "tokenizer of the training into the folder"
    )


def _has_file(folder: ModelFolder, pattern: str) -> bool:
    return any(folder.path.glob(pattern))


def _unread_settings(settings: JsonObject) -> tuple[str, ...]:
    """Return the settings that no library reads: auto_map, where the class is a known one."""
    import transformers

    name = settings.get("tokenizer_class")
    if isinstance(name, str) and hasattr(transformers, name):
        return ("auto_map",)
    return ()


def _special_tokens(settings: JsonObject) -> dict[str, Any]:
    """Return the special tokens in a tokenizer's settings, by role."""
    tokens = {}
    for role in _TOKEN_ROLES:
        token = settings.get(role)
        if isinstance(token, dict):
            token = token.get("content")
        if token is not None:
            tokens[role] = token
    return tokens


def check_loaded(tokenizer: Any, *, rows: int, folder: ModelFolder) -> None:
    """Check that a loaded tokenizer fits an embedding of ``rows`` rows.

    Raises:
        CheckpointError: no token, or an id that exceeds the embedding, in the vocabulary or in the
            tokens added to every text.
    """
    vocabulary = tokenizer.get_vocab()
    if not vocabulary:
        raise CheckpointError(f"{folder}: the tokenizer has no token; copy it again")
    last_token = max(vocabulary, key=vocabulary.__getitem__)  # the one with the largest id
    last_id = vocabulary[last_token]
    encoded = tokenizer.encode("a")  # with the tokens that are added to every text
    # A list in transformers, an object with ``ids`` in tokenizers.
    ids_of_text = getattr(encoded, "ids", encoded)
    largest_id = max(last_id, *ids_of_text, 0)
    if largest_id < rows:
        return
    name = str(largest_id)
    if largest_id == last_id:
        name += f" ({last_token!r:.40})"
    raise CheckpointError(
        f"{folder}: the tokenizer has the id {name}, but the embedding has only "
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
