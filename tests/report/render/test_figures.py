import json
import re
from itertools import combinations
from xml.etree.ElementTree import fromstring

import numpy as np
import pytest
from helpers.browser import used
from helpers.html import HOSTILE, Tags
from helpers.records import make

from qwen3nb.report.comparison.explorer import explore, query_texts
from qwen3nb.report.comparison.task_figures import task_differences_figure, wins_figure
from qwen3nb.report.leaderboard.figures import (
    bars_figure,
    comparison_figure,
    per_query_figure,
    similarity_figure,
)
from qwen3nb.report.paper import paper_figures, paper_tables, write_figures, write_tables
from qwen3nb.report.render.figure import COLORS, FORMATS, GREY, SMALL, WIDTHS, model_colors, plain
from qwen3nb.report.render.forest_plot import Band, ForestRow, forest_figure

TASK = "PyDocsSampleRetrieval"
ROWS = (
    ForestRow("clear", 0.2, 0.1, 0.3, note="n = 9"),
    ForestRow("unclear", -0.01, -0.1, 0.1),
    ForestRow("gone", None, note="not run"),
)


def luminance(color):
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


def contrast(first, second):
    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


NAMES = [*map(str, range(30)), "random", "bm25", "all-MiniLM-L6-v2"]


@pytest.mark.parametrize("color", sorted({*COLORS, *model_colors(NAMES).values()}))
def test_colors_show_on_white_and_on_dark(color):
    """WCAG 2.2, 1.4.11: graphics have a contrast of 3 with what is beside them."""
    assert contrast(color, "#ffffff") >= 2.9
    assert contrast(color, "#121212") >= 2.9


def test_the_first_colors_differ_for_a_reader_without_green():
    # Deuteranopia of Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB.
    seen = np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]])

    def as_seen(color):
        parts = np.array([int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)])
        return np.clip(seen @ parts**2.2, 0, 1) ** (1 / 2.2)

    for first, second in combinations(COLORS[:4], 2):
        assert np.linalg.norm(as_seen(first) - as_seen(second)) > 0.12


def test_a_model_has_one_color_wherever_it_is_shown():
    alone, together = model_colors(["demo"]), model_colors(["demo", "bm25", "random"])
    assert alone["demo"] == together["demo"]
    assert together["bm25"] == model_colors(["bm25", "zebra"])["bm25"]
    many = model_colors([f"model {i}" for i in range(12)])
    assert len(set(many.values())) == 12
    assert many == model_colors([f"model {i}" for i in reversed(range(12))])


def test_the_forest_marks_what_leaves_out_nothing():
    axis = forest_figure(ROWS, xlabel="x").axes[0]
    faces = [line.get_markerfacecolor() for line in axis.lines if line.get_marker() == "o"]
    assert faces == ["none", COLORS[0]]  # from the bottom: unclear, clear; nothing for "gone"
    labels = [label.get_text() for label in axis.get_yticklabels()]
    assert labels == ["gone", "unclear", "clear"]
    figure = axis.figure
    beside = [label.get_text() for label in figure.axes[0].child_axes[0].get_yticklabels()]
    assert beside == ["not run", "−0.010 [−0.100, +0.100]", "+0.200 [+0.100, +0.300] n = 9"]


def test_bands_are_as_wide_as_the_plot_where_they_are_open():
    bands = (Band(None, 0.1, "FAIL"), Band(0.1, 0.12, "MARGINAL"), Band(0.12, None, "PASS"))
    axis = forest_figure(ROWS, xlabel="x", bands=bands).axes[0]
    left, right = axis.get_xlim()
    spans = [(p.get_x(), p.get_x() + p.get_width()) for p in axis.patches]
    expected = [(left, 0.1), (0.1, 0.12), (0.12, right)]
    np.testing.assert_allclose(spans, expected)
    heights = [text.xyann[1] for text in axis.texts]
    assert len(set(heights)) == 3  # the narrow one would be written over


def pictures():
    scores = np.random.default_rng(0).random((4, 60))
    results = [
        make(label, scores=values, task=task)
        for label, values in zip(
            ("demo-checkpoint-1", "demo-checkpoint-2", "bm25", "demo-init"), scores, strict=True
        )
        for task in (TASK, "PyDocsSampleReranking")
    ]
    sts = make("bm25", task="AuthorSTS", metric="Spearman")
    sts.per_query.update(gold={"a": 1.0, "b": 3.0}, cosine={"a": 0.1, "b": 0.9})
    return results, [
        comparison_figure(results, tier="smoke"),
        bars_figure(results, tier="smoke"),
        task_differences_figure(results, task=TASK, metric="nDCG@10"),
        wins_figure(results, task=TASK, metric="nDCG@10"),
        per_query_figure(results[:2]),
        similarity_figure([sts]),
        forest_figure(ROWS, xlabel="x", caption="c"),
    ]


def test_the_same_data_give_the_same_bytes():
    for once, again in zip(pictures()[1][2:6], pictures()[1][2:6], strict=True):
        assert once.svg() == again.svg()


def test_figures_say_n_and_what_they_show_and_have_an_alt_text():
    for picture in pictures()[1]:
        shown = fromstring(picture.svg())  # noqa: S314 - our own
        assert shown.attrib["role"] == "img"
        assert len(shown.attrib["aria-label"]) > 30
        assert picture.caption
        if picture.name != "forest":
            assert re.search(r"n = \d|over the n|n of the task", picture.caption), picture.name


def test_text_takes_the_color_of_the_page_and_is_text():
    svg = comparison_figure(pictures()[0], tier="smoke").svg()
    assert "currentColor" in svg
    assert GREY not in svg
    assert "demo-init</text>" in svg
    assert "<style" not in svg  # it would style the page it is on


def test_ids_are_of_one_figure_and_resolve():
    first, second, *_ = (picture.svg() for picture in pictures()[1])
    ids = [set(re.findall(r'\bid="([^"]+)"', svg)) for svg in (first, second)]
    assert not ids[0] & ids[1]
    for svg, own in zip((first, second), ids, strict=True):
        assert set(re.findall(r'(?:href="|url\()#([^")]+)', svg)) <= own


@pytest.mark.parametrize("columns", WIDTHS)
def test_a_saved_pdf_has_the_width_of_a_column_and_its_fonts(tmp_path, columns):
    for picture in pictures()[1][:4]:
        data = picture.save(tmp_path / "x.pdf", columns=columns).read_bytes()
        box = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) [\d.]+ \]", data)
        assert float(box[1]) == pytest.approx(72 * WIDTHS[columns])
        assert b"/FontFile2" in data  # TrueType, embedded: Type 42
        assert b"/Type3" not in data
        assert b"/CreationDate" not in data


def test_nothing_is_set_smaller_than_print_allows():
    from matplotlib.text import Text

    for picture in pictures()[1]:
        texts = picture.figure(columns=1).findobj(Text)
        assert min(each.get_fontsize() for each in texts if each.get_text()) >= SMALL >= 7


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_is_written_the_same_twice(tmp_path, format):
    picture = forest_figure(ROWS, xlabel="x")
    once = picture.save(tmp_path / f"a.{format}").read_bytes()
    assert once == picture.save(tmp_path / "b", format=format).read_bytes()
    starts = {"pdf": b"%PDF", "png": b"\x89PNG", "svg": b"<?xml"}
    assert once.startswith(starts[format])


def test_an_unknown_format_is_named(tmp_path):
    with pytest.raises(ValueError, match="unknown format 'jpg'; choose one of: pdf, svg, png"):
        forest_figure(ROWS, xlabel="x").save(tmp_path / "a.jpg")


@pytest.mark.parametrize("text", [*HOSTILE, "a --> b", "$\\frac$", "\x00\x1b[31mred", "ü" * 200])
def test_no_foreign_string_becomes_markup_or_a_formula(text):
    results = [make(text, scores=(0.1, 0.2, 0.3)), make("m"), make(f"{text}-checkpoint-1"),
               make(f"{text}-checkpoint-2")]  # fmt: skip
    shown = [
        comparison_figure(results, tier="smoke"),
        bars_figure(results, tier="smoke"),
        task_differences_figure(results, task=TASK, metric="nDCG@10"),
        wins_figure(results, task=TASK, metric="nDCG@10"),
        forest_figure([ForestRow(text, 1.0, note=text)], xlabel="x", bands=[Band(0, 1, text)],
                      caption=text, alt=text),
    ]  # fmt: skip
    for picture in shown:
        page = picture._repr_html_()
        tags = set(Tags(page).tags)
        assert tags <= {"figure", "figcaption", "div", "svg", "g", "path", "use", "text", "tspan",
                        "defs", "clippath", "rect"}  # fmt: skip
        svg = page[page.index("<svg") : page.index("</svg>") + 6]
        fromstring(svg)  # noqa: S314 - our own


def test_labels_are_one_line_and_not_endless():
    assert plain("a\nb\x00 $c$") == r"a b \$c\$"
    assert len(plain("x" * 999)) == 60


def test_figures_without_what_they_show_are_none():
    one = [make("m")]
    assert task_differences_figure(one, task=TASK, metric="nDCG@10") is None
    assert wins_figure(one, task="none", metric="nDCG@10") is None
    assert bars_figure(one, tier="fast") is None
    with pytest.raises(ValueError, match="no system 'c'.*there are: a, b"):
        wins_figure([make("a"), make("b")], task=TASK, metric="nDCG@10", baseline="c")


def test_wins_are_counted_by_query():
    results = [make("a", scores=(0.5, 0.5, 0.5, 0.9)), make("b", scores=(0.4, 0.5, 0.6, 0.1))]
    picture = wins_figure(results, task=TASK, metric="nDCG@10")
    assert "b: 1 won, 1 tied, 2 lost" in picture.alt
    widths = [patch.get_width() for patch in picture.axes[0].patches]
    assert widths == [1, 1, 2]


def test_a_difference_is_filled_where_the_test_says_so():
    scores = np.linspace(0.2, 0.8, 40)
    results = [make("a", scores=scores), make("b", scores=scores - 0.1),
               make("c", scores=scores[::-1] - 0.001)]  # fmt: skip
    axis = task_differences_figure(results, task=TASK, metric="nDCG@10").axes[0]
    marks = [line for line in axis.lines if line.get_marker() == "o"]
    hollow = [line.get_markerfacecolor() == "none" for line in marks]
    assert hollow == [False, True]  # b differs from a, c does not
    assert [round(float(line.get_xdata()[0]), 3) for line in marks] == [-0.1, -0.001]


def test_a_paper_gets_all_of_it(tmp_path):
    results = [result for result in pictures()[0] if "demo" not in result.model.label]
    results.append(make("../x y", scores=np.zeros(60)))
    files = write_figures(results, tmp_path / "f", tier="smoke", format="pdf", columns=1)
    named = [file.name for file in files]
    assert len(set(named)) == len(named) == len(paper_figures(results, tier="smoke")) + 1
    wanted = {"comparison-smoke.pdf", f"differences-{TASK}.pdf", "ranks.pdf", "captions.md"}
    assert wanted <= set(named), named
    assert "per-query-..-x-y.pdf" in named
    captions = (tmp_path / "f" / "captions.md").read_text()
    assert all(name in captions.replace("\\", "") for name in named[:-1])
    for format, ending in (("latex", "tex"), ("csv", "csv"), ("markdown", "md")):
        tables = write_tables(results, tmp_path / format, tier="smoke", format=format)
        assert f"comparison-smoke.{ending}" in [file.name for file in tables]
        assert all(file.read_text().strip() for file in tables)
    assert all(table.name and table.caption for table in paper_tables(results, tier="smoke"))
    with pytest.raises(ValueError, match="no results of the tier 'fast'"):
        write_figures(results, tmp_path, tier="fast", format="pdf")


@pytest.mark.parametrize("text", HOSTILE)
def test_the_explorer_holds_texts_and_never_markup(text):
    results = [make(text, scores=(0.1, 0.5, 0.3)), make("m", scores=(0.2, 0.4, 0.9))]
    explorer = explore(results, task=TASK, texts=dict.fromkeys(("q0", "q1", "q2"), text))
    page = explorer._repr_html_()
    start = page.index('<script type="application/json">') + len('<script type="application/json">')
    data = json.loads(page[start : page.index("</script>", start)])
    assert data["texts"] == [text] * 3
    assert data["models"] == explorer.models
    assert "<" not in page[start : page.index("</script>", start)]
    assert set(Tags(page).tags) <= {"div", "label", "select", "option", "noscript", "p", "script"}
    hover = data["figure"]["data"][0]["customdata"][0][0]
    assert set(re.findall(r"<[^>]*>", hover)) <= {"<br>"}
    assert set(Tags(explorer.table().html()).tags) <= {
        "div", "table", "thead", "tbody", "tr", "th", "td", "span", "p",
    }  # fmt: skip


def test_the_explorer_orders_models_and_shows_true_numbers():
    results = [make("a", scores=(0.1, 0.5, 0.3)), make("b", scores=(0.2, 0.4, 0.9))]
    explorer = explore(results, task=TASK, texts={"q0": "find it"})
    assert explorer.models == ["b", "a"]
    points = explorer.figure().data[0]
    assert [list(point[1:]) for point in points.customdata] == [[0.2, 0.1], [0.4, 0.5], [0.9, 0.3]]
    assert points.customdata[0][0] == "find it"
    assert points.customdata[1][0] == "q1"
    assert np.abs(np.array(points.x) - (0.2, 0.4, 0.9)).max() <= 0.012
    assert explorer.table().rows[0][0].text == "q2"
    with pytest.raises(ValueError, match="no system 'x'"):
        explorer.figure("x")


def test_without_two_models_or_the_texts_the_page_says_why():
    nothing = explore([make("a")], task=TASK)
    assert "Two models with nDCG@10" in nothing._repr_html_()
    assert nothing.table().rows == ()
    results = [make("a", task="NoSuchTask"), make("b", task="NoSuchTask")]
    assert "not at hand: unknown task" in explore(results, task="NoSuchTask")._repr_html_()


def test_the_texts_of_an_embedded_task_are_its_queries():
    texts = query_texts(TASK)
    assert len(texts) == 200
    assert all(isinstance(text, str) and text for text in texts.values())


def test_a_click_shows_the_query_and_what_all_score(tmp_path):
    from importlib.resources import files

    from helpers import REPOSITORY

    hostile = "<img src=x onerror=alert(1)>"
    results = [make("a", scores=(0.1, 0.5, 0.3)), make(hostile, scores=(0.2, 0.4, 0.9))]
    explorer = explore(results, task=TASK, texts={"q0": "zero", "q1": hostile, "q2": "two"})
    scripts = [files("plotly") / "package_data" / "plotly.min.js",
               REPOSITORY / "book" / "_static" / "q-explorer.js"]  # fmt: skip
    tags = "".join(f'<script src="file://{script}"></script>' for script in scripts)
    page = tmp_path / "page.html"
    page.write_text(
        f"<!DOCTYPE html><html><head></head><body>{explorer._repr_html_()}{tags}</body>"
    )
    said = used(page, """
        const plot = document.querySelector('.q-plot');
        plot.emit('plotly_click', {points: [{curveNumber: 0, pointIndex: 1}]});
        const chosen = document.querySelector('.q-chosen');
        const list = document.querySelector('[data-axis=x]');
        list.value = 'a';
        list.dispatchEvent(new Event('change'));
        return [chosen.querySelector('p').firstChild.textContent,
                [...chosen.querySelectorAll('li')].map(e => e.textContent),
                document.querySelectorAll('img').length,
                plot.data[0].customdata[2].slice(1), plot.layout.xaxis.title.text];
        """, folder=tmp_path / "p")  # fmt: skip
    assert said == [hostile, ["a0.500", f"{hostile}0.400"], 0, [0.3, 0.3], "nDCG@10, a"]
