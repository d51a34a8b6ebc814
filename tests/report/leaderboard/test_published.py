"""Published scores of other models, beside one's own and never paired."""

import json

import pytest
from helpers.records import make

from qwen3nb.report.leaderboard.published import other_scores_table, read_published

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
    assert [(each.model, each.task, each.value) for each in scores] == [
        ("e5", "SciFact", 0.7), ("org/m", "NFCorpus", 0.5),
    ]  # fmt: skip
    table = other_scores_table([make("mine", task="SciFact")], tier="fast", scores=scores)
    assert table.columns == ("task", "mine", "e5\npublished, not paired",
                             "org/m\npublished, not paired")  # fmt: skip
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["SciFact", "0.5000", "0.7000", "–"], ["NFCorpus", "not run", "–", "0.5000"],
    ]  # fmt: skip
    assert "no paired difference" in table.note
    assert other_scores_table([], tier="smoke", scores=scores) is None


@pytest.mark.parametrize("value", [71.9, '"0.7"'])
def test_a_score_that_is_none_is_refused(tmp_path, value):
    (tmp_path / "published.toml").write_text(TOML.format(value=value))
    with pytest.raises(ValueError, match=r"score 1: expected .*value"):
        read_published(tmp_path)


def test_a_file_that_is_no_result_is_named(tmp_path):
    folder = tmp_path / "published" / "m" / "rev"
    folder.mkdir(parents=True)
    (folder / "X.json").write_text('{"scores": 3}')
    with pytest.raises(ValueError, match=r"X\.json: not a file of MTEB's results"):
        read_published(tmp_path)
