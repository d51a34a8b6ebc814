"""Progress bars in a kernel: widgets in JupyterLab, text for a command; never red there."""

import os
import sys

import nbformat
import pytest
from nbclient import NotebookClient

from qwen3nb.utils.progress import TEXT, seconds_between, tqdm

BARS = """
from qwen3nb.utils.progress import tqdm
for _ in tqdm(range(3), desc="tasks"):
    pass
with tqdm(total=8, mininterval=0) as bar:
    bar.update(8)
"""


def outputs(**variables):
    node = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(BARS)])
    NotebookClient(node, kernel_name="python3", timeout=60).execute(env={**os.environ, **variables})
    return node.cells[0].outputs


@pytest.mark.integration
def test_in_a_notebook_bars_are_widgets_and_for_a_command_they_are_text():
    shown = outputs()
    assert [output.output_type for output in shown] == ["display_data"] * 2
    assert all("application/vnd.jupyter.widget-view+json" in output.data for output in shown)
    text = outputs(**{TEXT: "10"})
    assert {output.name for output in text} == {"stderr"}
    assert "tasks: 100%" in "".join(output.text for output in text)


def test_a_log_gets_a_line_now_and_then_and_a_terminal_all(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    list(tqdm(range(500), desc="tasks"))
    assert capsys.readouterr().err.count("tasks: ") == 2  # the start and the end
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert seconds_between() == 0.1
    monkeypatch.setenv(TEXT, "3")
    assert seconds_between() == 3
