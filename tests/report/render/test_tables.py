import csv
import io
import re
import shutil
import subprocess

import pytest
from helpers.html import HOSTILE
from helpers.records import amend, make

from qwen3nb.analysis.inventory.score import Score
from qwen3nb.report.leaderboard.score_table import comparison_table, contenders
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.latex import latex_text
from qwen3nb.report.render.table import TABLE_FORMATS, Table, with_ranks
from qwen3nb.report.training.configurations import configurations_table

INJECTIONS = [
    *HOSTILE,
    r"\input{/etc/passwd}",
    r"\write18{id}",
    "100 % of a_b & c # d ~ e ^ f {g} \\",
    "[0.1, 0.2]",
    "*",
    "a -- b --- c -0.5",
    "名前 Δ ≤ ‖ é ß Ł ø 🙂 \u202e",
    "\x00\x1b[31m",
    "",
]


def hostile_table(text):
    cell = Cell(text, text, std=text, mark=text, strong=True)
    rows = ((cell, Cell(text)), (Cell(text, second=True), cell))
    return Table((text, f"a\n{text}"), rows, text, name=text, caption=text, legend=((text, text),))


def unbalanced(latex):
    """What is wrong with braces, environments and signs of LaTeX we wrote; '' if nothing."""
    depth, open_ = 0, []
    for found in re.findall(
        r"\\begin\{\w+\*?\}|\\end\{\w+\*?\}|\\.|[{}%#~^]|\$[^$]*\$", latex, re.S
    ):
        if found.startswith(r"\begin"):
            open_.append(found[7:-1])
        elif found.startswith(r"\end"):
            if not open_ or open_.pop() != found[5:-1]:
                return f"{found} ends nothing"
        elif found == "{":
            depth += 1
        elif found == "}":
            depth -= 1
        elif found in "%#~^":
            return f"bare {found}"
        if depth < 0:
            return "a brace closes nothing"
    return f"{depth} braces, {open_} open" if depth or open_ else ""


@pytest.mark.parametrize("text", INJECTIONS)
def test_nothing_foreign_is_a_command_of_latex(text):
    written = hostile_table(text).latex()
    assert unbalanced(written) == ""
    commands = set(re.findall(r"\\([A-Za-z]+)", written))
    assert commands <= {
        "begin", "end", "centering", "small", "setlength", "tabcolsep", "caption", "label",
        "toprule", "midrule", "bottomrule", "par", "medskip", "footnotesize", "textbf",
        "underline", "textsubscript", "textsuperscript", "tiny", "texttt", "textbackslash",
        "textasciicircum", "textasciitilde", "textless", "textgreater", "textbar",
        "textasciigrave", "Delta", "leq",
    }  # fmt: skip


def test_the_check_of_latex_finds_what_is_wrong():
    assert unbalanced(r"\begin{table}{a}\end{table}") == ""
    assert "braces" in unbalanced("{a")
    assert "closes nothing" in unbalanced("}{")
    assert "ends nothing" in unbalanced(r"\begin{a}\end{b}")
    assert unbalanced("50 % of") == "bare %"


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


def compile_latex(body, folder):
    if shutil.which("pdflatex") is None:
        pytest.skip("no pdflatex here (Debian: texlive-latex-base, texlive-latex-recommended)")
    source = (
        "\\documentclass[a4paper]{article}\n\\usepackage{booktabs}\n\\begin{document}\n"
        f"{body}\n\\end{{document}}\n"
    )
    (folder / "t.tex").write_text(source, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape"]
    done = subprocess.run([*command, "t.tex"], cwd=folder, capture_output=True, check=False)
    return done.returncode, done.stdout.decode(errors="replace")


def test_latex_compiles_whatever_the_names(tmp_path):
    results = [make(label) for label in ("a_b", "c%d", "m")]
    tables = [*map(hostile_table, INJECTIONS), comparison_table(results, tier="smoke")]
    body = "\n\\clearpage\n".join(table.latex() for table in tables)
    code, said = compile_latex(body, tmp_path)
    assert code == 0, said[-2000:]
    assert "LaTeX Warning: Reference" not in said


def test_the_compiler_would_fail_on_what_is_wrong(tmp_path):
    code, _ = compile_latex("50 & 3", tmp_path)
    assert code != 0


def test_best_second_and_shared_places():
    cells = [[Cell(name), Cell("", value=value)] for name, value in
             (("a", 0.5), ("b", 0.7), ("c", 0.7), ("d", 0.6), ("e", None))]  # fmt: skip
    ranked = with_ranks(cells)
    assert [row[1].strong for row in ranked] == [False, True, True, False, False]
    assert [row[1].second for row in ranked] == [False, False, False, True, False]
    assert not any(row[0].strong or row[0].second for row in ranked)
    lower = with_ranks(cells, lower={1})
    assert [row[1].strong for row in lower] == [True, False, False, False, False]
    assert with_ranks([]) == ()


def test_one_table_many_outputs():
    best = Cell(
        "0.667", "[0.600, 0.700]", value=2 / 3, interval=(0.6, 0.7), strong=True, std="±0.1"
    )
    rows = ((Cell("m"), best), (Cell("n"), Cell("0.500", value=0.5, second=True, mark="†")),
            (Cell("=HYPERLINK(1)"), Cell("not run")))  # fmt: skip
    table = Table(("model", "x\nn = 3"), rows, name="x", legend=(("†", "said"),))
    assert list(csv.reader(io.StringIO(table.csv()))) == [
        ["model", "x n = 3", "x n = 3, low", "x n = 3, high"],
        ["m", repr(2 / 3), "0.6", "0.7"],
        ["n", "0.5", "", ""],
        ["'=HYPERLINK(1)", "not run", "", ""],
    ]
    assert r"\textbf{0.667}\textsubscript{$\pm$0.1}" in table.latex()
    assert r"\underline{0.500}\textsuperscript{\dag{}}" in table.latex()
    assert "<u>0.500</u><sup>†</sup>" in table.markdown()
    assert '<td data-sort="0.6666666666666666"><strong>0.667</strong>' in table.html()
    assert "† said" in table.html()
    assert "not run" in table.latex()
    with pytest.raises(ValueError, match="unknown format 'pdf'; choose one of: latex, csv"):
        table.as_text("pdf")
    shown = table._repr_html_()
    assert shown.count("download=") == len(TABLE_FORMATS)
    assert "%3C" not in table.html()


@pytest.mark.parametrize("text", INJECTIONS)
def test_saving_links_hold_no_markup(text):
    files = hostile_table(text)._files()
    assert not re.search(r"<(?!/?[ap]\b)", files)
    assert "<script" not in files


@pytest.mark.parametrize("text", ["=1+1", "@SUM(1)", "+x", "-x", "\t=1"])
def test_no_label_is_a_formula_in_a_spreadsheet(text):
    (cell,) = list(csv.reader(io.StringIO(Table(("a",), ((Cell(text),),)).csv())))[1]
    assert cell == f"'{text.strip()}"


def test_marks_say_who_is_not_told_from_the_best():
    best = make("a", scores=[0.9] * 40)
    near = make("b", scores=[0.9, 0.8] + [0.9] * 38)
    far = make("c", scores=[0.1] * 40)
    assert contenders([best, near, far], seed=0) == {near.model.identity}
    assert contenders([best], seed=0) == set()
    other = make("d", scores=[0.9, 0.8] + [0.9] * 38)
    amend(other, "task", revision="another")
    assert contenders([best, other], seed=0) == set()
    table = comparison_table([best, near, far], tier="smoke", links={"run-b": "b.html"})
    cells = {row[0].text: row[1] for row in table.rows}
    assert (cells["a"].strong, cells["a"].mark) == (True, "")
    assert (cells["b"].second, cells["b"].mark, cells["b"].link) == (True, "†", "b.html")
    assert (cells["c"].second, cells["c"].mark) == (False, "")
    assert table.legend[0][0] == "†"


def test_configurations_are_means_over_seeds_with_their_spread():
    """Two seeds by hand: mean 0.3, sample standard deviation sqrt(2 * 0.1^2 / 1)."""

    def score(system, seed, value, *, task="A", finished=""):
        return Score(system, seed, task, "nDCG@10", value, kind="reranking", finished=finished)

    scores = [
        score("joint_r8", 42, 0.2), score("joint_r8", 123, 0.4), score("rank_only_r8", 42, 0.5),
        score("rank_only_r8", 42, 0.9, finished="2026-01-02"), score("other", 1, None),
        score("joint_r8", 42, 0.7, task="B"),
    ]  # fmt: skip
    table = configurations_table(scores)
    assert [row[0].text for row in table.rows] == ["joint_r8", "rank_only_r8"]
    joint, rank = table.rows
    assert (joint[1].text, joint[1].std, joint[1].second) == ("0.300", "0.141", True)
    assert (rank[1].text, rank[1].std, rank[1].strong) == ("0.900", "", True)
    assert (joint[2].text, rank[2].text) == ("0.700", "not run")
    assert r"\textsubscript{0.141}" in table.latex()
    assert configurations_table([]).rows == ()
