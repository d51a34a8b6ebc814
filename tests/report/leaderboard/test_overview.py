"""The leaderboard's first screen: who is first, ranks, brackets, scores, and the other views."""

import re

import pytest
from bs4 import BeautifulSoup
from helpers.records import RERANKING, RETRIEVAL, TYPES, amend, make, noisy, own, tier_records
from matplotlib.text import Text

from qwen3nb.answers.board.references import REFERENCES, not_measured
from qwen3nb.answers.board.won import won_tables
from qwen3nb.answers.leaderboard import leaderboard
from qwen3nb.models.kinds.source import registry
from qwen3nb.tiers import TIERS
from qwen3nb.utils.atomic_files import sha256_json

KEYWORDS = {"model": {"kind": "bm25"}}


def several(**means):
    """A record of search per model, on the same 40 queries."""
    return [make(name, scores=noisy(mean, seed=i)) for i, (name, mean) in enumerate(means.items())]


def page(view):
    return BeautifulSoup(view._repr_html_(), "html.parser")


@pytest.mark.parametrize(
    ("means", "sentence"),
    [
        ({"a": 0.5}, "Only a was evaluated; a second model would show how good it is."),
        ({"a": 0.5, "b": 0.2}, "a is first."),
        ({"a": 0.5, "b": 0.5, "c": 0.2}, "Two models share first place: {} and {}."),
        (dict.fromkeys("abc", 0.5), "Three models share first place: {}, {} and {}."),
        (dict.fromkeys("abcde", 0.5), "Five models share first place: {}, {}, {} and 2 more."),
    ],
)
def test_one_sentence_says_who_is_first(means, sentence):
    board = leaderboard(several(**means))
    best = board.ties.best
    assert board.conclusion.text == sentence.format(*best)
    bold = [each.text for each in page(board.conclusion).select("strong")]
    assert bold == list(best[:3])


def test_models_without_a_common_query_have_no_shared_place():
    other = make("b", scores={"x": 0.9, "y": 0.8})
    board = leaderboard([*several(a=0.5), other])
    assert board.conclusion.text.startswith("b scores highest, but no other model")
    assert board.ties.ranks == (1, 2)
    assert board.ties.brackets == ()


def test_rows_have_shared_ranks_two_decimals_and_exact_numbers_on_focus():
    records = several(low=0.2, a=0.5, b=0.5)
    board = leaderboard(records, links={"run-a": "a.html"})
    table = page(board.overview()).select_one("table.q-board")
    rows = table.select("tbody tr")
    ranks = [cell.text for cell in table.select("td.q-place")]
    assert ranks == ["1", "3"]
    assert table.select_one("td.q-place")["rowspan"] == "2"
    assert {row.th.find(string=True) for row in rows[:2]} == {"a", "b"}
    of_a = next(row for row in rows if row.th.find(string=True) == "a")
    assert "No difference shown from b" in of_a.th.text
    score = of_a.select_one("td[data-sort] > [title]")
    (record,) = [each for each in records if each.model.label == "a"]
    assert score.text == f"{record.main.value:.2f}"
    assert score["title"] == (
        f"nDCG@10 {record.main.value:.3f} [{record.main.low:.3f}, {record.main.high:.3f}], "
        "40 queries"
    )
    assert score["href"] == "a.html#score-pydocssampleretrieval"
    of_low = rows[-1].select_one("td[data-sort] > [title]")
    assert (of_low.name, of_low["tabindex"]) == ("span", "0")  # no page, still reached by keyboard


def test_columns_have_human_titles_the_shade_of_the_score_and_a_dash_without_vectors():
    keywords = make("bm25", scores=noisy(0.25), settings=KEYWORDS)
    dense = make("m", scores=noisy(0.5))
    pairs = make("m", scores=noisy(0.4), task="AuthorSTS", metric="Spearman")
    amend(pairs, "task", type="STS", unit="pairs")
    board = leaderboard([keywords, dense, pairs])
    search, similarity = board.overview().columns
    assert (search.title, search.size, search.about) == (
        "Search",
        "40 queries",
        "PyDocsSampleRetrieval, nDCG@10",
    )
    assert (similarity.title, similarity.size) == ("Similarity", "40 pairs")
    identity = keywords.model.identity
    assert search.shade(search.scores[identity]) == pytest.approx(0.5, abs=0.01)
    assert similarity.scores[identity].text == "–"
    assert similarity.scores[identity].about == "no vectors"


def test_a_model_without_the_deciding_task_has_no_rank_and_comes_last():
    elsewhere = make("elsewhere", scores=noisy(0.9), task=RERANKING)
    amend(elsewhere, "task", type="Reranking")
    board = leaderboard([*several(a=0.5, b=0.2), elsewhere])
    last = page(board.overview()).select("table.q-board tbody tr")[-1]
    assert (last.td.text, last.th.text) == ("–", "elsewhere")
    assert [score.text for score in last.select("td")[-2:]] == ["not run", "0.90"]


def test_several_seeds_of_a_model_are_one_row():
    board = leaderboard(
        [make("a", noisy(0.5)), make("a", noisy(0.6, seed=1), seed=1), make("b", noisy(0.2))]
    )
    assert len(board.overview().models) == 2
    assert board.ties.models == ("a (seed 1)", "b")


def test_a_benchmark_has_a_column_per_mean_and_says_what_is_incomplete():
    searches = ("Retrieval", "Reranking")
    others = [key for key in TIERS["full"].task_keys if TYPES[key] not in searches]
    records = [*tier_records("a"), *tier_records("b", mean=0.3, without=others[:3])]
    columns = leaderboard(records, tier="full").overview().columns
    assert columns[0].title == "BEIR"
    assert len(columns) < 8
    texts = [score.text for score in columns[-1].scores.values()]
    assert texts[1] == "38 of 41"


def test_own_data_are_shown_where_nothing_else_was_evaluated():
    mine = [own("a", 0.5), own("b", 0.2, seed=1)]
    for record in mine:
        amend(record, "task", dataset="domain-mine-1a")
    board = leaderboard(mine, tier="smoke")
    assert board.conclusion.text == "a is first."
    assert [column.title for column in board.overview().columns] == ["mine-1a"]
    assert leaderboard([*mine, make("c")], tier="smoke").keys == ()


def test_reference_models_stand_below_until_they_are_measured():
    assert {model.name for model in REFERENCES} <= registry().keys()
    measured = make("e5-base-v2", scores=noisy(0.5))
    missing = [model.name for model in not_measured([measured])]
    assert "e5-base-v2" not in missing
    assert {"Qwen3-0.6B", "gte-base", "bge-base-en-v1.5"} <= set(missing)
    fold = page(leaderboard([measured]).overview()).select_one("details.q-references")
    assert fold.summary.text == f"{len(missing)} reference models not run yet"
    heads = [head.text for head in fold.select("thead th")]
    row = next(row for row in fold.select("tbody tr") if row.th.find(string=True) == "gte-base")
    cells = dict(zip(heads, (cell.text for cell in row.find_all(["th", "td"])), strict=True))
    assert cells == {
        "model": "gte-basenot run",
        "type": "encoder",
        "parameters": "110 M",
        "dimensions": "768",
        "longest text": "512",
        "licence": "mit",
        "command": "qwen3nb eval --model gte-base --tier smoke",
    }
    by_hub_id = make("gte", scores=noisy(0.5))
    amend(by_hub_id, "model", spec="thenlper/gte-base")
    assert "gte-base" not in [model.name for model in not_measured([by_hub_id])]


def test_views_hold_what_one_click_shows_and_work_without_a_script():
    board = page(leaderboard(several(a=0.5, b=0.2)))
    buttons = board.select(".q-views > input[type=radio]")
    names = [label.text for label in board.select(".q-views > label")]
    expected = "scores, ± intervals, difference to …, won / lost, ranks, cost, models"
    assert names == expected.split(", ")
    assert [button.get("checked") is not None for button in buttons] == [True] + 6 * [False]
    assert [label["for"] for label in board.select(".q-views > label")] == [
        button["id"] for button in buttons
    ]
    shown = [view["aria-label"] for view in board.select(".q-views > .q-view")]
    assert shown == names
    target = board.select_one('a[href="#tab-ranks"]')
    assert target.text == "How the ranks are made"
    assert board.select_one(".q-view #tab-ranks")
    alone = [view.name for view in leaderboard(several(a=0.5)).views().views]
    assert alone == ["scores", "± intervals", "cost", "models"]


def test_won_and_lost_are_of_each_baseline():
    pair = [make("a", (1.0, 0.5, 0.5)), make("b", (0.0, 0.5, 0.9))]
    board = leaderboard(pair)
    choice = won_tables(board.comparison, task=board.task)
    counts = {name: [cell.text for cell in choice.variants[name].rows[0]] for name in "ab"}
    assert counts == {"a": ["b", "1", "1", "1", "3"], "b": ["a", "1", "1", "1", "3"]}
    assert choice.variants["b"].columns[0] == "model\nagainst b"


def test_notes_are_short():
    keywords = make("bm25", scores=noisy(0.5), settings=KEYWORDS)
    pairs = make("m", scores=noisy(0.4), task="AuthorSTS", metric="Spearman")
    amend(pairs, "task", type="STS", unit="pairs")
    board = leaderboard([keywords, make("m", scores=noisy(0.5)), pairs])
    for note in page(board.overview()).select(".q-note"):
        assert len(re.findall(r"\S*\w\S*", note.text)) <= 40, note.text


def test_a_fusion_has_the_parameters_of_its_parts():
    keywords = make("bm25", scores=noisy(0.4), settings=KEYWORDS)
    dense = make("m", scores=noisy(0.5))  # with 10 parameters
    fusion = make(
        "both",
        scores=noisy(0.6),
        settings={"model": {"kind": "fusion"}, "of": [KEYWORDS, dense.model.settings]},
    )
    board = leaderboard([keywords, dense, fusion])
    table = board.models_table()
    facts = {row[0].text: [cell.text for cell in row[1:3]] for row in table.rows}
    assert facts["both"][0] == "fusion"
    assert facts["bm25"] == ["keywords", "none"]
    values = {row[0].text: row[2].value for row in table.rows}
    assert values["both"] == values["m"] == 10.0
    assert sha256_json(KEYWORDS) == keywords.model.identity


def test_cost_is_speed_where_it_was_measured_without_a_cache_else_size():
    timed = several(a=0.5, b=0.2)
    figure = leaderboard(timed).cost_figure()
    assert "seconds per 1,000 texts" in figure.caption
    assert figure.axes[0].get_xlabel() == "seconds per 1,000 texts"
    for record in timed:
        amend(record, "cost", cached=3)
    assert "parameters" in leaderboard(timed).cost_figure().caption
    assert leaderboard(several(a=0.5)).cost_figure() is None


def test_names_of_points_do_not_overlap_each_other():
    equal = [make(f"a-model-with-a-long-name-{i}", scores=noisy(0.5, seed=i)) for i in range(8)]
    figure = leaderboard(equal).cost_figure()
    axis = figure.axes[0]
    figure.figure.draw_without_rendering()
    boxes = [Text.get_window_extent(text) for text in axis.texts]
    assert len(boxes) >= 2
    for index, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[index + 1 :])
    assert RETRIEVAL in figure.data.tasks


def test_models_of_the_demo_are_marked_as_toys(home):
    toy, other = several(**{"demo-m": 0.5, "m": 0.2})
    amend(toy, "model", spec="runs/demo/encoder/m")
    board = page(leaderboard([toy, other]).overview())
    names = [row.th.text for row in board.select("table.q-board tbody tr")]
    assert names == ["demo-m (toy)", "m"]
    assert "Toy: not for use." in board.select(".q-note")[-1].text
    assert "Toy" not in page(leaderboard([other]).overview()).select(".q-note")[-1].text
