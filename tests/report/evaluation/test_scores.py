"""A model's scores beside a baseline: the table, the plot, the sentence, and the page's trace."""

import nbformat
import pytest
from helpers.notebooks import notebook_of
from helpers.records import make, noisy, tier_records

from qwen3nb.analysis.comparison.against_baseline import against_baseline
from qwen3nb.report.evaluation.run_trace import (
    RunTrace,
    read_conclusions,
    read_finished,
    read_trace,
)
from qwen3nb.report.evaluation.scores import (
    baseline_figure,
    evaluation_conclusion,
    forest_rows,
    scores_table,
    terminal_table,
)
from qwen3nb.report.render.conclusion import Conclusion
from qwen3nb.report.render.home import record_link, score_link

TASKS = ("PyDocsSampleRetrieval", "PyDocsSampleReranking")


def on_tasks(label, *means, seed=0):
    return [
        make(label, task=task, scores=noisy(mean, seed=seed))
        for task, mean in zip(TASKS, means, strict=False)
    ]


M, OTHER = on_tasks("m", 0.7, 0.6), on_tasks("bm25", 0.5, 0.5, seed=1)


@pytest.mark.parametrize(
    ("ours", "others", "words"),
    [
        (M, OTHER, "paired difference (the largest, on Retrieval: +0."),
        (on_tasks("m", 0.5, 0.3), OTHER, "m is better on 0 and worse on 1 by a sig"),
        (M, on_tasks("random", 0.1, 0.1), "compared with random (the floor), m is better on 2"),
        (M, [], "m scores nDCG@10 0."),
        (M, [], "no record of a reference model); `qwen3nb eval --model bm25` on the same tasks"),
        (on_tasks("bm25", 0.5), [], "`qwen3nb eval --model all-MiniLM-L6-v2` on the same tasks"),
        ([], OTHER, "No task was finished"),
    ],
)
def test_the_sentence_follows_from_the_differences(ours, others, words):
    assert words in str(evaluation_conclusion(against_baseline(ours, others)))


def test_the_baseline_has_most_tasks_of_the_reference_models_then_random_is_the_floor():
    ours = on_tasks("m", 0.5, 0.5)
    bm25, random = on_tasks("bm25", 0.4), on_tasks("random", 0.1, 0.1)
    best, toy = on_tasks("all-MiniLM-L6-v2", 0.9, 0.9), on_tasks("toy", 0.95, 0.95)

    def baselines(*others, **options):
        return [each.baseline for each in against_baseline(ours, others, **options)]

    assert baselines(*bm25, *random, *toy) == ["bm25", "random"]
    assert baselines(*bm25, *random, *best) == ["all-MiniLM-L6-v2"] * 2
    assert baselines(*bm25, *best[1:]) == ["bm25", "all-MiniLM-L6-v2"]
    assert baselines(*toy) == ["", ""]  # no baseline by accident
    assert baselines(*bm25, *random, *toy, baseline="toy") == ["toy", "toy"]
    assert baselines(*bm25, *best, baseline="bm25") == ["bm25", "all-MiniLM-L6-v2"]
    assert baselines(*ours) == ["", ""]  # never itself
    old = make("bm25", task=TASKS[0], revision="older", scores=noisy(0.4))
    assert baselines(old) == ["", ""]  # nor on other data


def test_the_table_shows_what_is_not_applicable_and_no_none():
    scores = against_baseline(on_tasks("m", 0.7), on_tasks("bm25", 0.5, seed=1))
    table = scores_table(scores, skipped={"AuthorSTS": "m has no vectors"})
    assert [row[0].text for row in table.rows] == ["Retrieval"]
    assert table.rows[0][3].strong
    assert table.note.endswith("Not applicable: 1 task (m has no vectors).")
    alone = scores_table(against_baseline(on_tasks("m", 0.7), []))
    assert alone.columns == ("task", "metric", "score\n95 % interval", "n")
    for shown in (table, alone):
        assert "None" not in shown.to_html()
        assert shown.caption == "Scores of m."
    terminal = terminal_table(scores, reused=[TASKS[0]], skipped={"X": "why", "Y": "why"})
    assert [row[-1].text for row in terminal.rows] == ["reused"]
    assert terminal.note == "Not applicable: 2 tasks (why)."
    assert len({len(row) for row in terminal.rows} | {len(terminal.columns)}) == 1


def test_many_tasks_are_folded_by_type():
    ours, others = tier_records("m"), tier_records("random", mean=0.3, seed=1)
    scores = against_baseline(ours, others)
    shown = scores_table(scores, skipped={"X": "no vectors"})
    assert sum(len(table) for _, table in shown.tables) == 61
    assert shown.about == "Not applicable: 1 task (no vectors)."
    names = [table.name for _, table in shown.tables]
    assert len(set(names)) == len(names)


def test_the_plot_has_a_row_per_difference_and_is_absent_without_one():
    ours, others = on_tasks("m", 0.7, 0.5), on_tasks("bm25", 0.5, 0.5, seed=1)
    rows = forest_rows(against_baseline(ours, others))
    assert [(row.label, row.clear) for row in rows] == [("Retrieval", True), ("Reranking", False)]
    assert "to bm25" in baseline_figure(against_baseline(ours, others)).alt
    assert baseline_figure(against_baseline(ours, [])) is None
    assert baseline_figure([]) is None


def test_a_row_is_what_links_to_a_score_lead_to_and_links_to_its_record_and_formula():
    own = [*on_tasks("m", 0.7), make("m", task=TASKS[1], metric="MRR@10")]
    first, second = scores_table(against_baseline(own, []), results=own).rows
    assert score_link(own[0], {own[0].run: "x.html"}) == f"x.html#{first[0].id}"
    assert first[2].link == record_link(own[0])
    assert second[1].link == "../methods.html#formula-mrr"


def test_scores_and_conclusions_come_back_from_a_page(tmp_path):
    scores = against_baseline(on_tasks("m", 0.7), OTHER)
    trace = RunTrace(tuple(scores), ("PyDocsSampleRetrieval",), {"X": "no vectors"})
    conclusion = Conclusion("a < b is shown.")
    node = notebook_of("trace", "conclusion")
    data = {"text/html": conclusion._repr_html_(), "text/plain": repr(conclusion)}
    for cell, shown in zip(node.cells[-2:], (trace._repr_mimebundle_(), data), strict=True):
        cell.outputs = [nbformat.v4.new_output("display_data", shown)]
    node.metadata["qwen3nb"] = {"finished": "2026-01-01T00:00:00+00:00"}
    page = tmp_path / "page.ipynb"
    assert read_trace(page) is None
    assert not [*read_conclusions(page), *read_finished(page)]
    nbformat.write(node, page)
    assert read_trace(page) == trace
    assert read_conclusions(page) == ["a < b is shown."]
    assert read_finished(page) == "2026-01-01T00:00:00+00:00"
