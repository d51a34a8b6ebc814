"""Colour and marker of each model, the same in every figure of a study.

The marker also identifies a model in print without colour, and for colour-blind readers.
"""

import colorsys
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TypedDict

from qwen3nb import paths

_FREE = ("#0072B2", "#D55E00", "#009E73", "#C2679B", "#7A6FD0", "#B5495B", "#00858A", "#8F5FA8")
_MARKERS = ("o", "^", "D", "v", "<", ">", "h", "p", "d", "8")  # filled; open ones have a meaning
_WEIGHT = (0.2126, 0.7152, 0.0722)  # of red, green and blue in luminance, ITU-R BT.709


class Style(TypedDict):
    """How a model is drawn: arguments of `draw_estimate` and fields of `ForestRow`."""

    color: str
    marker: str


# Frequent baselines have the same style in every study. Colours have a contrast of 3 to white and
# dark pages.
_FIXED: dict[str, Style] = {
    "random": {"color": "#8A8F98", "marker": "X"},
    "bm25": {"color": "#8C6D46", "marker": "s"},
    "all-MiniLM-L6-v2": {"color": "#2E95BF", "marker": "*"},
    "bm25-plus-all-MiniLM-L6-v2": {"color": "#A87B00", "marker": "P"},
    "Qwen3-0.6B": {"color": "#5F8A1F", "marker": "H"},
}


def model_styles(labels: Iterable[str]) -> dict[str, Style]:
    """Return the style of each label.

    A label's hash selects its colour and marker; if taken, the next free ones are used. All models
    with records in `paths.results` are considered, so a model has the same style in every figure.
    """
    wanted = list(dict.fromkeys(labels))
    others = sorted({*_recorded_labels(), *wanted} - set(_FIXED))
    styles = dict(_FIXED)
    colors, markers = _spread(others, _FREE), _spread(others, _MARKERS)
    for label, (color, turn), (marker, _) in zip(others, colors, markers, strict=True):
        styles[label] = {"color": _shade(color, turn) if turn else color, "marker": marker}
    return {label: styles[label] for label in wanted}


def _recorded_labels() -> Iterator[str]:
    """Yield the labels of models with records, whose folders have the label and a digest."""
    for folder in paths.results().glob("*/seed_*"):
        yield re.sub(r"-[0-9a-f]{8}$", "", folder.parent.name)


def model_colors(labels: Iterable[str]) -> dict[str, str]:
    """Return the colour of each label; see `model_styles`."""
    return {label: style["color"] for label, style in model_styles(labels).items()}


def _spread(labels: Sequence[str], choices: Sequence[str]) -> list[tuple[str, int]]:
    """Return each label's choice, and how many earlier labels share it.

    Every choice is used once before any is used twice.
    """
    uses = dict.fromkeys(choices, 0)
    spread = []
    for label in labels:
        start = int(hashlib.sha256(label.encode()).hexdigest(), 16) % len(choices)
        in_turn = [*choices[start:], *choices[:start]]
        choice = min(in_turn, key=lambda choice: uses[choice])  # the first of those used least
        spread.append((choice, uses[choice]))
        uses[choice] += 1
    return spread


def _shade(color: str, turn: int) -> str:
    """Return ``color`` with its hue rotated and about the same luminance."""
    red, green, blue = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
    hue, _, saturation = colorsys.rgb_to_hls(red, green, blue)
    turned = (hue + 0.055 * turn) % 1
    shades = [colorsys.hls_to_rgb(turned, step / 100, saturation * 0.7) for step in range(30, 70)]
    # A medium luminance is legible on white and on dark.
    closest = min(shades, key=lambda shade: abs(_luminance(shade) - 0.2))
    return "#" + "".join(f"{round(255 * part):02X}" for part in closest)


def _luminance(color: tuple[float, float, float]) -> float:
    """Return the relative luminance of a colour, with a gamma of 2.2."""
    return sum(weight * part**2.2 for weight, part in zip(_WEIGHT, color, strict=True))
