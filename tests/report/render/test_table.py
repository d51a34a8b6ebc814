import csv
import io

import pytest

from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.conclusion import Conclusion
from qwen3nb.report.render.html import unstyled
from qwen3nb.report.render.sections import Sections
from qwen3nb.report.render.table import TABLE_FORMATS, Table, with_ranks


def test_best_second_and_shared_places():
    cells = [
        [Cell(name), Cell("", value=value)]
        for name, value in (("a", 0.5), ("b", 0.7), ("c", 0.7), ("d", 0.6), ("e", None))
    ]
    ranked = with_ranks(cells)
    assert [row[1].strong for row in ranked] == [False, True, True, False, False]
    assert [row[1].second for row in ranked] == [False, False, False, True, False]
    assert not any(row[0].strong or row[0].second for row in ranked)
    assert with_ranks([]) == ()


def test_one_table_many_outputs():
    best = Cell(
        "0.667", "[0.600, 0.700]", value=2 / 3, interval=(0.6, 0.7), strong=True, std="±0.1"
    )
    second = Cell("0.500", value=0.5, second=True, mark="†")
    rows = (("m", best), ("n", second), ("=HYPERLINK(1)", "not run"))
    table = Table.of(rows, ("model", "x\nn = 3"), name="x", legend=(("†", "said"),))
    assert list(csv.reader(io.StringIO(table.to_csv()))) == [
        ["model", "x n = 3", "x n = 3, low", "x n = 3, high"],
        ["m", repr(2 / 3), "0.6", "0.7"],
        ["n", "0.5", "", ""],
        ["'=HYPERLINK(1)", "not run", "", ""],
    ]
    assert r"\textbf{0.667}\textsubscript{$\pm$0.1}" in table.to_latex()
    assert r"\underline{0.500}\textsuperscript{\dag{}}" in table.to_latex()
    assert "<u>0.500</u><sup>†</sup>" in table.to_markdown()
    assert '<td data-sort="0.6666666666666666"><strong>0.667</strong>' in table.to_html()
    assert "† said" in table.to_html()
    assert "not run" in table.to_latex()
    with pytest.raises(ValueError, match="unknown format 'pdf'; choose one of: latex, csv"):
        table.to_text("pdf")
    shown = table._repr_html_()
    assert shown.count("download=") == len(TABLE_FORMATS)
    assert "%3C" not in table.to_html()


def test_a_frame_has_numbers_where_there_are_and_text_elsewhere():
    value = Cell("0.667", "[0.600, 0.700]", value=2 / 3, interval=(0.6, 0.7))
    rows = (("m", value, Cell("9", value=9)), ("n", "not run", Cell("8", value=8)))
    table = Table.of(rows, ("model", "x\nn = 3", "queries"), name="mine")
    frame = table.to_frame()
    shown = {"model": ["m", "n"], "x n = 3": [2 / 3, "not run"], "queries": [9, 8]}
    assert frame.to_dict("list") == shown
    assert frame["queries"].sum() == 17
    ends = table.to_frame(intervals=True)
    assert list(ends.columns)[1:4] == ["x n = 3", "x n = 3, low", "x n = 3, high"]
    assert ends.iloc[0, 2:4].tolist() == [0.6, 0.7]
    assert ends.iloc[1, 2:4].isna().all()
    assert len(table) == 2
    assert repr(table).startswith("<Table mine: 2 rows × 3 columns>")
    assert "not run" in repr(table)
    empty = Table(("a", "b"), ())
    assert empty.to_frame().shape == (0, 2)
    assert (len(empty), bool(empty)) == (0, True)  # a table without rows still says why


def test_a_caption_is_above_the_table_and_its_id_comes_from_the_name_or_the_words():
    row = ((Cell("x", id="score-<x>"),),)
    shown = Table(("a",), row, name="all models", caption="Models & scores.").to_html()
    assert shown.startswith(
        '<div class="q-table" id="tab-all-models"><p class="q-caption">Models &amp; scores.</p>'
    )
    assert '<tr id="score-&lt;x&gt;">' in shown
    assert 'id="tab-models-scores"' in Table(("a",), row, caption="Models & scores.").to_html()
    assert Table(("a",), row).to_html().startswith('<div class="q-table"><div class="q-scroll">')


def test_negative_numbers_have_a_minus_sign_except_where_a_program_reads_them():
    cell = Cell("-0.020", "[-0.100, -.5], checkpoint-3", value=-0.02, interval=(-0.1, -0.5))
    rows = ((Cell("qwen3nb eval -1 2026-11-20", code=True), cell, Cell("−1.5")),)
    minus = Table(("a", "x", "y"), rows)
    shown = minus.to_html()
    assert ">−0.020<" in shown
    assert "[−0.100, −.5], checkpoint-3" in shown
    assert "<span>-1</span> <span>2026-11-20</span>" in shown
    assert "$-$0.020" in minus.to_latex()
    assert minus.to_csv().splitlines()[1] == "qwen3nb eval -1 2026-11-20,-0.02,-0.1,-0.5,-1.5"


def test_outside_the_book_tables_bring_their_style_once():
    inner = Table(("a",), ((Cell("x", "y"),),), name="t", caption="c")
    sections = Sections((("one", inner), ("two", inner)), "-1 is below 0")
    for shown in (inner._repr_html_(), sections._repr_html_(), Conclusion("b < -1")._repr_html_()):
        assert shown.startswith("<style data-q>")
        assert shown.count("<style") == 1
        assert "--jp-" in shown
        assert "<style" not in unstyled(shown)
    assert unstyled(Conclusion("b < -1")._repr_html_()) == '<p class="q-conclusion">b &lt; −1</p>'
    command = Conclusion("Run `eval --tier <t>`.")
    assert "Run <code>eval --tier &lt;t&gt;</code>." in command._repr_html_()
    assert str(command) == "Run `eval --tier <t>`."
    assert unstyled(sections._repr_html_()).count('class="q-caption"') == 2
    assert "<style" not in inner.to_html()


def test_a_head_without_text_is_no_header_cell_and_numbers_among_words_are_aligned():
    words = Table(("", "n"), ((Cell("x"), Cell("3", value=3)),), kind="words").to_html()
    assert "<thead><tr><td></td>" in words
    assert '<th scope="col" class="q-right">n</th>' in words


@pytest.mark.parametrize("text", ["=1+1", "@SUM(1)", "+x", "-x", "\t=1"])
def test_no_label_is_a_formula_in_a_spreadsheet(text):
    (cell,) = list(csv.reader(io.StringIO(Table(("a",), ((Cell(text),),)).to_csv())))[1]
    assert cell == f"'{text.strip()}"
