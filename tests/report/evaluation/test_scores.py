"""A model's scores beside a baseline: the table, the plot, the sentence, and the page's trace."""

from dataclasses import replace

import pytest
from helpers.records import make, noisy, tier_records

from qwen3nb.analysis.comparison.alignment import reference_models
from qwen3nb.analysis.comparison.benchmark_means import MEAN, column_mean, ranked_columns
from qwen3nb.answers.against_baseline import against_baseline
from qwen3nb.answers.evaluation import (
    baseline_figure,
    evaluation_conclusion,
    intervals_table,
    mean_lines,
    scores_table,
    terminal_tables,
)
from qwen3nb.answers.one_query import query_table, shortened, typical_query
from qwen3nb.datasets.pydocs.mteb_tasks import embedded_task
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.models.load import load_model
from qwen3nb.report.render.figure import QUIET
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
        (M, OTHER, "on Retrieval, better than bm25 with 0.500. On Reranking, it is better than"),
        (
            on_tasks("m", 0.5, 0.3),
            OTHER,
            "as good as bm25 with 0.500, as far as 40 queries can tell.",
        ),
        (on_tasks("m", 0.5, 0.3), OTHER, "On Reranking, it is worse than bm25."),
        (on_tasks("random", 0.1, 0.1), on_tasks("bm25", 0.5, seed=1), "worse than bm25 with 0."),
        (M, on_tasks("random", 0.1, 0.1), "better than random (the floor) with 0.099"),
        (M, on_tasks("bm25", 0.7, 0.6), "the same as bm25 on every query."),
        (M, [], "m scores nDCG@10 0."),
        (M, [], "For a baseline, run `qwen3nb eval --model bm25` on the same tasks"),
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


def test_only_what_is_significant_is_called_so():
    """Of two differences that are both noise, the larger is named as what it is."""
    ours, others = on_tasks("m", 0.505, 0.502), on_tasks("bm25", 0.5, 0.5, seed=1)
    scores = against_baseline(ours, others)
    assert not any(score.significant for score in scores)
    sentence = str(evaluation_conclusion(scores))
    assert sentence.endswith(
        ", as far as 40 queries can tell. On Reranking, no difference from bm25 is shown."
    )
    assert "better" not in sentence


def test_other_tasks_are_counted_by_what_their_differences_show():
    """A task that is not compared counts for none of them."""
    means = (0.7, 0.8, 0.3, 0.5, 0.6)
    ours = [make("m", task=f"T{i}", scores=noisy(mean)) for i, mean in enumerate(means)]
    others = [make("bm25", task=f"T{i}", scores=noisy(0.5, seed=1)) for i in range(4)]
    scores = against_baseline(ours, others)
    assert [score.verdict for score in scores] == ["better", "better", "worse", "not shown", ""]
    assert str(evaluation_conclusion(scores)).endswith(
        "Of 3 other tasks compared, it is better on 1 and worse on 1; on 1, no difference is shown."
    )


def test_tasks_of_one_verdict_are_counted_together():
    ours = [make("m", task=f"T{i}", scores=noisy(0.6)) for i in range(3)]
    others = [make("bm25", task=f"T{i}", scores=noisy(0.5, seed=1)) for i in range(3)]
    sentence = str(evaluation_conclusion(against_baseline(ours, others)))
    assert sentence.endswith("It is better on all 2 other tasks compared.")


@pytest.mark.parametrize("baseline", ["all-MiniLM-L6-v2", "bm25"])
def test_each_sentence_and_note_is_short(baseline):
    names = [f"T{i}" for i in range(5)]
    ours = [make("demo-contrastive-checkpoint-240", task=name, scores=noisy(0.6)) for name in names]
    others = [make(baseline, task=name, scores=noisy(0.5, seed=1)) for name in names]
    scores = against_baseline(ours, others)
    sentences = str(evaluation_conclusion(scores)).split(". ")
    assert len(sentences) == 2
    assert max(len(sentence.split()) for sentence in sentences) <= 25
    for table in (scores_table(scores), intervals_table(scores)):
        assert all(len(note.split()) <= 40 for note in table.notes())


def test_no_model_that_has_run_is_advised():
    ours = on_tasks("m", 0.5)
    old = make("bm25", task=TASKS[0], revision="older", scores=noisy(0.4))
    sentence = str(evaluation_conclusion(against_baseline(ours, [old])))
    assert "--model bm25" not in sentence
    assert "run `qwen3nb eval --model all-MiniLM-L6-v2` on the same tasks" in sentence
    every = [make(name, task=TASKS[0], revision="older") for name in reference_models()]
    assert "run `" not in str(evaluation_conclusion(against_baseline(ours, every)))


def test_a_tier_is_summed_up_by_its_mean_even_for_a_model_alone():
    alone = tier_records("m", mean=0.5)
    scores = against_baseline(alone, [], tier="full")
    mean = column_mean(next(iter(ranked_columns("full").values())), alone)
    assert scores[0].score.value == pytest.approx(mean.value)
    sentence = str(evaluation_conclusion(scores))
    assert sentence.startswith(f"m has a mean nDCG@10 of {mean.value:.3f} on BEIR, over 15 tasks.")
    assert "scores nDCG@10" not in sentence  # of the first of many tasks
    some = str(evaluation_conclusion(against_baseline(alone[:-1], [], tier="full")))
    assert "m scores" not in some


def test_the_method_is_the_one_that_was_used():
    """Models that answered different queries are corrected by Holm, and the page says so."""
    shorter = make("bm25", task=TASKS[0], scores=noisy(0.5, seed=1)[:30])
    third = make("random", task=TASKS[0], scores=noisy(0.1, seed=2))
    scores = against_baseline(on_tasks("m", 0.7), [shorter, third])
    assert scores[0].correction == "holm"
    assert "corrected by Holm over all pairs" in scores_table(scores).method
    assert "MaxT" not in scores_table(scores).method
    alike = against_baseline(on_tasks("m", 0.7), [*on_tasks("bm25", 0.5, seed=1), third])
    assert "corrected by step-down MaxT over all pairs" in scores_table(alike).method


def test_the_table_names_what_was_left_out_and_no_none():
    scores = against_baseline(on_tasks("m", 0.7), on_tasks("bm25", 0.5, seed=1))
    table = scores_table(scores, skipped={"AuthorSTS": "m has no vectors"})
    assert [row[0].text for row in table.rows] == ["Retrieval"]
    _, _, score, baseline, _ = table.rows[0]
    assert (score.strong, baseline.strong, score.detail) == (True, False, "better")
    assert baseline.detail == "bm25"
    assert table.note.endswith("Left out: AuthorSTS (m has no vectors).")
    alone = scores_table(against_baseline(on_tasks("m", 0.7), []))
    assert alone.columns == ("task", "metric", "score", "n")
    for shown in (table, alone):
        assert "None" not in shown.to_html()
        assert shown.caption == "Scores of m."
    (row,) = intervals_table(scores).rows
    assert row[3].strong
    assert row[3].interval == scores[0].interval
    assert row[5].detail == "1 pairs"


def test_a_terminal_has_a_line_per_task_and_narrower_tables_fewer_columns():
    scores = against_baseline(on_tasks("m", 0.7), on_tasks("bm25", 0.5, seed=1))
    tables = terminal_tables(scores, skipped=dict.fromkeys("VWXY", "why"))
    columns = [table.columns for table in tables]
    assert columns[0] == ("task", "metric", "score", "95 % interval", "Δ", "n")
    assert [len(heads) for heads in columns] == [6, 5, 4]
    assert "95 % interval" not in columns[2]
    assert {len(table.rows) for table in tables} == {1}
    assert tables[0].note == (
        "Δ: difference from bm25; bold: significant. Left out: 4 tasks (why)."
    )
    alone = terminal_tables(against_baseline(on_tasks("m", 0.7), []))[0]
    assert alone.columns == ("task", "metric", "score", "95 % interval", "n")
    assert alone.note == "1 task without a difference: no record of a reference model."


def test_means_of_a_terminal_are_lines_and_no_rows():
    (score,) = against_baseline(on_tasks("m", 0.7), on_tasks("bm25", 0.5, seed=1))
    mean = replace(score, task="BEIR", type=MEAN, metric="mean nDCG@10 of 15 tasks")
    assert len(terminal_tables([mean, score])[0].rows) == 1
    assert mean_lines([score]) == []
    (line,) = mean_lines([mean, score])
    value, difference = score.score.value, score.difference
    assert line.startswith(f"BEIR: mean nDCG@10 of 15 tasks {value:.3f} [")
    assert line.endswith(f"], {difference:+.3f} to bm25")


def test_the_plot_has_a_row_per_difference_and_is_absent_without_one():
    ours, others = on_tasks("m", 0.7, 0.5), on_tasks("bm25", 0.5, 0.5, seed=1)
    figure = baseline_figure(against_baseline(ours, others))
    marks = [line for line in figure.axes[0].get_lines() if line.get_marker() == "o"]
    assert [mark.get_markerfacecolor() for mark in marks] == ["none", QUIET]  # from the bottom
    assert "to bm25" in figure.alt
    assert baseline_figure(against_baseline(ours, [])) is None
    assert baseline_figure([]) is None


def test_a_row_is_what_links_to_a_score_lead_to_and_links_to_its_record_and_formula():
    own = [*on_tasks("m", 0.7), make("m", task=TASKS[1], metric="MRR@10")]
    first, second = scores_table(against_baseline(own, []), results=own).rows
    assert score_link(own[0], {own[0].run: "x.html"}) == f"x.html#{first[0].id}"
    assert first[2].link == record_link(own[0])
    assert second[1].link == "../methods.html#formula-mrr"


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """bm25, its task and its record, on sixteen queries."""
    model, task = load_model("bm25"), embedded_task("PyDocsSampleRetrieval")
    run = evaluate(
        model, tasks=[task], limit=16, output=tmp_path_factory.mktemp("r"), show_progress=False
    )
    return model, task, run.results


def test_the_query_nearest_to_the_mean_is_typical():
    assert typical_query({"b": 0.4, "a": 0.6, "c": 1.0, "d": 0.0}) == "a"  # both are 0.1 away
    assert shortened("a\n b " + "x" * 300) == "a b " + "x" * 115 + "…"


@pytest.mark.integration
def test_the_rank_by_hand_is_the_rank_in_the_record(searched):
    """MRR@10 of the record follows from the ranks that the table shows, for every query."""
    model, task, results = searched
    ndcg, mrr = (results[0].per_query[name] for name in ("nDCG@10", "MRR@10"))
    for query in ("", *sorted(mrr)[:6]):
        table = query_table(model, [task], results, query=query, limit=16)
        query = query or typical_query(ndcg)
        assert f"Query {query}: " in table.caption
        assert f"nDCG@10 {ndcg[query]:.3f}" in table.caption
        relevant = [row for row in table.rows if row[1].strong]
        assert {row[3].text for row in relevant} == {"relevant"}
        ranks = [int(row[0].text) for row in relevant if row[0].text.isdigit()]
        best = min(ranks, default=99)
        assert (1 / best if best <= 10 else 0.0) == pytest.approx(mrr[query])
    with pytest.raises(ValueError, match="unknown query 'nope' of PyDocsSampleRetrieval-limit16"):
        query_table(model, [task], results, query="nope", limit=16)


@pytest.mark.integration
def test_nothing_is_shown_without_a_search_or_its_task(searched):
    model, task, results = searched
    assert query_table(model, [task], [], limit=16) is None
    assert query_table(model, [], results, limit=16) is None
    assert query_table(model, [task], results, limit=0) is None  # other data than the record's
