"""Which runs may download, and so get the hub's token; how one is admitted by its name."""

import os

import nbformat
import pytest
from helpers import REPOSITORY

from qwen3nb.cluster.nodes import sent_environment
from qwen3nb.execution.publish import NotebookRun
from qwen3nb.execution.sweep_plan import read_plan
from qwen3nb.hub.errors import status_reason


@pytest.mark.parametrize(
    ("notebook", "values", "downloads"),
    [
        ("eval", {"checkpoint": "bm25", "tier": "smoke"}, False),
        ("eval", {"checkpoint": "random", "tier": "pydocs"}, False),
        ("eval", {"checkpoint": "bm25", "tier": "fast"}, True),
        ("eval", {"checkpoint": "bm25", "tier": "smoke", "tasks": "SciFact"}, True),
        ("eval", {"checkpoint": "lab/model", "tier": "smoke"}, True),
        ("eval", {"checkpoint": "bm25+lab/model", "tier": "smoke"}, True),
        ("eval", {"checkpoint": "no such model", "tier": "smoke"}, False),
        ("rerank", {"checkpoint": "bm25", "data": "PyDocsSampleRetrieval"}, False),
        ("rerank", {"checkpoint": "bm25", "data": "NFCorpus"}, True),
        ("leaderboard", {"tier": "full"}, False),  # reads records
    ],
)
def test_the_hubs_token_is_for_runs_that_name_something_of_the_hub(
    home, monkeypatch, notebook, values, downloads
):
    monkeypatch.setenv("HF_TOKEN", "made-up-token")
    monkeypatch.setenv("GH_PAT", "made-up-token")
    nb = nbformat.read(REPOSITORY / "notebooks" / f"{notebook}.ipynb", as_version=4)
    environment = NotebookRun(notebook, values, None).environment(nb)
    assert ("HF_TOKEN" in environment) is downloads
    assert environment["QWEN3NB_WITHHELD"] == ("" if downloads else "HF_TOKEN")
    assert "GH_PAT" not in environment
    assert environment["PATH"] == os.environ["PATH"]


def test_a_refused_request_names_the_token_that_the_notebook_does_not_see(monkeypatch):
    assert "--pass-env" not in status_reason(401)
    monkeypatch.setenv("QWEN3NB_WITHHELD", "HF_TOKEN")
    assert status_reason(401).endswith("run it with `--pass-env HF_TOKEN`")
    assert "--pass-env HF_TOKEN" in status_reason(403)
    assert "--pass-env" not in status_reason(404)


def test_an_admitted_variable_travels_to_the_nodes_of_a_cluster(monkeypatch):
    monkeypatch.setenv("GH_PAT", "made-up-token")
    monkeypatch.setenv("DB_PASS", "made-up-token")
    monkeypatch.setenv("QWEN3NB_PASS_ENV", "GH_PAT")
    sent = sent_environment()
    assert sent["GH_PAT"] == "made-up-token"
    assert sent["QWEN3NB_PASS_ENV"] == "GH_PAT"  # noqa: S105 - a name
    assert "DB_PASS" not in sent


def test_the_file_of_a_sweep_names_variables(tmp_path):
    (tmp_path / "s.toml").write_text('pass_env = ["GH_PAT"]\n')
    assert read_plan(tmp_path / "s.toml").pass_env == ("GH_PAT",)
