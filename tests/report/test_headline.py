"""The sentences on the landing page claim a difference only where it is significant."""

import json

import numpy as np
import pytest
from helpers.records import amend, make

from qwen3nb.analysis.comparison.compare import compare
from qwen3nb.analysis.training.interference import Estimate, Gate, Group, Interference
from qwen3nb.report.headline import (
    findings,
    headline_findings,
    headline_lead,
    interference_finding,
    rerank_finding,
)
from qwen3nb.report.training.interference import InterferenceReport, interference_report

RNG = np.random.default_rng(3)
BASE = RNG.uniform(0.2, 0.6, 200)


TASK = "PyDocsSampleRetrieval"


def leaders(results, **more):
    return findings(compare(results, tier="smoke"), task=TASK, **more)


def trained(**means):
    """Records of checkpoints of the training ``demo``, by step."""
    return [
        make(f"demo-{'init' if step == 'start' else f'checkpoint-{step[4:]}'}", scores=scores)
        for step, scores in means.items()
    ]


@pytest.mark.parametrize(
    ("gain", "spread", "headline"),
    [
        (0.09, 0.02, "lifts nDCG@10 by 0.09"),
        (-0.09, 0.02, "lowers nDCG@10 by 0.0"),
        (0.001, 0.2, "makes no difference in nDCG@10 that these 200 queries show"),
    ],
)
def test_what_training_gave(gain, spread, headline):
    noise = np.random.default_rng(5).normal(0, spread, 200)
    records = trained(start=BASE, step100=BASE + gain + noise - noise.mean(), step50=BASE - 0.15)
    (finding,) = leaders(records, links={"run-demo-checkpoint-100": "x.html"})
    assert finding.headline.startswith(f"Training demo {headline}")
    assert finding.evidence.startswith("demo-checkpoint-100 0.")
    assert "of demo-init: " in finding.evidence
    assert finding.page == "x.html"


def test_training_is_reported_of_the_best_checkpoint_that_has_an_earlier_one():
    others = [make("x-checkpoint-9", scores=BASE + 0.3), make("bm25", scores=BASE + 0.2)]
    contrastive = [
        make(f"demo-contrastive-checkpoint-{i}", scores=BASE + i / 1e4) for i in (0, 400)
    ]
    (finding,) = leaders([*trained(start=BASE, step50=BASE - 0.1), *others, *contrastive])
    assert finding.headline == "Contrastive training lifts nDCG@10 by 0.040 on Retrieval"
    assert leaders(others) == []
    assert leaders([]) == []


def test_what_extraction_gave(home):
    folder = home / "runs" / "ours"
    folder.mkdir(parents=True)
    (folder / "qwen3nb.json").write_text(json.dumps({"schema": "qwen3nb.export/1", "source": {}}))
    ours = make("ours", scores=BASE + 0.03)
    amend(ours, "model", spec="runs/ours")
    (own,) = leaders([ours, make("bm25", scores=BASE + 0.2)])
    assert own.headline.startswith("The best extracted encoder, ours, is below bm25 on")
    assert "-0.170" in own.evidence


@pytest.mark.parametrize(
    ("score", "headline"),
    [
        (0.2, "lowers nDCG@10 by 0.300 on Retrieval"),
        (0.5, "makes no difference in nDCG@10 that these 50 queries show"),
    ],
)
def test_reranking_is_reported_with_its_test(score, headline):
    result = make("judge", task="x.bm25-20", scores=[score] * 50)
    result.per_query["first nDCG@10"] = dict.fromkeys(result.per_query["nDCG@10"], 0.5)
    result.config["collection"] = "PyDocsSampleRetrieval"
    finding = rerank_finding([make("other"), result], links={"run-judge": "runs/judge.html"})
    assert finding.headline == f"Reranking by judge {headline}"
    assert f"against its first stage: {score - 0.5:+.3f} [" in finding.evidence
    assert "n = 50" in finding.evidence
    assert finding.page == "runs/judge.html"
    assert rerank_finding([make("other")]) is None


def test_joint_training_is_reported_with_the_gates_words_beside_it():
    gate, tir, ends = Gate(), 0.03, (-0.01, 0.07)
    unknown = dict.fromkeys(("std", "delta", "delta_std"))
    verdicts = {"by_point": gate.verdict(tir), "by_evidence": gate.evidence(tir, ends)}
    intervals = {"interval": ends}
    each = Estimate("overall", (1, 2), (), (), tir, **unknown, **intervals, **verdicts)
    group = Group("joint", each, (), (), (), ())
    report = InterferenceReport(Interference((group,), gate, (), ()), (), 2, ())
    finding = interference_finding(report)
    assert finding.headline == "Joint training is not shown to cost anything"
    assert finding.evidence.startswith("TIR ")
    assert all(verdict in finding.evidence for verdict in ("PASS", "INCONCLUSIVE"))
    assert finding.page == "interference.html"


def test_the_landing_page_links_to_the_numbers_and_says_if_there_are_none(home):
    results = [make("best", scores=BASE + 0.1), make("second", scores=BASE)]
    page = headline_lead(compare(results, tier="smoke"), task=TASK, folder="runs/")
    assert 'href="runs/leaderboard.html"' in page
    assert page.count("<figure") == 1
    assert interference_finding(interference_report()) is None  # nothing was trained here
    assert "q-finding-head" not in headline_findings(compare([]), task=TASK)
    assert "No results yet" in headline_lead(compare([]), task=TASK)
