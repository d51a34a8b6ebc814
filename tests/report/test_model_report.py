"""One command: a model and its baselines evaluated, compared and described in one folder."""

import json
import re

import pytest
from huggingface_hub import ModelCard

from qwen3nb.evaluation.run import EvaluationError
from qwen3nb.models.types import SpecError
from qwen3nb.report.model_report import report_model

TASKS = "AuthorSTS,PyDocsSampleRetrieval"


@pytest.mark.integration
def test_one_command_evaluates_compares_and_writes_the_card(cli, home, encoder_folder, tmp_path):
    out = tmp_path / "eval_results"
    call = ("report", "--model", encoder_folder, "--tasks", TASKS, "--out", out)
    done = cli(*call, "--baselines", "bm25,random,no/model")
    assert done.exit_code == 1
    assert "the report is written, but lacks what failed\nno/model: " in done.output
    names = sorted(file.name for file in out.iterdir())
    assert " ".join(re.sub(r"_\d{8}_\d{6}", "_<time>", name) for name in names) == (
        "MODEL_CARD.md all_results.json all_results_<time>.json comparison.json comparison.md "
        "comparison_<time>.json mteb"
    )
    value = json.loads((out / "all_results.json").read_text())
    assert {name: set(tasks) for name, tasks in value["results"].items()} == {
        "tiny": set(TASKS.split(",")),  # every task is run, for every model that can
        "random": set(TASKS.split(",")),
        "bm25": {"PyDocsSampleRetrieval"},
    }
    own = value["results"]["tiny"]
    assert value["summary"]["bm25"]["missing"] == {"AuthorSTS": "not run"}
    assert list(value["failures"]) == ["no/model"]

    compared = json.loads((out / "comparison.json").read_text())
    assert set(compared["results"]) == {"sts", "retrieval"}
    pairs = {each["first"]: each for each in compared["differences"]}
    assert set(pairs) == {"bm25", "random"}
    bm25 = value["results"]["bm25"]["PyDocsSampleRetrieval"]["main_score"]
    assert pairs["bm25"]["difference"] == pytest.approx(
        bm25 - own["PyDocsSampleRetrieval"]["main_score"]
    )
    text = (out / "comparison.md").read_text()
    assert all(each in text for each in ("## STS", "Spearman", "MRR@10", "Recall@100", "## Failed"))
    listed = ModelCard((out / "MODEL_CARD.md").read_text()).data.eval_results
    assert {each.dataset_name for each in listed} == set(TASKS.split(","))
    assert {"cosine_spearman", "ndcg_at_10"} <= {each.metric_type for each in listed}
    assert len(list((out / "mteb").glob("*/*/PyDocsSampleRetrieval.json"))) == 3

    again = cli(*call, "--baselines", "bm25")
    assert again.exit_code == 0, again.output
    assert len(list((home / "results").glob("*/seed_0/*.json"))) == 5  # nothing is run twice


def test_an_unknown_model_or_one_without_a_result_is_an_error(tmp_path):
    with pytest.raises(SpecError):
        report_model(tmp_path / "none")
    with pytest.raises(EvaluationError, match="bm25 has no result"):
        report_model("bm25", tasks="AuthorSTS", show_progress=False)
