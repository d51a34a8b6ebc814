"""Colour and marker of each model, the same in every figure of a study.

Only lines that must be told apart have a colour each. In a ranking, the best model and those that
are not told apart from it have the accent; the others are grey (`rank_style`).

The marker also identifies a model in print without colour, and for colour-blind readers.
"""

import colorsys
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypedDict

from qwen3nb import paths
from qwen3nb.report.render.figure import ACCENT, QUIET

_FREE_COLORS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#C2679B",
    "#7A6FD0",
    "#B5495B",
    "#00858A",
    "#8F5FA8",
)
_MARKERS = ("o", "^", "D", "v", "<", ">", "h", "p", "d", "8")  # filled; open ones have a meaning
_RED_WEIGHT, _GREEN_WEIGHT, _BLUE_WEIGHT = 0.2126, 0.7152, 0.0722  # in luminance, ITU-R BT.709


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


def rank_style(is_best: bool) -> Style:
    """Return the style of a model in a ranking: the accent for the best, and what ties with it."""
    return {"color": ACCENT if is_best else QUIET, "marker": "o"}


def model_styles(labels: Iterable[str]) -> dict[str, Style]:
    """Return the style of each label.

    A label's hash selects its colour and marker; if taken, the next free ones are used. All models
    with records in `paths.results` are considered, so a model has the same style in every figure.
    """
    labels = list(dict.fromkeys(labels))
    # With all recorded models, so that none of them looks different in another figure.
    all_labels = {*_recorded_labels(), *labels}
    without_fixed_style = sorted(all_labels - set(_FIXED))
    colors = _spread(without_fixed_style, _FREE_COLORS)
    markers = _spread(without_fixed_style, _MARKERS)
    styles = dict(_FIXED)
    for label in without_fixed_style:
        color = colors[label]
        shade = _shade(color.choice, color.earlier_uses)
        styles[label] = {"color": shade, "marker": markers[label].choice}
    return {label: styles[label] for label in labels}


def _recorded_labels() -> Iterator[str]:
    """Yield the labels of models with records, whose folders have the label and a digest."""
    for folder in paths.results().glob("*/seed_*"):
        yield re.sub(r"-[0-9a-f]{8}$", "", folder.parent.name)


def model_colors(labels: Iterable[str]) -> dict[str, str]:
    """Return the colour of each label; see `model_styles`."""
    return {label: style["color"] for label, style in model_styles(labels).items()}


class _Use(NamedTuple):
    """A colour or a marker, and how many earlier labels have it."""

    choice: str
    earlier_uses: int


def _spread(labels: Sequence[str], choices: Sequence[str]) -> dict[str, _Use]:
    """Return what each label uses; every choice is used once before any is used twice."""
    counts = dict.fromkeys(choices, 0)
    uses = {}
    for label in labels:
        # The hash of a label says at which choice the search for a free one begins.
        digest = hashlib.sha256(label.encode()).hexdigest()
        start = int(digest, 16) % len(choices)
        choices_from_start = [*choices[start:], *choices[:start]]
        least_used = min(choices_from_start, key=lambda choice: counts[choice])
        uses[label] = _Use(least_used, counts[least_used])
        counts[least_used] += 1
    return uses


def _shade(color: str, turns: int) -> str:
    """Return ``color`` with its hue rotated and about the same luminance."""
    if turns == 0:
        return color
    # "#0072B2" has two hexadecimal digits per channel.
    red, green, blue = (int(color[start : start + 2], 16) / 255 for start in (1, 3, 5))
    hue, _, saturation = colorsys.rgb_to_hls(red, green, blue)
    rotated_hue = (hue + 0.055 * turns) % 1  # about 20 degrees per turn
    shades = []
    for lightness in range(30, 70):  # in per cent
        shades.append(colorsys.hls_to_rgb(rotated_hue, lightness / 100, saturation * 0.7))
    # A medium luminance is legible on white and on dark.
    medium_shade = min(shades, key=lambda shade: abs(_luminance(shade) - 0.2))
    return "#" + "".join(f"{round(255 * channel):02X}" for channel in medium_shade)


def _luminance(color: tuple[float, float, float]) -> float:
    """Return the relative luminance of a colour, with a gamma of 2.2."""
    red, green, blue = (part**2.2 for part in color)
    return _RED_WEIGHT * red + _GREEN_WEIGHT * green + _BLUE_WEIGHT * blue
