"""Figure style (sizes, fonts, colours), the `Figure` of pages and papers, and forest plots.

On a page, a `Figure` is an inline SVG whose text takes the page's colour and font, in light
and dark mode; for a paper, it is a file of the requested width, in dark ink, with embedded
fonts.
"""

from __future__ import annotations

import hashlib
import io
import math
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
    from matplotlib.colors import Colormap
    from matplotlib.transforms import Bbox


# matplotlib is only imported for drawing.
Axes: TypeAlias = "matplotlib.axes.Axes"
MplFigure: TypeAlias = "matplotlib.figure.Figure"

# After Okabe and Ito, safe for colour-blind readers; yellow and light tones are darkened for a
# contrast of 3 with both white and dark pages.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#C2679B", "#A87B00", "#7A6FD0", "#2E95BF", "#B5495B")
GREY = "#7d8590"  # text and axes on screen, on light and dark pages
ACCENT = "#0b6bcb"  # the best, and what ties with it; on a page, in the page's own accent
QUIET = "#868e99"  # everything else that is drawn, where nothing must be told apart
_PAPER = "#1f2328"  # text and axes on paper
_INK_SETTINGS = (
    "axes.edgecolor",
    "axes.labelcolor",
    "axes.titlecolor",
    "text.color",
    "xtick.color",
    "ytick.color",
)
STYLE = Path(__file__).with_name("book.mplstyle")
WIDTHS = {1: 3.35, 2: 6.9}  # inches, for one and two columns
FORMATS = ("pdf", "svg", "png")
# Inches that a figure may take of a page of a paper: those of the styles below have 9 or more, of
# which the caption needs some.
PAGE_HEIGHT = 7.5


# Inches of a column and of the page, and the font of figures, by style of a paper.
# From the conferences' style files: ACL's columns are 7.7 cm wide and 0.6 cm apart, NeurIPS has one
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

    # Figures of the caller stay open.
    open_before = set(plt.get_fignums())
    settings: dict[str, str] = {}
    if ink:
        settings |= dict.fromkeys(_INK_SETTINGS, ink)
    if font:
        settings |= {"font.family": font, "mathtext.fontset": "stix"}
    with plt.style.context([STYLE, settings]):
        yield
    for number in set(plt.get_fignums()) - open_before:
        plt.close(number)


def plain(text: str, *, longest: int = 60) -> str:
    """Return text on one line of at most ``longest`` characters, without formulas.

    Long text is shortened in the middle, because names of checkpoints differ at the end.
    """
    line = _line(text)
    if len(line) > longest:
        end_length = (longest - 1) // 3
        start_length = longest - 1 - end_length
        line = f"{line[:start_length]}…{line[-end_length:]}"
    return _without_formulas(line)


def _without_formulas(text: str) -> str:
    return text.replace("$", r"\$")  # matplotlib sets what is between two "$" as a formula


LONGEST_LINE = 28  # characters of a name of a row on one line
_TWO_LINES = 0.3  # inches of a row with a name on two lines


def any_takes_two_lines(names: Iterable[str]) -> bool:
    """Whether one of the names of rows is broken by `row_names`."""
    return any(len(name) > LONGEST_LINE for name in names)


def row_names(names: Iterable[str], *, longest: int = LONGEST_LINE, lines: int = 2) -> list[str]:
    """Return the names of rows, those of more than ``longest`` characters on two ``lines``."""
    labels = wrapped_names([_line(name) for name in names], longest=longest, lines=lines)
    return [_without_formulas(label) for label in labels]


def name_rows(axis: Axes, names: Sequence[str]) -> None:
    """Name the rows of a panel, the first at 0; the lines of a name are close together."""
    axis.set_yticks(range(len(names)), row_names(names))
    _set_close_lines(axis)


def row_height(names: Iterable[str], *, one_line: float = 0.22) -> float:
    """Return the height of a row in inches, more where one of the names takes two lines."""
    return _TWO_LINES if any_takes_two_lines(names) else one_line


def _set_close_lines(axis: Axes) -> None:
    for label in axis.get_yticklabels():
        label.set_linespacing(1.0)


def _line(text: str) -> str:
    """Return text on one line, without control characters."""
    return "".join(char for char in " ".join(text.split()) if char.isprintable())


def grid(axis: Axes, *, which: str = "x") -> None:
    """Draw faint grid lines behind the data."""
    axis.set_axisbelow(True)
    axis.grid(axis=which, color=GREY, alpha=0.25, linewidth=0.6)  # type: ignore[arg-type]


class SharedAxes(TypedDict, total=False):
    """The axes that the panels of a figure share."""

    sharex: bool
    sharey: bool


def shades() -> Colormap:
    """Return a colour map from nothing to grey, for cells of a matrix on light and dark pages."""
    from matplotlib.colors import LinearSegmentedColormap, to_rgba

    return LinearSegmentedColormap.from_list("shades", [to_rgba(QUIET, 0), to_rgba(QUIET, 0.8)])


def panels(
    count: int, width: float, *, height: float, per_line: int = 3, **shared: Unpack[SharedAxes]
) -> tuple[MplFigure, list[Axes], list[Axes]]:
    """Return a figure with panels, the panels, and the first panel of each line.

    Width of the figure and height of a line are in inches. Below 5 inches, there is one panel per
    line, otherwise up to ``per_line``.
    """
    import matplotlib.pyplot as plt

    columns = 1
    if is_wide(width):
        columns = min(per_line, count)
    lines = math.ceil(count / columns)
    size = (width, lines * height)
    figure, grid_of_axes = plt.subplots(lines, columns, figsize=size, squeeze=False, **shared)
    axes = list(grid_of_axes.flat)
    for unused_axis in axes[count:]:
        unused_axis.remove()
    axes = axes[:count]
    # The first panel of each line.
    left_axes = axes[::columns]
    return figure, axes, left_axes


def is_wide(width: float) -> bool:
    """Whether a figure of this width in inches has room for several panels in a line."""
    return width > 5


def draw_estimate(
    axis: Axes,
    row: float,
    value: float,
    interval: Interval | None,
    *,
    color: str,
    marker: str = "o",
    filled: bool = True,
    alpha: float = 1.0,
    size: float = 4.5,
) -> None:
    """Draw a marker of this ``size``, with its interval as a line of this ``alpha``, in a row."""
    if interval is not None:
        (line,) = axis.plot(interval, [row, row], color=color, lw=1.8, alpha=alpha)
        line.set_solid_capstyle("butt")
    face_color = color if filled else "none"
    axis.plot([value], [row], marker, color=color, markersize=size, markerfacecolor=face_color)


@dataclass(frozen=True, repr=False)
class Figure:
    """A figure with its caption, drawn at the width of one or two columns.

    Changes made through `figure` or `axes` are kept in the notebook and in saved files. Without
    such edits, each width gets its own layout; with them, a phone shows the same one, narrower.
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
        figure = self.draw(width)
        fit_texts(figure)
        return figure

    @property
    def _edited(self) -> bool:
        """Whether `figure` has been accessed: the cached property is then in ``__dict__``."""
        return "figure" in self.__dict__

    def svg(self, *, columns: int = 0) -> str:
        """Return SVG for a page: text in the page's colour and font, unique ids, alt text.

        The width is 1 or 2 ``columns``, by default the width of `figure`.
        Equal data give equal bytes.
        """
        with style():
            # "none" keeps texts as texts, which take the font of the page.
            if columns and self._edited:
                with _with_width(self._drawn, WIDTHS[columns]) as figure:
                    file = _rendered(figure, "svg", fonttype="none").decode()
            else:
                figure = self._fitted(WIDTHS[columns]) if columns else self._drawn
                file = _rendered(figure, "svg", fonttype="none").decode()
        svg = _svg_for_a_page(file)
        label = escaped_text(_line(self.alt or self.caption))
        return svg.replace("<svg", f'<svg role="img" class="q-svg" aria-label="{label}"', 1)

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
            for page, part in enumerate(parts, start=1):
                file = path.with_name(f"{path.stem}-{page}{path.suffix}")
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
        titles = [axis.get_title() or axis.get_title("left") or axis.get_xlabel() for axis in axes]
        names = ", ".join(repr(title) for title in titles if title)
        size = f"{width:.1f} × {height:.1f} inches, axes: {len(axes)}"
        return f"<Figure {self.name}: {size} ({names})>\n{_line(self.caption)}"

    def _repr_html_(self) -> str:
        attributes = data_attribute(self.data)
        name = anchor("fig", self.name, self.caption)
        if name:
            attributes = f' id="{name}"{attributes}'
        caption = ""
        if self.legend:
            caption = f"<figcaption>{escaped_text(self.legend)}</figcaption>"
        content = f"{self._html_drawing()}{caption}"
        return styled(f'<figure class="q-figure"{attributes}>{content}</figure>')

    def _html_drawing(self) -> str:
        """Return the drawing, and that of one column, which the page shows on a phone."""
        if self.columns == 1:
            return f'<div class="q-one">{self.svg()}</div>'
        return (
            f'<div class="q-wide">{self.svg()}</div>'
            f'<div class="q-narrow" style="display:none">{self.svg(columns=1)}</div>'
        )


@contextmanager
def _with_width(figure: MplFigure, width: float) -> Iterator[MplFigure]:
    """Give a figure another width in inches for the duration of the block."""
    own_width, height = figure.get_size_inches()
    figure.set_size_inches(width, height)
    try:
        yield figure
    finally:
        figure.set_size_inches(own_width, height)


def _svg_for_a_page(file: str) -> str:
    """Return an SVG file as an element of a page, in the page's colour and font."""
    text = file[file.index("<svg") :]
    text = re.sub(GREY, "currentColor", text, flags=re.IGNORECASE)
    text = re.sub(ACCENT, f"var(--q-accent, {ACCENT})", text, flags=re.IGNORECASE)
    text = _NOT_FOR_A_PAGE.sub("", text)
    # Two figures of a page may have the same ids: a digest of the figure makes them unique.
    prefix = "q" + hashlib.sha256(text.encode()).hexdigest()[:8]
    text = re.sub(r'\bid="', f'id="{prefix}-', text)
    text = re.sub(r'(href="|url\()#', rf"\1#{prefix}-", text)  # href="#id" and url(#id)
    return _WORDS_OF_SVG.sub(lambda words: typeset(words[0]), text)


# A style sheet would apply to the whole page.
_NOT_FOR_A_PAGE = re.compile(r"<metadata>.*?</metadata>|<!--.*?-->|<style.*?</style>", re.DOTALL)
_WORDS_OF_SVG = re.compile(r"(?<=>)[^<>]+(?=</t)")  # "n = 40" of "<text>n = 40</text>"
# The date or version that each format has by default: two files of one figure would differ.
_STAMPS = {"svg": "Date", "pdf": "CreationDate", "png": "Software"}


def _rendered(figure: MplFigure, kind: str, *, fonttype: str, part: Bbox | None = None) -> bytes:
    """Return a figure, or a part of it, as the bytes of a file, without dates or random ids."""
    from matplotlib import rc_context

    # None omits the date or version, so that equal figures have equal bytes.
    options: dict[str, Any] = {"format": kind, "metadata": {_STAMPS[kind]: None}}
    if kind == "png":
        options |= {"facecolor": "white", "dpi": 300}
    buffer = io.BytesIO()
    # The salt makes ids the same in every run; 42 embeds TrueType fonts.
    with rc_context({"svg.fonttype": fonttype, "svg.hashsalt": "qwen3nb", "pdf.fonttype": 42}):
        figure.savefig(buffer, bbox_inches=part, **options)
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
    color: str = QUIET
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
    words = "; ".join(f"{row.label}: {_numbers_of_row(row)}" for row in rows).replace(r"\$", "$")
    fields.setdefault("name", "forest")
    fields.setdefault("alt", f"Forest plot of {xlabel}. {words}.")
    return Figure(draw=partial(_draw_forest, rows, xlabel), **fields)


def _draw_forest(rows: Sequence[ForestRow], xlabel: str, width: float) -> MplFigure:
    from matplotlib.ticker import MaxNLocator

    layout = _WIDE_FOREST
    if width < 5:  # inches
        layout = _NARROW_FOREST
    # Row 0 is at the bottom.
    upwards = rows[::-1]
    labels = row_names([row.label for row in upwards], longest=layout.longest_name)
    height_of_row = 0.22  # inches
    if any("\n" in label for label in labels):
        height_of_row = _TWO_LINES
    figure, (axis,), _ = panels(1, width, height=height_of_row * len(rows) + 0.75)
    axis.axvline(0, color=GREY, linewidth=1)
    for position, row in enumerate(upwards):
        _draw_forest_row(axis, position, row)
    axis.set_ylim(-0.6, len(rows) - 0.4)
    axis.xaxis.set_major_locator(MaxNLocator(layout.ticks))
    axis.set_xlabel("\n".join(wrap(plain(xlabel, longest=90), layout.longest_label_line)))
    grid(axis)
    axis.set_yticks(range(len(rows)), labels)
    axis.tick_params(axis="y", length=0)
    _set_close_lines(axis)
    axis.spines["left"].set_visible(False)
    _name_rows_on_the_right(axis, [_numbers_of_row(row, layout) for row in upwards])
    return figure


def _draw_forest_row(axis: Axes, position: int, row: ForestRow) -> None:
    if row.value is None:
        return
    draw_estimate(
        axis,
        position,
        row.value,
        row.interval,
        color=row.color,
        marker=row.marker,
        filled=row.clear,
        alpha=1.0 if row.clear else 0.6,
    )


def _name_rows_on_the_right(axis: Axes, names: Sequence[str]) -> None:
    right_axis = axis.secondary_yaxis("right")
    right_axis.set_yticks(range(len(names)), names)
    right_axis.tick_params(axis="y", length=0)
    right_axis.spines["right"].set_visible(False)


@dataclass(frozen=True)
class _ForestLayout:
    """What a forest plot has room for; lengths are in characters."""

    longest_name: int
    longest_label_line: int
    longest_numbers: int
    ticks: int
    has_intervals: bool  # whether the numbers on the right have intervals and notes


_WIDE_FOREST = _ForestLayout(52, 90, 44, 7, has_intervals=True)
_NARROW_FOREST = _ForestLayout(26, 38, 20, 4, has_intervals=False)


def _numbers_of_row(row: ForestRow, layout: _ForestLayout = _WIDE_FOREST) -> str:
    """Return the text on the right of a row: its value, or the reason that it has none."""
    if row.value is None:
        return plain(row.note or "no value", longest=layout.longest_numbers)
    if not layout.has_intervals:
        text = effect_text(row.value, None).replace("-", "−")
        return plain(text, longest=layout.longest_numbers)
    # With the minus sign, which is as wide as a plus, in place of the hyphen.
    text = effect_text(row.value, row.interval).replace("-", "−")
    if row.note:
        text += f"  {row.note}"
    return plain(text, longest=layout.longest_numbers)
