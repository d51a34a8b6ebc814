"""Numbers, permalinks and references of built pages, on pages made by hand."""

import re

import pytest
from helpers.html import HOSTILE, Tags

from qwen3nb.book.pages import number_pages
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.table import Table

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
    assert number_pages(tmp_path) == []
    captions = ("Table 1. First.", "Figure 1. A curve.", "Table 2. Second.", "Figure 2. Another.")
    assert [" ".join(each) for each in numbers(one)] == list(captions)
    assert numbers(of_theme) == []
    assert numbers(two) == [("Table 1.", "On its own page.")]
    page = one.read_text()
    link = '<a class="q-permalink" href="#tab-y" aria-label="Link to Table 2">#</a>'
    assert f"Second. {link}</p>" in page
    assert page.count("q-permalink") == 4
    assert 'id="tab-bare"' in page


def test_every_id_is_unique_and_every_captioned_one_has_one(tmp_path):
    parts = [table("x", "One."), table("x", "Two."), '<h2 id="tab-x-2">A heading</h2>']
    parts += [table("x"), figure("", "No name."), table("", "名前")]
    file = written(tmp_path, "a.html", *parts)
    number_pages(tmp_path)
    page = file.read_text()
    ids = re.findall(r'\sid="([^"]*)"', page)
    assert ids == ["top", "tab-x", "tab-x-3", "tab-x-2", "tab-x-4", "fig-1", "s", "tab-3"]
    assert 'href="#tab-x-3" aria-label="Link to Table 2"' in page


def test_a_reference_gets_the_number_of_its_target_and_a_second_build_changes_nothing(tmp_path):
    see = '<a class="q-see" href="runs/b.html#tab-x">the scores</a>'
    later = '<a href="runs/none.html">later</a><a class="q-see" href="#top">here</a>'
    file = written(tmp_path, "a.html", table("x", "One."), see, later, table("x", "Two."))
    written(tmp_path, "runs/b.html", figure("f", "A curve."), table("x", "Scores."))
    assert number_pages(tmp_path) == []
    first, time_of = file.read_text(), file.stat().st_mtime_ns
    assert 'the scores<span class="q-see-number"> (Table 1)</span></a>' in first
    assert '<a class="q-see" href="#top">here</a>' in first
    assert number_pages(tmp_path) == []
    assert (file.read_text(), file.stat().st_mtime_ns) == (first, time_of)
    written(tmp_path, "runs/b.html", table("w", "New."), table("x", "Scores."))
    number_pages(tmp_path)
    assert file.read_text() == first.replace("(Table 1)", "(Table 2)")


def test_targets_that_are_not_there_are_problems(tmp_path):
    outside = ("https://x.example/none.html", "mailto:a@b.example", "#", "", "data:text/plain,x")
    links = ("b.html#tab-nothing", "none.html#tab-x", "none.html", "b.html#whatever", *outside)
    for kind in ('class="q-see" ', ""):
        written(tmp_path, "a.html", *(f'<a {kind}href="{link}">x</a>' for link in links[:3]))
        written(tmp_path, "c.html", *(f'<a href="{link}">x</a>' for link in links[3:]))
        written(tmp_path, "b.html", table("x", "One."))
        assert number_pages(tmp_path) == [
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
    assert number_pages(tmp_path) == []
    assert part.read_text().count('href="runs/compare.html#tab-x">x</a>') == 1
    assert ' href="' not in file.read_text()
    assert 'data-href="guide/caching.html" title="t">caching' in file.read_text()


@pytest.mark.parametrize("text", HOSTILE)
def test_foreign_captions_stay_text(tmp_path, text):
    file = written(tmp_path, "a.html", table(text, text, text))
    before = Tags(file.read_text()).tags
    number_pages(tmp_path)
    page = file.read_text()
    assert sorted(Tags(page).tags) == sorted([*before, "span", "a"])
    assert '<span class="q-number">Table 1.</span>' in page
