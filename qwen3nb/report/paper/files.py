r"""Write the figures and tables of a paper as files, with what a LaTeX article needs around them.

The folder of a paper compiles as it is (``pdflatex paper && bibtex paper && pdflatex paper``),
and its parts go into an article of one's own by ``\input{figures}`` and ``\input{tables}``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from qwen3nb import paths
from qwen3nb.records.record import Result
from qwen3nb.report.paper.contents import ALL, Choice, PaperContents
from qwen3nb.report.render.figure import PAPER_STYLES, Figure
from qwen3nb.report.render.latex import latex_text
from qwen3nb.report.render.table import TABLE_FORMATS
from qwen3nb.utils.choices import one_of
from qwen3nb.utils.markdown import escaped
from qwen3nb.utils.secrets import write_public

__all__ = ["write_figures", "write_paper", "write_tables"]

# Figures of one panel, which are legible in one column; others span the page.
_NARROW = re.compile(r"differences-.|wins-.|ranks|interference|per-query")
_CLASSES = {
    "plain": r"\documentclass[twocolumn]{article}" "\n" r"\usepackage[margin=.75in]{geometry}",
    "acl": r"\documentclass[11pt]{article}"
    "\n"
    r"\IfFileExists{acl.sty}{\usepackage{acl}}"
    r"{\usepackage[a4paper,margin=2.5cm,columnsep=.6cm,twocolumn]{geometry}\usepackage{mathptmx}}",
    "neurips": r"\documentclass{article}"
    "\n"
    r"\IfFileExists{neurips_2025.sty}{\usepackage{neurips_2025}}"
    r"{\usepackage[textwidth=5.5in,textheight=9in]{geometry}\usepackage{mathptmx}}",
}


def write_paper(
    results: Sequence[Result], folder: Path, *, style: str = "plain", choice: Choice = ALL
) -> list[Path]:
    r"""Write figures, tables, their captions, references, and an article that shows them all.

    The folder gets ``figures/*.pdf``, ``tables/*.tex``, ``figures.tex`` and ``tables.tex``
    (environments with captions and labels, for ``\input``), ``references.bib``, and
    ``paper.tex``.

    Raises:
        ValueError: an unknown style, or as for `PaperContents.figures`.
    """
    one_of("paper style", style, PAPER_STYLES)
    spans = PAPER_STYLES[style].widths[0] < PAPER_STYLES[style].widths[1]
    contents = PaperContents(results, choice)
    figures = dict(_named_figures(contents.figures()))
    tables = _write_tables(contents, folder / "tables", format="latex")
    written = [
        figure.save(folder / "figures" / f"{name}.pdf", columns=_columns(figure), paper=style)
        for name, figure in figures.items()
    ]
    parts = {
        "figures.tex": "\n".join(_float(n, f, spans=spans) for n, f in figures.items()),
        "tables.tex": "\n".join(rf"\input{{tables/{file.stem}}}" for file in tables) + "\n",
        "references.bib": _references(),
        "paper.tex": _article(style),
    }
    return [*written, *tables, *(write_public(folder / n, text) for n, text in parts.items())]


def _named_figures(figures: Sequence[tuple[str, Figure]]) -> Iterator[tuple[str, Figure]]:
    """Yield each figure with a free, safe name of its file."""
    taken: set[str] = set()
    for name, figure in figures:
        safe, count = _file_name(name), 2
        free = safe
        while free in taken:
            free, count = f"{safe}-{count}", count + 1
        taken.add(free)
        yield free, figure


def _columns(figure: Figure) -> int:
    return 1 if _NARROW.match(figure.name) else figure.columns


def _float(name: str, figure: Figure, *, spans: bool) -> str:
    r"""Return a ``figure``, or a ``figure*`` where it spans both columns of the page."""
    wide = spans and _columns(figure) == 2
    float_ = "figure*" if wide else "figure"
    width = r"\textwidth" if wide else r"\columnwidth"
    lines = [
        rf"\begin{{{float_}}}",
        r"\centering",
        rf"\includegraphics[width={width}]{{figures/{name}}}",
        rf"\caption{{{latex_text(figure.caption)}}}",
        rf"\label{{fig:{re.sub('[^A-Za-z0-9]+', '-', name)}}}",
        rf"\end{{{float_}}}",
    ]
    return "\n".join(lines) + "\n"


def _references() -> str:
    """Return the book's references; a study without a book has none."""
    file = paths.book() / "references.bib"
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def _article(style: str) -> str:
    """Return an article in a style that shows every figure and table."""
    lines = [
        _CLASSES[style],
        r"\usepackage{booktabs,graphicx,natbib,url}",
        r"\usepackage[T1]{fontenc}",
        r"\setcounter{totalnumber}{20}\setcounter{dbltopnumber}{10}",
        r"\renewcommand{\floatpagefraction}{.6}\renewcommand{\dblfloatpagefraction}{.6}",
        r"\extrafloats{200}",
        r"\title{Results}\author{}\date{\today}",
        r"\begin{document}",
        r"\maketitle\sloppy",
        r"Every figure and table of the results; \texttt{figures.tex} and \texttt{tables.tex} go",
        r"into an article of one's own.\nocite{*}",
        r"\input{tables}",
        r"\clearpage",
        r"\input{figures}",
        r"\clearpage",
        r"\bibliographystyle{plainnat}",
        r"\bibliography{references}",
        r"\end{document}",
    ]
    return "\n".join(lines) + "\n"


def write_figures(
    results: Sequence[Result],
    folder: Path,
    *,
    format: str,
    columns: int = 0,
    choice: Choice = ALL,
) -> list[Path]:
    """Write the figures of a paper and their captions (``captions.md``) into a folder.

    Raises:
        ValueError: as for `PaperContents.figures`, or the format is unknown.
    """
    figures = dict(_named_figures(PaperContents(results, choice).figures()))
    written = [
        figure.save(folder / f"{name}.{format}", format=format, columns=columns)
        for name, figure in figures.items()
    ]
    captions = [
        f"**{escaped(file.name)}**: {escaped(figure.caption)}\n"
        for file, figure in zip(written, figures.values(), strict=True)
    ]
    return [*written, write_public(folder / "captions.md", "\n".join(captions))]


def write_tables(
    results: Sequence[Result], folder: Path, *, format: str, choice: Choice = ALL
) -> list[Path]:
    """Write the tables of a paper into a folder.

    Raises:
        ValueError: as for `PaperContents.tables`, or the format is unknown.
    """
    return _write_tables(PaperContents(results, choice), folder, format=format)


def _write_tables(contents: PaperContents, folder: Path, *, format: str) -> list[Path]:
    return [
        write_public(
            folder / f"{_file_name(table.name)}{TABLE_FORMATS[format]}", table.to_text(format)
        )
        for table in contents.tables()
    ]


def _file_name(name: str) -> str:
    """Return ``name`` with only the characters that are safe in a file name."""
    return re.sub(r"[^A-Za-z0-9.@+]+", "-", name).strip("-.")[:120] or "unnamed"
