"""Topics follow the texts of queries and are named by their words; no score has a part."""

import numpy as np
import pytest

from qwen3nb.analysis.comparison.query_groups import (
    beginning_groups,
    groups_by_value,
    language_groups,
    length_groups,
    log_odds,
    script_groups,
    topic_groups,
    topics_and_words,
    usual_topics,
)

SHIPS = [f"how does a ship cross the ocean with sails {row}" for row in range(30)]
BREAD = [f"bake bread with flour in an oven at noon {row}" for row in range(30)]
CHINESE = [f"打印机没有墨水怎么办{row}" for row in range(12)]


def test_topics_are_what_queries_share_and_named_by_their_words():
    first, second = topic_groups(SHIPS + BREAD, topics=2)
    assert {first.members, second.members} == {tuple(range(30)), tuple(range(30, 60))}
    words = {group.members[0]: set(group.name.split(", ")) for group in (first, second)}
    assert words[0] <= {"ship", "cross", "ocean", "sails"}
    assert words[30] <= {"bake", "bread", "flour", "oven", "noon"}


def test_vectors_make_the_topics_if_they_are_given():
    vectors = np.array([[1.0, 0], [0, 1.0]])[np.arange(60) % 2] * 3
    groups = topic_groups(SHIPS + BREAD, vectors=vectors, topics=2)
    assert {group.members[:2] for group in groups} == {(0, 2), (1, 3)}


@pytest.mark.parametrize("texts", [[""] * 60, ["!?"] * 60, ["same words"] * 60, SHIPS[:5]])
def test_queries_that_do_not_differ_or_are_few_have_no_topics(texts):
    assert topic_groups(texts) == []


def test_topics_are_named_in_scripts_without_blanks():
    names = {group.name for group in topic_groups(CHINESE + BREAD, topics=2)}
    assert any("打印" in name or "墨水" in name for name in names)


def test_log_odds_of_a_word_by_hand():
    """A word in 8 of 10 counts inside and 2 of 10 outside, with 10 counts of prior."""
    scores = log_odds(np.array([8.0, 2.0]), np.array([2.0, 8.0]))
    inside = np.log(13 / 7) - np.log(7 / 13)
    assert scores == pytest.approx([inside / np.sqrt(1 / 13 + 1 / 7), -scores[0]])


def test_lengths_are_thirds_in_words_or_letters():
    texts = ["a"] * 10 + ["a b"] * 10 + ["a b c", "a b c d"] * 5
    names = [group.name for group in length_groups(texts)]
    assert names == ["1 words", "2 words", "3 to 4 words"]
    assert {group.name.split()[-1] for group in length_groups(CHINESE + CHINESE[:5])} == {"letters"}


def test_scripts_and_languages_are_groups_only_if_two_have_enough_queries():
    assert script_groups(SHIPS) == []
    assert script_groups(SHIPS + CHINESE[:3]) == []
    assert [group.name for group in script_groups(SHIPS + CHINESE)] == ["Latin", "Cjk"]
    assert [group.name for group in language_groups(SHIPS + CHINESE)] == ["eng", "zho"]
    stated = ["deu"] * 20 + ["fra"] * 22
    assert [len(group.members) for group in language_groups([""] * 42, stated)] == [22, 20]
    assert groups_by_value("category", ["a"] * 30 + [""] * 30) == []


def test_the_number_of_topics_follows_that_of_queries():
    assert [usual_topics(count) for count in (19, 20, 300, 6000)] == [0, 2, 10, 20]


def test_words_beginnings_and_other_topics_are_compared_but_not_listed():
    """A word of twelve queries in two topics is a group; one of nine, or of nearly all, is none."""
    texts = [f"{text} {'storm' * (row % 5 == 0)}" for row, text in enumerate(SHIPS + BREAD)]
    groups = topics_and_words(texts, topics=2)
    assert [group.facet for group in groups if group.is_listed] == ["topic", "topic"]
    by_label = {group.label: group for group in groups}
    assert by_label["queries with “storm”"].members == tuple(range(0, 60, 5))
    assert {group.facet for group in groups} <= {"topic", "narrow topic", "word", "beginning"}
    assert len({group.members for group in groups}) == len(groups)  # "ship" is what a topic is
    assert all(10 <= len(group.members) <= 50 for group in groups)
    assert not any("ocean" in label and "queries with" in label for label in by_label)


def test_beginnings_are_first_words_that_enough_queries_have():
    texts = ["Who was it?"] * 10 + ["when did it end"] * 12 + ["where"] * 3 + CHINESE
    found = {group.label: len(group.members) for group in beginning_groups(texts)}
    assert found["queries that begin with “when”"] == 12
    assert found["queries that begin with “who”"] == 10
    assert not any("打" in label for label in found)
