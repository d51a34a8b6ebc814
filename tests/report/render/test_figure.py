"""Figures on a page and in a paper: colours, text, widths, edits, and equal bytes."""

import re
from itertools import pairwise
from xml.etree.ElementTree import fromstring

import numpy as np
import pytest
from helpers.figures import ROWS, figures
from helpers.records import make, noisy

from qwen3nb.answers.ann import _speed_label_between
from qwen3nb.answers.comparison import compare
from qwen3nb.report.render.differences import best_and_tied
from qwen3nb.report.render.figure import (
    ACCENT,
    COLORS,
    FORMATS,
    GREY,
    QUIET,
    WIDTHS,
    ForestRow,
    forest_figure,
    plain,
    style,
)
from qwen3nb.report.render.model_styles import model_colors, model_styles, rank_style

FIXED = ["random", "bm25", "all-MiniLM-L6-v2", "bm25-plus-all-MiniLM-L6-v2"]
NAMES = [f"model-{i}" for i in range(30)]


def linear(color):
    return np.array([int(color[start : start + 2], 16) / 255 for start in (1, 3, 5)])


def luminance(color):
    parts = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in linear(color)]
    return float(np.dot(parts, (0.2126, 0.7152, 0.0722)))


@pytest.mark.parametrize(
    "color", sorted({ACCENT, QUIET, *COLORS, *model_colors([*NAMES, *FIXED]).values()})
)
def test_colors_show_on_white_and_on_dark(color):
    """WCAG 2.2, 1.4.11: graphics have a contrast of 3 with adjacent colours."""
    for page in ("#ffffff", "#121212"):
        light, dark = sorted((luminance(color), luminance(page)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 2.9


def test_a_model_looks_the_same_in_every_figure_of_a_study(home):
    """The study is the models with records; some baselines look the same in all studies."""
    alone, study = model_styles(FIXED), NAMES[:9]
    for label in study:
        make(label).save()
    everyone = model_styles(study)
    for pair in pairwise(study):
        assert model_styles(pair) == {label: everyone[label] for label in pair}
    assert model_styles(study[::-1]) == everyone
    assert model_styles([*FIXED, "zebra"]).items() >= alone.items()


def test_models_are_told_apart_by_color_and_without():
    markers = [each["marker"] for each in model_styles([*NAMES[:10], *FIXED]).values()]
    assert len(set(markers)) == len(markers)
    assert [len(set(model_colors(NAMES[:n]).values())) for n in (8, 20)] == [8, 20]


@pytest.mark.integration
def test_figures_say_n_and_what_they_show_in_text_that_print_allows():
    from matplotlib.text import Text

    for figure in figures():
        shown = fromstring(figure.svg())  # noqa: S314 - our own
        assert shown.attrib["role"] == "img"
        assert len(shown.attrib["aria-label"]) > 30
        assert figure.caption
        with style():
            texts = figure.draw(WIDTHS[1]).findobj(Text)
        words = " ".join([figure.caption, *[each.get_text() for each in texts]])
        if figure.name != "forest":
            says_n = re.search(r"n = \d|over the n|the n queries|the same \d+ queries", words)
            assert says_n, figure.name
        # 12 pixels in a column of 46.5 rem, one of the five sizes of a page.
        assert {each.get_fontsize() for each in texts if each.get_text()} == {8}


@pytest.mark.integration
def test_text_is_text_in_the_color_of_the_page_and_ids_are_of_one_figure():
    first, second, *_ = (figure.svg() for figure in figures())
    assert "demo-init</text>" in first
    ids = [set(re.findall(r'\bid="([^"]+)"', svg)) for svg in (first, second)]
    assert not ids[0] & ids[1]
    for svg, own in zip((first, second), ids, strict=True):
        assert "currentColor" in svg
        assert GREY not in svg
        assert "<style" not in svg  # it would apply to the whole page
        assert set(re.findall(r'(?:href="|url\()#([^")]+)', svg)) <= own


def media_box(data):
    box = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ([\d.]+) \]", data)
    return [float(end) / 72 for end in box.groups()]


@pytest.mark.integration
@pytest.mark.parametrize("columns", WIDTHS)
def test_a_saved_pdf_has_the_width_of_a_column_and_its_fonts(tmp_path, columns):
    for figure in figures()[:4]:
        data = figure.save(tmp_path / "x.pdf", columns=columns).read_bytes()
        assert media_box(data)[0] == pytest.approx(WIDTHS[columns])
        assert b"/FontFile2" in data  # TrueType, embedded: Type 42
        assert b"/Type3" not in data
        assert b"/CreationDate" not in data


@pytest.mark.integration
@pytest.mark.parametrize("format", FORMATS)
def test_every_format_is_written_the_same_twice(tmp_path, format):
    once, again = (
        forest_figure(ROWS, xlabel="x").save(tmp_path / f"{name}.{format}").read_bytes()
        for name in "ab"
    )
    assert once == again
    assert once.startswith({"pdf": b"%PDF", "png": b"\x89PNG", "svg": b"<?xml"}[format])


def test_an_unknown_format_is_named_and_labels_are_short_lines(tmp_path):
    with pytest.raises(ValueError, match="unknown format 'jpg'; choose one of: pdf, svg, png"):
        forest_figure(ROWS, xlabel="x").save(tmp_path / "a.jpg")
    assert plain("a\nb\x00 $c$") == r"a b \$c\$"
    assert len(plain("x" * 999)) == 60


def saved(figure, tmp_path, **options):
    return figure.save(tmp_path / "x.svg", **options).read_text()


@pytest.mark.integration
def test_what_a_reader_sets_stays_on_the_page_and_in_the_file(tmp_path):
    figure = forest_figure(ROWS, xlabel="x")
    figure.axes[0].set_title("a title of mine", color="#aa0000")
    figure.figure.set_size_inches(5, 4)
    for _ in range(2):  # showing and saving do not change it
        page = figure._repr_html_()
        assert "a title of mine</text>" in page
        assert all("#aa0000" in text for text in (page, saved(figure, tmp_path)))
    assert figure.figure.get_size_inches().tolist() == [5, 4]
    untouched = saved(forest_figure(ROWS, xlabel="x"), tmp_path)
    assert untouched.count("#1f2328") > 10  # the ink of paper


def test_the_forest_marks_what_leaves_out_nothing():
    axis = forest_figure(ROWS, xlabel="x").axes[0]
    faces = [line.get_markerfacecolor() for line in axis.lines if line.get_marker() == "o"]
    assert faces == ["none", QUIET]  # from the bottom: unclear, clear; nothing for "gone"
    assert [label.get_text() for label in axis.get_yticklabels()] == ["gone", "unclear", "clear"]
    numbers = [label.get_text() for label in axis.child_axes[0].get_yticklabels()]
    assert numbers == ["not run", "−0.010 [−0.100, +0.100]", "+0.200 [+0.100, +0.300] n = 9"]


def test_the_accent_marks_the_best_and_what_ties_with_it():
    """The accent is the page's own, which is lighter in the dark."""
    task = "PyDocsSampleRetrieval"
    scores = {"best": noisy(0.6, seed=0), "tied": noisy(0.6, seed=1), "behind": noisy(0.2, seed=2)}
    records = [make(name, scores=values, task=task) for name, values in scores.items()]
    (compared,) = compare(records, baseline="behind").tasks
    assert best_and_tied(compared, alpha=0.05) == {"best", "tied"}
    row = ForestRow("best", 0.1, (0.0, 0.2), **rank_style(is_best=True))
    assert f"fill: var(--q-accent, {ACCENT})" in forest_figure([row], xlabel="x").svg()
    assert rank_style(is_best=False)["color"] == QUIET


def test_an_edited_figure_is_narrower_on_a_phone_and_keeps_its_edits_and_size():
    figure = forest_figure(ROWS, xlabel="x")
    figure.axes[0].set_title("a title of mine")
    wide, narrow = re.findall(r'viewBox="0 0 ([\d.]+) ', figure._repr_html_())
    assert (float(wide), float(narrow)) == pytest.approx((72 * WIDTHS[2], 72 * WIDTHS[1]))
    assert figure._repr_html_().count("a title of mine") == 2
    assert figure.figure.get_size_inches()[0] == pytest.approx(WIDTHS[2])


@pytest.mark.parametrize(
    ("speed", "label"), [(200.0, "200"), (5e4, "50,000"), (0.2, "0.2"), (300.0, ""), (9e3, "")]
)
def test_speeds_between_powers_of_ten_have_labels_without_exponents(speed, label):
    """Exponents would be smaller than all other letters."""
    assert _speed_label_between(speed) == label
