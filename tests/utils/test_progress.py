"""Progress bars in a kernel: widgets in JupyterLab, text for a command; never red there."""

import sys

import pytest

from qwen3nb.execution.publish import _without_progress
from qwen3nb.utils.progress import TEXT_PROGRESS, TaskBar, seconds_between, tqdm


def test_a_log_gets_a_line_now_and_then_and_a_terminal_all(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    list(tqdm(range(500), desc="tasks"))
    assert capsys.readouterr().err.count("tasks: ") == 2  # the start and the end
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert seconds_between() == 0.1
    monkeypatch.setenv(TEXT_PROGRESS, "3")
    assert seconds_between() == 3


@pytest.fixture
def screen(monkeypatch, capsys):
    """Bars on a terminal of 80 columns; returns what it shows, one line per state."""
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    monkeypatch.setattr("qwen3nb.utils.progress.seconds_between", lambda: 0.0)
    monkeypatch.setattr("qwen3nb.utils.progress._columns", lambda: 80)
    return lambda: [line.strip() for line in capsys.readouterr().err.split("\r") if line.strip()]


def test_a_run_has_one_bar_and_longer_steps_stand_in_its_line(screen):
    names = ["SciFact", "MassiveScenarioClassification-en"]
    bar = TaskBar(names, label="bm25", names=names, ncols=80)
    for name in bar:
        bar.begin(name)
        with tqdm(total=4, desc="bm25: encoding") as step:
            step.update(1)
    shown = screen()
    assert all("\n" not in line for line in shown)  # a second bar would move down a line
    assert all(len(line) <= 80 for line in shown)
    assert any(line.endswith("0/2 [00:00<?], SciFact: 25%") for line in shown)
    assert any(line.endswith("], MassiveScenarioClassification-en") for line in shown)
    assert {line.split(":")[0] for line in shown} == {"bm25"}
    assert TaskBar.current is None
    assert "2/2" in shown[-1]


def test_a_long_label_leaves_room_for_the_names_of_tasks(screen):
    names = ["MassiveScenarioClassification-en"]
    list(TaskBar(names, label="x" * 40, names=names, ncols=80))
    assert not any("xx" in line for line in screen())


def test_a_log_gets_short_lines_without_moves(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    bar = TaskBar(["a", "b"], label="bm25", names=["a", "b"])
    for name in bar:
        bar.begin(name)
        list(tqdm(range(3), desc="bm25: encoding"))
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["bm25: 0/2 [00:00]", "bm25: 2/2 [00:00]"]


def test_lines_of_bars_are_not_part_of_a_page():
    text = "bm25: |██  | 3/61 [00:10<02:18], SciFact\nbm25: 3/61 [00:10], SciFact\na warning\n"
    assert _without_progress(text) == "a warning"
