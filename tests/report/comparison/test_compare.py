"""The page of a comparison: tables, figures, and words that follow their numbers."""

import numpy as np
import pytest
from helpers.records import (
    RETRIEVAL,
    benchmark_record,
    make,
    noisy,
)

from qwen3nb.answers.board.lead import lead_figure
from qwen3nb.answers.comparison import compare
from qwen3nb.answers.leaderboard import leaderboard
from qwen3nb.tiers import BENCHMARKS

KEYS = [*BENCHMARKS["MTEB(eng, v2)"].types["Clustering"], *BENCHMARKS["BEIR"].tasks[3:9]]
RNG = np.random.default_rng(3)
BASE = RNG.uniform(0.2, 0.6, 200)


def compared(**more):
    """A good model and one like the baseline, next to it."""
    means = {"good": (0.7, 0), "same": (0.5, 4), "now": (0.5, 5)}
    records = [make(name, scores=noisy(mean, seed=seed)) for name, (mean, seed) in means.items()]
    return compare(records, tier="smoke", baseline="now", draws=500, **more)


def labels(axis):
    return [tick.get_text() for tick in axis.get_yticklabels()]


def points(axis):
    """The position of each marker, and whether it is filled."""
    lines = [line for line in axis.lines if line.get_marker() not in ("None", None, "")]
    return [
        (round(float(line.get_xdata()[0]), 3), line.get_markerfacecolor() != "none")
        for line in lines
    ]


def test_differences_with_what_the_queries_can_show():
    comparison = compared()
    good, same = comparison.differences_table().rows
    assert (good[0].text, good[2].strong, good[4].text) == ("good", True, "40 / 0 / 0")
    assert (same[0].text, same[2].strong) == ("same", False)
    assert (
        "step-down MaxT over all 3 pairs of the models compared"
        in comparison.differences_table().method
    )
    (row,) = comparison.power_table().rows
    assert [cell.text for cell in row[:3]] == ["Retrieval", "1 / 0", "0 / 0 / 1"]
    assert (row[3].strong, row[4].value > 40, row[5].text) == (True, True, "40")
    assert not compared(margin=0.2).power_table().rows[0][3].strong
    rows = [(row[0].text, row[1].strong, row[1].detail) for row in comparison.table().rows]
    assert sorted(rows[1:]) == [("now", False, "baseline"), ("same", False, "")]
    assert rows[0] == ("good", True, "better")
    (axis,) = comparison.differences_figure().axes
    assert labels(axis) == ["same", "good"]
    assert [filled for _, filled in points(axis)] == [True, False]
    pairs = comparison.pairs_figure().axes[0]
    assert labels(pairs)[0] == "good"
    assert sorted(text.get_text() for text in pairs.texts) == ["0"] * 4 + ["1"] * 2
    nothing = compare([])
    assert "No two models" in nothing.differences_table().note
    assert nothing.details().tables[0][1].rows == ()
    assert "Nothing was compared" in nothing.conclusion.text
    assert nothing.figure() is None
    assert (nothing.differences_figure(), nothing.pairs_figure()) == (None, None)


def conclusion(**scores):
    """The conclusion on models with these scores, next to ``base``."""
    records = [make(name, scores=values) for name, values in scores.items()]
    return compare(records, tier="smoke", baseline="base", draws=500).conclusion.text


FAR = noisy(0.5, seed=5)
MANY_QUERIES = np.random.default_rng(0).uniform(0.2, 0.8, 2000)


@pytest.mark.parametrize(
    ("scores", "text"),
    [
        (
            {"good": noisy(0.7), "fine": noisy(0.75, seed=1), "poor": noisy(0.1, seed=2)},
            "fine and good are better than base on Retrieval. One is worse.",
        ),
        (
            {"same": noisy(0.5, seed=1, spread=0.4), "poor": noisy(0.1, seed=2)},
            "No model is shown to be better than base on Retrieval. One is as good, as far as 40 "
            "queries can tell; one is worse.",
        ),
    ],
)
def test_two_sentences_say_who_is_better_as_good_and_worse(scores, text):
    assert conclusion(base=FAR, **scores) == text


def test_a_shown_difference_smaller_than_what_matters_is_called_so():
    base = MANY_QUERIES
    scores = {"a": base + 0.02, "b": base + 0.01}
    assert conclusion(base=base, **scores) == (
        "a and b are better than base on Retrieval, by less than 0.05."
    )
    assert conclusion(base=base, a=base - 0.02, b=base.copy()) == (
        "No model is shown to be better than base on Retrieval. One is as good, within ±0.05; one "
        "is worse, by less than 0.05."
    )
    two = conclusion(base=base, a=base + 0.02)
    assert two.startswith("a is better than base, by less than 0.05, on Retrieval: nDCG@10 0.")


def test_tasks_that_say_the_same_are_summed_up():
    """Where none is better anywhere, it is said of all tasks; else some are, elsewhere."""

    def models(first, second):
        on = {RETRIEVAL: first, "PyDocsSampleReranking": second}
        records = [make("base", FAR, task=task) for task in on]
        for task, mean in on.items():
            records += [make(f"m{i}", noisy(mean, seed=i), task=task) for i in range(2)]
        return compare(records, tier="smoke", baseline="base", draws=500).conclusion.text

    assert models(0.2, 0.3) == (
        "No model is shown to be better than base on any of 2 tasks. On Retrieval, two are worse."
    )
    assert models(0.2, 0.7) == (
        "No model is shown to be better than base on Retrieval; on 1 other task, some are. Two are "
        "worse."
    )


def test_of_two_models_it_says_which_by_how_much_and_how_sure():
    better = compare([make("a", noisy(0.7)), make("b", noisy(0.5, seed=1))], tier="smoke")
    pair = better.difference("a", "b", task=RETRIEVAL)
    low, high = pair.interval
    first, second = pair.means
    assert better.conclusion.text == (
        f"a is better than b on Retrieval: nDCG@10 {first:.3f} against {second:.3f}. The "
        f"difference is {pair.difference:+.3f}; over all queries like these, it is likely between "
        f"{low:+.3f} and {high:+.3f}."
    )
    near = compare([make("a", noisy(0.5)), make("b", noisy(0.5, seed=1))], tier="smoke")
    assert near.conclusion.text.startswith("No difference between ")
    same = compare([make("a", noisy(0.5)), make("b", noisy(0.5))], tier="smoke")
    assert same.conclusion.text.endswith("Both have the same score on every query.")
    single = compare([make("a", [0.5]), make("b", [0.6])], tier="smoke")
    assert single.conclusion.text.endswith("A single query says nothing about others.")
    other = "PyDocsSampleReranking"
    records = [make("a", noisy(0.7)), make("b", noisy(0.5, seed=1))]
    records += [make("a", noisy(0.3), task=other), make("b", noisy(0.5, seed=1), task=other)]
    mixed = compare(records, tier="smoke").conclusion.text
    assert mixed.endswith("Of 1 other task, b is better on 1.")


def test_the_page_has_short_sentences_and_notes_and_folds_the_rest():
    records = []
    for task in (RETRIEVAL, "PyDocsSampleReranking"):
        for i in range(5):
            records.append(make(f"demo-model-{i}", noisy(0.2 * i, seed=i), task=task))
    comparison = compare(records, tier="smoke", baseline="demo-model-2", draws=500)
    sentences = comparison.conclusion.text.split(". ")
    assert len(sentences) == 2
    assert max(len(sentence.split()) for sentence in sentences) <= 25
    views = [comparison.table(), comparison.figure()]
    views += [view for _, view in comparison.details().tables]
    for view in views:
        notes = [view.caption, *getattr(view, "notes", list)()]
        assert max(len(note.split()) for note in notes) <= 40
    page = comparison.details()._repr_html_()
    assert "<details" in page
    assert " open>" not in page
    # The test is named once, at the scores; there and in its files.
    assert "permutation test" not in page
    assert "permutation test" in comparison.table().method


def test_the_figure_joins_models_that_are_not_told_apart():
    comparison = compared()
    assert comparison.ties(RETRIEVAL).best == ("good",)
    (bracket,) = comparison.ties(RETRIEVAL).brackets
    assert bracket.rows == (1, 2)
    assert "No difference shown between: " in comparison.figure().alt
    with_gap = comparison.ties("a task without records")
    assert with_gap.models == ()


def test_queries_are_counted_that_are_won_or_unpaired():
    first, second = make("a", (0.9, 0.8, 0.7, 0.6, 0.5)), make("b", (0.1, 0.8, 0.8, 0.7))
    comparison = compare([first, second], baseline="b")
    (row,) = comparison.differences_table().rows
    assert (row[1].text, row[4].text) == ("+0.150", "1 / 1 / 2")
    assert (row[5].text, row[5].detail) == ("4", "1 unpaired")


def test_many_tasks_are_counted_and_split_by_type():
    means = {"good": 0.7, "poor": 0.4}
    results = [benchmark_record(name, key, mean=m) for name, m in means.items() for key in KEYS]
    many = compare(results, tasks=KEYS, baseline="poor", draws=500)
    sections = many.table()
    shown = [(title, len(table), table.columns) for title, table in sections.tables]
    columns = ("task", "good", "poor")
    assert shown == [("Clustering (8 tasks)", 8, columns), ("Retrieval (6 tasks)", 6, columns)]
    rows = [[cell.text for cell in row[1:3]] for row in many.power_table().rows]
    assert rows == [["1 / 0", "0 / 0 / 0"]] * len(KEYS)
    (title, of_differences), *_ = many.details().tables
    assert title == "Differences from the baseline: intervals and tests"
    assert [name for name, _ in of_differences.tables] == [name for name, *_ in shown]
    figure = many.differences_figure()
    assert len(figure.axes) == 12
    assert f"{len(KEYS) - 12} tasks are not shown" in figure.caption
    assert sorted(text.get_text() for text in many.pairs_figure().axes[0].texts) == ["0", "14"]


def test_of_many_models_the_best_are_shown_and_the_others_counted():
    names = [f"m{i:02d}" for i in range(33)]
    results = [make(n, [0.1 + 0.02 * i, 0.3, 0.2], task="T") for i, n in enumerate(names)]
    comparison = compare(results, baseline="m00", draws=20)
    assert len(comparison.table()) == 12
    assert comparison.figure().caption.endswith(" models are shown; not shown: 3.")
    figure = comparison.differences_figure()
    assert figure.caption.endswith(" models are shown; not shown: 2.")
    assert "m02" not in figure.alt
    assert len(comparison.differences_table()) == 32
    pairs = comparison.pairs_figure()
    assert "Shown: the baseline and the 29 models most above it, of 33." in pairs.caption
    drawn = labels(comparison.figure().axes[0])
    assert (len(drawn), drawn[0], drawn[-1]) == (30, "m32", "m00 (baseline)")
    names = {text.get_text() for text in pairs.axes[0].get_xticklabels()}
    assert names == {"m00", *(f"m{i:02d}" for i in range(4, 33))}


def test_pairs_of_some_models_are_corrected_over_those_of_all():
    rng = np.random.default_rng(0)
    results = [make(f"m{i}", rng.normal(0.02 * i, 0.1, 40), task="T") for i in range(9)]
    compared = compare(results, baseline="m0", draws=2000).on("T")
    every = compared.among(compared.columns)
    some = [each for each in every if {each.first, each.second} <= {"m0", "m5", "m8"}]
    assert compared.among(["m8", "m0", "m5"]) == some
    assert {each.significant(0.05) for each in every} == {True, False}


def test_the_figure_has_the_best_on_its_line_and_the_others_behind():
    scores = {"a": noisy(0.7), "b": noisy(0.6, spread=0.4, seed=1), "c": noisy(0.3, seed=2)}
    results = [make(name, values) for name, values in scores.items()]
    figure = lead_figure(compare(results, tier="smoke"), task=RETRIEVAL)
    assert labels(figure.axes[0])[-1] == "a"
    filled = {round(at, 1): clear for at, clear in points(figure.axes[0])}
    assert filled[0.0]
    assert filled[-0.4]  # c is behind
    assert sorted(filled.values()) == [False, True, True]  # b is not shown to be
    assert figure.columns == 1  # as wide as a phone
    results = [make(f"m{i}", scores=noisy(0.3 + i / 50, seed=i)) for i in range(10)]
    assert "not shown: 1." in lead_figure(compare(results), task=RETRIEVAL).caption


WAVES = 0.1 * np.tile([-1, 1], 100)


@pytest.mark.parametrize(
    ("scores", "fragments"),
    [
        ((), ["No results yet"]),
        ((BASE,), ["Only s0 was evaluated"]),
        ((BASE, BASE[:99] - 0.1), ["s0 scores highest", "no other model can be compared"]),
        ((BASE, BASE + 0.1 + WAVES), ["s1 is first."]),
    ],
)
def test_a_model_is_best_only_where_its_lead_is_shown(scores, fragments):
    results = [make(f"s{i}", values) for i, values in enumerate(scores)]
    text = leaderboard(results, tier="smoke").conclusion.text
    assert [each for each in fragments if each not in text] == []
