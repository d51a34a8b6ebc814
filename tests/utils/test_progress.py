"""Progress bars in a kernel: widgets in JupyterLab, text for a command; never red there."""

import sys

from qwen3nb.utils.progress import TEXT_PROGRESS, seconds_between, tqdm


def test_a_log_gets_a_line_now_and_then_and_a_terminal_all(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    list(tqdm(range(500), desc="tasks"))
    assert capsys.readouterr().err.count("tasks: ") == 2  # the start and the end
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert seconds_between() == 0.1
    monkeypatch.setenv(TEXT_PROGRESS, "3")
    assert seconds_between() == 3
