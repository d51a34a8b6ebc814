import re
from itertools import combinations
from xml.etree.ElementTree import fromstring

import numpy as np
import pytest
from helpers.figures import ROWS, figures, records

from qwen3nb.report.leaderboard.board import (
    comparison_figure,
)
from qwen3nb.report.render.figure import (
    COLORS,
    FORMATS,
    GREY,
    SMALL,
    WIDTHS,
    plain,
    style,
)
from qwen3nb.report.render.forest_plot import forest_figure
from qwen3nb.report.render.model_styles import model_colors


def luminance(color):
    parts = [int(color[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


def contrast(first, second):
    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


NAMES = [*map(str, range(30)), "random", "bm25", "all-MiniLM-L6-v2"]


@pytest.mark.parametrize("color", sorted({*COLORS, *model_colors(NAMES).values()}))
def test_colors_show_on_white_and_on_dark(color):
    """WCAG 2.2, 1.4.11: graphics have a contrast of 3 with adjacent colours."""
    assert contrast(color, "#ffffff") >= 2.9
    assert contrast(color, "#121212") >= 2.9


def test_the_first_colors_differ_for_a_reader_without_green():
    # Deuteranopia of Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB.
    seen = np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]])

    def as_seen(color):
        parts = np.array([int(color[start : start + 2], 16) / 255 for start in (1, 3, 5)])
        return np.clip(seen @ parts**2.2, 0, 1) ** (1 / 2.2)

    for first, second in combinations(COLORS[:4], 2):
        assert np.linalg.norm(as_seen(first) - as_seen(second)) > 0.12


def test_the_same_data_give_the_same_bytes():
    for once, again in zip(figures()[2:6], figures.__wrapped__()[2:6], strict=True):
        assert once.svg() == again.svg()


def test_figures_say_n_and_what_they_show_and_have_an_alt_text():
    for figure in figures():
        shown = fromstring(figure.svg())  # noqa: S314 - our own
        assert shown.attrib["role"] == "img"
        assert len(shown.attrib["aria-label"]) > 30
        assert figure.caption
        if figure.name != "forest":
            assert re.search(r"n = \d|over the n|n of the task", figure.caption), figure.name


def test_text_takes_the_color_of_the_page_and_is_text():
    svg = comparison_figure(records(), tier="smoke").svg()
    assert "currentColor" in svg
    assert GREY not in svg
    assert "demo-init</text>" in svg
    assert "<style" not in svg  # it would apply to the whole page


def test_ids_are_of_one_figure_and_resolve():
    first, second, *_ = (figure.svg() for figure in figures())
    ids = [set(re.findall(r'\bid="([^"]+)"', svg)) for svg in (first, second)]
    assert not ids[0] & ids[1]
    for svg, own in zip((first, second), ids, strict=True):
        assert set(re.findall(r'(?:href="|url\()#([^")]+)', svg)) <= own


@pytest.mark.integration
@pytest.mark.parametrize("columns", WIDTHS)
def test_a_saved_pdf_has_the_width_of_a_column_and_its_fonts(tmp_path, columns):
    for figure in figures()[:4]:
        data = figure.save(tmp_path / "x.pdf", columns=columns).read_bytes()
        box = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) [\d.]+ \]", data)
        assert float(box[1]) == pytest.approx(72 * WIDTHS[columns])
        assert b"/FontFile2" in data  # TrueType, embedded: Type 42
        assert b"/Type3" not in data
        assert b"/CreationDate" not in data


def test_nothing_is_set_smaller_than_print_allows():
    from matplotlib.text import Text

    for figure in figures():
        with style():
            texts = figure.draw(WIDTHS[1]).findobj(Text)
        assert min(each.get_fontsize() for each in texts if each.get_text()) >= SMALL >= 7


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_is_written_the_same_twice(tmp_path, format):
    figure = forest_figure(ROWS, xlabel="x")
    once = figure.save(tmp_path / f"a.{format}").read_bytes()
    assert once == figure.save(tmp_path / f"b.{format}").read_bytes()
    starts = {"pdf": b"%PDF", "png": b"\x89PNG", "svg": b"<?xml"}
    assert once.startswith(starts[format])


def test_an_unknown_format_is_named(tmp_path):
    with pytest.raises(ValueError, match="unknown format 'jpg'; choose one of: pdf, svg, png"):
        forest_figure(ROWS, xlabel="x").save(tmp_path / "a.jpg")


def test_labels_are_one_line_and_not_endless():
    assert plain("a\nb\x00 $c$") == r"a b \$c\$"
    assert len(plain("x" * 999)) == 60


def saved(figure, tmp_path, **options):
    return figure.save(tmp_path / "x.svg", **options).read_text()


def test_what_a_reader_sets_stays_on_the_page_and_is_saved_in_the_ink_of_paper(tmp_path):
    figure = forest_figure(ROWS, xlabel="x")
    axis = figure.axes[0]
    untouched = saved(forest_figure(ROWS, xlabel="x"), tmp_path)
    assert saved(figure, tmp_path).count("#1f2328") == untouched.count("#1f2328") > 10
    axis.set_title("a title of mine")
    axis.set_facecolor("#123456")
    axis.set_xlabel("mine", color="#aa0000")
    for _ in range(2):  # showing and saving do not change it
        page = figure._repr_html_()
        assert "a title of mine</text>" in page
        assert GREY not in page
        for text in (page, *(saved(figure, tmp_path, columns=n) for n in (0, *WIDTHS))):
            assert {"#123456", "#aa0000"} <= set(re.findall("#[0-9a-f]{6}", text))
    assert axis.get_yticklabels()[0].get_color() == GREY


@pytest.mark.parametrize(("columns", "width"), [(0, 5.0), (1, WIDTHS[1]), (2, WIDTHS[2])])
def test_a_readers_size_stays_unless_columns_are_asked_for(tmp_path, columns, width):
    figure = forest_figure(ROWS, xlabel="x")
    figure.figure.set_size_inches(5, 4)
    data = figure.save(tmp_path / "x.pdf", columns=columns).read_bytes()
    box = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ([\d.]+) \]", data)
    assert [float(box[1]), float(box[2])] == pytest.approx([72 * width, 72 * 4])
    assert figure.figure.get_size_inches().tolist() == [5, 4]


def test_a_figure_nobody_edits_is_laid_out_for_each_width(tmp_path):
    figure, untouched = (forest_figure(ROWS, xlabel="a unit", caption="to see") for _ in "ab")
    assert repr(figure).startswith("<Figure forest: 6.9 × ")  # looking is not editing
    assert "('a unit')>\nto see" in repr(figure)
    figure._repr_html_()
    assert saved(figure, tmp_path, columns=1) == saved(untouched, tmp_path, columns=1)


def test_the_forest_marks_what_leaves_out_nothing():
    axis = forest_figure(ROWS, xlabel="x").axes[0]
    faces = [line.get_markerfacecolor() for line in axis.lines if line.get_marker() == "o"]
    assert faces == ["none", COLORS[0]]  # from the bottom: unclear, clear; nothing for "gone"
    labels = [label.get_text() for label in axis.get_yticklabels()]
    assert labels == ["gone", "unclear", "clear"]
    figure = axis.figure
    beside = [label.get_text() for label in figure.axes[0].child_axes[0].get_yticklabels()]
    assert beside == ["not run", "−0.010 [−0.100, +0.100]", "+0.200 [+0.100, +0.300] n = 9"]
