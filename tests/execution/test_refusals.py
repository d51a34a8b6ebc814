"""Arguments that a study has nothing for are refused before a kernel starts, without a page."""

import shutil

import pytest
from helpers.records import make

from qwen3nb import paths

REFUSED = {
    "eval --model encoder --dimensions 9999": "expected 1 to 32, the dimensions of its vectors",
    "run ann --model bm25": "bm25 has no vectors; name a model with vectors",
    "run ann -p task Nonsense": "unknown task 'Nonsense'. `qwen3nb tasks` lists them",
    "run compare --task SciFcat": "did you mean SciFact",
    "run explorer --metric nonsense": "unknown metric 'nonsense'; choose one of",
    "run explorer --models nonsense": "no model 'nonsense'",
    "run own --collection mine": "no own data yet; `qwen3nb domain` evaluates them",
    "run own --current nonsense": "unknown model in use 'nonsense'; choose one of: ",
    "run parity -p where nowhere": "no model 'nowhere'",
    "run probes -p words nofile.csv": "words 'nofile.csv': no such file or folder",
    "run rerank --model encoder": "a yes/no reranker is a causal language model",
    "run rerank": "this study has no adapter that ranks: name a reranker",
    "run speed --models nonsense": "no model 'nonsense'",
}


@pytest.fixture
def study(checkout, encoder_folder, monkeypatch):
    shutil.copytree(encoder_folder, checkout / "encoder")
    make().save()
    monkeypatch.chdir(checkout)
    return checkout


@pytest.mark.parametrize("line", REFUSED)
def test_a_refused_argument_runs_nothing_and_leaves_no_page(study, line, cli, monkeypatch):
    monkeypatch.setattr("qwen3nb.execution.notebook._execute", lambda *_, **__: pytest.fail("ran"))
    refused = cli(*line.split())
    assert refused.exit_code == 2
    assert REFUSED[line] in " ".join(refused.output.split())
    assert not paths.book_runs().exists()
    assert not (paths.results() / "failed").exists()


@pytest.mark.parametrize(
    "line",
    [
        "run explorer --metric Recall@7",  # computed from the rankings
        "run speed --models qwen3-60M-random,encoder",
        "run ann --model encoder --dimensions 9999,8",  # those that are fewer are tried
        "run parity --model encoder -p where http://localhost:8000/v1#encoder",
        "run training --metric nDCG@10",
    ],
)
def test_an_argument_that_may_work_is_not_refused(study, line, cli, monkeypatch):
    monkeypatch.setattr("qwen3nb.execution.notebook._execute", lambda *_, **__: None)
    done = cli(*line.split())
    assert "Error" not in done.output
