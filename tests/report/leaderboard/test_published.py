"""Published scores of other models, beside one's own and never paired."""

import json

import pytest
from helpers.records import amend, make

from qwen3nb.evaluation.studies.reproduce import Published, Reproduction
from qwen3nb.report.leaderboard.published import (
    _TARGETS,
    expected_table,
    other_scores_table,
    read_published,
    reproduction_conclusion,
    sts_and_msmarco_table,
)

TOML = """
[[score]]
model = "e5"
task = "SciFact"
value = {value}
source = "a paper"
"""


def test_published_scores_come_from_a_file_and_from_mtebs_results(tmp_path):
    assert read_published(tmp_path) == []
    (tmp_path / "published.toml").write_text(TOML.format(value=0.7))
    folder = tmp_path / "published" / "org__m" / "rev"
    folder.mkdir(parents=True)
    rows = [{"hf_subset": "a", "main_score": 0.4}, {"hf_subset": "b", "main_score": 0.6}]
    content = {"task_name": "NFCorpus", "scores": {"test": rows}}
    (folder / "NFCorpus.json").write_text(json.dumps(content))
    (folder / "model_meta.json").write_text("{}")
    scores = read_published(tmp_path)
    table = other_scores_table([make("mine", task="SciFact")], tier="fast", scores=scores)
    assert [each.partition("\n")[0] for each in table.columns] == ["task", "mine", "e5", "org/m"]
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["SciFact", "0.5000", "0.7000", "–"],
        ["NFCorpus", "not run", "–", "0.5000"],
    ]
    assert "no paired difference" in table.note
    assert other_scores_table([], tier="smoke", scores=scores) is None


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("published.toml", TOML.format(value=71.9), r"score\[0\].value: .*percentages"),
        ("published.toml", TOML.format(value='"0.7"'), r"score\[0\].value: expected a valid num"),
        ("published/m/rev/X.json", '{"scores": 3}', r"X\.json: not a file of MTEB's results"),
    ],
)
def test_a_file_without_scores_is_refused(tmp_path, file, text, message):
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(text)
    with pytest.raises(ValueError, match=message):
        read_published(tmp_path)


def test_reproductions_are_counted_and_the_farthest_is_named():
    def one(task, value):
        return Reproduction(Published("m", task, 0.5, 0.001, "mteb"), None, value)

    done = [one("A", 0.5002), one("B", 0.503), one("C", 0.49), one("D", None)]
    text = str(reproduction_conclusion(done))
    assert text.startswith(
        "1 of 3 published scores are reproduced within their tolerance; 1 within"
    )
    assert text.endswith("m on C: -0.0100, tolerance 0.001. 1 could not be run here.")
    alone = str(reproduction_conclusion(done[:1]))
    assert alone.startswith("1 of 1 published scores are reproduced within their tolerance. ")
    assert alone.endswith("m on A: +0.0002, tolerance 0.001.")
    assert str(reproduction_conclusion(done[3:])) == "No published score could be run here, of 1."


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


@pytest.mark.integration
def test_the_revisions_are_those_that_mteb_pins():
    import mteb

    metadata = {key: mteb.get_task(key).metadata for key in _TARGETS}
    for key, each in metadata.items():
        assert each.revision == _TARGETS[key].revision
    sts, ms = (metadata[key].descriptive_stats for key in ("STSBenchmark", "MSMARCO"))
    assert sts["test"]["num_samples"] == _TARGETS["STSBenchmark"].size["pairs"]
    size = _TARGETS["MSMARCO"].size
    assert {key: ms["dev"][f"num_{key}"] for key in size} == size


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
