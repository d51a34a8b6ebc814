"""Do all pages of a book say the same about one pair, one score, one model?

    python -m benchmarks.agreement STUDY

Reads the executed pages of a study (``book/runs`` and, if the book is built, ``_build/html``) and
compares what stands in them more than once, also with the records:

- the difference of a pair of models on a task, its interval and its uncorrected p-value;
- the number of pairs over which a p-value is corrected, and the corrected p-value;
- on the landing page, rounded scores, and which models are not told apart;
- the score of a model on a task, and its interval, also with two decimals;
- which pairs the leaderboard tells apart, and which models its first sentence names;
- bold differences: exactly those whose interval excludes 0 and whose corrected p is below 0.05;
- which of two models is better on a task, or that no difference is shown;
- what indexes, ablations, adapters and prompts show: bold effects; the scores of exact search and
  of a model's own prompts, which are the model's; the effects in a conclusion, which tables have;
- a model that a page advises to run, which has run on one of the page's tasks;

Numbers are compared as they are shown. The exit status is 1 if anything disagrees.
"""

from __future__ import annotations

import html
import itertools
import json
import os
import re
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import chain, combinations
from pathlib import Path

from qwen3nb.report.render.table import short_task
from qwen3nb.utils.format import SMALLEST_P, interval_text, number_text, p_value_text

_ALPHA = 0.05
_END = r"(?:[+-]?[\d.]+|[<>]0)"
_INTERVAL = re.compile(rf"\[({_END}), ({_END})\]")
_EFFECT = re.compile(rf"([+-][\d.]+) (\[{_END}, {_END}\]|\(identical scores on all [\d,]+\))")
# An effect in a sentence, without its interval.
_SIGNED = re.compile(r"(?<![\d\w.])[+-]\d\.\d{3}\b")
_OF_ALT = re.compile(
    r"(?P<first>[^;:]+) on (?P<task>[^;:]+): (?P<effect>[+-][\d.]+) (?P<ends>\[[^\]]+\]|\([^)]*\)),"
    r" p (?P<p>[<=] [\d.]+)(?:, corrected over (?P<family>\d+): (?P<corrected>[<=] [\d.]+))?, n = "
)
_AGAINST = re.compile(
    r"^(?P<first>\S.*?) scores (?P<metric>\S.*?) (?P<score>[\d.]+) on (?P<task>[^,]+), "
    r"(?P<words>better than|worse than|as good as) (?P<second>.+?) with (?P<other>\d[\d.]*\d)"
)
_TWO_MODELS = re.compile(
    r"^(?:(?P<first>\S+) is better than (?P<second>.+?)(?:, by less than [\d.]+,)?"
    r"|No difference between (?P<one>\S+) and (?P<other>.+?) is shown) on "
    r"(?:(?:all|any of) \d+ tasks; on )?(?P<task>[^:,]+?)"
    r"(?:: |, )(?P<metric>\S.*?) (?:is )?(?P<score>\d[\d.]*\d) against (?P<less>\d[\d.]*\d)\. The "
    rf"difference is (?P<effect>[+-][\d.]+); .* between (?P<low>{_END}) and (?P<high>{_END})\."
)
_BETTER, _WORSE, _AS_GOOD = "the first is better", "the second is better", "no difference shown"
_VERDICTS = {
    "better": _BETTER,
    "better than": _BETTER,
    "worse": _WORSE,
    "worse than": _WORSE,
    "as good as": _AS_GOOD,
    "no difference shown": _AS_GOOD,
    "identical scores": _AS_GOOD,
}
# The figure of the landing page: ``Scores on T by nDCG@10: a 0.68 [0.63, 0.73]; b 0.66.``
_OF_SCORES = re.compile(
    r"Scores on (?P<task>.+?) by (?P<metric>.+?): (?P<scores>.+?)\."
    r"(?: No difference shown between: (?P<joined>.+)\.)?"
)
_ROUNDED = re.compile(r"(?P<model>\S.*?)(?: \(toy\))? (?P<score>-?\d\.\d\d)(?: \[[^\]]+\])?")
# The title of a score on the leaderboard, and its first sentence.
_OF_TITLE = re.compile(
    rf"(?P<metric>.+?) (?P<score>-?[\d.]+) (?P<ends>\[{_END}, {_END}\]|–), [\d,]+ "
)
_FIRST = re.compile(
    r"\w+ models share first place: (?P<names>[^:]+?)\.(?: Not compared.*)?$"
    r"|(?P<one>.+?) is first\."
)
# Tables of studies, whose conclusions name effects that the tables have.
_OF_STUDY = re.compile(r"tab-(ann|compression|interference|rerank|prompts-\w+|.*-tested)$")
_OF_INDEXES = re.compile(
    r"(?:.*\. )?(\S+) on (\S+): [\d,]+ documents, [\d,]+ queries, \d+ dimensions"
)
_ADVICE = re.compile(r"run qwen3nb eval --model (\S+) on the same tasks")


@dataclass
class Cell:
    """One cell of a table: its text, the smaller text below it, and whether it is bold."""

    text: str = ""
    detail: str = ""
    strong: bool = False
    title: str = ""  # what a pointer shows
    spoken: str = ""  # what only readers who listen to the page get


@dataclass
class PageTable:
    """A table of a page."""

    name: str
    caption: str = ""
    note: str = ""
    ranked_on: str = ""  # the task that decides the order of a leaderboard
    rows: list[list[Cell]] = field(default_factory=list)  # the first one is the header

    @property
    def heads(self) -> list[Cell]:
        """The cells of the header."""
        return self.rows[0] if self.rows else []

    def column(self, start: str) -> int | None:
        """Return the position of the column whose head starts so, or None."""
        for index, head in enumerate(self.heads):
            if f"{head.text} {head.detail}".startswith(start):
                return index
        return None


@dataclass(frozen=True)
class Statement:
    """Something that a page says, which may stand elsewhere, too."""

    about: tuple[str, ...]  # what it is about; equal for statements that must agree
    says: str
    where: str  # page and table

    def __str__(self) -> str:
        return f"{self.says}  ({self.where})"


class _Reader(HTMLParser):
    """Collects the tables, conclusions and descriptions of figures of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[PageTable] = []
        self.sentences: list[str] = []
        self.descriptions: list[str] = []
        self._open = False  # whether the last of these tables goes on
        self._cell: Cell | None = None
        self._detail = 0  # depth of tags within the smaller text
        self._spoken = False  # whether within words for those who listen
        self._text: list[str] | None = None  # of a caption or a conclusion
        self._of = ""
        self._added = ""  # the tag of what the book adds to it: its number, or a link

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        kind = values.get("class", "")
        if tag == "div" and kind == "q-table":
            self.tables.append(PageTable(values.get("id", "")))
            self._open = True
        if tag == "svg" and "aria-label" in values:
            self.descriptions.append(plain(values["aria-label"]))
        if tag == "p" and kind in ("q-caption", "q-conclusion", "q-note"):
            self._text, self._of = [], kind
        elif self._text is not None and (tag == "a" or kind == "q-number"):
            self._added = tag
        elif tag == "tr" and self._open:
            self.tables[-1].rows.append([])
        elif tag == "table" and "data-task" in values and self._open:
            self.tables[-1].ranked_on = values["data-task"]
        elif tag in ("td", "th") and self._open and self.tables[-1].rows:
            self._cell = Cell(title=plain(values.get("title", "")))
            self.tables[-1].rows[-1].append(self._cell)
        elif self._cell is not None and kind == "q-spoken":
            self._spoken = True
        elif tag == "a" and self._cell is not None and "title" in values:
            self._cell.title = plain(values["title"])
        elif tag == "span" and self._cell is not None:
            if "title" in values:
                self._cell.title = plain(values["title"])
            self._detail += kind == "q-detail" or self._detail > 0
        elif tag == "strong" and self._cell is not None:
            self._cell.strong = True

    def handle_endtag(self, tag: str) -> None:
        if tag == self._added:
            self._added = ""
        if tag == "table":
            self._open = False
        if tag in ("td", "th"):
            self._cell, self._detail = None, 0
        elif tag == "span" and self._spoken:
            self._spoken = False
        elif tag == "span" and self._detail:
            self._detail -= 1
        elif tag == "p" and self._text is not None:
            text = " ".join(plain("".join(self._text)).split())
            if self._of == "q-caption" and self.tables:
                self.tables[-1].caption = text
            elif self._of == "q-note" and self.tables:
                self.tables[-1].note = f"{self.tables[-1].note} {text}".strip()
            elif self._of == "q-conclusion":
                self.sentences.append(text)
            self._text = None

    def handle_data(self, data: str) -> None:
        if self._text is not None:
            if not self._added:
                self._text.append(data)
        elif self._cell is not None and self._spoken:
            self._cell.spoken += plain(data)
        elif self._cell is not None and self._detail:
            self._cell.detail += plain(data)
        elif self._cell is not None:
            self._cell.text += plain(data)


def plain(text: str) -> str:
    """Return text as it was before typesetting: signs of ASCII, and a zero before the point.

    >>> plain("−0.147 [−0.205, &lt;0], 95\\xa0%")
    '-0.147 [-0.205, <0], 95 %'
    """
    text = html.unescape(text).replace("−", "-").replace("\u00a0", " ")
    return re.sub(r"(?<![\d\w])\.(?=\d)", "0.", text)


def read_pages(study: Path) -> dict[str, _Reader]:
    """Return the contents of each page by name: from the built book, else from the notebooks."""
    pages: dict[str, _Reader] = {}
    for file in sorted((study / "_build" / "html").rglob("*.html")):
        if "records" not in file.parts and "_static" not in file.parts:
            name = str(file.relative_to(study / "_build" / "html"))
            pages[name.removesuffix(".html")] = _read([file.read_text(encoding="utf-8")])
    for file in sorted((study / "book" / "runs").glob("*.ipynb")):
        if f"runs/{file.stem}" not in pages:
            notebook = json.loads(file.read_text(encoding="utf-8"))
            outputs = [o for cell in notebook["cells"] for o in cell.get("outputs", ())]
            texts = ("".join(o.get("data", {}).get("text/html", "")) for o in outputs)
            pages[f"runs/{file.stem}"] = _read(texts)
    return pages


def _read(texts: Iterable[str]) -> _Reader:
    reader = _Reader()
    for text in texts:
        reader.feed(text)
    return reader


def _pair(first: str, second: str, effect: str, ends: str) -> tuple[tuple[str, str], str]:
    """Return a pair in the order of its names, and its difference with interval in that order."""
    first, second = _model(first), _model(second)
    effect = f"{float(effect):+.3f}"
    if first > second:
        first, second = second, first
        effect = f"{-float(effect) + 0.0:+.3f}"
        match = _INTERVAL.fullmatch(ends)
        if match:
            ends = f"[{_negated(match[2])}, {_negated(match[1])}]"
    return (first, second), f"{effect} {_ends(ends)}"


def _negated(end: str) -> str:
    if end in ("<0", ">0"):
        return ">0" if end == "<0" else "<0"
    return f"{-float(end) + 0.0:+.3f}"


def _ends(text: str) -> str:
    """Return the ends of an interval with signs and three decimals; other text unchanged."""
    match = _INTERVAL.fullmatch(text)
    if match is None:
        return "identical" if "identical" in text else text
    ends = (end if end in ("<0", ">0") else f"{float(end):+.3f}" for end in match.groups())
    return f"[{', '.join(ends)}]"


def _model(name: str) -> str:
    return name.removesuffix(" (the floor)").strip()


def _p(text: str) -> str:
    """Return a p-value as shown, without its relation: ``<0.001`` or ``0.0123``."""
    value = text.replace(" ", "").removeprefix("=")
    return value.removeprefix("raw")


def statements(name: str, page: _Reader) -> Iterator[Statement]:
    """Yield what a page says about pairs and scores."""
    model = _subject(page)
    for table in page.tables:
        where = f"{name}, {table.name}"
        if table.caption.startswith("Scores of ") and table.column("task") == 0:
            yield from _of_model(table, where)
        elif table.caption.startswith("Paired differences from "):
            yield from _of_differences(table, where)
        elif table.caption.startswith("Scores of the models, next to "):
            yield from _of_compared(table, where)
        elif table.caption.startswith("Scores of all models"):
            yield from _of_board(table, where)
        elif table.ranked_on:
            yield from _of_overview(table, page, where)
        elif table.name == "tab-rerank":
            yield from _of_reranking(table, model, where)
        elif table.name.endswith("-tested") or table.name == "tab-configuration-differences":
            yield from _of_bold(table, where)
        elif table.name == "tab-prompts-place":
            yield from _of_prompts(table, where)
        elif table.name == "tab-prompts-pairs":
            yield from _of_prompt_pairs(table, where)
        elif table.name == "tab-compression":
            yield from _of_exact_search(table, page, where)
    for text in page.descriptions:
        yield from _of_description(text, f"{name}, figure")
    for text in page.sentences:
        yield from _of_score_in_words(text, f"{name}, conclusion")
        yield from _of_two_models(text, f"{name}, conclusion")
    if any(map(_OF_STUDY.match, (table.name for table in page.tables))):
        yield from _of_effects(page, name)


def _subject(page: _Reader) -> str:
    for sentence in page.sentences:
        if match := re.match(r"Reranking with (.+?) helps on", sentence):
            return match[1]
    return ""


def _of_model(table: PageTable, where: str) -> Iterator[Statement]:
    """Scores of one model: a row per task, with its difference from a baseline."""
    model = re.sub(r":[^:]*$", "", table.caption.removeprefix("Scores of ").rstrip("."))
    model = model.removesuffix(", with 95 % intervals")
    if model == "every task, each with its 95 % interval":
        return
    task, metric, score = (table.column(each) for each in ("task", "metric", "score"))
    change, baseline, p = (table.column(each) for each in ("Δ", "baseline", "p"))
    has_verdicts = baseline is not None and change is None
    if task is None or metric is None or score is None:
        return
    for row in table.rows[1:]:
        of = (row[task].text, row[metric].text)
        if not has_verdicts:
            yield from _scored(model, *of, row[score], where)
        elif baseline is not None:
            other = row[baseline]
            yield from _scored(model, *of, Cell(row[score].text), where)
            yield from _scored(other.detail, *of, Cell(other.text), where)
            if _is_score(other.text):
                words = row[score].detail or "no difference shown"
                yield from _judged(model, other.detail, of, words, where)
        if change is None or baseline is None or p is None:
            continue
        family = re.match(r"\d+", row[p].detail)
        yield from _differ(
            model,
            row[baseline].detail,
            of,
            row[change],
            where,
            corrected=row[p].text if family else "",
            family=family[0] if family else "",
        )


def _is_score(text: str) -> bool:
    return re.fullmatch(r"[\d.]+", text) is not None


def _scored(model: str, task: str, metric: str, cell: Cell, where: str) -> Iterator[Statement]:
    if not _is_score(cell.text):
        return
    about = (_model(model), short_task(task), metric)
    value = f"{float(cell.text):.3f}"
    yield Statement(("mean", *about), value, where)
    if cell.detail:  # the interval, which not every table has
        yield Statement(("score", *about), f"{value} {_ends(cell.detail)}", where)


def _judged(
    first: str, second: str, of: tuple[str, str], words: str, where: str
) -> Iterator[Statement]:
    """Which of two models is said to be better, in the order of their names."""
    says = _VERDICTS.get(words, "")
    first, second = _model(first), _model(second)
    if first > second:
        first, second = second, first
        says = {_BETTER: _WORSE, _WORSE: _BETTER}.get(says, says)
    if says:
        yield Statement(("verdict", first, second, short_task(of[0]), of[1]), says, where)


def _differ(
    first: str,
    second: str,
    of: tuple[str, str],
    cell: Cell,
    where: str,
    *,
    raw: str = "",
    corrected: str = "",
    family: str = "",
) -> Iterator[Statement]:
    """What a cell says about a pair; where it is bold, also whether that follows."""
    if not re.fullmatch(r"[+-][\d.]+", cell.text):
        return
    pair, says = _pair(first, second, cell.text, cell.detail)
    about = (*pair, short_task(of[0]), of[1])
    yield Statement(("difference", *about), says, where)
    yield Statement(("effect", *about[:3]), says.partition(" ")[0], where)
    if raw:
        yield Statement(("p-value", *about), _p(raw), where)
    if corrected and family:
        yield Statement(("corrected p-value", *about, family), _p(corrected), where)
        yield Statement(("number of pairs", *about), family, where)


def _of_differences(table: PageTable, where: str) -> Iterator[Statement]:
    """Differences from a baseline: a row per model and task."""
    match = re.match(r"Paired differences from (.+), with 95 % int", table.caption)
    second, change = match[1] if match else "", table.column("Δ")
    head = table.heads[change].text if change is not None else ""
    if second == "the baseline" or " (on " in second:
        second = head.removeprefix("Δ to ")
    p = table.column("p")
    if change is None or p is None or " (on " in second:
        return
    for row in table.rows[1:]:
        task, _, metric = row[0].detail.partition(", ")
        yield from _differ(
            row[0].text, second, (task, metric), row[change], where, raw=row[p].detail
        )
        significant = _significant(row[p].text, row[change].detail)
        if row[p].strong != significant:
            bold = "bold" if row[p].strong else "not bold"
            says = f"p {row[p].text} with {row[change].detail} is {bold}"
            yield Statement(("bold", row[0].text, second, task, metric), says, where)
            yield Statement(
                ("bold", row[0].text, second, task, metric), "the rule says not", "rule"
            )


def _significant(p: str, ends: str) -> bool:
    match = _INTERVAL.fullmatch(ends)
    value = SMALLEST_P / 2 if p.startswith("<") else float(p)
    if match is None:
        return value < _ALPHA and ends == "a single query"
    low, high = match.groups()
    excludes = low == ">0" or high == "<0"
    if low not in ("<0", ">0") and high not in ("<0", ">0"):
        excludes = float(low) > 0 or float(high) < 0
    return value < _ALPHA and excludes


def _of_compared(table: PageTable, where: str) -> Iterator[Statement]:
    """Scores next to those of a baseline, models by tasks, or tasks by models."""
    second = table.caption.removeprefix("Scores of the models, next to ").rstrip(".")
    by_task = bool(table.heads) and table.heads[0].text == "task"
    for row in table.rows[1:]:
        for head, cell in zip(table.heads[1:], row[1:], strict=True):
            task, model = (row[0], head.text) if by_task else (head, row[0].text)
            metric, _, baseline = task.detail.partition(", n = ")
            to = baseline.partition(", to ")[2] or second
            of = (task.text, metric)
            yield from _scored(model, *of, Cell(cell.text), where)
            words = cell.detail.partition(",")[0] or "no difference shown"
            if _is_score(cell.text) and " (on " not in to:
                yield from _judged(model, to, of, words, where)


def _of_board(table: PageTable, where: str) -> Iterator[Statement]:
    """Scores: models by tasks, or tasks by models."""
    by_task = bool(table.heads) and table.heads[0].text == "task"
    for row in table.rows[1:]:
        for head, cell in zip(table.heads[1:], row[1:], strict=True):
            task, model = (row[0], head.text) if by_task else (head, row[0].text)
            metric = task.detail.partition(", n = ")[0]
            plain_cell = Cell(re.sub(r"†$", "", cell.text), cell.detail)
            yield from _scored(model, task.text, metric, plain_cell, where)


def _of_overview(table: PageTable, page: _Reader, where: str) -> Iterator[Statement]:
    """The leaderboard's first table: scores with two decimals, ties, and who is first."""
    # The title of a column's head has the task and its metric.
    tasks = [head.title.rpartition(", ")[0] for head in table.heads if ", " in head.title]
    tied: dict[str, list[str]] = {}  # of each ranked model, those not told apart from it
    first_models = []
    rank = ""
    for row in table.rows[1:]:
        has_rank = len(row) == len(table.heads)  # else an earlier row's rank spans this one
        if has_rank:
            rank = row[0].text
        name, *scores = row[-len(tasks) - 1 :]
        name.text = name.text.removesuffix(" (toy)")
        yield from _two_decimals(name.text, dict(zip(tasks, scores, strict=True)), where)
        if rank == "–":
            continue
        others = name.spoken.strip().removeprefix("No difference shown from ").rstrip(".")
        tied[name.text] = others.split(", ")
        if rank == "1":
            first_models.append(name.text)
    for one, other in itertools.combinations(tied, 2):
        pair = sorted((_model(one), _model(other)))
        says = "not told apart" if other in tied[one] else "told apart"
        yield Statement(("models", *pair, short_task(table.ranked_on)), says, where)
    for sentence in page.sentences:
        yield from _of_first_place(sentence, first_models, where)


def _two_decimals(name: str, cells: dict[str, Cell], where: str) -> Iterator[Statement]:
    """Scores of a model by task: the text of a cell, and the exact number in its title."""
    for task, cell in cells.items():
        match = _OF_TITLE.match(cell.title)
        if match is None:
            continue
        exact = Cell(match["score"], match["ends"])
        yield from _scored(name, task, match["metric"], exact, where)
        about = ("two decimals", where, name, task)
        yield Statement(about, cell.text, where)
        # Both are rounded from the same number.
        if abs(float(cell.text) - float(exact.text)) > 0.00551:
            yield Statement(about, exact.text, f"{where}, its title")


def _of_first_place(sentence: str, first_models: Sequence[str], where: str) -> Iterator[Statement]:
    """The models that the first sentence names, and those of rank 1."""
    match = _FIRST.match(sentence)
    if match is None:
        return
    names = re.split(r", | and ", match["names"] or match["one"])
    names = [name for name in names if not re.fullmatch(r"\d+ more", name)]
    about = ("first place", where)
    yield Statement(about, ", ".join(names), f"{where}, conclusion")
    yield Statement(about, ", ".join(first_models[: len(names)]), where)


def _of_reranking(table: PageTable, model: str, where: str) -> Iterator[Statement]:
    change, p = table.column("Δ"), table.column("p")
    if change is None or p is None:
        return
    for row in table.rows[1:]:
        names = (f"{model} reranked", f"{model} first stage")
        of = (row[0].text, "nDCG@10")
        yield from _differ(*names, of, row[change], where, raw=row[p].detail)


def _of_bold(table: PageTable, where: str) -> Iterator[Statement]:
    """Effects of settings or configurations: p is bold exactly if the effect is significant."""
    change, p = table.column("difference"), table.column("p")
    if change is None:
        change = table.column("Δ")
    if change is None or p is None:
        return
    for row in table.rows[1:]:
        if not _INTERVAL.fullmatch(row[change].detail):
            continue
        about = ("bold", where, row[0].text, row[1].text, row[0].detail, row[1].detail)
        words = {True: "bold", False: "not bold"}
        yield Statement(about, words[row[p].strong], where)
        yield Statement(about, words[_significant(row[p].text, row[change].detail)], "rule")


def _of_prompts(table: PageTable, where: str) -> Iterator[Statement]:
    """The score with a model's own prompts, which is that of the model."""
    model, task, default = (table.column(each) for each in ("model", "task", "default"))
    if model is None or task is None or default is None:
        return
    for row in table.rows[1:]:
        about = ("mean", _model(row[model].text), short_task(row[task].text), row[task].detail)
        yield Statement(about, f"{float(row[default].text):.3f}", where)


def _of_prompt_pairs(table: PageTable, where: str) -> Iterator[Statement]:
    """The difference of two models with their own prompts."""
    for row in table.rows[1:]:
        pair, says = _pair(row[0].text, row[1].text, row[3].text, "")
        yield Statement(("effect", *pair, short_task(row[2].text)), says.strip(), where)


def _of_exact_search(table: PageTable, page: _Reader, where: str) -> Iterator[Statement]:
    """The score of exact search with whole vectors, which is that of the model."""
    for other in page.tables:
        match = _OF_INDEXES.match(other.note)
        if match is None:
            continue
        for row in table.rows[1:]:
            for cell in row:
                if cell.detail == "itself":
                    about = ("mean", _model(match[1]), short_task(match[2]), "nDCG@10")
                    yield Statement(about, f"{float(cell.text):.3f}", where)


def _of_effects(page: _Reader, name: str) -> Iterator[Statement]:
    """Effects in the conclusion of a study; each must stand in one of the page's tables."""
    effects = set()
    for table in page.tables:
        for cell in chain.from_iterable(table.rows):
            effects |= {_rounded(cell.text), f"{_rounded(cell.text)} {_ends(cell.detail)}"}
            for effect, ends in _EFFECT.findall(cell.detail):
                effects |= {_rounded(effect), f"{_rounded(effect)} {_ends(ends)}"}
    for sentence in page.sentences:
        for says in _effects_in_sentence(sentence):
            about = ("effect in the conclusion", name, says.partition(" ")[0])
            yield Statement(about, says, f"{name}, conclusion")
            if says not in effects:
                yield Statement(about, "in no table", f"{name}, tables")


def _effects_in_sentence(sentence: str) -> Iterator[str]:
    """Effects with the interval that follows, and those that stand alone."""
    for effect, ends in _EFFECT.findall(sentence):
        if _INTERVAL.fullmatch(ends):
            yield f"{_rounded(effect)} {_ends(ends)}"
    for effect in _SIGNED.findall(_EFFECT.sub("", sentence)):
        yield _rounded(effect)


def _rounded(text: str) -> str:
    """Return a number with a sign and three decimals; other text unchanged."""
    if not re.fullmatch(r"[+-][\d.]+", text):
        return text
    return f"{float(text):+.3f}"


def _of_description(text: str, where: str) -> Iterator[Statement]:
    """Pairs in the description of a figure: ``m on T: +0.1 [..], p = .., n = 9``."""
    yield from _of_scores(text, where)
    match = re.match(r"Forest plots of differences from (.+?)\. ", text)
    if match is None:
        return
    for each in _OF_ALT.finditer(text[match.end() :]):
        pair, says = _pair(each["first"], match[1], each["effect"], each["ends"])
        about = (*pair, short_task(each["task"]))
        yield Statement(("difference of main metrics", *about), says, where)
        if each["corrected"]:
            corrected = ("corrected p-value of main metrics", *about, each["family"])
            yield Statement(corrected, _p(each["corrected"]), where)


def _of_scores(text: str, where: str) -> Iterator[Statement]:
    """Rounded scores, and which pairs of their models are not told apart."""
    match = _OF_SCORES.fullmatch(text)
    if match is None:
        return
    task = short_task(match["task"])
    models = []
    for shown in match["scores"].split("; "):
        score = _ROUNDED.fullmatch(shown)
        if score is not None:
            models.append(_model(score["model"]))
            about = ("rounded score", models[-1], task, match["metric"])
            yield Statement(about, score["score"], where)
    tied = set()
    for joined in (match["joined"] or "").split("; "):
        names = [_model(name) for name in joined.split(", ")]
        tied |= {frozenset(pair) for pair in combinations(names, 2)}
    for pair in combinations(sorted(models), 2):
        says = "not told apart" if frozenset(pair) in tied else "told apart"
        yield Statement(("models", *pair, task), says, where)


def _of_two_models(text: str, where: str) -> Iterator[Statement]:
    """Which of two models is better on a task, with both scores and their difference."""
    match = _TWO_MODELS.match(text)
    if match is None:
        return
    first, second = match["first"] or match["one"], match["second"] or match["other"]
    of = (match["task"], match["metric"])
    yield from _scored(first, *of, Cell(match["score"]), where)
    yield from _scored(second, *of, Cell(match["less"]), where)
    words = "better than" if match["first"] else "as good as"
    yield from _judged(first, second, of, words, where)
    change = Cell(match["effect"], f"[{match['low']}, {match['high']}]")
    yield from _differ(first, second, of, change, where)


def _of_score_in_words(text: str, where: str) -> Iterator[Statement]:
    """The score of a model next to that of another one, and which one is better."""
    match = _AGAINST.match(text)
    if match is None:
        return
    of = (match["task"], match["metric"])
    yield from _scored(match["first"], *of, Cell(match["score"]), where)
    yield from _scored(match["second"], *of, Cell(match["other"]), where)
    yield from _judged(match["first"], match["second"], of, match["words"], where)


def of_records() -> Iterator[Statement]:
    """What the records of the study say: every pair of models on every task, and trainings."""
    from qwen3nb.answers.comparison import compare
    from qwen3nb.records.store import load_results

    comparison = compare(load_results(adapters=False))
    for compared in (*comparison.tasks, *comparison.correlations):
        for each in compared.among(compared.columns):
            change = number_text(each.difference, sign=True)
            pair, says = _pair(each.first, each.second, change, each.interval_text)
            about = (*pair, short_task(each.task), each.metric)
            yield Statement(("difference", *about), says, "records")
            yield Statement(("difference of main metrics", *about[:3]), says, "records")
            yield Statement(("p-value", *about), _p(p_value_text(each.p_value)), "records")
            family = str(each.family)
            corrected = _p(p_value_text(each.corrected))
            yield Statement(("corrected p-value", *about, family), corrected, "records")
            pairs = ("number of pairs", *about)
            yield Statement(pairs, family, "records")
            main = ("corrected p-value of main metrics", *about[:3], family)
            yield Statement(main, corrected, "records")
            words = "as good as"
            if each.significant(_ALPHA):
                words = "better than" if each.difference > 0 else "worse than"
            yield from _judged(each.first, each.second, (each.task, each.metric), words, "records")
            says = "told apart" if each.significant(_ALPHA) else "not told apart"
            yield Statement(("models", *about[:3]), says, "records")
    for (task, name), record in comparison.records.items():
        value = record.main
        if value.value is None:
            continue
        ends = None if value.low is None or value.high is None else (value.low, value.high)
        text = interval_text(ends, absent=value.undefined)
        shown = Cell(f"{value.value:.3f}", text)
        yield from _scored(name, task, record.task.main_metric, shown, "records")
        about = ("rounded score", name, short_task(task), record.task.main_metric)
        yield Statement(about, f"{value.value:.2f}", "records")


def trainings(pages: dict[str, _Reader]) -> Iterator[Statement]:
    """The gains of trainings on their page, as differences of the models that were compared."""
    from qwen3nb.analysis.comparison.alignment import system_names
    from qwen3nb.analysis.training.checkpoint_scores import trajectories
    from qwen3nb.records.store import latest, load_results

    results = latest(load_results())
    names = system_names(load_results(adapters=False))
    models: dict[tuple[str, str, str], str] = {}
    for each in trajectories(results, tasks=sorted({r.task.key for r in results})):
        for seed, steps in each.records.items():
            for step, record in steps.items():
                name = names.get((record.model.identity, record.seed), "")
                for training in (each.training, f"{each.training}, seed {seed}"):
                    models[training, short_task(each.task), f"step {step}"] = name
    for page_name, page in pages.items():
        for table in page.tables:
            if table.name != "tab-gains":
                continue
            for row in table.rows[1:]:
                task, training = row[0].text, row[1].text
                first, last = (
                    models.get((training, task, cell.detail), "") for cell in (row[2], row[3])
                )
                if first and last:
                    of = (task, row[0].detail)
                    yield from _differ(last, first, of, row[4], f"{page_name}, {table.name}")


def advice(pages: dict[str, _Reader], stated: Sequence[Statement]) -> Iterator[str]:
    """Models that a page advises to run on its tasks, although they have run there."""
    ran = {(each.about[1], each.about[2]) for each in stated if each.about[0] == "mean"}
    for name, page in pages.items():
        tasks = {
            each.about[2]
            for each in stated
            if each.about[0] == "mean" and each.where.startswith(f"{name}, tab-scores")
        }
        for sentence in page.sentences:
            for model in _ADVICE.findall(sentence.replace("`", "")):
                there = sorted(task for task in tasks if (model, task) in ran)
                if there:
                    yield f"{name} advises to run {model}, which has run on {', '.join(there)}"


def disagreements(stated: Iterable[Statement]) -> list[str]:
    """Return a text for each thing about which two statements differ."""
    by_subject: dict[tuple[str, ...], list[Statement]] = defaultdict(list)
    for each in stated:
        by_subject[each.about].append(each)
    found = []
    for about, several in by_subject.items():
        different = {each.says: each for each in reversed(several)}
        if len(different) > 1:
            lines = "\n  ".join(map(str, different.values()))
            found.append(f"{about[0]} of {', '.join(about[1:])}:\n  {lines}")
    return found


def main() -> int:
    """Compare the pages of the study that is named, and print what disagrees."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path, help="folder of a study with executed pages")
    parser.add_argument("--json", action="store_true", help="print the disagreements as JSON")
    options = parser.parse_args()
    study = options.study.resolve()
    os.environ["QWEN3NB_HOME"] = str(study)
    pages = read_pages(study)
    stated = [each for name, page in pages.items() for each in statements(name, page)]
    stated += trainings(pages)
    on_pages = len(stated)
    stated += of_records()
    found = [*disagreements(stated), *advice(pages, stated)]
    if options.json:
        print(json.dumps(found, ensure_ascii=False, indent=1))
        return 1 if found or not on_pages else 0
    for each in found:
        print(each)
    subjects = len({each.about for each in stated})
    print(f"{len(pages)} pages, {on_pages} statements about {subjects} subjects; ", end="")
    print(f"{len(found)} disagree" if found else "all agree")
    if not on_pages:
        print("no statement was found on the pages: is the study built?")
    return 1 if found or not on_pages else 0


if __name__ == "__main__":
    sys.exit(main())
