"""Tables of one model: many tasks by type, tasks of several languages."""

from dataclasses import replace

from helpers.records import make, tier_records

from qwen3nb.metrics.aggregate import aggregate
from qwen3nb.records.record import Part
from qwen3nb.report.leaderboard.one_model import parts_table, results_tables
from qwen3nb.report.render.table import Table


def test_few_tasks_show_all_metrics_and_many_their_main_scores_first():
    assert isinstance(results_tables([make("m")]), Table)
    sections = results_tables(tier_records("m"), skipped={"X": "no vectors"})
    (title, main), *rest = sections.tables
    assert title == "Main scores"
    assert len(main.rows) == 62
    assert main.rows[-1][3].detail == "no vectors"
    assert [name for name, _ in rest][-1] == "Summarization, all metrics (1 task)"
    page = sections._repr_html_()
    assert page.count("<details") == 8
    assert page.count(" open>") == 1


def test_a_task_in_several_languages_has_a_row_for_each():
    values = {"test/de/0": 0.2, "test/de/1": 0.4, "test/en/0": 0.8}
    result = make("m", values, task="T")
    parts = tuple(
        Part("test", subset, (f"{code}-Latn",),
             aggregate(result.per_query, how="mean", columns=("nDCG@10",), seed=0,
                       parts=(f"test/{subset}/",)), 0.0)
        for subset, code in (("de", "deu"), ("en", "eng"))
    )  # fmt: skip
    rows = parts_table([make("m"), replace(result, parts=parts)]).rows
    shown = [(row[1].text, row[3].text, row[4].text, row[5].text) for row in rows]
    assert shown[1:] == [("de", "deu-Latn", "0.300", "2"), ("en", "eng-Latn", "0.800", "1")]
    assert shown[0][0] == "all 2"
    assert rows[0][4].strong
    assert "one subset and one split" in parts_table([make("m")]).note
