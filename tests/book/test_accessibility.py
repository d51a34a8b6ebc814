"""Pages as a reader uses them, in a browser if one is installed."""

import pytest
from helpers import REPOSITORY
from helpers.browser import used

from qwen3nb.book.pages import accessibility_problems
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.html import unstyled
from qwen3nb.report.render.table import Table

SCRIPT = REPOSITORY / "book" / "_static" / "q-tables.js"
# The first column in row order, and the sort state of each header.
STATE = """
const seen = () => ({
  order: [...document.querySelectorAll('tbody tr')].filter(r => !r.hidden)
    .map(r => r.cells[0].firstChild.textContent),
  heads: [...document.querySelectorAll('thead th')].map(h => h.getAttribute('aria-sort')),
});
const press = i => document.querySelectorAll('thead button')[i].click();
"""


@pytest.fixture
def page(tmp_path):
    values = {"b": 0.5001, "a": 0.5002, "d": None, "c": -0.25, **{f"m{i}": i for i in range(6)}}
    rows = [
        (
            Cell(name),
            Cell("0.500", "[0, 1]", value=value) if value is not None else Cell("not run"),
            Cell(f"{1000 * index:,}"),
        )
        for index, (name, value) in enumerate(values.items())
    ]
    file = tmp_path / "page.html"
    table = Table(("model", "x\nn = 3", "texts"), tuple(rows))
    file.write_text(
        f"<!DOCTYPE html><html><head><title>t</title></head><body>{table.to_html()}"
        f'<script src="{SCRIPT.as_uri()}"></script></body></html>'
    )
    return file


@pytest.mark.integration
def test_a_click_sorts_by_the_value_and_says_so(page, tmp_path):
    result = used(
        page,
        STATE
        + """
        const states = [seen()];
        for (const i of [1, 1, 0, 0, 2]) { press(i); states.push(seen()); }
        return states;""",
        folder=tmp_path / "p",
    )
    start, down, up, names, back, texts = result
    assert start["order"][:4] == ["b", "a", "d", "c"]
    assert start["heads"] == [None, None, None]
    numbers = [f"m{i}" for i in (5, 4, 3, 2, 1)]
    assert down["order"] == [*numbers, "a", "b", "m0", "c", "d"]  # by value, missing ones last
    assert down["heads"] == [None, "descending", None]
    assert up["order"] == ["c", "m0", "b", "a", *reversed(numbers), "d"]
    assert up["heads"] == [None, "ascending", None]
    assert names["order"] == sorted(start["order"])
    assert back["order"] == sorted(start["order"], reverse=True)
    assert texts["order"] == list(reversed(start["order"]))  # "9,000" is a number


def test_heads_are_buttons_for_the_keyboard(page, tmp_path):
    result = used(
        page,
        STATE
        + """
        const button = document.querySelectorAll('thead button')[1];
        button.focus();
        return [document.activeElement === button, button.type, button.textContent];
        """,
        folder=tmp_path / "p",
    )
    assert result == [True, "button", "xn\u00a0=\u00a03"]


def test_the_box_filters_rows_by_every_word(page, tmp_path):
    result = used(
        page,
        STATE
        + """
        const box = document.querySelector('input.q-filter');
        const counts = [];
        for (const text of ['NOT run', 'm 5,000', 'nothing', '']) {
          box.value = text;
          box.dispatchEvent(new Event('input'));
          counts.push([seen().order, document.querySelector('.q-count').textContent]);
        }
        return counts;""",
        folder=tmp_path / "p",
    )
    assert result[0] == [["d"], "1 of 10 rows"]
    assert result[1] == [["m1"], "1 of 10 rows"]
    assert result[2] == [[], "0 of 10 rows"]
    assert (len(result[3][0]), result[3][1]) == (10, "")


def test_a_short_table_has_no_box(tmp_path):
    file = tmp_path / "page.html"
    table = Table(("a",), ((Cell("x"),), (Cell("y"),)))
    file.write_text(
        f'<html><body>{table.to_html()}<script src="{SCRIPT.as_uri()}"></script></body>'
    )
    count = "return ['input', 'thead button'].map(s => document.querySelectorAll(s).length);"
    result = used(file, count, folder=tmp_path / "p")
    assert result == [0, 1]


def test_without_the_script_the_table_is_a_table(page):
    text = page.read_text()
    assert text.count("<tr>") == 11
    assert "<button" not in text
    assert "<input" not in text


def test_on_a_phone_only_the_box_of_a_wide_table_scrolls(tmp_path):
    from qwen3nb.report.render.forest_plot import ForestRow, forest_figure

    wide = Table(tuple(f"column {i}" for i in range(12)), ((Cell("a long name"),) * 12,) * 3)
    words = Table(("a", "b"), ((Cell("name"), Cell("word " * 40 + "x" * 300)),), kind="facts")
    figure = forest_figure([ForestRow("m", 1.0, 0.5, 1.5)], xlabel="x", caption="said " * 40)
    static = REPOSITORY / "book" / "_static"
    style = "".join(
        f'<link rel="stylesheet" href="{(static / name).as_uri()}">'
        for name in ("q-render.css", "qwen3nb.css")
    )
    script = f'<script src="{(static / "q-page.js").as_uri()}"></script>'
    body = wide.to_html() + words.to_html() + unstyled(figure._repr_html_())
    file = tmp_path / "page.html"
    file.write_text(
        f'<html><head>{style}{script}</head><body style="margin:0">'
        f'<div id="page" style="width:360px">{body}</div>'
        f'<script src="{SCRIPT.as_uri()}"></script></body></html>'
    )
    result = used(
        file,
        """
        const page = document.getElementById('page');
        const boxes = [...page.querySelectorAll('.q-scroll, figure > div')]
          .filter(box => box.offsetWidth);
        return [page.scrollWidth, boxes.map(box => [
          box.clientWidth <= 360, box.scrollWidth > box.clientWidth, box.tabIndex])];
        """,
        folder=tmp_path / "p",
        width=500,
    )
    assert result[0] <= 360
    assert result[1] == [[True, True, 0], [True, False, -1], [True, False, -1]]


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ('<img src="a.png" alt="A curve that climbs.">', ""),
        ('<img src="a.png">', "image without alternative text: a.png"),
        ('<img alt="" src="a.png">', "image without alternative text: a.png"),
        (
            '<img alt="_images/a.png" src="_images/a.png">',
            "image without alternative text: _images/a.png",
        ),
        ('<svg role="img" aria-label="A curve."></svg>', ""),
        ("<svg role='img'></svg>", "drawing without alternative text"),
        ('<svg aria-hidden="true"></svg>', ""),
        ('<p id="a"></p><p id="b"></p>', ""),
        ('<p id="a"></p><i id="a"></i>', "id 'a' is used 2 times"),
        ('<table><tr><th scope="col"><b>n</b></th></tr></table>', ""),
        ("<table><tr><th>n</th><th> <p></p></th></tr></table>", "a table head without text"),
        ('<th aria-label="n"></th>', ""),
        ('<div role="region">x</div>', "region without a name"),
        ('<div role="region" aria-labelledby="h">x</div>', ""),
    ],
)
def test_what_a_parser_can_see_is_reported(tmp_path, page, problem):
    (tmp_path / "p.html").write_text(f"<html><body>{page}</body></html>")
    assert accessibility_problems(tmp_path) == ([("p.html", problem)] if problem else [])


def test_templates_of_the_theme_are_no_pages(tmp_path):
    (tmp_path / "_static").mkdir()
    (tmp_path / "_static" / "p.html").write_text("<img src=x>")
    assert accessibility_problems(tmp_path) == []


def test_commands_can_be_copied_and_boxes_that_scroll_are_reached_by_keyboard(tmp_path):
    command = "qwen3nb eval --checkpoint 'a b' --fresh"
    table = Table(("a", "b"), ((Cell("x"), Cell(command, code=True)),), kind="words", caption="c")
    wide = Table(tuple(f"column {i}" for i in range(60)), ((Cell("a long name"),) * 60,) * 9)
    style = (REPOSITORY / "book" / "_static" / "q-render.css").as_uri()
    file = tmp_path / "page.html"
    file.write_text(
        f'<html><head><link rel="stylesheet" href="{style}"></head><body>{table.to_html()}'
        f'{wide.to_html()}<script src="{SCRIPT.as_uri()}"></script></body></html>'
    )
    result = used(
        file,
        """
        const button = document.querySelector('button.q-copy');
        button.click();
        const boxes = [...document.querySelectorAll('.q-scroll')];
        return [document.querySelector('code.q-command').textContent, String(getSelection()),
                boxes.map(box => box.tabIndex), boxes[1].getAttribute('aria-label')];
        """,
        folder=tmp_path / "p",
    )
    assert result == [command, command, [-1, 0], "Scrolls sideways"]
