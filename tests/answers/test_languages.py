"""Means by language, over the tasks of a study."""

from dataclasses import replace
from statistics import fmean

import pytest
from helpers.records import amend, make

from qwen3nb.answers.landing import landing_page
from qwen3nb.answers.languages import (
    LANGUAGES,
    PAIRS,
    SCRIPTS,
    group_means,
    grouped_scores,
    language_sections,
    overview_of_languages,
)
from qwen3nb.answers.leaderboard import leaderboard
from qwen3nb.records.record import Part


def measured(label, task, score, *languages):
    record = make(label, scores=(score, score), task=task)
    amend(record, "task", languages=languages)
    return record


def in_parts(label, task, **scores):
    """A record of a task with a subset per language, such as ``deu`` or ``deu_eng``."""
    record = make(label, scores=tuple(scores.values()), task=task)
    parts = []
    for name, score in scores.items():
        value = make("part", scores=(score, score)).main
        languages = tuple(f"{language}-Latn" for language in name.split("_"))
        parts.append(Part("test", name, languages, value, score))
    return replace(record, parts=tuple(parts))


def values(record, grouping):
    scores = grouped_scores(record, grouping)
    return {group: fmean(score.value for score in scores[group]) for group in scores}


def test_a_language_counts_with_the_subsets_in_it():
    record = in_parts("m", "Both", eng=0.6, deu=0.2, eng_deu=0.1)
    assert values(record, LANGUAGES) == pytest.approx({"eng": 0.6, "deu": 0.2})
    assert values(record, PAIRS) == pytest.approx({"deu-eng": 0.1})
    assert values(record, SCRIPTS) == pytest.approx({"Latn": 0.3})
    assert values(measured("m", "One", 0.5, "eng"), LANGUAGES) == {"eng": 0.5}
    assert values(make("m"), LANGUAGES) == {}


def test_a_score_on_a_mixture_of_languages_says_nothing_of_one():
    """A task to tell languages apart has one score on all of them; here in two scripts."""
    record = measured("m", "Which", 0.9, "dan-Latn", "nob-Latn", "swe-Latn")
    assert values(record, LANGUAGES) == values(record, PAIRS) == {}
    assert values(record, SCRIPTS) == {"Latn": 0.9}
    mixed = measured("m", "Which", 0.9, "hin-Deva", "urd-Arab", "ben-Beng")
    assert values(mixed, SCRIPTS) == {}


def test_a_mean_is_over_all_tasks_of_a_language():
    """By hand: English is on both tasks, (0.6 + 0.4) / 2; German on one of them."""
    records = [
        in_parts("a", "Both", eng=0.6, deu=0.2),
        measured("a", "One", 0.4, "eng-Latn"),
        in_parts("b", "Both", eng=0.9, deu=0.1),
    ]
    table = group_means(records, LANGUAGES).table()
    assert table.columns == ("model", "eng\n2 tasks", "deu\n1 task")
    first, second = table.rows
    assert (first[0].text, first[1].value, first[2].value) == ("a", 0.5, 0.2)
    assert (second[1].text, second[1].value, second[2].value) == ("1 of 2", None, 0.1)
    assert first[2].strong
    board = leaderboard(records, tier="smoke")
    assert 'id="tab-languages"' in landing_page(records, board)["headline"]


def test_a_study_of_one_language_has_no_such_table():
    records = [measured("a", "One", 0.4, "eng"), make("b")]
    assert group_means(records, LANGUAGES).table() is None


def test_what_a_mean_lacks_is_named():
    records = [
        in_parts("a", "Both", eng=0.6, deu=0.2),
        measured("a", "One", 0.4, "eng-Latn"),
        in_parts("b", "Both", eng=0.9, deu=0.1),
    ]
    table = group_means(records, LANGUAGES).table()
    assert "b lacks One." in table.note
    assert table.method.startswith("b has no score on One.")
    means = group_means(records, LANGUAGES)
    lacking = means.mean(records[2].model.identity, "eng")
    assert (lacking.value, lacking.interval, lacking.missing) == (None, None, ["One"])


def test_the_interval_adds_up_those_of_subsets_and_tasks():
    """By hand: a subset and a task of half the weight each; distances add up in quadrature."""
    record = in_parts("a", "Both", eng=0.6, deu=0.2)
    parts = []
    for part in record.parts:
        score = replace(part.score, low=part.score.value - 0.06, high=part.score.value + 0.08)
        parts.append(replace(part, score=score))
    record = replace(record, parts=tuple(parts))
    other = measured("a", "One", 0.4, "eng-Latn")
    metric = other.task.main_metric
    main = replace(other.metrics[metric], low=0.32, high=0.46)
    other = replace(other, metrics={metric: main})
    mean = group_means([record, other], LANGUAGES).mean(record.model.identity, "eng")
    assert mean.value == pytest.approx(0.5)
    low, high = mean.interval
    assert low == pytest.approx(0.5 - (0.03**2 + 0.04**2) ** 0.5)
    assert high == pytest.approx(0.5 + (0.04**2 + 0.03**2) ** 0.5)


def many_languages(label, shift):
    codes = [f"l{place:02}" for place in range(20)]
    scores = {code: 0.3 + place / 100 + shift for place, code in enumerate(codes)}
    return in_parts(label, "Many", **scores)


def test_many_languages_have_a_row_each_and_the_first_page_has_some():
    records = [many_languages("a", 0.0), many_languages("b", 0.1)]
    whole = group_means(records, LANGUAGES).table()
    assert whole.columns == ("language", "a", "b")
    assert len(whole) == 20
    row = whole.rows[3]
    assert (row[0].text, row[0].detail) == ("l03", "1 task")
    assert (row[1].text, row[2].text, row[2].strong) == ("0.330", "0.430", True)
    (shown,) = overview_of_languages(records)
    assert len(shown) == 12
    assert "The 12 with most tasks of 20 languages." in shown.note
    board = leaderboard(records, tier="smoke")
    assert [title for title, _ in board.languages().tables] == ["By language (20)"]
    assert language_sections([make("a")]) is None


def test_the_note_names_only_models_that_the_table_shows():
    """The first by the order of the page are shown; a model after them lacks a language."""
    shown = [many_languages(f"shown-{number}", 0.0) for number in range(8)]
    incomplete = measured("left-out", "of-one", 0.5, "l00-Latn")
    means = group_means([*shown, incomplete], LANGUAGES)
    (identity,) = [identity for identity, name in means.names.items() if name == "left-out"]
    first = [other for other in means.names if other != identity]
    table = means.table(models=first)
    assert "left-out" not in table.columns
    assert "left-out" not in table.note + table.method
    assert "shown-0 lacks of-one." in table.note
    assert "not shown: 1" in table.note
    assert "left-out lacks" in means.table(models=[identity]).note
