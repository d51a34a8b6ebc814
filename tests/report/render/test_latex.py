import re
import shutil
import subprocess

import pytest
from helpers.records import make
from helpers.tables import INJECTIONS, LATEX, hostile_table, unbalanced

from qwen3nb.report.leaderboard.board import leaderboard
from qwen3nb.report.render.latex import latex_text


@pytest.mark.parametrize("text", INJECTIONS)
def test_nothing_foreign_is_a_command_of_latex(text):
    written = hostile_table(text).to_latex()
    assert unbalanced(written) == ""
    assert set(re.findall(r"\\([A-Za-z]+)", written)) <= LATEX


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


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex (texlive-latex-base)")
def test_latex_compiles_whatever_the_names(tmp_path):
    results = [make(label) for label in ("a_b", "c%d", "m")]
    tables = [*map(hostile_table, INJECTIONS), leaderboard(results, tier="smoke")]
    body = "\n\\clearpage\n".join(table.to_latex() for table in tables)
    head = "\\documentclass[a4paper]{article}\n\\usepackage{booktabs,graphicx}\n"
    text = f"{head}\\begin{{document}}\n{body}\n\\end{{document}}\n"
    (tmp_path / "t.tex").write_text(text, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape"]
    done = subprocess.run([*command, "t.tex"], cwd=tmp_path, capture_output=True, check=False)
    log = done.stdout.decode(errors="replace")
    assert done.returncode == 0, log[-2000:]
    assert "LaTeX Warning: Reference" not in log
