"""What is numbered, mended, refused or copied on built pages, and tables as a reader uses them."""

import hashlib
import json
import re

import nbformat
import pytest
from helpers import REPOSITORY
from helpers.browser import used
from helpers.html import HOSTILE, Tags
from helpers.notebooks import notebook_of
from helpers.records import RETRIEVAL, make, noisy

from qwen3nb import paths
from qwen3nb.answers.comparison import compare
from qwen3nb.answers.leaderboard import leaderboard
from qwen3nb.answers.one_model import provenance_table
from qwen3nb.book.build import page_links
from qwen3nb.book.pages import copy_linked_records, finish_pages, mend_page, pages_with_records
from qwen3nb.records.record import Result
from qwen3nb.report.render.figure import ForestRow, forest_figure
from qwen3nb.report.render.home import record_link
from qwen3nb.report.render.html import unstyled
from qwen3nb.report.render.table import Cell, Table
from qwen3nb.report.render.views import View, Views
from qwen3nb.utils.secrets import secret_files

SEARCH = 'class="btn search-button-field search-button__button" title="Search"'
TOKEN = "ghp_" + "a1B2" * 9
FILES = (
    "index.html",
    "runs/eval-x.html",
    "_sources/runs/eval-x.ipynb",
    "records/m/seed_0/t.json",
    "_downloads/1/t.csv",
)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f'<button {SEARCH} aria-label="Search" data-x>', f"<button {SEARCH} data-x>"),
        ('<summary aria-label="Toggle hidden content">', "<summary>"),
        (
            '<summary><span class="toctree-toggle">',
            '<summary aria-label="Pages below it"><span class="toctree-toggle">',
        ),
        ("<thead><tr><th><p></p></th>\n<th></th></tr></thead><tbody>", "<tbody>"),
        ("<tr><th>a</th><th></th></tr>", "<tr><th>a</th><td></td></tr>"),
        ("<td>-0.1</td><td>-</td><td>a-1</td>", "<td>−0.1</td><td>-</td><td>a-1</td>"),
        ('<image id="a"/><image id="a"/><image id="b"/>', '<image id="a"/><image/><image id="b"/>'),
    ],
)
def test_a_violation_is_mended_once(before, after):
    assert mend_page(before) == after
    assert mend_page(after) == after


def write(folder, name, text):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")


@pytest.fixture
def html(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_PASS", 'm"y <own> word')
    for name in FILES:
        digest = hashlib.sha256(name.encode()).hexdigest()
        write(tmp_path, name, f'<p id="x">{digest}</p><a href="https://x.org:1/a@b">token</a>')
    return tmp_path


@pytest.mark.parametrize("name", FILES)
def test_a_secret_in_any_text_is_named_by_its_file(html, name):
    assert secret_files(html) == []
    write(html, name, json.dumps({"x": 'see m"y <own> word'}))
    assert secret_files(html) == [(name, ["the value of MY_PASS"])]


def test_the_text_of_data_in_a_record_may_look_like_a_secret_and_a_page_may_not(html):
    write(html, "records/m/seed_0/t.json", f'{{"query": "what is {TOKEN}"}}')
    assert secret_files(html) == []
    write(html, "index.html", TOKEN)
    assert secret_files(html) == [("index.html", ["a GitHub token"])]


def test_only_linked_records_below_results_are_copied(home, tmp_path):
    linked, other = make("m"), make("other")
    linked.save()
    other.save()
    (paths.results().parent / "secret.json").write_text("{}")
    page = tmp_path / "html" / "runs" / "eval-m.html"
    page.parent.mkdir(parents=True)
    page.write_text(
        provenance_table([linked]).to_html()
        + '<a href="../records/../secret.json">x</a><a href="../records/none/seed_0/x.json">y</a>'
        + '<a href="../records/%2e%2e/secret.json">z</a>'
    )
    assert copy_linked_records(tmp_path / "html") == 1
    copies = list((tmp_path / "html").rglob("*.json"))
    assert [Result.load(each) for each in copies] == [linked]
    assert json.loads(copies[0].read_text())["per_query"] == linked.per_query  # all in one file


def test_pages_say_that_copies_of_many_records_lack_the_scores(home, tmp_path, monkeypatch):
    records = [make("m"), make("n")]
    for each in records:
        each.save()
    footer = '<footer class="q-footer"><p>Made</p></footer>'
    html = tmp_path / "html"
    write(html, "runs/a.html", provenance_table(records).to_html() + footer)
    write(html, "index.html", footer)
    for most, times in ((2, 0), (1, 1), (1, 1)):  # built twice, stated once
        monkeypatch.setattr("qwen3nb.book.pages._MOST_WHOLE", most)
        assert copy_linked_records(html) == 2
        copies = [json.loads(each.read_text()) for each in html.rglob("*.json")]
        assert [bool(each.get("scores")) for each in copies] == [most == 1] * 2
        text = (html / "runs" / "a.html").read_text()
        assert text.count("lack the score of every query") == times
    assert (html / "index.html").read_text() == footer


def test_a_page_that_links_to_a_record_is_the_home_of_its_run(checkout):
    record, elsewhere = make("m"), make("n")
    node = notebook_of("pass")
    output = nbformat.v4.new_output(
        "display_data", {"text/html": provenance_table([record]).to_html()}
    )
    node.cells[-1].outputs = [output]
    paths.book_runs().mkdir(parents=True, exist_ok=True)
    nbformat.write(node, paths.book_runs() / "rerank-m.ipynb")
    assert pages_with_records() == {record_link(record): "rerank-m.html"}
    hostile = make("<script>")  # such a name is in no path, and so on no page
    assert page_links([record, elsewhere, hostile]) == {"run-m": "rerank-m.html"}


NUMBER = re.compile(r'<span class="q-number">([^<]*)</span> ([^<]*?) <a')


def table(name="", caption="", text="x"):
    return Table(("a",), ((Cell(text),),), name=name, caption=caption).to_html()


def figure(name, caption):
    inner = f"<figcaption>{caption}</figcaption>" if caption else ""
    own = f' id="fig-{name}"' if name else ""
    return f'<figure class="q-figure"{own}><div><svg id="s"></svg></div>{inner}</figure>'


def written(folder, name, *parts):
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'<html><body><h1 id="top">T</h1>{"".join(parts)}</body></html>')
    return file


def numbers(file):
    return NUMBER.findall(file.read_text())


def test_captions_are_numbered_in_the_order_of_each_page(tmp_path):
    shown = [table("x", "First."), figure("f", "A curve."), table("bare"), figure("g", "")]
    shown += [table("y", "Second."), figure("h", "Another.")]
    one = written(tmp_path, "a.html", *shown)
    of_theme = written(tmp_path, "_static/x.html", table("x", "One."), '<a href="none.html">x</a>')
    two = written(tmp_path, "runs/b.html", table("x", "On its own page."))
    assert finish_pages(tmp_path) == []
    captions = ("Table 1. First.", "Figure 1. A curve.", "Table 2. Second.", "Figure 2. Another.")
    assert [" ".join(each) for each in numbers(one)] == list(captions)
    assert numbers(of_theme) == []
    assert numbers(two) == [("Table 1.", "On its own page.")]
    page = one.read_text()
    link = '<a class="q-permalink" href="#tab-y" aria-label="Link to Table 2">#</a>'
    assert f"Second. {link}</p>" in page
    assert page.count("q-permalink") == 4
    assert 'id="tab-bare"' in page


def test_a_reference_gets_the_number_of_its_target_and_a_second_build_changes_nothing(tmp_path):
    see = '<a class="q-see" href="runs/b.html#tab-x">the scores</a>'
    later = '<a href="runs/none.html">later</a><a class="q-see" href="#top">here</a>'
    file = written(tmp_path, "a.html", table("x", "One."), see, later, table("x", "Two."))
    written(tmp_path, "runs/b.html", figure("f", "A curve."), table("x", "Scores."))
    assert finish_pages(tmp_path) == []
    first, time_of = file.read_text(), file.stat().st_mtime_ns
    assert 'the scores<span class="q-see-number"> (Table 1)</span></a>' in first
    assert '<a class="q-see" href="#top">here</a>' in first
    assert finish_pages(tmp_path) == []
    assert (file.read_text(), file.stat().st_mtime_ns) == (first, time_of)
    written(tmp_path, "runs/b.html", table("w", "New."), table("x", "Scores."))
    finish_pages(tmp_path)
    assert file.read_text() == first.replace("(Table 1)", "(Table 2)")


def test_targets_that_are_not_there_are_problems(tmp_path):
    outside = ("https://x.example/none.html", "mailto:a@b.example", "#", "", "data:text/plain,x")
    links = ("b.html#tab-nothing", "none.html#tab-x", "none.html", "b.html#whatever", *outside)
    for kind in ('class="q-see" ', ""):
        written(tmp_path, "a.html", *(f'<a {kind}href="{link}">x</a>' for link in links[:3]))
        written(tmp_path, "c.html", *(f'<a href="{link}">x</a>' for link in links[3:]))
        written(tmp_path, "b.html", table("x", "One."))
        assert finish_pages(tmp_path) == [
            *["a.html: the link to 'b.html#tab-nothing': no such anchor on that page"] * bool(kind),
            "a.html: the link to 'none.html#tab-x': no such page",
            "a.html: the link to 'none.html': no such page",
        ]


def test_pages_that_have_not_been_made_are_no_problem_and_no_link(tmp_path):
    written(tmp_path, "runs/compare.html", table("y", "Differences."))
    part = written(tmp_path, "a.html", '<a class="q-see" href="runs/compare.html#tab-x">x</a>')
    file = written(
        tmp_path,
        "index.html",
        '<a class="q-see" href="runs/leaderboard.html#tab-x">the scores</a>',
        '<a href="guide/caching.html" title="t">caching</a>',
        '<a href="records/m/seed_0/t.json">200 queries</a>',
    )
    assert finish_pages(tmp_path) == []
    assert part.read_text().count('href="runs/compare.html#tab-x">x</a>') == 1
    assert ' href="' not in file.read_text()
    assert 'data-href="guide/caching.html" title="t">caching' in file.read_text()


@pytest.mark.parametrize("text", HOSTILE)
def test_foreign_captions_stay_text(tmp_path, text):
    file = written(tmp_path, "a.html", table(text, text, text))
    before = Tags(file.read_text()).tags
    finish_pages(tmp_path)
    page = file.read_text()
    assert sorted(Tags(page).tags) == sorted([*before, "span", "a"])
    assert '<span class="q-number">Table 1.</span>' in page


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


@pytest.mark.integration
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


@pytest.mark.integration
def test_a_published_score_is_never_sorted_among_measured_ones(use):
    rows = [("a", 0.2), ("p", Cell("0.900", "published", is_published=True)), ("b", 0.7)]
    table = Table.of(rows, ("model", "x")).to_html()
    orders = use(
        table,
        STATE
        + """
        const orders = [];
        for (const i of [1, 1]) { button(i).click(); orders.push(seen().order); }
        return orders;""",
    )
    assert orders == [["b", "a", "p"], ["a", "b", "p"]]


@pytest.mark.integration
def test_a_reader_chooses_a_baseline_among_the_tables_that_python_made(use):
    foreign = "</script><b>x"
    scores = {"bm25": 0.3, "ours": 0.5, foreign: 0.7}
    made = [make(n, noisy(mean, seed=s).tolist()) for s, (n, mean) in enumerate(scores.items())]
    comparison = compare(made, tier="smoke")
    table = comparison.baseline_tables(task=RETRIEVAL)
    options, states, names, label, markup = use(
        f"<div>{unstyled(table._repr_html_())}</div>",
        """
        const seen = () => [
          document.querySelector('thead th:nth-child(2)').firstChild.textContent,
          [...document.querySelectorAll('tbody tr')].map(
            row => [row.cells[0].firstChild.textContent, parseFloat(row.cells[1].dataset.sort)]),
          document.querySelector('.q-files').hidden];
        const select = document.querySelector('select'), states = [seen()];
        for (const name of ['ours', '<\\/script><b>x', 'bm25']) {
          select.value = name;
          select.dispatchEvent(new Event('change'));
          states.push(seen());
        }
        document.querySelector('thead button').click();
        return [[...select.options].map(each => each.value), states, seen()[1].map(row => row[0]),
          select.labels[0].firstChild.textContent, document.querySelectorAll('b').length];""",
    )
    assert options == ["bm25", foreign, "ours"]
    assert (names, label, markup) == ([foreign, "ours"], "Baseline", 0)
    for baseline, state in zip(("bm25", "ours", foreign, "bm25"), states, strict=True):
        others = {n: comparison.difference(n, baseline, task=RETRIEVAL) for n in scores}
        expected = {n: each.difference for n, each in others.items() if each is not None}
        assert state[0].startswith(f"Δ to {baseline}95")  # and per cent
        assert (dict(state[1]), state[2]) == (expected, baseline != "bm25")


@pytest.mark.integration
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


@pytest.mark.integration
def test_views_switch_and_the_first_table_of_the_leaderboard_sorts(use):
    """A name shows its view, a link the view with its target; sorting parts shared ranks."""
    scores = {"a": 0.5, "b": 0.5, "low": 0.2}
    records = [make(n, noisy(mean, seed=s)) for s, (n, mean) in enumerate(scores.items())]
    board = leaderboard(records, tier="smoke")
    views = Views(
        "board", [View("scores", [board.overview()]), View("ranks", [board.rank_table()])]
    )
    before, chosen, linked, columns, brackets, tip = use(
        f"<div>{unstyled(views._repr_html_())}</div>",
        """
        const shown = () => [...document.querySelectorAll('.q-view')]
          .filter(each => each.checkVisibility()).map(each => each.ariaLabel);
        const before = shown();
        document.querySelectorAll('.q-views > label')[1].click();
        const chosen = shown();
        document.querySelectorAll('.q-views > label')[0].click();
        const score = document.querySelector('td[style] [title]');
        score.focus();
        const tip = [score.matches(':focus'), score.title];
        const board = document.querySelector('table.q-board');
        [...board.querySelectorAll('thead button')].at(-1).click();
        [...board.querySelectorAll('thead button')].at(-1).click();
        const columns = [...board.tBodies[0].rows].map(
          row => [row.cells[0].textContent, row.querySelector('th').firstChild.textContent]);
        const brackets = board.classList.contains('q-sorted');
        document.querySelector('a[href="#tab-ranks"]').click();
        await new Promise(done => setTimeout(done, 100));
        return [before, chosen, shown(), columns, brackets, tip];""",
    )
    assert (before, chosen, linked) == (["scores"], ["ranks"], ["ranks"])
    assert [rank for rank, _ in columns] == ["3", "1", "1"]
    assert columns[0][1] == "low"
    assert brackets is True
    assert tip[0] is True
    assert tip[1].startswith("nDCG@10 0.")


@pytest.mark.integration
def test_a_link_shows_its_view_without_a_script(tmp_path):
    """The style sheet alone does it; the probe only reads."""
    sheet = f'<link rel="stylesheet" href="{(STATIC / "q-render.css").as_uri()}">'
    table = Table(("model",), ((Cell("a"),),), name="second")
    views = Views("x", [View("one", [Table(("model",), (), name="first")]), View("two", [table])])
    file = tmp_path / "page.html"
    body = f'{unstyled(views._repr_html_())}<a href="#tab-second">second</a>'
    file.write_text(f"<html><head>{sheet}</head><body>{body}</body></html>")
    shown = used(
        file,
        """
        const shown = () => document.querySelector('#tab-second').checkVisibility();
        const before = shown();
        document.querySelector('a[href="#tab-second"]').click();
        await new Promise(done => setTimeout(done, 100));
        const after = shown();
        location.hash = '';
        document.querySelectorAll('.q-views > label')[1].click();
        return [before, after, shown()];""",
        folder=tmp_path / "p",
    )
    assert shown == [False, True, True]
