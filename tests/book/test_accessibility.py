"""Tables as a reader uses them, in a browser if one is installed."""

import pytest
from helpers import REPOSITORY
from helpers.browser import used

from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.forest_plot import ForestRow, forest_figure
from qwen3nb.report.render.html import unstyled
from qwen3nb.report.render.table import Table

STATIC = REPOSITORY / "book" / "_static"
VALUES = {"b": 0.5001, "a": 0.5002, "d": None, "c": -0.25, **{f"m{i}": i for i in range(6)}}
ROWS = tuple(
    (
        Cell(name),
        Cell("0.500", "[0, 1]", value=value) if value is not None else Cell("not run"),
        Cell(f"{1000 * index:,}"),
    )
    for index, (name, value) in enumerate(VALUES.items())
)
SORTABLE = Table(("model", "x\nn = 3", "texts"), ROWS).to_html()
# The first column in row order, and the sort state of each header.
STATE = """
const seen = () => ({
  order: [...document.querySelectorAll('tbody tr')].filter(r => !r.hidden)
    .map(r => r.cells[0].firstChild.textContent),
  heads: [...document.querySelectorAll('thead th')].map(h => h.getAttribute('aria-sort')),
});
const button = i => document.querySelectorAll('thead button')[i];
"""


@pytest.fixture
def use(tmp_path):
    """Run a script on a page with this body, with the book's scripts and styles."""
    head = "".join(
        f'<link rel="stylesheet" href="{(STATIC / name).as_uri()}">'
        for name in ("q-render.css", "qwen3nb.css")
    )
    script = f'<script src="{(STATIC / "q-tables.js").as_uri()}"></script>'
    head += f'<script src="{(STATIC / "q-page.js").as_uri()}"></script>'

    def on_page(body, code, **options):
        file = tmp_path / "page.html"
        file.write_text(
            f'<html><head>{head}</head><body style="margin:0">{body}{script}</body></html>'
        )
        return used(file, code, folder=tmp_path / "p", **options)

    return on_page


def test_a_table_is_sorted_and_filtered(use):
    """A click sorts by the value, and says so; the box shows the rows that have every word."""
    *states, focused, kind, text, counts = use(
        SORTABLE,
        STATE
        + """
        const states = [seen()];
        for (const i of [1, 1, 0, 0, 2]) { button(i).click(); states.push(seen()); }
        button(1).focus();
        const box = document.querySelector('input.q-filter');
        const counts = ['NOT run', 'm 5,000', 'nothing', ''].map(text => {
          box.value = text;
          box.dispatchEvent(new Event('input'));
          return [seen().order, document.querySelector('.q-count').textContent];
        });
        return [...states, document.activeElement === button(1), button(1).type,
          button(1).textContent, counts];""",
    )
    start, down, up, names, back, texts = states
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
    assert (focused, kind, text) == (True, "button", "xn\u00a0=\u00a03")
    assert counts[:3] == [[["d"], "1 of 10 rows"], [["m1"], "1 of 10 rows"], [[], "0 of 10 rows"]]
    assert (len(counts[3][0]), counts[3][1]) == (10, "")


def test_on_a_phone_only_the_box_of_a_wide_table_scrolls_and_is_reached_by_keyboard(use):
    short = Table(("a",), ((Cell("x"),), (Cell("y"),)))
    wide = Table(tuple(f"column {i}" for i in range(12)), ((Cell("a long name"),) * 12,) * 3)
    command = "qwen3nb eval --checkpoint 'a b' --fresh"
    words = Table(("a", "b"), ((Cell("name"), Cell("word " * 40 + "x" * 300)),), kind="facts")
    copied = Table(("a", "b"), ((Cell("x"), Cell(command, code=True)),), kind="words")
    figure = forest_figure([ForestRow("m", 1.0, (0.5, 1.5))], xlabel="x", caption="said " * 40)
    body = "".join(table.to_html() for table in (short, wide, words))
    inputs, page, boxes, *seen = use(
        f'<div id="page" style="width:360px">{body}{unstyled(figure._repr_html_())}</div>'
        + copied.to_html(),
        """
        const page = document.getElementById('page');
        const boxes = [...page.querySelectorAll('.q-scroll, figure > div')]
          .filter(box => box.offsetWidth);
        document.querySelector('button.q-copy').click();
        return [document.querySelectorAll('input').length, page.scrollWidth, boxes.map(box => [
          box.clientWidth <= 360, box.scrollWidth > box.clientWidth, box.tabIndex]),
          document.querySelector('code.q-command').textContent, String(getSelection()),
          boxes[1].getAttribute('aria-label')];
        """,
        width=500,
    )
    assert inputs == 0  # a short table has no box to filter it
    assert page <= 360
    assert boxes == [[True, False, -1], [True, True, 0], [True, False, -1], [True, False, -1]]
    assert seen == [command, command, "Scrolls sideways"]
