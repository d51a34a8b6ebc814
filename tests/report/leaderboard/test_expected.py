"""STS and MS MARCO in one table; expected scores beside measured ones."""

import pytest
from helpers.records import amend, make

from qwen3nb.report.leaderboard.expected import _REAL, _SIZES, expected_table, sts_and_msmarco_table


def on(task, label, value, *, real=True, whole=True, metric="Spearman", **fields):
    result = make(label, [value] * 3, task=task, metric=metric, **fields)
    amend(result, "task", type="STS" if task != "MSMARCO" else "Retrieval",
          revision=_REAL.get(task, "r") if real else "local-1",
          size=_SIZES.get(task, {}) if whole else {"pairs": 40})  # fmt: skip
    return result


@pytest.mark.integration
def test_the_revisions_are_those_that_mteb_pins():
    import mteb

    metadata = {key: mteb.get_task(key).metadata for key in _REAL}
    assert {key: each.revision for key, each in metadata.items()} == _REAL
    sts, ms = (metadata[key].descriptive_stats for key in ("STSBenchmark", "MSMARCO"))
    assert sts["test"]["num_samples"] == _SIZES["STSBenchmark"]["pairs"]
    assert {key: ms["dev"][f"num_{key}"] for key in _SIZES["MSMARCO"]} == _SIZES["MSMARCO"]


def test_what_was_expected_stands_beside_what_was_measured():
    results = [
        on("STSBenchmark", "e5-base-v2", 0.85), on("STSBenchmark", "gte-base", 0.5, real=False),
        on("MSMARCO", "e5-base-v2", 0.34, metric="MRR@10"),
    ]  # fmt: skip
    rows = {row[0].text: row for row in expected_table(results).rows}
    assert list(rows) == ["Qwen3-0.6B", "ours", "e5-base-v2", "gte-base"]
    e5 = rows["e5-base-v2"]
    assert [(cell.text, cell.detail) for cell in e5[1:]] == [
        ("~ 0.84", ""), ("0.850", "+0.010"), ("~ 0.35", ""), ("0.340", "-0.010"),
    ]  # fmt: skip
    assert rows["gte-base"][2].detail == "other data, not judged"
    command = "qwen3nb eval --model gte-base --tasks STSBenchmark,MSMARCO"
    assert (rows["gte-base"][4].text, rows["gte-base"][4].detail) == ("missing", command)
    assert rows["ours"][1].text == "> 0.75"


def test_a_target_is_judged_on_real_data_only(monkeypatch):
    monkeypatch.setattr("qwen3nb.report.leaderboard.expected.read_provenance",
                        lambda folder: {} if folder.name == "mine" else None)  # fmt: skip

    def verdict(value, **how):
        (row,) = [r for r in expected_table([on("STSBenchmark", "mine", value, **how)]).rows
                  if r[0].text == "mine"]  # fmt: skip
        return row[2].detail

    assert verdict(0.76) == "above"
    assert verdict(0.70) == "BELOW"
    assert verdict(0.70, real=False) == "other data, not judged"
    assert verdict(0.70, whole=False) == "other data, not judged"


def test_sts_has_an_average_only_over_all_tasks():
    full = [on("STS12", "a", 0.6), on("STSBenchmark", "a", 0.8)]
    ms = on("MSMARCO", "a", 0.3, metric="MRR@10")
    table = sts_and_msmarco_table([*full, ms, on("STS12", "b", 0.5)])
    heads = [head.split("\n")[0] for head in table.columns]
    assert heads == ["model", "STS12", "STSBenchmark", "Avg", *["MS MARCO"] * 5]
    first, second = table.rows
    assert first[3].value == pytest.approx(0.7)
    assert (first[4].text, first[5].text) == ("0.300", "not recorded")
    assert (second[3].text, second[4].text) == ("1 of 2", "not run")
    assert sts_and_msmarco_table([]) is expected_table([]) is None
