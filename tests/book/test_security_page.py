"""The commands of the guide's page on security are those that there are, and do what it says."""

import re
import shlex

import pytest
from helpers import REPOSITORY
from helpers.records import make
from helpers.study import SWEEP

from qwen3nb.utils.secrets import kernel_environment

PAGE = (REPOSITORY / "book" / "guide" / "security.md").read_text(encoding="utf-8")
LINES = [
    line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()
]


@pytest.fixture
def study(checkout, encoder_folder, monkeypatch):
    """A checkout with what the commands name; the variables that kernels would have get known."""
    monkeypatch.chdir(checkout)
    monkeypatch.setenv("MY_DATA_TOKEN", "for my data")
    (checkout / "encoder").symlink_to(encoder_folder)
    (checkout / "sweep.toml").write_text(SWEEP.replace("small", "leaderboard"))
    make("m").save()
    given = []
    monkeypatch.setattr(
        "qwen3nb.cli.commands.notebooks._run", lambda *_, **__: given.append(kernel_environment())
    )
    return given


@pytest.mark.parametrize("line", LINES)
def test_a_command_of_the_page_runs(cli, study, monkeypatch, line):
    words = shlex.split(line, comments=True)
    while "=" in words[0]:
        name, value = words.pop(0).split("=")
        monkeypatch.setenv(name, value)
    assert words.pop(0) == "qwen3nb"
    done = cli(*words)
    assert done.exit_code == 0, done.output
    for environment in study:
        assert "MY_DATA_TOKEN" in environment
    assert "MY_DATA_TOKEN" not in kernel_environment(environ={"MY_DATA_TOKEN": "for my data"})
