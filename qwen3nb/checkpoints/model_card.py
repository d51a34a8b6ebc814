"""Read the front matter of a model card, the YAML at the beginning of its README.

Every value is read as the text that was written. By YAML 1.1, an unquoted ``no`` (Norwegian) would
be false, ``on`` true, ``1e3`` or ``2024-01-01`` a number or a date.
https://huggingface.co/docs/hub/model-cards
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from qwen3nb.checkpoints.types import CheckpointError

CARD = "README.md"
PENDING = "Pending: no results yet."  # stands on a card until there are some
# Of a README. Cards with the results of MTEB have up to 400,000.
_MOST_CHARACTERS = 10_000_000
_FRONT_MATTER_START = re.compile(r"\s*---[ \t]*\n")
# From one line of "---" to the next, or to one of "...", as in "---\nlicense: mit\n---\n". Like
# huggingface_hub's, but a line of the text may end in "---".
_FRONT_MATTER = re.compile(
    rf"{_FRONT_MATTER_START.pattern}(?:(.*?)\n)?(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL
)


def card_fields(folder: Path) -> dict[str, Any]:
    """Return the front matter of the model card in ``folder``; empty without any.

    Values are text, lists or objects of text.

    Raises:
        CheckpointError: there is a front matter, but it cannot be read.
    """
    import yaml

    card = folder / CARD
    if not card.is_file():
        return {}
    with card.open(encoding="utf-8-sig", errors="replace") as file:
        text = file.read(_MOST_CHARACTERS)
    if not _FRONT_MATTER_START.match(text):
        return {}
    front_matter = _FRONT_MATTER.match(text)  # the YAML between two lines of ---
    if front_matter is None:
        raise CheckpointError(f"{card}: its front matter has no end, a line of `---`")
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # reads text only
    try:
        fields = yaml.load(front_matter[1] or "", Loader=loader)  # noqa: S506 - makes no objects
    except (yaml.YAMLError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(f"{card}: its front matter is not YAML ({reason:.160})") from None
    is_empty = fields is None or fields == ""
    if is_empty:
        return {}
    if not isinstance(fields, dict):
        raise CheckpointError(f"{card}: its front matter has no fields such as `license: mit`")
    return fields
