"""The card of a copied data set, and whether it stays within the copy.

The library `datasets` reads the files that a card names (``configs``), wherever they are: at an
absolute path, in a parent folder, or on a server. The copy's digest would not cover them.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from qwen3nb.utils.strict_yaml import parse_yaml

if TYPE_CHECKING:
    from huggingface_hub import DatasetCard

_CARD, _SETTINGS = "README.md", ".huggingface.yaml"  # the second takes precedence
_MOST_BYTES = 10 << 20  # of a card; those of hundreds of subsets have a tenth
_FIELDS = ("data_files", "data_dir")


def names_outside(folder: Path) -> list[str]:
    """Return the files and folders outside a data set's folder that its card names.

    Raises:
        ValueError: the card is too large, not UTF-8, or no YAML that `parse_yaml` reads.
    """
    named_files: list[str] = []
    for card in (_CARD, _SETTINGS):
        for config in _configs(folder / card):
            for field in _FIELDS:
                named_files += _texts(config.get(field))
    return [name for name in named_files if _is_outside(name)]


@contextmanager
def cards_read_once() -> Iterator[None]:
    """Let the library `datasets` parse the card of a data set once within the block.

    It parses the whole card for each subset that it loads, and MTEB up to seven times, so that the
    time grows with the square of the subsets. The library has no option for it.
    """
    from huggingface_hub import DatasetCard

    parse = DatasetCard.load
    cards: dict[str, DatasetCard] = {}

    def load(file: str | Path, **options: Any) -> "DatasetCard":
        key = repr((str(file), sorted(options.items())))
        if key not in cards:
            cards[key] = parse(file, **options)
        return copy.deepcopy(cards[key])  # the library may change it

    DatasetCard.load = load  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        DatasetCard.load = parse  # type: ignore[method-assign]


def _configs(file: Path) -> list[dict[str, Any]]:
    """Return the subsets that a card describes, each with its files."""
    if not file.is_file():
        return []
    if file.stat().st_size > _MOST_BYTES:
        raise ValueError(f"{file}: expected a card of at most {_MOST_BYTES >> 20} MiB")
    try:
        fields = parse_yaml(_yaml_of(file), nan=True)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{file}: cannot be read (not UTF-8: {error.reason}); save it as UTF-8, or fetch the "
            "data set again"
        ) from None
    except ValueError as error:
        raise ValueError(f"{file}: not YAML that is read ({error!s:.200})") from None
    if not isinstance(fields, dict):
        return []
    configs = fields.get("configs")
    if not isinstance(configs, list):
        return []
    return [config for config in configs if isinstance(config, dict)]


def _yaml_of(file: Path) -> str:
    """Return the YAML of a card, as the library `datasets` finds it; empty if there is none."""
    from huggingface_hub.repocard import REGEX_YAML_BLOCK

    text = file.read_text(encoding="utf-8-sig")
    if file.name != _CARD:
        return text
    block = REGEX_YAML_BLOCK.search(text)
    if block is None:
        return ""
    return str(block[2])


def _texts(value: object) -> Iterator[str]:
    """Yield the texts in a value of YAML, at any level."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for member in value:
            yield from _texts(member)
    elif isinstance(value, dict):
        yield from _texts(list(value.values()))


def _is_outside(name: str) -> bool:
    """Return whether a name or pattern is not of a file below the folder.

    >>> [_is_outside(name) for name in ("data/*.csv", "/data/a.csv", "../a.csv", "http://a/a.csv")]
    [False, True, True, True]
    """
    path = PurePosixPath(name)
    is_of_server = "://" in name or "::" in name  # the second as of files within an archive
    return is_of_server or path.is_absolute() or ".." in path.parts or name.startswith("~")
