"""Means by language, over the tasks of a study."""

from dataclasses import replace

import pytest
from helpers.records import amend, make

from qwen3nb.answers.landing import landing_page
from qwen3nb.answers.languages import language_table, scores_by_language
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


def test_a_language_counts_with_the_subsets_in_it():
    record = in_parts("m", "Both", eng=0.6, deu=0.2, eng_deu=0.1)
    assert scores_by_language(record) == pytest.approx({"eng": 0.6, "deu": 0.2, "deu-eng": 0.1})
    assert scores_by_language(measured("m", "One", 0.5, "eng")) == {"eng": 0.5}
    assert scores_by_language(make("m")) == {}


def test_a_mean_is_over_all_tasks_of_a_language():
    """By hand: English is on both tasks, (0.6 + 0.4) / 2; German on one of them."""
    records = [
        in_parts("a", "Both", eng=0.6, deu=0.2),
        measured("a", "One", 0.4, "eng-Latn"),
        in_parts("b", "Both", eng=0.9, deu=0.1),
    ]
    table = language_table(records)
    assert table.columns == ("model", "eng\n2 tasks", "deu\n1 task")
    first, second = table.rows
    assert (first[0].text, first[1].value, first[2].value) == ("a", 0.5, 0.2)
    assert (second[1].text, second[1].value, second[2].value) == ("1 of 2", None, 0.1)
    assert first[2].strong
    board = leaderboard(records, tier="smoke")
    assert 'id="tab-languages"' in landing_page(records, board)["headline"]


def test_a_study_of_one_language_has_no_such_table():
    assert language_table([measured("a", "One", 0.4, "eng"), make("b")]) is None
