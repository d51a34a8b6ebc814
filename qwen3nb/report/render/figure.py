"""Figure style (sizes, fonts, colours), the `Figure` of pages and papers, and forest plots.

On a page, a `Figure` is an inline SVG whose text takes the page's colour and font, in light
and dark mode; for a paper, it is a file of the requested width, in dark ink, with embedded
fonts.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, Unpack

from qwen3nb.metrics.intervals import Interval
from qwen3nb.records.data_used import NO_SCORES, DataUsed
from qwen3nb.report.render.fit import fit_texts, page_parts, wrapped_names
from qwen3nb.report.render.html import anchor, data_attribute, escaped_text, styled
from qwen3nb.report.render.table import effect_text
from qwen3nb.utils.atomic_files import write_bytes
from qwen3nb.utils.choices import check_choice
from qwen3nb.utils.format import typeset

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure
    from matplotlib.transforms import Bbox


# matplotlib is only imported for drawing.
Axes: TypeAlias = "matplotlib.axes.Axes"
MplFigure: TypeAlias = "matplotlib.figure.Figure"

# After Okabe and Ito, safe for colour-blind readers; yellow and light tones are darkened for a
# contrast of 3 with both white and dark pages.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#C2679B", "#A87B00", "#7A6FD0", "#2E95BF", "#B5495B")
GREY = "#7d8590"  # text and axes on screen, on light and dark pages
_PAPER = "#1f2328"  # text and axes on paper
STYLE = Path(__file__).with_name("book.mplstyle")
WIDTHS = {1: 3.35, 2: 6.9}  # inches, for one and two columns
SMALL = 7  # points; the smallest font size
FORMATS = ("pdf", "svg", "png")
# Inches that a figure may take of a page of a paper: those of the styles below have 9 or more, of
# which the caption needs some.
PAGE_HEIGHT = 7.5


# Inches of a column and of the page, and the font of figures, by style of a paper.
# From the conferences' style files: ACL's columns are 7.7 cm wide and .6 cm apart, NeurIPS has one
# column of 5.5 in. STIX, included in matplotlib, resembles their Times.
PAPER_STYLES = {
    "plain": (WIDTHS[1], WIDTHS[2], ""),
    "acl": (3.03, 6.3, "STIXGeneral"),
    "neurips": (5.5, 5.5, "STIXGeneral"),
}


@contextmanager
def style(*, ink: str = "", font: str = "") -> Iterator[None]:
    """Apply the book's style to figures made inside the block.

    They are closed at the end of the block: a notebook would show an open figure twice. By default,
    the ink suits light and dark pages, and the font is matplotlib's sans serif.
    """
    import matplotlib.pyplot as plt

    before = set(plt.get_fignums())
    names = ("axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "text.color")
    inked = dict.fromkeys((*names, "xtick.color", "ytick.color"), ink) if ink else {}
    letters = {"font.family": font, "mathtext.fontset": "stix"} if font else {}
    with plt.style.context([STYLE, inked, letters]):
        yield
    for number in set(plt.get_fignums()) - before:
        plt.close(number)


def plain(text: str, *, most: int = 60) -> str:
    """Return text on one line of at most ``most`` characters, without formulas.

    Long text is shortened in the middle, because names of checkpoints differ at the end.
    """
    line = _line(text)
    tail = (most - 1) // 3
    short = line if len(line) <= most else f"{line[: most - 1 - tail]}…{line[-tail:]}"
    return _without_formulas(short)


def _without_formulas(text: str) -> str:
    return text.replace("$", r"\$")


MOST_IN_LINE = 28  # characters of a name of a row on one line


def row_names(names: Iterable[str], *, most: int = MOST_IN_LINE, lines: int = 2) -> list[str]:
    """Return the names of rows, those of more than ``most`` characters on two ``lines``."""
    labels = wrapped_names([_line(name) for name in names], most=most, lines=lines)
    return [_without_formulas(label) for label in labels]


def name_rows(axis: Axes, names: Sequence[str]) -> None:
    """Name the rows of a panel, the first at 0; names on two lines are smaller, to fit."""
    axis.set_yticks(range(len(names)), row_names(names))
    _shrink_wrapped(axis)


def _shrink_wrapped(axis: Axes) -> None:
    for label in axis.get_yticklabels():
        if "\n" in label.get_text():
            label.set(fontsize=SMALL, linespacing=1.0)


def _line(text: str) -> str:
    """Return text on one line, without control characters."""
    return "".join(char for char in " ".join(text.split()) if char.isprintable())


def grid(axis: Axes, *, which: str = "x") -> None:
    """Draw faint grid lines behind the data."""
    axis.set_axisbelow(True)
    axis.grid(axis=which, color=GREY, alpha=0.25, linewidth=0.6)  # type: ignore[arg-type]


def panels(
    count: int, width: float, *, height: float, most: int = 3, **share: Any
) -> tuple[MplFigure, list[Axes], list[Axes]]:
    """Return a figure with panels, the panels, and the first panel of each line.

    Width of the figure and height of a line are in inches. Below 5 inches, there is one panel per
    line, otherwise at ``most`` so many. ``share``: ``sharex`` and ``sharey`` of matplotlib.
    """
    import matplotlib.pyplot as plt

    columns = min(most if width > 5 else 1, count)
    lines = -(-count // columns)
    size = (width, lines * height)
    figure, axes = plt.subplots(lines, columns, figsize=size, squeeze=False, **share)
    every = list(axes.flat)
    for axis in every[count:]:
        axis.remove()
    return figure, every[:count], every[:count:columns]


def draw_estimate(
    axis: Axes,
    row: float,
    value: float,
    interval: Interval | None,
    *,
    color: str,
    marker: str = "o",
    filled: bool = True,
    **look: float,
) -> None:
    """Draw a marker, with its interval as a line, in a row.

    ``look`` sets ``linewidth`` (1.8) and ``alpha`` (1) of the line, and ``size`` of the marker
    (4.5).
    """
    if interval is not None:
        width, alpha = look.get("linewidth", 1.8), look.get("alpha", 1.0)
        (line,) = axis.plot(interval, [row, row], color=color, lw=width, alpha=alpha)
        line.set_solid_capstyle("butt")
    face, size = color if filled else "none", look.get("size", 4.5)
    axis.plot([value], [row], marker, color=color, markersize=size, markerfacecolor=face)


@dataclass(frozen=True, repr=False)
class Figure:
    """A figure with its caption, drawn at the width of one or two columns.

    Changes made through `figure` or `axes` are kept in the notebook and in saved files. Without
    such edits, each width gets its own layout.
    """

    name: str  # its id on a page, ``fig-<name>``, and the name of its file
    draw: Callable[[float], MplFigure]  # makes it at a width in inches; called inside `style`
    caption: str = ""  # content, n, and test
    alt: str = ""  # alternative text for readers who cannot see the figure
    columns: int = 2  # number of page columns it spans, 1 or 2
    data: DataUsed = NO_SCORES  # of its scores; the legend names substitutes for MTEB's

    @property
    def legend(self) -> str:
        """The caption on one line, and a sentence on substitute data; may be empty."""
        return _line(f"{self.caption} {self.data.text}")

    @cached_property
    def figure(self) -> MplFigure:
        """The matplotlib figure; edits are kept."""
        return self._drawn

    @property
    def axes(self) -> list[Axes]:
        """The axes of the matplotlib figure; edits are kept."""
        return self.figure.axes

    @cached_property
    def _drawn(self) -> MplFigure:
        """The figure shown on a page, drawn once; see `figure`."""
        with style():
            return self._fitted(WIDTHS[self.columns])

    def _fitted(self, width: float) -> MplFigure:
        """Draw the figure, with texts that fit into its panels; called inside `style`."""
        drawn = self.draw(width)
        fit_texts(drawn)
        return drawn

    @property
    def _edited(self) -> bool:
        """Whether `figure` has been accessed: the cached property is then in ``__dict__``."""
        return "figure" in self.__dict__

    def svg(self, *, columns: int = 0) -> str:
        """Return SVG for a page: text in the page's colour and font, unique ids, alt text.

        The width is 1 or 2 ``columns``, by default that of `figure`. Equal data give equal bytes.
        """
        with style():
            drawn = self._fitted(WIDTHS[columns]) if columns else self._drawn
            text = _rendered(drawn, "svg", fonttype="none").decode()
        text = text[text.index("<svg") :]
        text = re.sub(GREY, "currentColor", text, flags=re.IGNORECASE)
        # Without its style sheet, which would apply to the whole page, and without metadata.
        drop = r"<metadata>.*?</metadata>|<!--.*?-->|<style.*?</style>"
        text = re.sub(drop, "", text, flags=re.DOTALL)
        mark = hashlib.sha256(text.encode()).hexdigest()[:8]
        text = re.sub(r'\bid="', f'id="q{mark}-', text)
        text = re.sub(r'(href="|url\()#', rf"\1#q{mark}-", text)
        text = re.sub(r"(?<=>)[^<>]+(?=</t)", lambda match: typeset(match[0]), text)
        label = escaped_text(_line(self.alt or self.caption))
        return text.replace("<svg", f'<svg role="img" class="q-svg" aria-label="{label}"', 1)

    def save(self, path: Path | str, *, columns: int = 0, paper: str = "plain") -> Path:
        """Write a file for a paper: one or two columns wide, in dark ink, with embedded fonts.

        The file is a ``.pdf``, ``.svg`` or ``.png`` (300 dots per inch, on white), of the figure's
        own ``columns`` by default; ``paper`` is one of `PAPER_STYLES`: widths and font. If `figure`
        or `axes` has been used, the matplotlib figure is saved as it is, with its size and ink.

        Raises:
            ValueError: an unknown format or paper style.
        """
        path = Path(path)
        kind = check_choice("format", path.suffix.removeprefix("."), FORMATS)
        with self._for_paper(columns, paper) as figure:
            return write_bytes(path, _rendered(figure, kind, fonttype="path"))

    def save_pages(self, path: Path | str, *, columns: int = 0, paper: str = "plain") -> list[Path]:
        """Write a figure as `save` does, on several files if it is higher than a page has room for.

        It is divided between lines of panels; the files are then ``<name>-1.pdf`` and so on.
        """
        path = Path(path)
        kind = check_choice("format", path.suffix.removeprefix("."), FORMATS)
        with self._for_paper(columns, paper) as figure:
            parts = page_parts(figure, PAGE_HEIGHT)
            if len(parts) == 1:
                return [write_bytes(path, _rendered(figure, kind, fonttype="path"))]
            files = []
            for number, part in enumerate(parts, start=1):
                file = path.with_name(f"{path.stem}-{number}{path.suffix}")
                content = _rendered(figure, kind, fonttype="path", part=part)
                files.append(write_bytes(file, content))
            return files

    @contextmanager
    def _for_paper(self, columns: int, paper: str) -> Iterator[MplFigure]:
        """Draw the figure at the width of one or two columns of a paper, in dark ink."""
        *widths, font = PAPER_STYLES[check_choice("paper style", paper, PAPER_STYLES)]
        with style(ink=_PAPER, font=font):
            width = widths[(columns or self.columns) - 1]
            yield self.figure if self._edited else self._fitted(width)

    def __repr__(self) -> str:
        width, height = self._drawn.get_size_inches()
        axes = self._drawn.axes
        titles = [each.get_title() or each.get_title("left") or each.get_xlabel() for each in axes]
        named = ", ".join(repr(title) for title in titles if title)
        size = f"{width:.1f} × {height:.1f} inches, axes: {len(axes)}"
        return f"<Figure {self.name}: {size} ({named})>\n{_line(self.caption)}"

    def _repr_html_(self) -> str:
        text = self.legend
        caption = f"<figcaption>{escaped_text(text)}</figcaption>" if text else ""
        name = anchor("fig", self.name, self.caption)
        own = f' id="{name}"' if name else ""
        own += data_attribute(self.data)
        alone = self.columns == 1 or self._edited
        kind = "q-one" if self.columns == 1 else "q-wide q-only" if alone else "q-wide"
        drawn = f'<div class="{kind}">{self.svg()}</div>'
        if not alone:  # for phones, with the layout of one column
            drawn += f'<div class="q-narrow" style="display:none">{self.svg(columns=1)}</div>'
        return styled(f'<figure class="q-figure"{own}>{drawn}{caption}</figure>')


def _rendered(figure: MplFigure, kind: str, *, fonttype: str, part: Bbox | None = None) -> bytes:
    """Return a figure, or a part of it, as the bytes of a file, without dates or random ids."""
    from matplotlib import rc_context

    stamp: dict[str, Any] = {"svg": "Date", "pdf": "CreationDate", "png": "Software"}
    buffer = io.BytesIO()
    look: dict[str, Any] = {"facecolor": "white", "dpi": 300} if kind == "png" else {}
    with rc_context({"svg.fonttype": fonttype, "svg.hashsalt": "qwen3nb", "pdf.fonttype": 42}):
        figure.savefig(buffer, format=kind, metadata={stamp[kind]: None}, bbox_inches=part, **look)
    return buffer.getvalue()


class FigureFields(TypedDict, total=False):
    """The fields of a figure besides what draws it."""

    name: str
    caption: str
    alt: str
    columns: int
    data: DataUsed


@dataclass(frozen=True)
class ForestRow:
    """One row of a forest plot: label, estimate and interval."""

    label: str
    value: float | None  # None if undefined; the note then gives the reason
    interval: Interval | None = None
    color: str = ""  # by default the first of `COLORS`
    note: str = ""  # shown after the numbers, such as ``n = 260``; without a value, the reason
    clear: bool = True  # whether filled
    marker: str = "o"  # distinguishes models without colour


def forest_figure(
    rows: Sequence[ForestRow], *, xlabel: str, **fields: Unpack[FigureFields]
) -> Figure:
    """Draw a forest plot of differences: a row each, with interval and numbers on the right.

    A row without a value shows its note; ``xlabel`` names the quantity and its unit. ``fields`` are
    those of `Figure`; by default, the alternative text has the rows in words.
    """
    words = "; ".join(f"{row.label}: {_numbers(row)}" for row in rows).replace(r"\$", "$")
    fields.setdefault("name", "forest")
    fields.setdefault("alt", f"Forest plot of {xlabel}. {words}.")
    return Figure(draw=partial(_draw_forest, rows, xlabel), **fields)


def _draw_forest(rows: Sequence[ForestRow], xlabel: str, width: float) -> MplFigure:
    from matplotlib.ticker import MaxNLocator

    narrow = width < 5
    upwards = rows[::-1]
    labels = row_names([row.label for row in upwards], most=26 if narrow else 52)
    pitch = 0.21
    if any("\n" in label for label in labels):
        pitch = 0.27
    figure, (axis,), _ = panels(1, width, height=pitch * len(rows) + 0.75)
    axis.axvline(0, color=GREY, linewidth=1)
    for height, row in enumerate(upwards):
        if row.value is not None:
            draw_estimate(
                axis,
                height,
                row.value,
                row.interval,
                color=row.color or COLORS[0],
                marker=row.marker,
                filled=row.clear,
                alpha=1.0 if row.clear else 0.6,
            )
    axis.set_ylim(-0.6, len(rows) - 0.4)
    axis.xaxis.set_major_locator(MaxNLocator(4 if narrow else 7))
    axis.set_xlabel("\n".join(wrap(plain(xlabel, most=90), 38 if narrow else 90)))
    grid(axis)
    axis.set_yticks(range(len(rows)), labels)
    axis.tick_params(axis="y", length=0)
    _shrink_wrapped(axis)
    axis.spines["left"].set_visible(False)
    beside = axis.secondary_yaxis("right")
    beside.set_yticks(range(len(rows)), [_numbers(row, short=narrow) for row in upwards])
    beside.tick_params(axis="y", length=0, labelsize=SMALL)
    beside.spines["right"].set_visible(False)
    return figure


def _numbers(row: ForestRow, *, short: bool = False) -> str:
    """Return the text on the right of a row; if ``short``, only the value or the reason."""
    most = 20 if short else 44
    if row.value is None:
        return plain(row.note or "no value", most=most)
    if short:
        return plain(effect_text(row.value, None).replace("-", "−"), most=most)
    text = effect_text(row.value, row.interval).replace("-", "−")
    if row.note:
        text += f"  {row.note}"
    return plain(text, most=most)
