import re
import shutil
import subprocess

import numpy as np
import pytest
from helpers.figures import TASK, records
from helpers.records import make

from qwen3nb.report.paper.contents import Choice, PaperContents
from qwen3nb.report.paper.files import write_figures, write_paper, write_tables
from qwen3nb.report.render.figure import PAPER_STYLES


@pytest.fixture(scope="module")
def results():
    """Records of models of which one has a name that no file and no LaTeX takes as it is."""
    kept = [result for result in records() if "demo" not in result.model.label]
    return [*kept, make("../x_y %", scores=np.zeros(60))]


@pytest.fixture(scope="module")
def papers(results, tmp_path_factory):
    folder = tmp_path_factory.mktemp("papers")
    choice = Choice(tasks=(TASK,))
    return {style: (folder / style, write_paper(results, folder / style, style=style,
                    choice=choice)) for style in PAPER_STYLES}  # fmt: skip


def page_width(file):
    """The width of a PDF's page, in inches."""
    box = re.search(rb"/MediaBox \[ ?0 0 ([\d.]+) ", file.read_bytes())
    return float(box[1]) / 72


@pytest.mark.integration
@pytest.mark.parametrize("style", PAPER_STYLES)
def test_figures_are_as_wide_as_the_columns_of_the_style(papers, style):
    one, two = PAPER_STYLES[style].widths
    figures = papers[style][0] / "figures"
    assert page_width(figures / f"differences-{TASK}.pdf") == pytest.approx(one, abs=0.02)
    assert page_width(figures / "comparison-tasks.pdf") == pytest.approx(two, abs=0.02)


@pytest.mark.integration
@pytest.mark.parametrize("style", PAPER_STYLES)
def test_every_file_is_used_and_every_environment_closed(papers, style):
    folder, written = papers[style]
    assert all(file.is_file() for file in written)
    floats = (folder / "figures.tex").read_text()
    shown = re.findall(r"\\includegraphics\[[^]]*\]\{figures/([^}]*)\}", floats)
    assert sorted(shown) == sorted(file.stem for file in (folder / "figures").iterdir())
    inputs = re.findall(r"\\input\{tables/([^}]*)\}", (folder / "tables.tex").read_text())
    assert sorted(inputs) == sorted(file.stem for file in (folder / "tables").iterdir())
    for file in folder.rglob("*.tex"):
        text = file.read_text()
        begun, ended = (sorted(re.findall(rf"\\{w}\{{(.*?)\}}", text)) for w in ("begin", "end"))
        assert begun == ended
    labels = re.findall(r"\\label\{(.*?)\}", floats)
    assert len(set(labels)) == len(labels) == floats.count(r"\caption{")
    assert ("figure*" in floats) == (style != "neurips")
    assert not re.search(r"&lt;|&amp;|\\\(", floats)


@pytest.mark.integration
@pytest.mark.parametrize("style", PAPER_STYLES)
def test_the_article_compiles(papers, style):
    if shutil.which("pdflatex") is None:
        pytest.skip("no pdflatex here (Debian: texlive-latex-base, texlive-latex-recommended)")
    folder = papers[style][0]
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape"]
    for step in ([*command, "paper"], ["bibtex", "paper"], [*command, "paper"]):
        done = subprocess.run(step, cwd=folder, capture_output=True, check=False)
        assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]
    log = (folder / "paper.log").read_text(errors="replace")
    assert "Float too large" not in log
    assert max(map(float, re.findall(r"Overfull \\hbox \(([\d.]+)pt", log)), default=0) < 1


@pytest.mark.integration
def test_figures_and_tables_alone_in_other_formats(results, tmp_path):
    choice = Choice(tier="smoke")
    files = write_figures(results, tmp_path / "f", format="pdf", columns=1, choice=choice)
    named = [file.name for file in files]
    assert len(set(named)) == len(named) == len(PaperContents(results, choice).figures()) + 1
    wanted = {"comparison-smoke.pdf", f"differences-{TASK}.pdf", "ranks.pdf", "captions.md"}
    assert wanted <= set(named), named
    assert "per-query-..-x-y.pdf" in named
    captions = (tmp_path / "f" / "captions.md").read_text()
    assert all(name in captions.replace("\\", "") for name in named[:-1])
    for format, ending in (("latex", "tex"), ("csv", "csv"), ("markdown", "md")):
        tables = write_tables(results, tmp_path / format, format=format, choice=choice)
        assert f"comparison-smoke.{ending}" in [file.name for file in tables]
        assert all(file.read_text().strip() for file in tables)
    assert all(table.name and table.caption for table in PaperContents(results, choice).tables())


def test_an_unknown_style_is_refused_before_anything_is_drawn(results, tmp_path):
    with pytest.raises(ValueError, match="unknown paper style 'amc'; choose one of: plain, acl"):
        write_paper(results, tmp_path / "p", style="amc")
    assert not (tmp_path / "p").exists()
