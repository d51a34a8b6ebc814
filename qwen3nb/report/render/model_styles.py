"""Colour and marker of each model, the same in every figure of a study.

The marker also identifies a model in print without colour, and for colour-blind readers.
"""

import colorsys
import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

from qwen3nb import paths

_FREE = ("#0072B2", "#D55E00", "#009E73", "#C2679B", "#7A6FD0", "#B5495B", "#00858A", "#8F5FA8")
_MARKERS = ("o", "^", "D", "v", "<", ">", "h", "p", "d", "8")  # filled; open ones have a meaning
_WEIGHT = (0.2126, 0.7152, 0.0722)  # of red, green and blue in luminance, ITU-R BT.709


# Frequent baselines have the same style in every study. Colours have a contrast of 3 to white and
# dark pages.
_FIXED: dict[str, dict[str, Any]] = {
    "random": {"color": "#8A8F98", "marker": "X"},
    "bm25": {"color": "#8C6D46", "marker": "s"},
    "all-MiniLM-L6-v2": {"color": "#2E95BF", "marker": "*"},
    "bm25-plus-all-MiniLM-L6-v2": {"color": "#A87B00", "marker": "P"},
    "Qwen3-0.6B": {"color": "#5F8A1F", "marker": "H"},
}


def model_styles(labels: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the style of each label: ``color`` and ``marker``.

    A label's hash selects its colour and marker; if taken, the next free ones are used. All models
    with records in `paths.results` are considered, so a model has the same style in every figure.
    """
    wanted = list(dict.fromkeys(labels))
    # Folders of records are named by the model and a digest.
    folders = (folder.parent.name for folder in paths.results().glob("*/seed_*"))
    known = (re.sub(r"-[0-9a-f]{8}$", "", name) for name in folders)
    everyone = sorted({*known, *wanted} - set(_FIXED))
    looks = zip(everyone, _spread(everyone, _FREE), _spread(everyone, _MARKERS), strict=True)
    styles = _FIXED | {
        label: {"color": _shade(color, turn) if turn else color, "marker": marker}
        for label, (color, turn), (marker, _) in looks
    }
    return {label: styles[label] for label in wanted}


def model_colors(labels: Iterable[str]) -> dict[str, str]:
    """Return the colour of each label; see `model_styles`."""
    return {label: style["color"] for label, style in model_styles(labels).items()}


def _spread(labels: Sequence[str], choices: Sequence[str]) -> list[tuple[str, int]]:
    """Return each label's choice, and how many earlier labels share it.

    Every choice is used once before any is used twice.
    """
    taken: dict[str, int] = dict.fromkeys(choices, 0)
    spread = []
    for label in labels:
        start = int(hashlib.sha256(label.encode()).hexdigest(), 16) % len(choices)
        order = [*choices[start:], *choices[:start]]
        least = min(taken.values())
        choice = next(each for each in order if taken[each] == least)
        spread.append((choice, taken[choice]))
        taken[choice] += 1
    return spread


def _shade(color: str, turn: int) -> str:
    """Return ``color`` with its hue rotated and about the same luminance."""
    red, green, blue = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
    hue, _, full = colorsys.rgb_to_hls(red, green, blue)
    turned = (hue + 0.055 * turn) % 1
    shades = [colorsys.hls_to_rgb(turned, step / 100, full * 0.7) for step in range(30, 70)]
    # A gamma of 2.2: a medium luminance is legible on white and on dark.
    closest = min(shades, key=lambda s: abs(sum(_WEIGHT[i] * s[i] ** 2.2 for i in range(3)) - 0.2))
    return "#" + "".join(f"{round(255 * part):02X}" for part in closest)
