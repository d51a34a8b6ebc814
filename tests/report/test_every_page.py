"""Every table, figure and conclusion of records: of none, of one, and of foreign strings."""

import csv
import io
import itertools
import re
import shutil
import subprocess
from xml.etree.ElementTree import fromstring

import pytest
from helpers.html import HOSTILE, Tags
from helpers.records import RETRIEVAL, amend, make, noisy, state

import qwen3nb as q
from qwen3nb.answers import one_model
from qwen3nb.answers.against_baseline import against_baseline
from qwen3nb.answers.all_results import summarise
from qwen3nb.answers.board import costs, expected, ranks
from qwen3nb.answers.board.costs import cost_table
from qwen3nb.answers.board.expected import expected_table, sts_table
from qwen3nb.answers.board.lead import lead_figure
from qwen3nb.answers.board.ranks import rank_table, standings
from qwen3nb.answers.board.record_list import record_list
from qwen3nb.answers.candidates import compare_candidates
from qwen3nb.answers.checks import Checks
from qwen3nb.answers.comparison import compare
from qwen3nb.answers.evaluation import evaluation_conclusion, intervals_table, scores_table
from qwen3nb.answers.findings import Finding, cards, evidence_table
from qwen3nb.answers.landing import headline_lead
from qwen3nb.answers.one_model import (
    PlannedRun,
    model_and_run_table,
    parts_table,
    per_query_figure,
    plan_by_type_table,
    preflight_table,
    provenance_table,
    results_table,
    small_sets_table,
    suite_table,
    sweep_table,
)
from qwen3nb.answers.reproduction import Reproductions
from qwen3nb.evaluation.embeddings.sanity_check import Check, SanityCheck
from qwen3nb.evaluation.mteb.costs import Planned
from qwen3nb.evaluation.mteb.plan import Preflight
from qwen3nb.evaluation.mteb.resources import ResourceCheck
from qwen3nb.evaluation.studies.reproduce import Published, Reproduction
from qwen3nb.report.render.console import print_table
from qwen3nb.report.render.figure import Figure, ForestRow, forest_figure
from qwen3nb.report.render.html import unstyled
from qwen3nb.report.render.table import Cell, Conclusion, Sections, Table, TableChoice

FOREIGN = [*HOSTILE, "=1+1", "a --> b", "$\\frac$", "\x00\x1b[31mred"]
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
OURS = set("div table thead tbody tr th td span p strong a sub sup wbr".split())  # noqa: SIM905
OURS |= {"code", "details", "summary", "script"}
DRAWN = set("figure figcaption div svg g path use text tspan defs".split())  # noqa: SIM905
DRAWN |= {"clippath", "pattern", "rect", "image"}


TABLE = {"div", "p", "table", "thead", "tbody", "tr", "th", "td", "a", "span"}


def foreign():
    """Records in which all that others may name is a hostile string."""
    records = []
    for i, text in enumerate(FOREIGN):
        queries = FOREIGN + [f"q{number}" for number in range(len(noisy(0)) - len(FOREIGN))]
        for label, task in ((text, RETRIEVAL), (text, text), ("m", text)):
            scores = dict(zip(queries, noisy(0.4 + i / 50, seed=len(records)), strict=True))
            used = {"model": {"kind": text}, "pooling": text, "label": label}
            result = make(label, scores, task=task, settings=used)
            amend(result, "task", type=text, dataset=text, unit=text, revision=FOREIGN[0])
            amend(result, "task", categories=dict.fromkeys(queries, text))
            state(result, top={query: [text] for query in queries}, checkpoint=text)
            records.append(result)
    return records


def of_small_set(text):
    """A record of a small set with strange names, which lacks queries."""
    counts = dict.fromkeys(
        ["relevant", "candidates", "judged_zeros", "hard_negatives", "others"], 1
    )
    sizes = {"limits": [50, 5000], "queries": [1, 2], "documents": [5, 6]}
    result = make("m")
    amend(result, "task", name=text)
    facts = {"part": text, "rule": 1, "seed": 0, "source": text, "sha256": text, **counts, **sizes}
    amend(result, "data", nano=[facts])
    return result


def pages(results, text):
    """Every table and conclusion, by the name of the function that makes it."""
    many = results or [make("m")]
    own = [each for each in many if each.model.identity == many[0].model.identity]
    check = ResourceCheck(text, text, text, text)
    planned = (Planned(text, text, text, text, texts=None, minutes=None, status=text),)
    ready = Preflight(checks=(check,), planned=planned)
    checks = SanityCheck(text, "0" * 64, (Check(text, "FAILED", text, text, n=text, remark=text),))
    done = [Reproduction(Published(text, text, 0.5, 0.1, text), None, v) for v in (0.4, None)]
    links, tested = {each.run: f"{text}.html" for each in results}, compare(results, draws=100)
    comparison = compare(results, tasks=[RETRIEVAL, text], draws=100)
    scores = against_baseline(own, results)
    made = {
        "results_table": results_table(own),
        "results_table of many": results_table(own * 13),
        "parts_table": parts_table(own),
        "small_sets_table": small_sets_table([of_small_set(text)]),
        "provenance_table": provenance_table(own),
        "model_and_run_table": model_and_run_table(own),
        "suite_table": suite_table(summarise(own, requested=[text], reasons={text: text})),
        "checks_table": Checks(checks).table(),
        "preflight_table": preflight_table(ready),
        "sweep_table": sweep_table([PlannedRun(text, None, text), PlannedRun("m", None, text)]),
        "checks_conclusion": Checks(checks).conclusion,
        "plan_by_type_table": plan_by_type_table(planned),
        "leaderboard": q.leaderboard(results, comparison=tested, links=links).table(),
        "leaderboard of tasks": q.leaderboard(results, tasks=[text], comparison=tested).table(
            name=text
        ),
        "record_list": record_list(results),
        "task_tables": q.leaderboard(results, tier="full", links=links).task_tables(),
        "rank_table": rank_table(standings(results, tier="smoke")),
        "headline_table": q.leaderboard(results, tier="smoke", links=links).headline_table(),
        "cost_table": cost_table(results),
        "expected_table": expected_table(results),
        "sts_table": sts_table(results),
        "reproduction_table": Reproductions(tuple(done)).table(),
        "reproduction": Reproductions(tuple(done)).conclusion,
        "differences_table": comparison.differences_table(),
        "baseline_tables": comparison.baseline_tables(task=RETRIEVAL),
        "power_table": comparison.power_table(),
        "compared_tables": comparison.table(),
        "scores_table": scores_table(scores, results=own),
        "intervals_table": intervals_table(scores),
        "evaluation": evaluation_conclusion(scores),
        "comparison": comparison.conclusion,
        "first place": q.leaderboard(results, comparison=tested).conclusion,
    }
    if len(results) > 1:
        candidates = {"current": text, "task": RETRIEVAL, "tested": ["nDCG@10"]}
        report = compare_candidates(results, **candidates, n_resamples=100)
        made |= report.tables()
        assert not re.search(r"(?<!\\)\[x\]\(|<script", report.to_markdown())
    return made


RECORDS = {"none": [], "one": [make("m")], "foreign": foreign()}


@pytest.mark.integration
@pytest.mark.parametrize("name", RECORDS)
def test_every_table_can_be_written_in_every_format(name, capsys):
    results, text = RECORDS[name], FOREIGN[0] if name == "foreign" else "x"
    made = pages(results, text)
    for each in filter(None, made.values()):
        page = set(Tags(unstyled(each._repr_html_())).tags)
        assert page <= ({"p", "a", "code", "strong"} if isinstance(each, Conclusion) else OURS)
        if not isinstance(each, Conclusion):
            parts = [table for _, table in each.tables] if isinstance(each, Sections) else [each]
            parts = [*each.variants.values()] if isinstance(each, TableChoice) else parts
            for part in parts:
                check(part, capsys)
    written = {name for module in (costs, expected, ranks, one_model) for name in tables_of(module)}
    assert written <= made.keys(), "a table that this test does not write"


@pytest.mark.integration
@pytest.mark.parametrize("name", RECORDS)
def test_the_first_table_of_the_leaderboard_holds_no_foreign_markup(name):
    board = q.leaderboard(RECORDS[name], links={"run-m": 'x".html'})
    page = unstyled(board.overview()._repr_html_())
    assert {*Tags(page).tags} <= OURS
    foreign_tags = set(Tags(unstyled(board.conclusion._repr_html_())).tags)
    assert foreign_tags <= {"p", "a", "code", "strong"}


def tables_of(module):
    """The names of the tables that a module makes."""
    return [name for name in vars(module) if re.fullmatch(r"[a-z]\w+_table", name)]


@pytest.mark.parametrize(
    "text", [*dict.fromkeys([*FOREIGN, *INJECTIONS]), "@SUM(1)", "+x", "-x", "\t=1"]
)
def test_cells_notes_and_captions_are_text(text, capsys):
    check(hostile_table(text), capsys)


def check(table, capsys):
    """Nothing foreign is markup, a formula, a command or a control character in any format."""
    page = Tags(unstyled(table._repr_html_()))  # with links that save the table
    assert set(page.tags) <= OURS
    assert not any(link.startswith(("javascript:", "//")) for link in page.links)
    markdown = table.to_markdown()
    assert not re.search(r"<script|<img|(?<!\\)\[x\]\(|(?<!\\)`", markdown)
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) <= 1
    latex = table.to_latex()
    assert is_balanced(latex)
    assert set(re.findall(r"\\([A-Za-z]+)", latex)) <= LATEX
    header, *rows = csv.reader(io.StringIO(table.to_csv()))
    assert all(len(row) == len(header) for row in rows)
    number = re.compile(r"[+-][\d.,]+")
    cells = [cell for row in (header, *rows) for cell in row]
    assert not any(each[0] in "=+-@\t" and not number.match(each) for each in filter(None, cells))
    print_table(table)
    assert not {"\x1b", "\x00"} & set(capsys.readouterr().out)
    assert table.to_frame().shape[0] == len(table)


def figures(results, text):
    comparison = compare(results, tasks=[RETRIEVAL, text], draws=100)
    rows = [ForestRow(text, 1.0, note=text), ForestRow(text, None, note=text)]
    return [
        q.leaderboard(results, tier="smoke").figure(),
        q.leaderboard(results, tier="smoke", tasks=[RETRIEVAL, text]).figure(),
        per_query_figure(results),
        comparison.figure(),
        comparison.differences_figure(),
        comparison.pairs_figure(),
        lead_figure(comparison, task=RETRIEVAL),
        forest_figure(rows, xlabel=text, caption=text, alt=text),
    ]


@pytest.mark.integration
@pytest.mark.parametrize("name", [*RECORDS][:2])
def test_every_figure_is_drawn(name):
    check_figures(figures(RECORDS[name], "x"))


@pytest.mark.integration
def test_no_foreign_name_is_markup_in_a_figure():
    shown = [r for r in RECORDS["foreign"] if r.task.key in (RETRIEVAL, FOREIGN[0])]
    assert {each.model.label for each in shown} == {*FOREIGN, "m"}
    check_figures(figures(shown, FOREIGN[0]))


def check_figures(drawn):
    for figure in (each for each in drawn if isinstance(each, Figure)):
        page = unstyled(figure._repr_html_())
        assert set(Tags(page).tags) <= DRAWN
        fromstring(page[page.index("<svg") : page.index("</svg>") + 6])  # noqa: S314 - our own
        assert figure.caption
        assert "aria-label" in page


@pytest.mark.parametrize("text", HOSTILE)
def test_the_landing_page_is_escaped(text):
    finding = Finding(text, text, text, text, text, page=f"runs/{text}")
    page = Tags(cards([finding]))
    assert set(page.tags) == {"div", "p", "a"}
    assert page.links == [f"runs/{text}"]
    table = unstyled(evidence_table([finding]).to_html())
    assert set(Tags(table).tags) <= TABLE
    lead = headline_lead(compare([make(text), make("m", (0.1, 0.2, 0.3))]), task=RETRIEVAL)
    assert set(Tags(unstyled(lead)).tags) <= DRAWN | {"p", "a", "code", "strong"}


def hostile_table(text):
    cell = Cell(text, text, std=text, mark=text, id=text, link="x.html", strong=True)
    rows = ((cell, Cell(text)), (Cell(text, second=True), cell))
    return Table((text, f"a\n{text}"), rows, text, name=text, caption=text, legend=((text, text),))


# The commands that a table may hold.
LATEX = set(
    """
    begin end centering small footnotesize scriptsize setlength tabcolsep caption label par medskip
    toprule midrule bottomrule textbf underline textsubscript textsuperscript texttt resizebox ifdim
    width linewidth else fi textbackslash textasciicircum textasciitilde textless textgreater
    textbar textasciigrave textbullet dag ddag ldots pm times cdot leq geq approx rightarrow Delta
    mu circ
    """.split()  # noqa: SIM905 - a list of words reads better as lines
)


def is_balanced(latex):
    """Whether braces and environments are balanced, and no special character is bare."""
    ends = [re.findall(rf"\\{word}\{{(\w+\*?)\}}", latex) for word in ("begin", "end")]
    text = re.sub(r"\\.|\$[^$]*\$", "", latex, flags=re.DOTALL)
    depths = list(itertools.accumulate((c == "{") - (c == "}") for c in text))
    nested = sorted(ends[0]) == sorted(ends[1]) and depths[-1] == 0 <= min(depths)
    return nested and not set("%#~^") & {*text}


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex (texlive-latex-base)")
def test_latex_compiles_whatever_the_names(tmp_path):
    results = [make(label) for label in ("a_b", "c%d", "m")]
    tables = [*map(hostile_table, INJECTIONS), q.leaderboard(results, tier="smoke").table()]
    body = "\n\\clearpage\n".join(table.to_latex() for table in tables)
    head = "\\documentclass[a4paper]{article}\n\\usepackage{booktabs,graphicx}\n"
    text = f"{head}\\begin{{document}}\n{body}\n\\end{{document}}\n"
    (tmp_path / "t.tex").write_text(text, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape"]
    done = subprocess.run([*command, "t.tex"], cwd=tmp_path, capture_output=True, check=False)
    log = done.stdout.decode(errors="replace")
    assert done.returncode == 0, log[-2000:]
    assert "LaTeX Warning: Reference" not in log
