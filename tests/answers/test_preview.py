"""The tasks of a preview, and the page that forecasts from them."""

import pytest
from helpers.records import benchmark_record

from qwen3nb.analysis.forecasting.published import published_benchmarks
from qwen3nb.answers.forecast import published_names
from qwen3nb.answers.preview import BUDGET, forecasts, preview_keys, progress_line, whole_benchmarks
from qwen3nb.execution.publish import _without_progress
from qwen3nb.models.model import Model
from qwen3nb.report.evaluation.checked_run import check_needs
from qwen3nb.tiers import BENCHMARKS, GROUPS, TIERS
from qwen3nb.utils.progress import SO_FAR

FULL = TIERS["full"].task_keys
NAMES = ("BEIR", "MTEB(eng, v2)")


def test_a_preview_of_full_stays_within_the_budget_and_comes_in_telling_order():
    keys = preview_keys(FULL)
    assert set(keys) < set(FULL)
    assert len(keys) == len(set(keys))
    assert "MSMARCO" not in keys  # a quarter of BEIR's documents
    assert "FEVERHardNegatives" in keys  # in place of FEVER
    english = published_benchmarks()["MTEB(eng, v2)"]
    of_english = preview_keys(BENCHMARKS["MTEB(eng, v2)"].task_keys)
    assert 15 <= len(of_english) <= 25
    assert set(of_english) <= set(keys)
    names = published_names(english)
    assert sum(english.costs[names[key]] for key in of_english) <= BUDGET


def test_groups_run_as_a_whole_or_not_at_all():
    keys = set(preview_keys(FULL))
    parts = set(GROUPS["CQADupstackRetrieval"])
    assert parts <= keys


def test_a_tier_without_a_benchmark_has_no_preview():
    assert {benchmark.name for benchmark in whole_benchmarks(set(FULL))} == set(NAMES)
    with pytest.raises(ValueError, match="such as --tier full"):
        preview_keys(TIERS["smoke"].task_keys)


def test_limits_and_own_data_have_no_preview():
    with pytest.raises(ValueError, match="leave out data and limit"):
        check_needs(Model("bm25"), tier="full", preview=True, limit=5)


def test_the_line_after_a_task_waits_for_the_last_part_of_a_group():
    parts = [benchmark_record("m", key) for key in GROUPS["CQADupstackRetrieval"]]
    assert progress_line(parts[:3], ["BEIR"]) == ""
    line = progress_line(parts, ["BEIR"])
    assert line.startswith("BEIR: 0.")
    assert line.endswith("after 1 of 15 tasks")
    assert "±" in line


def test_forecasts_of_records_of_two_benchmarks():
    records = [benchmark_record("m", key) for key in ("STS12", "ArguAna")]
    answers = forecasts(records, NAMES)
    assert [answer.benchmark.name for answer in answers] == list(NAMES)
    assert set(answers[0].measured) == {"ArguAna"}
    assert set(answers[1].measured) == {"ArguAna", "STS12"}


def test_what_a_run_says_meanwhile_is_not_on_its_page():
    assert _without_progress(f"{SO_FAR}BEIR: 0.5 ± 0.1\na warning") == "a warning"
