"""The page of a comparison: tables, figures, and words that follow their numbers."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.records import (
    RERANKING,
    RETRIEVAL,
    amend,
    benchmark_record,
    make,
    noisy,
    three_models,
    tier_records,
)
from helpers.search_texts import search_texts

from qwen3nb.analysis.comparison.compare import compare
from qwen3nb.report.comparison.compare import (
    breakdown_table,
    by_type_tables,
    changes_table,
    comparison_conclusion,
    correlations_table,
    differences_figure,
    differences_table,
    lead_figure,
    leaderboard_conclusion,
    overview_table,
    pairs_figure,
    power_table,
    task_differences_figure,
    wins_figure,
)
from qwen3nb.report.comparison.explorer import top_documents
from qwen3nb.report.leaderboard.ranking import standings
from qwen3nb.report.render.sections import Sections
from qwen3nb.report.render.table import Table
from qwen3nb.tiers import BENCHMARKS

KEYS = [*BENCHMARKS["MTEB(eng, v2)"].types["Clustering"], *BENCHMARKS["BEIR"].tasks[3:9]]
TEXTS = search_texts({f"q{i}": f"{i} " + "which method sorts a list? " * 9 for i in range(40)})
RNG = np.random.default_rng(3)
BASE = RNG.uniform(0.2, 0.6, 200)


def compared(**more):
    return compare(three_models(), tier="smoke", baseline="now", **more)


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
    good, same = differences_table(comparison).rows
    assert (good[0].text, good[2].strong, good[4].text) == ("good", True, "40 / 0 / 0")
    assert (same[0].text, same[2].strong) == ("same", False)
    assert "Holm over all 3 pairs of the models compared" in differences_table(comparison).note
    power = power_table(comparison).rows
    assert [row[1].text for row in power] == ["better", "not shown"]
    assert (power[0][4].text, power[1][4].value > 40) == ("–", True)
    assert power[1][2].strong
    assert not power_table(compared(minimum=0.2)).rows[1][2].strong
    assert breakdown_table(comparison) is correlations_table(comparison) is None
    (axis,) = differences_figure(comparison).axes
    assert labels(axis) == ["same", "good"]
    assert [filled for _, filled in points(axis)] == [True, False]
    assert labels(pairs_figure(comparison).axes[0])[0] == "good"


def test_nothing_to_compare_is_said_and_not_drawn():
    nothing = compare([], tier="smoke")
    assert "No two models" in differences_table(nothing, task="x").note
    assert "Nothing" in power_table(nothing).note
    assert differences_figure(nothing) is pairs_figure(nothing) is None
    alone = compare([make("m")])
    assert task_differences_figure(alone, task=RETRIEVAL) is wins_figure(alone, task="none") is None


def test_correlations_are_compared_by_pairs_of_texts():
    gold = np.linspace(0, 5, 60)

    def scored(label, spread):
        cosine = gold + np.random.default_rng(1).normal(0, spread, 60)
        result = make(label, task="AuthorSTS", metric="cosine", scores=cosine)
        result.per_query["gold"] = {f"q{i}": float(v) for i, v in enumerate(gold)}
        amend(result, "task", main_metric="Spearman")
        return result

    both = [scored("a", 5.0), scored("b", 0.1)]
    (row,) = correlations_table(compare(both, tier="smoke", baseline="b")).rows
    assert row[0].text == "a"
    assert float(row[1].text) < -0.2
    assert row[2].strong


def test_unpaired_queries_are_counted():
    first, second = make("a", scores=(0.9, 0.8, 0.7, 0.6)), make("b", scores=(0.5, 0.4, 0.3))
    (row,) = differences_table(compare([first, second], baseline="b")).rows
    assert (row[1].text, row[4].text) == ("+0.400", "3 / 0 / 0")
    assert (row[5].text, row[5].detail) == ("3", "1 unpaired")


@pytest.fixture(scope="module")
def many():
    means = {"good": 0.7, "poor": 0.4}
    results = [benchmark_record(name, key, mean=m) for name, m in means.items() for key in KEYS]
    return compare(results, tasks=KEYS, baseline="poor", draws=500)


def test_many_tasks_are_counted_and_split_by_type(many):
    table = overview_table(many)
    assert [[cell.text for cell in row][1:] for row in table.rows] == [
        ["8", "8 / 0 / 0"],
        ["6", "6 / 0 / 0"],
    ]
    assert [row[0].detail for row in table.rows] == ["Clustering", "Retrieval"]
    assert "Not counted" not in table.note
    for make_table in (differences_table, power_table):
        sections = by_type_tables(many, make_table)
        assert isinstance(sections, Sections)
        shown = [(title, len(table)) for title, table in sections.tables]
        assert shown == [("Clustering (8 tasks)", 8), ("Retrieval (6 tasks)", 6)]
    few = compare([make("a"), make("b", (0.1, 0.3, 0.5)), make("b", task="Alone")])
    assert isinstance(by_type_tables(few, differences_table), Table)
    assert overview_table(few).note.partition("Not counted")[2].endswith(": Alone.")
    (axis,) = differences_figure(many).axes
    assert axis.get_title() == "good"
    assert len(axis.get_yticks()) == len(KEYS)
    panels = pairs_figure(many).axes
    assert [panel.get_title() for panel in panels] == ["Clustering, 8 tasks", "Retrieval, 6 tasks"]
    assert sorted(text.get_text() for text in panels[0].texts) == ["0", "8"]


def test_a_difference_may_be_significant_on_its_task_only():
    """28 queries won and 12 lost of 40 have p = .02: tasks are corrected one by one."""
    tasks, results = [f"T{i}" for i in range(14)], []
    for task in tasks:
        won = 28 if task == "T0" else 20
        results += [
            make("base", scores=[0.5] * 40, task=task),
            make("new", scores=[0.6] * won + [0.4] * (40 - won), task=task),
        ]
    (row,) = overview_table(compare(results, tasks=tasks, baseline="base")).rows
    assert [cell.text for cell in row[1:]] == ["14", "1 / 13 / 0"]


def test_of_many_models_the_best_are_shown_and_the_others_counted():
    names = [f"m{i:02d}" for i in range(33)]
    results = [make(n, [0.1 + 0.02 * i, 0.3, 0.2], task="T") for i, n in enumerate(names)]
    comparison = compare(results, baseline="m00", draws=20)
    assert len(overview_table(comparison)) == 30
    assert len(overview_table(comparison, most=99)) == 32
    figures = {
        differences_figure(comparison): 2,
        pairs_figure(comparison): 3,
        task_differences_figure(comparison, task="T"): 2,
        wins_figure(comparison, task="T"): 2,
    }
    for figure, count in figures.items():
        assert figure.caption.endswith(f" models are shown, {count} others are not.")
        assert "too many" not in figure.caption  # as more than 20 are drawn
    assert "m02" not in next(iter(figures)).alt
    table = differences_table(comparison, models=comparison.leaders(30))
    assert len(table) == 30
    assert "2 others are not. `qwen3nb tables` writes the rows of all." in table.note
    assert "others are" not in differences_table(comparison).note


def changed(**more):
    return changes_table(compared(), texts=TEXTS, **more)


def test_changed_queries_have_their_text_and_a_link_to_the_explorer_of_their_task():
    table = changed()
    assert len(table.rows) == 6
    assert len(table.columns) == 3  # no record keeps its documents
    query = table.rows[0][1]
    assert query.text.startswith(f"{query.detail.removeprefix('q')} which method")
    assert (len(query.text), query.text[-1], query.link) == (80, "…", "")
    assert "the 2 models nearest to now and now itself differ most" in table.caption
    row = changed(explorer=RETRIEVAL).rows[0]
    assert row[1].link == f"explorer.html#q={row[1].detail}&a={row[0].text}&b=now"
    assert changed(explorer="SciFact").rows[0][1].link == ""


def test_top_documents_are_shown_where_no_link_leads_to_them():
    results = [make("a", (0.1, 0.5)), make("b", (0.2, 0.9))]
    results[0].config["top"] = {"q0": ["d1", "d2"], "q1": ["d3", "d4"]}
    comparison = compare(results, baseline="b")
    row = changes_table(comparison, texts=TEXTS).rows[0]
    assert [cell.text for cell in row][3:] == ["d3, d4", ""]
    assert len(changes_table(comparison, texts=TEXTS, explorer=RETRIEVAL).columns) == 3


def test_the_parts_of_a_task_have_the_rankings_of_the_whole():
    """Their queries have no prefix, the record's rankings have."""
    result = make("a")
    amend(result, "task", splits=("test",), subsets=("en",))
    result.config["top"] = {"test/en/q0": ["d"], "test/de/q0": ["e"]}
    tops = [top_documents(result, query) for query in ("q0", "test/de/q0", "q1")]
    assert tops == [["d"], ["e"], []]


def test_without_texts_the_ids_remain_and_a_note_says_why():
    scores = {"a": (0.1, 0.5, 0.3), "b": (0.2, 0.4, 0.9)}
    results = [make(name, values, task="NoSuchTask") for name, values in scores.items()]
    table = changes_table(compare(results, baseline="a"))
    assert [row[1].text for row in table.rows] == ["q2", "q0", "q1"]
    assert table.rows[0][1].detail == ""
    assert table.note.startswith("Query texts are not available: unknown task")


def test_wins_are_counted_by_query():
    results = [make("a", scores=(0.5, 0.5, 0.5, 0.9)), make("b", scores=(0.4, 0.5, 0.6, 0.1))]
    figure = wins_figure(compare(results), task=RETRIEVAL)
    assert "b: 1 won, 1 tied, 2 lost" in figure.alt
    assert [patch.get_width() for patch in figure.axes[0].patches] == [1, 1, 2]


def test_a_difference_is_filled_where_the_test_says_so():
    scores = np.linspace(0.2, 0.8, 40)
    values = {"a": scores, "b": scores - 0.1, "c": scores[::-1] - 0.001}
    results = [make(name, each) for name, each in values.items()]
    axis = task_differences_figure(compare(results), task=RETRIEVAL).axes[0]
    assert points(axis) == [(-0.1, True), (-0.001, False)]  # b differs from a, c does not


def test_the_figure_has_the_best_on_its_line_and_the_others_behind():
    results = [
        make("a", scores=noisy(0.7)),
        make("b", scores=noisy(0.6, spread=0.4, seed=1)),
        make("c", scores=noisy(0.3, seed=2)),
    ]
    figure = lead_figure(compare(results, tier="smoke"), task=RETRIEVAL)
    assert labels(figure.axes[0])[-1] == "a"
    filled = {round(at, 1): clear for at, clear in points(figure.axes[0])}
    assert filled[0.0]
    assert filled[-0.4]  # c is behind
    assert sorted(filled.values()) == [False, True, True]  # b is not shown to be
    assert figure.columns == 1  # as wide as a phone
    results = [make(f"m{i}", scores=noisy(0.3 + i / 50, seed=i)) for i in range(10)]
    assert "Not shown: 1 more" in lead_figure(compare(results), task=RETRIEVAL).caption


def words_on(results, **more):
    return comparison_conclusion(compare(results, tier="smoke", **more)).text


def test_what_is_shown_is_counted_and_the_largest_is_named():
    text = words_on(three_models(), baseline="now")
    assert text.startswith("1 of 2 differences from now on Retrieval is significant after correct")
    assert "models on each task): 1 better, 0 worse. The largest is +0.2" in text
    assert "(nDCG@10 of good on Retrieval)" in text
    assert "Whether the other difference is within ±0.05 is not shown; these queries detect" in text
    values = {"now": noisy(0.5), "up": noisy(0.6, seed=1), "down": noisy(0.1, seed=2)}
    text = words_on([make(name, scores) for name, scores in values.items()], baseline="now")
    assert "2 of 2 differences" in text
    assert "1 better, 1 worse" in text
    assert "of down on Retrieval); the largest gain is +0.1" in text
    assert "within" not in text


@pytest.mark.parametrize(
    ("mean", "spread", "words"),
    [
        (0.7, 0.02, "is significant after correction {}: better."),
        (0.3, 0.02, "is significant after correction {}: worse."),
        (0.5, 0.3, "is not significant after correction {}. Whether the difference is within ±0.0"),
    ],
)
def test_one_difference(mean, spread, words):
    results = [make("now", noisy(0.5)), make("new", noisy(mean, spread=spread, seed=8))]
    text = words_on(results, baseline="now")
    words = words.format("(Holm over all pairs of models on each task)")
    assert text.startswith(f"The difference from now on Retrieval {words}")
    for rest in ("these queries detect a difference of 0.", "would show it to be within ±0.05"):
        assert (rest in text) == (spread > 0.1)


def test_on_many_queries_a_difference_may_be_shown_and_small():
    rng = np.random.default_rng(0)
    base = rng.uniform(0.2, 0.8, 900)
    values = {"same": base + rng.normal(0, 0.05, 900), "new": base + rng.normal(0.02, 0.05, 900)}
    results = [make("now", base), *(make(name, scores) for name, scores in values.items())]
    text = words_on(results, baseline="now")
    assert text.startswith("1 of 2 differences from now on Retrieval is significant")
    assert "It is smaller than 0.05, the least that matters" in text
    assert text.endswith("The other difference is within ±0.05: equivalent.")


def test_none_of_several_and_nothing():
    results = [
        make(name, task=task, scores=noisy(0.5, spread=0.3, seed=seed))
        for seed, name in enumerate("abc", 1)
        for task in (RETRIEVAL, RERANKING)
    ]
    text = words_on(results, correction="none", baseline="a")
    assert text.startswith("None of the 4 differences from a on 2 tasks is significant without a")
    assert "Of the 4: 4 not shown to be either; these queries detect a difference of 0." in text
    assert words_on([make("a")]).startswith("Nothing was compared")


def leading(results):
    return leaderboard_conclusion(compare(results, tier="smoke"), task=RETRIEVAL).text


def test_a_model_is_best_only_where_its_lead_is_shown():
    changes = 0.1 + 0.1 * np.tile([-1, 1], 100)
    text = leading([make("second", scores=BASE), make("best", scores=BASE + changes)])
    assert text.startswith(f"best is best on Retrieval: nDCG@10 {np.mean(BASE) + 0.1:.3f} [0.")
    assert text.endswith(
        "second by 0.100 [0.086, 0.114], a difference that these 200 queries show."
    )
    close = make("close", scores=BASE + RNG.normal(0.001, 0.1, 200))
    text = leading([make("other", scores=BASE), close])
    assert "scores highest on Retrieval" in text
    assert "not a difference that these 200 queries can show" in text
    assert text.endswith("They do not show it to be ahead of any other model.")
    text = leading([make("other", scores=BASE), close, make("last", scores=BASE - 0.1)])
    assert "It is ahead of last by 0.1" in text
    assert text.endswith("which they do show.")


def test_one_model_and_none():
    alone = make("a", scores=BASE)
    assert leading([alone]).endswith("There is no other model to compare it with.")
    other = make("b", scores=BASE[:100] - 0.1)
    assert "No other model has scores on the same queries" in leading([alone, other])
    assert leading([]).startswith("No results yet")


@pytest.mark.integration
def test_on_a_tier_with_benchmarks_it_is_about_the_mean_of_the_first():
    results = [
        *tier_records("good", mean=0.7),
        *tier_records("poor"),
        *tier_records("part", without=["SciFact"]),
    ]
    boards, comparison = standings(results, tier="full"), compare(results, tier="full")
    text = leaderboard_conclusion(comparison, task="BEIR").text
    best, second = boards.overall.standings
    assert text.startswith(f"good is best on BEIR: mean nDCG@10 of 15 tasks {best.mean:.3f} [")
    assert f"ahead of poor by {best.mean - second.mean:.3f} [" in text
    low, high = comparison.difference("good", "poor", task="BEIR").interval
    assert f"[{low:.3f}, {high:.3f}], a difference that these 1,040 queries show." in text
    assert text.endswith("part is not ranked: no score on SciFact.")


@pytest.mark.parametrize(
    ("interval", "shown"), [((-0.01, 0.1), False), ((0.01, 0.1), True), (None, True)]
)
def test_a_lead_is_shown_only_if_its_interval_agrees_with_the_test(monkeypatch, interval, shown):
    """On few queries the interval of a mean over tasks may hold 0 where the test rejects it."""
    comparison = compare([make("poor", scores=BASE), make("good", scores=BASE + 0.1)])
    between = type(comparison).between

    def with_interval(self, one, other):
        return replace(between(self, one, other), interval=interval)

    monkeypatch.setattr(type(comparison), "between", with_interval)
    words = leaderboard_conclusion(comparison, task=RETRIEVAL).text
    assert words.startswith("good is best" if shown else "good scores highest")
    assert ("not a difference that these" in words) is not shown
