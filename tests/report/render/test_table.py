"""Tables in every format, and where their numbers lead: anchors, formulas and commands."""

import csv
import html
import io
import re
import shlex

import pytest
from helpers import REPOSITORY
from helpers.html import HOSTILE
from helpers.records import amend, make

from qwen3nb.execution.parameters import read_parameters
from qwen3nb.metrics.retrieval import METRICS, RECORDED
from qwen3nb.report.render.console import print_table
from qwen3nb.report.render.home import (
    EVAL_DEFAULTS,
    OTHER_FORMULAS,
    command_again,
    formula_link,
    record_link,
    score_link,
)
from qwen3nb.report.render.html import unstyled
from qwen3nb.report.render.latex import latex_text
from qwen3nb.report.render.table import (
    TABLE_FORMATS,
    Cell,
    Conclusion,
    Head,
    Sections,
    Table,
    with_ranks,
)


def test_best_second_and_shared_places():
    ranked = with_ranks([[Cell("x"), Cell("", value=each)] for each in (0.5, 0.7, 0.7, 0.6, None)])
    assert [row[1].strong for row in ranked] == [False, True, True, False, False]
    assert [row[1].second for row in ranked] == [False, False, False, True, False]
    assert not any(row[0].strong or row[0].second for row in ranked)
    assert with_ranks([]) == ()


BEST = Cell("0.667", "[0.600, 0.700]", value=2 / 3, interval=(0.6, 0.7), strong=True, std="±0.1")
SECOND = Cell("0.500", value=0.5, second=True, mark="†")
ROWS = (("m", BEST), ("n", SECOND), ("=HYPERLINK(1)", "not run"))
TABLE = Table.of(ROWS, ("model", Head("x\nn = 3", 3)), name="x", legend=(("†", "a note"),))


def test_one_table_many_outputs():
    assert list(csv.reader(io.StringIO(TABLE.to_csv()))) == [
        ["model", "x n = 3", "x n = 3, low", "x n = 3, high"],
        ["m", repr(2 / 3), "0.6", "0.7"],
        ["n", "0.5", "", ""],
        ["'=HYPERLINK(1)", "not run", "", ""],
    ]
    assert r"\textbf{0.667}\textsubscript{$\pm$0.1}" in TABLE.to_latex()
    assert r"\underline{0.500}\textsuperscript{\dag{}}" in TABLE.to_latex()
    assert "<u>0.500</u><sup>†</sup>" in TABLE.to_markdown()
    assert '<td data-sort="0.6666666666666666"><strong>0.667</strong>' in TABLE.to_html()
    assert "† a note" in TABLE.to_html()
    with pytest.raises(ValueError, match="unknown format 'pdf'; choose one of: latex, csv"):
        TABLE.to_text("pdf")
    assert TABLE._repr_html_().count("download=") == len(TABLE_FORMATS)


def test_a_frame_has_numbers_and_stable_names_whatever_is_missing():
    frame = TABLE.to_frame(intervals=True)
    assert list(frame.columns) == ["model", "x", "x, low", "x, high", "x, n"]
    assert frame.select_dtypes("number").columns.tolist() == list(frame.columns[1:])
    assert frame.x.mean() == pytest.approx((2 / 3 + 0.5) / 2)
    assert frame.iloc[0].tolist() == ["m", 2 / 3, 0.6, 0.7, 3]
    assert frame.iloc[2, 1:4].isna().all()
    assert list(TABLE.to_frame().columns) == ["model", "x"]
    heads = ("model", "a\nk = 1", "a\nk = 2", "b")
    shared = Table.of([("42", "1,200", 7, "–"), ("7", "3", "–", "–")], heads)
    assert shared.to_frame().fillna(-1).to_dict("list") == {
        "model": ["42", "7"],  # names, also of a model that is called 42
        "a k = 1": [1200, 3],
        "a k = 2": [7, -1],
        "b": [-1, -1],
    }
    assert repr(TABLE).startswith("<Table x: 3 rows × 2 columns>")
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
    words = Table(("", "n"), ((Cell("x"), Cell("3", value=3)),), kind="words").to_html()
    assert "<tr><td></td>" in words  # a head without text is no header
    assert '<th scope="col" class="q-right">n</th>' in words
    assert Table(("a",), row).to_html().startswith('<div class="q-table"><div class="q-scroll">')


def test_negative_numbers_have_a_minus_sign_except_where_a_program_reads_them():
    cell = Cell("-0.020", "[-0.100, -0.5], checkpoint-3", value=-0.02, interval=(-0.1, -0.5))
    rows = ((Cell("qwen3nb eval -1 2026-11-20", code=True), cell, Cell("−1.5")),)
    minus = Table(("a", "x", "y"), rows)
    shown = minus.to_html()
    assert ">−0.020<" in shown
    assert "[−0.100, −0.5], checkpoint-3" in shown
    assert "<span>-1</span> <span>2026-11-20</span>" in shown
    assert "$-$0.020" in minus.to_latex()
    assert minus.to_csv().splitlines()[1] == "qwen3nb eval -1 2026-11-20,-0.02,-0.1,-0.5,-1.5"


def test_outside_the_book_tables_bring_their_style_once():
    inner = Table(("a",), ((Cell("x", "y"),),), name="t", caption="c")
    sections = Sections((("one", inner), ("two", inner)), "-1 is below 0")
    for shown in (inner._repr_html_(), sections._repr_html_(), Conclusion("b < -1")._repr_html_()):
        assert shown.startswith("<style data-q>")
        assert shown.count("<style") == 1
        assert "<style" not in unstyled(shown)
    assert unstyled(Conclusion("b < -1")._repr_html_()) == '<p class="q-conclusion">b &lt; −1</p>'
    command = Conclusion("Run `eval --tier <t>`.")
    assert "Run <code>eval --tier &lt;t&gt;</code>." in command._repr_html_()
    assert unstyled(sections._repr_html_()).count('class="q-caption"') == 2
    assert "<style" not in inner.to_html()


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("a_b & 5 %", r"a\_b \& 5 \%"),
        ("\\input{x}", r"\textbackslash{}input\{x\}"),
        ("[-0.1, +0.2]", "{[}$-$0.1, +0.2{]}"),
        ("x-1 a--b", "x-1 a-{}-b"),
        ("é 名", r"é \texttt{U+540D}"),
        ("two\n lines", "two lines"),
    ],
)
def test_latex_prints_text_as_it_is(text, printed):
    assert latex_text(text) == printed


def test_a_terminal_gets_foreign_text_as_text(capsys):
    print_table(Table(("[bold]x[/]",), ((Cell("\x1b[31mred", "[link=a]b[/link]"),),), "[i]note"))
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    for text in ("[bold]x[/]", "\\x1b[31mred", "[link=a]b[/link]", "[i]note"):
        assert text in shown


METHODS = (REPOSITORY / "book" / "methods.md").read_text()
OF_RECORDS = {
    *("Spearman", "Pearson", "accuracy", "V-measure", "F1", "TIR", "difference"),
    *("first nDCG@10", "gain MRR@10", "oracle nDCG@10", "first Recall@20", "MAP@1000", "P@5"),
    *("max_over_subqueries_map_at_1000", "ndcg_at_10", "cosine_spearman", "v_measure"),
    *RECORDED["own data"],
    *(f"{name}@10" for name in METRICS),
}


@pytest.mark.parametrize("metric", sorted(OF_RECORDS))
def test_every_metric_of_records_has_a_formula(metric):
    page, _, anchor = formula_link(metric).partition("#")
    assert page == "../methods.html"
    assert f"({anchor})=" in METHODS


def test_every_formula_is_on_the_page_on_methods():
    formulas = {*OTHER_FORMULAS, *(metric.formula for metric in METRICS.values())}
    assert set(re.findall(r"^\(formula-([a-z0-9-]+)\)=$", METHODS, re.MULTILINE)) >= formulas
    assert formula_link("summary score") == ""


def test_a_score_leads_to_its_row_on_the_page_of_its_run():
    result = make("m")
    amend(result, "task", name="STS17", selection="en-en")
    assert score_link(result, {"run-m": "eval-m.html"}) == "eval-m.html#score-sts17-en-en"
    assert score_link(result, {}) == ""
    name = f"m-{result.model.identity[:8]}/seed_0/STS17-en-en.json"
    assert record_link(result) == f"../records/{name}"


def test_the_defaults_are_those_of_the_notebook():
    declared = read_parameters(REPOSITORY / "notebooks" / "eval.ipynb")
    assert {name: declared[name].default for name in EVAL_DEFAULTS} == dict(EVAL_DEFAULTS)


def test_a_command_names_what_is_not_default():
    own = {"pooling": "mean", "append_eos": True, "limit": 7, "dtype": "bfloat16"}
    config = {**EVAL_DEFAULTS, "checkpoint": "runs/a b", "tier": "smoke", **own}
    assert command_again(make("m", config=config)) == (
        "qwen3nb eval --model 'runs/a b' --tasks PyDocsSampleRetrieval --limit 7 "
        "--pooling mean --append-eos --dtype bfloat16 --out again --fresh"
    )
    own = command_again(make("m", config={"checkpoint": "m", "data": "beir/scifact"}))
    assert own == "qwen3nb eval --model m --data beir/scifact --out again --fresh"
    # Made in Python: from its settings.
    settings = {"pooling": "last", "max_length": 64, "normalize": True}
    assert command_again(make("m", settings=settings, seed=3)) == (
        "qwen3nb eval --model m --tasks PyDocsSampleRetrieval --pooling last --max-length 64 "
        "--seed 3 --out again --fresh"
    )
    assert command_again(make("m", settings={**settings, "normalize": False})) == ""


@pytest.mark.parametrize(("kind", "first"), [("bm25", "bm25"), ("encoder", "e5-small")])
def test_a_reranking_has_its_own_command(kind, first):
    settings = {"template": ["double-newline", "…"], "instruction": "a b", "max_length": 192}
    config = {"collection": "SciFact", "first": {"kind": kind, "depth": 20}, "limit": 0}
    result = make("r", task=f"SciFact.{first}-20", settings=settings, config=config)
    assert command_again(result) == (
        f"qwen3nb rerank suite SciFact --model r --first {first} --depth 20 --max-length 192 "
        "--template double-newline --instruction 'a b' --dtype float32 --seed 0 "
        "--out again --fresh"
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_foreign_names_stay_one_word_of_the_shell(text):
    words = shlex.split(command_again(make("m", config={"checkpoint": text})))
    assert words[3] == text


def test_without_its_links_a_conclusion_is_its_text():
    """`benchmarks.agreement` compares sentences of pages that have other links."""
    conclusion = Conclusion("a leads by 0.1.", page="numbers.html", how_sure="sure.html")
    page = unstyled(conclusion._repr_html_())
    without_links = re.sub(r"<a .*?</a>", "", page)
    text = html.unescape(re.sub(r"<.*?>", "", without_links))
    assert page.count("<a ") == 2
    assert text.split() == conclusion.text.split()


def test_how_a_table_was_computed_is_folded_on_a_page_and_written_out_elsewhere():
    table = Table.of([("a", 1)], ("model", "score"), note="Short.", method="A test & a draw.")
    page = table.to_html()
    assert page.index("Short.") < page.index("<details") < page.index("A test &amp; a draw.")
    assert table.to_markdown().endswith("Short.\n\nA test &amp; a draw.")
    assert r"A test \& a draw." in table.to_latex()
    nothing = Table.of([], ("model",), empty="No scores.", method="A test.")
    assert "A test" not in nothing.to_html() + nothing.to_markdown() + nothing.to_latex()
