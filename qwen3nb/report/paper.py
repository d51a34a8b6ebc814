r"""All figures and tables of the results, as files of a LaTeX article.

The folder of a paper compiles as it is (``pdflatex paper && bibtex paper && pdflatex paper``); use
``\input{figures}`` and ``\input{tables}`` in your own article.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from qwen3nb import paths
from qwen3nb.analysis.comparison.alignment import model_names, newest_records
from qwen3nb.answers.board.costs import cost_table
from qwen3nb.answers.comparison import Comparison, compare
from qwen3nb.answers.interference import Interference, configurations_figure, interference
from qwen3nb.answers.leaderboard import leaderboard
from qwen3nb.answers.one_model import per_query_figure
from qwen3nb.answers.reranking import METRIC, reranking
from qwen3nb.answers.trainings import trainings
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.records.results import richest_tier
from qwen3nb.records.store import latest
from qwen3nb.report.render.figure import PAPER_STYLES, Figure
from qwen3nb.report.render.latex import latex_label, latex_text
from qwen3nb.report.render.table import MANY, TABLE_FORMATS, Table, transposed
from qwen3nb.tiers import TIERS
from qwen3nb.utils.choices import check_choice
from qwen3nb.utils.secrets import write_public

_TEXT_HEIGHT = 650  # points of the lowest page among the styles
_LINE = 12  # points from one line of a caption to the next
_LETTERS = 15  # of a caption on an inch, at most
_HIGHEST = 0.85  # of the page, of a figure without its caption
_MOST_ROWS = 24  # of two lines, on a page with heads, caption and notes
# A figure with one panel, legible in one column; others span the page.
_NARROW = re.compile(r"interference")
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
_ARTICLE = r"""
\usepackage{booktabs,graphicx,natbib,url}
\usepackage[T1]{fontenc}
\setcounter{totalnumber}{20}\setcounter{dbltopnumber}{10}
\renewcommand{\floatpagefraction}{.6}\renewcommand{\dblfloatpagefraction}{.6}
\extrafloats{200}
\title{Results}\author{}\date{\today}
\begin{document}
\maketitle\sloppy
\input{data}
Every figure and table of the results; \texttt{figures.tex} and \texttt{tables.tex} go
into an article of one's own.\nocite{*}
\input{tables}
\clearpage
\input{figures}
\clearpage
\bibliographystyle{plainnat}
\bibliography{references}
\end{document}
"""


@dataclass(frozen=True, repr=False)
class PaperContents:
    """All figures and tables of the selected records, trainings and adapters.

    Trainings and adapters are shown from all records and the logs below `paths.runs`. Results that
    need a model (spectra, indexes, ablations) are only on their pages. All figures and tables share
    one comparison.
    """

    results: Sequence[Result]  # any records
    tier: str = ""  # by default the largest with results; without any, only trainings are shown
    models: Sequence[str] = ()  # names of the models to show; by default all
    tasks: Sequence[str] = ()  # keys of the tasks to show in place of the tier's
    seed: int = 0  # of the draws

    @cached_property
    def _tier(self) -> str:
        return self.tier or richest_tier(self.results)

    @property
    def _is_part(self) -> bool:
        """Whether models or tasks are selected; trainings and adapters are then left out."""
        return bool(self.models or self.tasks)

    @cached_property
    def _records(self) -> list[Result]:
        """The newest selected records, without adapters, which have their own tables."""
        results = self.results
        if not self.models:  # adapters have tables of their own
            results = [result for result in results if result.training is None]
        records = latest(results)
        names = model_names(records)
        for name in self.models:
            check_choice("model with results", name, sorted(names.values()))
        if self.models:
            records = [record for record in records if names[record.model.identity] in self.models]
        tasks_with_results = sorted({record.task.key for record in records})
        for task in self.tasks:
            check_choice("task with results", task, tasks_with_results)
        tasks = self.tasks or TIERS[self._tier].task_keys
        return [record for record in records if record.task.key in tasks]

    @cached_property
    def _comparison(self) -> Comparison:
        return compare(self._records, tier=self._tier, tasks=self.tasks, seed=self.seed)

    @cached_property
    def _interference(self) -> Interference:
        return interference(self.results, seed=self.seed)

    def data_used(self) -> DataUsed:
        """The data of the scores that the paper shows."""
        data = DataUsed.of(self._records)
        if self._is_part:
            return data
        return data | self._interference.data

    def figures(self) -> list[Figure]:
        """Return every figure; names of figures of one model contain the model's.

        Raises:
            ValueError: no records on the tier, or of a model or task; lists the available ones.
        """
        figures_of_trainings = self._figures_of_trainings()
        self._check_not_empty(figures_of_trainings)
        if not self._records:
            return figures_of_trainings
        board = leaderboard(self._records, tier=self._tier, tasks=self.tasks)
        figures_of_models = [
            board.figure(),
            self._comparison.differences_figure(),
            self._comparison.pairs_figure(),
        ]
        figures = [figure for figure in figures_of_models if figure is not None]
        return figures + figures_of_trainings + self._figures_by_query()

    def _figures_by_query(self) -> list[Figure]:
        """Return a figure of each model's scores by query; none of many models."""
        names = model_names(self._records)
        if len(names) > MANY and not self.models:
            return []
        figures = []
        for identity, name in names.items():
            of_model = [record for record in self._records if record.model.identity == identity]
            newest_of_model, _ = newest_records(of_model)
            figure = per_query_figure(newest_of_model, metric=METRIC)
            if figure is not None:
                figures.append(replace(figure, name=f"{figure.name}-{name}"))
        return figures

    def _figures_of_trainings(self) -> list[Figure]:
        """Return the figures of trainings, adapters and rerankers; none of a selection."""
        if self._is_part:
            return []
        all_trainings = trainings([])  # without records, only what the logs have
        figures = [
            all_trainings.figure(),
            all_trainings.conflicts(),
            self._interference.figure(),
            configurations_figure(self._interference.scores),
        ]
        rerankings = reranking(self.results)
        if rerankings.results:
            figures.append(rerankings.figure())
        return [figure for figure in figures if figure is not None]

    def tables(self) -> list[Table]:
        """Return every table, each with name and caption.

        Raises:
            ValueError: as for `figures`.
        """
        tables_of_adapters = self._tables_of_adapters()
        self._check_not_empty(tables_of_adapters)
        if not self._records:
            return tables_of_adapters
        comparison = self._comparison
        scores = leaderboard(
            self._records, tier=self._tier, tasks=self.tasks, comparison=comparison
        ).table()
        cost = replace(cost_table(self._records), name="cost", caption="Cost of the results.")
        if TIERS[self._tier].benchmarks and not self.tasks:
            means = transposed(scores, first="mean")
            return [means, cost, *self._tables_of_benchmarks(), *tables_of_adapters]
        tasks = dict.fromkeys(task.task for task in comparison.tasks if task.with_baseline)
        differences = [comparison.differences_table(task=task) for task in tasks]
        return [scores, cost, *differences, *tables_of_adapters]

    def _tables_of_adapters(self) -> list[Table]:
        """Return the tables of adapters that have rows; none of a selection."""
        if self._is_part:
            return []
        joint = self._interference
        tables = (joint.configurations(), joint.differences_table(), joint.table())
        return [table for table in tables if table.rows]

    def _check_not_empty(self, without_records: Sequence[object]) -> None:
        """Raise ValueError if there are no records, nor anything that is shown without them."""
        if self._records:
            return
        if self._is_part or self.tier or not without_records:
            raise ValueError(
                f"no results on the tier {self._tier!r}; run `qwen3nb eval --tier {self._tier}` "
                "first"
            )

    def _tables_of_benchmarks(self) -> Iterator[Table]:
        """Yield the tables of all tasks by benchmark and type, and the differences by type."""
        comparison = self._comparison
        sections = leaderboard(self._records, tier=self._tier).task_tables(published=False)
        if sections is None:
            return
        for name, table in sections.tables:
            # Means of many types fit a page as rows, not as columns.
            if table.name == "types":
                table = transposed(table, first="type of task")
            yield replace(table, caption=f"{name}.")
        for kind, tasks in comparison.by_type().items():
            keys = [task.task for task in tasks if task.with_baseline]
            if keys:
                table = comparison.differences_table(task=keys)
                # The caption goes on after the name of the type, in lower case.
                first_letter, other_letters = table.caption[:1], table.caption[1:]
                caption = f"{kind}: {first_letter.lower()}{other_letters}"
                yield replace(table, name=f"differences-{kind}", caption=caption)


def write_paper(contents: PaperContents, folder: Path, *, style: str = "plain") -> list[Path]:
    r"""Write figures, tables, their captions, references, and an article that shows them all.

    The folder gets ``figures/*.pdf``, ``tables/*.tex``, ``figures.tex`` and ``tables.tex``
    (environments with captions and labels, for ``\input``), ``data.tex`` (a sentence on scores
    that are on substitutes for MTEB's data, or on generated queries), ``references.bib``, and
    ``paper.tex``.

    Raises:
        ValueError: an unknown style, or as for `PaperContents.figures`.
    """
    # The third entry is the font of figures.
    column_width, page_width, _ = PAPER_STYLES[check_choice("paper style", style, PAPER_STYLES)]
    figures = {_file_name(figure.name): figure for figure in contents.figures()}
    table_files = write_tables(contents, folder / "tables", format="latex")
    figure_files = []
    floats = []
    for name, figure in figures.items():
        file = folder / "figures" / f"{name}.pdf"
        pages = figure.save_pages(file, columns=_columns(figure), paper=style)
        figure_files += pages
        for index, page in enumerate(pages):
            latex_float = _Float(page.stem, figure, is_continued=index > 0)
            floats.append(latex_float.latex(column_width=column_width, page_width=page_width))
    inputs = [rf"\input{{tables/{file.stem}}}" for file in table_files]
    texts = {
        "data.tex": _banner(contents.data_used()),
        "figures.tex": "\n".join(floats),
        "tables.tex": "\n".join(inputs) + "\n",
        "references.bib": _references(),
        "paper.tex": _CLASSES[style] + _ARTICLE,
    }
    text_files = [write_public(folder / name, text) for name, text in texts.items()]
    return [*figure_files, *table_files, *text_files]


def _banner(data: DataUsed) -> str:
    texts = [warning.text for warning in data.warnings]
    return "".join(rf"\textbf{{{latex_text(text)}}}\par" "\n" for text in texts)


def _references() -> str:
    """Return the book's references; empty in a study without a book."""
    file = paths.book() / "references.bib"
    if not file.is_file():
        return ""
    return file.read_text(encoding="utf-8")


def _columns(figure: Figure) -> int:
    if _NARROW.match(figure.name):
        return 1
    return figure.columns


@dataclass(frozen=True)
class _Float:
    """A figure of an article, or a page of a figure that is divided."""

    file: str  # name of its file, without the ending
    figure: Figure
    is_continued: bool  # whether it is a later page, with the number of the first

    def latex(self, *, column_width: float, page_width: float) -> str:
        r"""Return a ``figure``, or a ``figure*`` where it spans both columns of the page.

        Widths are in inches.
        """
        environment, width, width_in_inches = "figure", r"\columnwidth", column_width
        if column_width < page_width and _columns(self.figure) == 2:
            environment, width, width_in_inches = "figure*", r"\textwidth", page_width
        height = _height_without_caption(self.figure.legend, width_in_inches)
        size = rf"width={width},height={height:.2f}\textheight,keepaspectratio"
        caption = rf"\caption{{{latex_text(self.figure.legend)}}}"
        if self.is_continued:
            # A further page has the number of the first.
            caption = r"\addtocounter{figure}{-1}\caption{(continued)}"
        lines = [
            rf"\begin{{{environment}}}",
            r"\centering",
            rf"\includegraphics[{size}]{{figures/{self.file}}}",
            caption,
            latex_label("fig", self.file),
            rf"\end{{{environment}}}",
        ]
        return "\n".join(lines) + "\n"


def _height_without_caption(caption: str, width: float) -> float:
    """Return the share of a page's height that a caption of this width in inches leaves."""
    lines = math.ceil(len(caption) / (_LETTERS * width)) + 2
    return min(_HIGHEST, 1 - lines * _LINE / _TEXT_HEIGHT)


def _parts(table: Table) -> list[Table]:
    """Return a table, or its parts if it is higher than a page; the last one has the note."""
    part_count = math.ceil(len(table.rows) / _MOST_ROWS)
    if part_count < 2:
        return [table]
    rows_per_part = math.ceil(len(table.rows) / part_count)
    parts = []
    for index in range(part_count):
        start = index * rows_per_part
        part = replace(table, rows=table.rows[start : start + rows_per_part])
        if index > 0:
            name = f"{table.name}-{index + 1}"
            part = replace(part, name=name, caption=f"{table.caption} (continued)")
        if index < part_count - 1:
            part = replace(part, note="")
        parts.append(part)
    return parts


def write_tables(contents: PaperContents, folder: Path, *, format: str) -> list[Path]:
    """Write the tables of a paper into a folder.

    Raises:
        ValueError: as for `PaperContents.tables`, or the format is unknown.
    """
    ending = TABLE_FORMATS[format]
    files = []
    for table in contents.tables():
        parts = _parts(table) if format == "latex" else [table]
        for part in parts:
            file = folder / f"{_file_name(part.name)}{ending}"
            files.append(write_public(file, part.to_text(format)))
    return files


def _file_name(name: str) -> str:
    """Return ``name`` with only the characters that are safe in a file name."""
    return re.sub(r"[^A-Za-z0-9.@+]+", "-", name).strip("-.")[:120] or "unnamed"
