import re

import pytest
from helpers.html import HOSTILE, Tags
from helpers.records import amend, make, tier_records

from qwen3nb.analysis.comparison.alignment import model_names
from qwen3nb.analysis.comparison.compare import compare
from qwen3nb.book.build import remote_resources
from qwen3nb.metrics.aggregate import aggregate
from qwen3nb.records.store import latest
from qwen3nb.report.comparison.tables import differences_table
from qwen3nb.report.leaderboard.figures import (
    comparison_figure,
    per_query_figure,
    similarity_figure,
)
from qwen3nb.report.leaderboard.score_table import leaderboard
from qwen3nb.report.leaderboard.tables import (
    cost_table,
    failures_table,
    headline_table,
    headline_task,
    model_and_run_table,
    provenance_table,
    results_table,
)
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.format import short_task
from qwen3nb.report.render.table import Table
from qwen3nb.tiers import TIERS

OURS = {
    "div",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "span",
    "p",
    "strong",
    "a",
    "sub",
    "sup",
    "code",
}


@pytest.mark.parametrize("text", HOSTILE)
def test_no_foreign_string_becomes_markup(text):
    bad = make(text, settings={"model": {"kind": text}, "pooling": text})
    tables = [
        leaderboard([bad], tier="smoke"),
        results_table([bad], skipped={text: text}),
        provenance_table([bad]),
        model_and_run_table([bad]),
        cost_table([bad]),
        headline_table([bad], tier="smoke"),
        differences_table(compare([bad, make()]), task="PyDocsSampleRetrieval"),
        failures_table({text: text}),
        Table((text,), ((Cell(text, text, link="x.html"),),), text),
    ]
    for table in tables:
        parsed = Tags(table.to_html())
        assert set(parsed.tags) <= OURS
        assert all(link in ("x.html", "../methods.html#formula-ndcg") for link in parsed.links)
        markdown = table.to_markdown()
        assert "<script" not in markdown
        assert "<img" not in markdown
        assert not re.search(r"(?<!\\)\[x\]\(", markdown)
        assert not re.search(r"(?<!\\)`", markdown)
        rows = [line for line in markdown.splitlines() if line.startswith("|")]
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1


def test_the_comparison_names_what_is_missing_and_marks_the_best():
    bm25 = make("bm25", scores=(0.9, 0.9, 0.9), settings={"model": {"kind": "bm25"}})
    sts = make("m", task="AuthorSTS")
    table = leaderboard([make("m"), bm25, sts], tier="smoke", links={"run-m": "m.html"})
    assert [row[0].text for row in table.rows] == ["bm25", "m"]
    first, second = table.rows
    assert (first[1].text, first[1].strong) == ("0.900", True)
    assert (second[1].text, second[1].strong) == ("0.500", False)
    assert second[1].link == "m.html#score-pydocssampleretrieval"
    assert re.fullmatch(r"\[0\.\d{3}, [01]\.\d{3}\]", second[1].detail)
    assert first[5].text == "no vectors"
    assert second[2].text == "not run"
    assert table.columns[1] == "Retrieval\nnDCG@10, n = 3"


def test_a_checkpoint_overwritten_in_place_shows_its_newest_record_only():
    old = make("m", scores=(0.1, 0.1, 0.1), identity="1" * 64, finished="2026-01-01")
    new = make("m", scores=(0.3, 0.3, 0.3), identity="2" * 64, finished="2026-02-01")
    assert latest([new, old]) == [new]
    other = make("m", identity="3" * 64, settings={"model": {"kind": "encoder"}, "pooling": "last"})
    assert set(map(id, latest([old, new, other]))) == {id(new), id(other)}
    assert set(model_names([new, other]).values()) == {"m (22222222)", "m (last)"}


def test_tables_without_results_say_so():
    assert "No results" in headline_table([], tier="smoke").note
    assert leaderboard([], tier="smoke").rows == ()
    assert failures_table({}).note == "No task failed."


def test_an_undefined_value_has_its_reason_and_no_number():
    constant = {"cosine": dict.fromkeys("abc", 0.5), "gold": {"a": 1, "b": 2, "c": 3}}
    undefined = aggregate(constant, how="spearman", columns=("cosine", "gold"), seed=0)
    result = make("m", metric="Spearman", task="AuthorSTS")
    result.metrics["Spearman"] = undefined
    (cell,) = [row[5] for row in leaderboard([result], tier="smoke").rows]
    assert (cell.text, "constant" in cell.detail) == ("undefined", True)


def test_figures_are_made_and_closed():
    import matplotlib.pyplot as plt

    mine = plt.figure()
    results = [make("m"), make("n", scores=(0.1, 0.2, 0.3)), make("m", task="AuthorSTS")]
    figure = comparison_figure(results, tier="smoke")
    assert len(figure.axes) == 5
    labels = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    assert labels == ["n", "m"]
    assert len(per_query_figure(results).axes) == 3
    assert per_query_figure([]) is None
    assert similarity_figure(results) is None
    assert plt.get_fignums() == [mine.number]
    plt.close(mine)


@pytest.mark.parametrize(
    ("page", "remote"),
    [
        ('<script src="https://cdn.example/x.js"></script>', "https://cdn.example/x.js"),
        ("<img alt='x' src='//cdn.example/x.png'>", "//cdn.example/x.png"),
        ('<link rel="stylesheet" href="http://fonts.example/f.css">', "http://fonts.example/f.css"),
        ('<iframe\n src="https://x.example">', "https://x.example"),
        ('<a href="https://x.example">a link is not fetched</a>', None),
        ('<link rel="canonical" href="https://x.example">', None),
        ('<script src="_static/x.js"></script><img src="data:image/png;base64,AA">', None),
    ],
)
def test_remote_resources_are_found_and_links_are_not(tmp_path, page, remote):
    (tmp_path / "p.html").write_text(page)
    expected = [("p.html", remote)] if remote else []
    assert remote_resources(tmp_path) == expected


def test_remote_styles_are_found(tmp_path):
    (tmp_path / "s.css").write_text(
        "@import url('https://fonts.example/x'); a{background:url(x.png)}"
    )
    assert remote_resources(tmp_path) == [("s.css", "https://fonts.example/x")]


def test_a_page_says_what_came_from_the_cache():
    result = make("m")
    amend(result, "cost", cached=4)
    facts = {row[0].text: row[1].text for row in model_and_run_table([result]).rows}
    assert facts["vectors"] == "3 computed, 4 from the cache"


def test_an_older_record_without_a_setting_is_the_same_row():
    old = make("m", settings={"model": {"kind": "encoder"}, "pooling": "mean"}, identity="a" * 64)
    new = make(
        "m", finished="2026-02-02", identity="b" * 64,
        settings={"model": {"kind": "encoder"}, "pooling": "mean", "prefix": "",
                  "append_eos": False, "normalize": True},
    )  # fmt: skip
    assert latest([old, new]) == [new]
    other = make("m", settings={"pooling": "mean", "prefix": "[R]"}, identity="c" * 64)
    assert latest([old, new, other]) == [new, other]


def test_the_headline_is_the_task_of_most_models_or_the_means_of_benchmarks():
    first, second = TIERS["smoke"].task_keys[:2]
    results = [make("a", task=second), make("b", task=second), make("b", task=first)]
    assert headline_task(results, tier="smoke") == second
    assert headline_task(results[1:], tier="smoke") == first
    assert headline_table(results, tier="smoke").columns[1].startswith(short_task(second))
    full = headline_table(tier_records("m"), tier="full")
    assert [head.split("\n")[0] for head in full.columns] == [
        "model", "BEIR", "BEIR without MS MARCO", "MS MARCO dev", "MTEB(eng, v2) Mean (Task)",
        "MTEB(eng, v2) Mean (TaskType)",
    ]  # fmt: skip


def test_one_content_under_two_labels_has_one_row_everywhere():
    shared = {"identity": "1" * 64}
    results = [make("new", finished="2026-02-01", **shared), make("old", **shared), make("other")]
    name = "new (= old)"
    tables = (
        leaderboard(results, tier="smoke"), headline_table(results, tier="smoke"),
        cost_table(results),
    )  # fmt: skip
    for table in tables:
        assert sorted(row[0].text for row in table.rows) == [name, "other"]
    assert {cell.text for row in cost_table(results).rows for cell in row[2:3]} == {"1.0"}
    comparison = compare(results, tier="smoke", baseline="old")
    assert comparison.baseline == name
    assert comparison.notes == ()
