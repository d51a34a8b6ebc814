"""Published and expected scores, next to one's own."""

import pytest
from helpers.records import amend, make

from qwen3nb.report.leaderboard.published import (
    _TARGETS,
    expected_table,
    sts_and_msmarco_table,
)


def on(task, label, value, *, real=True, whole=True, metric="Spearman", **fields):
    result = make(label, [value] * 3, task=task, metric=metric, **fields)
    amend(
        result,
        "task",
        type="STS" if task != "MSMARCO" else "Retrieval",
        revision=_TARGETS[task].revision if real and task in _TARGETS else "local-1",
        size=_TARGETS[task].size if whole and task in _TARGETS else {"pairs": 40},
    )
    return result


def test_what_was_expected_stands_beside_what_was_measured():
    results = [
        on("STSBenchmark", "e5-base-v2", 0.85),
        on("STSBenchmark", "gte-base", 0.5, real=False),
        on("MSMARCO", "e5-base-v2", 0.34, metric="MRR@10"),
    ]
    rows = {row[0].text: row for row in expected_table(results).rows}
    assert list(rows) == ["e5-base-v2", "gte-base"]
    e5 = rows["e5-base-v2"]
    assert [cell.text for cell in e5[1:]] == ["~ 0.84", "0.850", "~ 0.35", "0.340"]
    assert [cell.detail for cell in e5[1:]] == ["", "+0.010", "", "-0.010"]
    assert rows["gte-base"][2].detail == "other data, not judged"
    command = "qwen3nb eval --model gte-base --tasks STSBenchmark,MSMARCO"
    assert (rows["gte-base"][4].text, rows["gte-base"][4].detail) == ("missing", command)


def test_a_target_is_judged_on_real_data_only(monkeypatch):
    monkeypatch.setattr(
        "qwen3nb.report.leaderboard.published.read_provenance",
        lambda folder: {} if folder.name == "mine" else None,
    )

    def verdict(value, **how):
        rows = expected_table([on("STSBenchmark", "mine", value, **how)]).rows
        assert [row[1].text for row in rows] == ["> 0.75"]
        return rows[0][2].detail

    assert verdict(0.76) == "above"
    assert verdict(0.70) == "BELOW"
    assert verdict(0.70, real=False) == "other data, not judged"
    assert verdict(0.70, whole=False) == "other data, not judged"


def test_sts_has_an_average_only_over_all_tasks():
    full = [on("STS12", "a", 0.6), on("STSBenchmark", "a", 0.8)]
    ms = on("MSMARCO", "a", 0.3, metric="MRR@10")
    table = sts_and_msmarco_table([*full, ms, on("STS12", "b", 0.5)])
    heads = [head.split("\n")[0] for head in table.columns]
    assert heads == ["model", "STS12", "STSBenchmark", "Avg", "MS MARCO"]
    first, second = table.rows
    assert first[3].value == pytest.approx(0.7)
    assert first[4].text == "0.300"
    assert (second[3].text, second[4].text) == ("1 of 2", "not run")
    assert sts_and_msmarco_table(full[:1]) is expected_table([ms]) is None
