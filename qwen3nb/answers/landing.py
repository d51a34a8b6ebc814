"""The landing page: which model to use, how sure that is, and on what; then the findings.

The first screen has at most two sentences, a figure of scores and the verdict on own data. The
numbers behind them, with intervals and tests, stand in one fold below.
"""

import html
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from qwen3nb.analysis.comparison.brackets import Ties
from qwen3nb.answers.board.lead import how_sure_page
from qwen3nb.answers.board.models import is_toy
from qwen3nb.answers.comparison import Comparison
from qwen3nb.answers.findings import all_findings, cards, evidence_table
from qwen3nb.answers.languages import overview_of_languages
from qwen3nb.answers.leaderboard import Leaderboard
from qwen3nb.answers.own_data import OwnData, collection_name, collections, own_data, page_of
from qwen3nb.answers.recommendation import (
    RankedModels,
    own_limits,
    own_sentences,
    ranked_own,
    recommend,
    sentences,
)
from qwen3nb.metrics.aggregate import Aggregate
from qwen3nb.metrics.intervals import Interval
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.report.render.home import formula_link
from qwen3nb.report.render.html import data_attribute, escaped_text, unstyled
from qwen3nb.report.render.scores import ScoreRow, Tone, score_figure
from qwen3nb.report.render.table import Table, plural, short_task
from qwen3nb.utils.book_settings import book_settings

_MOST_FINDINGS = 3  # on the landing page
_FEW_MODELS, _MOST_MODELS = 6, 10  # rows of the figure: as many as tie with the best
_TOY = " (toy)"


def landing_page(
    everything: Iterable[Result], board: Leaderboard, *, folder: str = "runs/", most: int = 10
) -> dict[str, str]:
    """Return the parts of the landing page as HTML: the lead, the findings, and the numbers.

    Args:
        everything: all records, those of adapters included.
        board: the leaderboard, with the page of each run.
        folder: that of all other pages, relative to the landing page.
        most: number of models in the table.
    """
    records = list(everything)
    comparison, task = board.comparison, board.task
    links = {run: f"{folder}{page}" for run, page in board.links.items()}
    shown = all_findings(comparison, records, task=task, links=links, folder=folder)
    shown = shown[:_MOST_FINDINGS]
    own = [own_data(board.results, name) for name in collections(board.results)]
    languages = overview_of_languages(board.results, models=list(board.grid.names))
    numbers = [*languages, evidence_table(shown)]
    # A study of own data alone is compared on them; then their verdict is the answer.
    has_other_data = any(not collection_name(record) for record in comparison.records.values())
    if has_other_data:
        lead = headline_lead(comparison, task=task, results=records, folder=folder)
        lead += "".join(own_box(answer, folder=folder, among=len(own)) for answer in own)
        scores = replace(board, links=links).headline_table(most=most)
        numbers = [scores, _differences_from_best(comparison, task), *numbers]
    elif own:
        lead = own_lead(own[0], folder=folder, among=len(own))
        lead += "".join(own_box(answer, folder=folder, among=len(own)) for answer in own[1:])
        numbers = [answer.scores_table() for answer in own] + numbers
    else:
        lead = headline_lead(comparison, task=task, results=records, folder=folder)
    return {
        "lead": lead,
        "findings": cards(shown),
        "headline": "".join(table.to_html() for table in numbers if table is not None),
    }


def _differences_from_best(comparison: Comparison, task: str) -> Table | None:
    """Return the difference of every model from the best, with interval and test."""
    models = recommend(comparison, task=task).models
    if len(models.names) < 2:
        return None
    table = comparison.differences_table(task=models.task.key, baseline=models.best)
    return replace(
        table,
        note="Bold: significant by interval and test. Below a corrected p-value: the raw one.",
        method=f"{table.note} {table.method}".strip(),
    )


def headline_lead(
    comparison: Comparison, *, task: str, results: Iterable[Result] = (), folder: str = ""
) -> str:
    """Return which model to use as HTML: one or two sentences, and a figure of scores.

    ``folder`` has all other pages, relative to the landing page. If any score is on substitutes for
    MTEB's data, or on generated queries, a banner comes first.
    """
    records = list(results)
    recommendation = recommend(comparison, task=task, results=records)
    models = recommendation.models
    toys = [name for name, record in _named(models) if is_toy(record)]
    data = comparison.data_used(task)
    parts = []
    if models.names:
        count = len(models.names) + models.unpaired
        parts.append(_grey_line(count, f"{models.questions} {_data_words(models)}", models.records))
    parts.append(_lead_paragraph(sentences(recommendation, toys=toys), data))
    if models.names:
        links = _links(models, toys, folder=folder, how_sure=how_sure_page(comparison))
        parts.append(_scores(models, toys, data))
        parts.append(_caption(models, links=links))
    return data_banner(comparison.data_used()) + _hero(parts)


def own_lead(own: OwnData, *, folder: str, among: int = 1) -> str:
    """Return the verdict on one's own data as `headline_lead`, for a study without other data."""
    models = ranked_own(own)
    data = DataUsed.of(models.records)
    lines = [f"On {_own_name(own, among)}, {own_sentences(own)[0]}", *own_sentences(own)[1:]]
    questions = f"{models.questions} of your own"
    if models.task.is_generated:
        questions = own.questions
    return data_banner(data) + _hero(
        [
            _grey_line(len(models.names), questions, models.records),
            _lead_paragraph(lines, data),
            _scores(models, (), data),
            _caption(models, links=_own_links(own, folder)),
        ]
    )


def own_box(own: OwnData, *, folder: str, among: int = 1) -> str:
    """Return the verdict on one's own data as a box of HTML, linked to its page.

    With one collection ``among`` several, its name is stated.
    """
    words = " ".join(own_sentences(own))
    links = " · ".join(_own_links(own, folder))
    data = data_attribute(DataUsed.of(own.records))
    return (
        f'<div class="q-own"{data}><p><strong>On {_own_name(own, among)}:</strong> {words} '
        f"{links}</p></div>"
    )


def data_banner(data: DataUsed) -> str:
    """Return the banner of a page with scores on substitutes or made queries; may be empty."""
    banners = []
    for warning in data.warnings:
        title = html.escape(warning.title, quote=False)
        banners.append(
            f'<div class="admonition danger"><p class="admonition-title">{title}</p>'
            f"<p>{escaped_text(warning.text)}</p></div>"
        )
    return "".join(banners)


def _hero(parts: Iterable[str]) -> str:
    return f'<div class="q-hero">{"".join(parts)}</div>'


def _grey_line(models: int, questions: str, records: Iterable[Result]) -> str:
    """Return what the page is about: study, number of models, data, and the newest date."""
    facts = [book_settings().title, plural(models, "model"), questions]
    newest = max(record.finished for record in records)
    if newest:
        day = datetime.fromisoformat(newest)
        facts.append(f"{day.day} {day:%B %Y}")
    words = " · ".join(fact for fact in facts if fact)
    return f'<p class="q-about">{escaped_text(words)}</p>'


def _data_words(models: RankedModels) -> str:
    """Return the data of a task in words, which follow the number of questions."""
    if models.task.name.startswith("PyDocs"):
        return "to Python's documentation"
    return f"of {short_task(models.task.key)}"


def _lead_paragraph(lines: Sequence[str], data: DataUsed) -> str:
    return f'<p class="q-lead"{data_attribute(data)}>{" ".join(lines)}</p>'


def _scores(models: RankedModels, toys: Sequence[str], data: DataUsed) -> str:
    """Return the figure of the scores of the best models."""
    shown = _shown(models)
    at_chance = {models.chance, *_not_separated(models.ties, models.chance)}
    rows = []
    for name, record in _named(models):
        if name not in shown or record.main.value is None:
            continue
        tone = Tone.BEHIND
        if name in models.ties.best:
            tone = Tone.BEST
        elif name in at_chance:
            tone = Tone.CHANCE
        mark = _TOY if name in toys else ""
        rows.append(ScoreRow(name, record.main.value, _ends(record.main), tone, mark))
    task = models.task
    figure = score_figure(
        rows,
        models.ties.among([row.name for row in rows]),
        measure=f"{short_task(task.key)} by {task.main_metric}",
        name="lead",
        data=data,
    )
    return unstyled(figure._repr_html_())


def _ends(score: Aggregate) -> Interval | None:
    if score.low is None or score.high is None:
        return None
    return score.low, score.high


def _shown(models: RankedModels) -> list[str]:
    """Return the models in the figure: the best, as many as tie with it, and chance."""
    count = min(max(_FEW_MODELS, len(models.ties.best)), _MOST_MODELS)
    shown = list(models.names[:count])
    if models.chance and models.chance not in shown:
        shown[-1] = models.chance
    return shown


def _not_separated(ties: Ties, model: str) -> tuple[str, ...]:
    return ties.not_separated(model) if model else ()


def _caption(models: RankedModels, *, links: Iterable[str]) -> str:
    """Explain the figure, with links to what explains the rest, in at most forty words."""
    sentences = [f"{_measure(models.task.main_metric)}."]
    if any(_ends(record.main) for record in models.records):
        sentences.append(f"Bars: what {_others(models.questions)} might give.")
    if len(models.names) > len(models.ties.best):
        sentences.append(_words_on_grey(models))
    if models.ties.among(_shown(models)).brackets:
        sentences.append("Joined: no difference shown.")
    if models.unpaired:
        verb = "lacks" if models.unpaired == 1 else "lack"
        sentences.append(f"{plural(models.unpaired, 'model')} {verb} scores.")
    text = f"{' '.join(sentences)} {' · '.join(links)}"
    return f'<p class="q-note">{text.strip()}</p>'


def _links(
    models: RankedModels, toys: Iterable[str], *, folder: str, how_sure: str
) -> Iterator[str]:
    """Yield links to the note on toys, to the other models, and to how sure the lead is."""
    shown = _shown(models)
    if any(name in shown for name in toys):
        yield '<a href="#toys">toy: not for use</a>'
    others = len(models.names) + models.unpaired - len(shown)
    words = plural(others, "more model") if others else "all tasks"
    yield f'<a href="{folder}leaderboard.html">{words}</a>'
    if how_sure:
        yield f'<a href="{folder}{how_sure}">how sure?</a>'


def _others(questions: str) -> str:
    """Return another sample of the same size, such as ``200 other questions``."""
    count, _, noun = questions.partition(" ")
    return f"{count} other {noun}"


def _words_on_grey(models: RankedModels) -> str:
    if models.chance and models.chance not in models.ties.best:
        return "Grey: below the best; light: not clearly above chance."
    return "Grey: below the best."


def _measure(metric: str) -> str:
    """Name the scale of a metric, with a link to its definition."""
    name = html.escape(metric)
    # Such as "mean nDCG@10 of 15 tasks".
    for word in metric.split():
        link = formula_link(word)
        if link:
            address = link.removeprefix("../")
            linked = f'<a href="{address}">{html.escape(word)}</a>'
            name = name.replace(html.escape(word), linked)
    if "@" in metric:
        return f"Score of search, 0 to 1 ({name})"
    return f"Score ({name})"


def _named(models: RankedModels) -> Iterator[tuple[str, Result]]:
    yield from zip(models.names, models.records, strict=True)


def _own_name(own: OwnData, among: int) -> str:
    """Return one's own data in words, such as ``your own 30 queries``, named if it is not alone.

    Generated queries are not called one's own.
    """
    count = own.records[0].main.n
    words = "your own query" if count == 1 else f"your own {count:,} queries"
    if own.records[0].task.is_generated:
        words = own.questions
    if among > 1:
        words += f" ({html.escape(own.name)})"
    return words


def _own_links(own: OwnData, folder: str) -> list[str]:
    """Return links to what stands behind a verdict: the queries that changed, and its limits."""
    page = f"{folder}{page_of(own.name)}.html"
    if own.candidates is None:
        return [f'<a href="{page}">The page of these data</a>']
    links = [f'<a href="{page}#the-queries-that-changed-most">The queries that changed</a>']
    if own_limits(own):
        links.append(f'<a href="{page}#tab-own-reasons">what limits this</a>')
    return links
