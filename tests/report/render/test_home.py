"""Where numbers lead: anchors, formulas, commands and files."""

import re
import shlex

import pytest
from helpers import REPOSITORY
from helpers.html import HOSTILE
from helpers.records import amend, make

from qwen3nb.execution.parameters import read_parameters
from qwen3nb.metrics.retrieval import METRICS, RECORDED
from qwen3nb.report.render.home import (
    EVAL_DEFAULTS,
    FORMULAS,
    command_again,
    formula_link,
    record_link,
    score_link,
)

METHODS = (REPOSITORY / "book" / "methods.md").read_text()
OF_RECORDS = {
    *("Spearman", "Pearson", "accuracy", "V-measure", "F1", "TIR", "difference"),
    *("first nDCG@10", "gain MRR@10", "oracle nDCG@10", "first Recall@20", "MAP@1000", "P@5"),
    *("max_over_subqueries_map_at_1000", "ndcg_at_10", "cosine_spearman", "v_measure"),
    *RECORDED["own data"],
    *(f"{name}@10" for name in METRICS),
}


@pytest.mark.parametrize("metric", sorted(OF_RECORDS))
def test_every_metric_of_records_has_a_formula(metric):
    page, _, anchor = formula_link(metric).partition("#")
    assert page == "../methods.html"
    assert anchor.removeprefix("formula-") in FORMULAS


def test_every_formula_is_on_the_page_on_methods():
    assert set(re.findall(r"^\(formula-([a-z0-9-]+)\)=$", METHODS, re.MULTILINE)) == FORMULAS
    assert formula_link("summary score") == ""


def test_a_score_leads_to_its_row_on_the_page_of_its_run():
    result = make("m")
    amend(result, "task", name="STS17", selection="en-en")
    assert score_link(result, {"run-m": "eval-m.html"}) == "eval-m.html#score-sts17-en-en"
    assert score_link(result, {}) == ""
    name = f"m-{result.model.identity[:8]}/seed_0/STS17-en-en.json"
    assert record_link(result) == f"../records/{name}"


def test_the_defaults_are_those_of_the_notebook():
    declared = read_parameters(REPOSITORY / "notebooks" / "eval.ipynb")
    assert {name: declared[name].default for name in EVAL_DEFAULTS} == dict(EVAL_DEFAULTS)


def test_a_command_names_what_is_not_default():
    own = {"pooling": "mean", "append_eos": True, "limit": 7, "dtype": "bfloat16"}
    config = {**EVAL_DEFAULTS, "checkpoint": "runs/a b", "tier": "smoke", **own}
    assert command_again(make("m", config=config)) == (
        "qwen3nb eval --model 'runs/a b' --tasks PyDocsSampleRetrieval --limit 7 "
        "--pooling mean --append-eos --dtype bfloat16 --out again --fresh"
    )
    own = command_again(make("m", config={"checkpoint": "m", "data": "beir/scifact"}))
    assert own == "qwen3nb eval --model m --data beir/scifact --out again --fresh"
    # Made in Python: from its settings.
    settings = {"pooling": "last", "max_length": 64, "normalize": True}
    assert command_again(make("m", settings=settings, seed=3)) == (
        "qwen3nb eval --model m --tasks PyDocsSampleRetrieval --pooling last --max-length 64 "
        "--seed 3 --out again --fresh"
    )
    assert command_again(make("m", settings={**settings, "normalize": False})) == ""


@pytest.mark.parametrize(("kind", "first"), [("bm25", "bm25"), ("encoder", "e5-small")])
def test_a_reranking_has_its_own_command(kind, first):
    settings = {"template": ["double-newline", "…"], "instruction": "a b", "max_length": 192}
    config = {"collection": "SciFact", "first": {"kind": kind, "depth": 20}, "limit": 0}
    result = make("r", task=f"SciFact.{first}-20", settings=settings, config=config)
    assert command_again(result) == (
        f"qwen3nb rerank-suite SciFact --model r --first {first} --depth 20 --max-length 192 "
        "--template double-newline --instruction 'a b' --dtype float32 --seed 0 "
        "--out again --fresh"
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_foreign_names_stay_one_word_of_the_shell(text):
    words = shlex.split(command_again(make("m", config={"checkpoint": text})))
    assert words[3] == text
