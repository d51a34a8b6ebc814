"""Settings of a book in ``_config.yml``: title, authors, year, address, licence, baseline."""

from dataclasses import dataclass
from pathlib import Path

from qwen3nb import paths


@dataclass(frozen=True)
class BookSettings:
    """Settings of a book; empty if its configuration does not state them."""

    title: str = ""  # title of the book
    author: str = ""  # its authors, as written there
    year: str = ""  # the year of the copyright
    url: str = ""  # where it is published
    license: str = ""  # its licence, and by default that of the models it describes
    baseline: str = ""  # label of the model that the others are compared with


def book_settings(config: Path | None = None) -> BookSettings:
    """Read the settings from ``_config.yml`` of the checkout, or from the file ``config``.

    The address is ``url`` below ``qwen3nb``, else ``baseurl`` below ``html``.

    Raises:
        ValueError: the file is not YAML, or not a table.
    """
    import yaml

    file = config or paths.root() / "_config.yml"
    if not file.is_file():
        return BookSettings()
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise ValueError(f"{file}: not YAML: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{file}: expected `name: value` on each line")
    return BookSettings(
        title=_text(content, "title"),
        author=_text(content, "author"),
        year=_text(content, "copyright"),
        url=_text(content, "qwen3nb", "url") or _text(content, "html", "baseurl"),
        license=_text(content, "qwen3nb", "license"),
        baseline=_text(content, "qwen3nb", "baseline"),
    )


def _text(content: object, *path: str) -> str:
    """Return the value at a path of keys as text; empty if there is none."""
    for key in path:
        if not isinstance(content, dict):
            return ""
        content = content.get(key)
    if content is None:
        return ""
    return " ".join(str(content).split())
