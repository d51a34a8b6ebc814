"""The sentences on the landing page claim a difference only where it is significant."""

import json

import numpy as np
import pytest
from helpers.html import HOSTILE, Tags
from helpers.records import amend, make, tier_records

from qwen3nb.analysis.comparison.compare import compare
from qwen3nb.report.headline import headline_findings, interference_finding, rerank_finding
from qwen3nb.report.leaderboard.findings import Finding, findings, findings_html
from qwen3nb.report.leaderboard.ranking import standings
from qwen3nb.report.training.interference import interference_report

RNG = np.random.default_rng(3)
BASE = RNG.uniform(0.2, 0.6, 200)


TASK = "PyDocsSampleRetrieval"


def leaders(results, **more):
    return findings(compare(results, tier="smoke"), task=TASK, **more)


def extracted(home, label, *, scores, digest, averaging=None):
    folder = home / "runs" / label
    folder.mkdir(parents=True, exist_ok=True)
    source = {"digest": digest, "folder": "x", "averaging": averaging}
    (folder / "qwen3nb.json").write_text(
        json.dumps({"schema": "qwen3nb.export/1", "source": source})
    )
    result = make(label, scores=scores)
    amend(result, "model", spec=f"runs/{label}")
    return result


def test_a_leader_by_a_real_difference():
    best, second = make("best", scores=BASE + 0.1), make("second", scores=BASE)
    (finding,) = leaders([second, best], links={"run-best": "best.html"})
    assert finding.headline == "best leads on Retrieval"
    assert "by +0.100 [+0.100, +0.100], p < 0.001, corrected < 0.001" in finding.evidence
    assert f"nDCG@10 {np.mean(BASE) + 0.1:.3f}" in finding.evidence
    assert "n = 200" in finding.evidence
    assert finding.page == "best.html"


def test_no_leader_where_the_difference_is_not_real():
    noisy = make("noisy", scores=BASE + RNG.normal(0.001, 0.1, 200))
    (finding,) = leaders([make("other", scores=BASE), noisy])
    assert "not significantly different on Retrieval" in finding.headline
    (alone,) = leaders([make("alone", scores=BASE)])
    assert alone.headline == "alone leads on Retrieval"
    assert leaders([]) == []


def test_what_extraction_and_averaging_gave(home):
    parts = {f"step-{i}": f"digest-{i}" for i in (1, 2)}
    one = extracted(home, "step-1", scores=BASE - 0.05, digest="digest-1")
    two = extracted(home, "step-2", scores=BASE - 0.02, digest="digest-2")
    mean = extracted(
        home, "mean", scores=BASE + 0.03, digest="x",
        averaging={"num_checkpoints": 2, "digests": parts},
    )  # fmt: skip
    baseline = make("baseline", scores=BASE + 0.2)
    leader, own, averaged = leaders([one, two, mean, baseline])
    assert leader.headline == "baseline leads on Retrieval"
    assert own.headline == "The best extracted encoder, mean, is below the best baseline"
    assert "-0.170" in own.evidence
    assert averaged.headline == "Averaging 2 checkpoints helps"
    assert "mean against step-2, the best of them: +0.050" in averaged.evidence
    others = [Finding("about something else", "numbers")]
    assert [each.headline for each in leaders([one, two, mean, baseline], more=others)] == [
        leader.headline, own.headline, others[0].headline
    ]  # fmt: skip


def test_records_of_other_queries_are_not_compared():
    first, second = make("a", scores=BASE), make("b", scores=BASE[:100])
    (finding,) = leaders([first, second])
    assert "b" not in finding.evidence.split()


@pytest.mark.parametrize("text", HOSTILE)
def test_findings_are_escaped(text):
    page = findings_html([Finding(text, text, page=f"runs/{text}")])
    tags = Tags(page)
    assert set(tags.tags) == {"div", "p", "a"}
    assert tags.links == [f"runs/{text}"]
    assert "No results yet" in findings_html([])


def test_reranking_is_reported_with_its_test(home):
    queries = [f"q{i}" for i in range(50)]
    result = make("judge", task="x.bm25-20", scores=[0.2] * 50)
    result.per_query["first nDCG@10"] = dict.fromkeys(queries, 0.5)
    result.config["collection"] = "PyDocsSampleRetrieval"
    finding = rerank_finding([make("other"), result])
    assert finding.headline == "Reranking by judge: hurts"
    assert "nDCG@10 on Retrieval" in finding.evidence
    assert "-0.300 [-0.300, -0.300], p < 0.001, corrected < 0.001" in finding.evidence
    assert "n = 50" in finding.evidence
    assert rerank_finding([make("other")]) is None
    assert interference_finding(interference_report()) is None  # nothing was trained here
    assert "No results yet" in headline_findings(compare([]), task=TASK)


@pytest.mark.integration
def test_on_a_tier_with_benchmarks_the_first_finding_is_about_the_first_of_them():
    results = [*tier_records("good", mean=0.7), *tier_records("poor")]
    boards = standings(results, tier="full")
    comparison = compare(results, tasks=["SciFact"])
    first, *_ = findings(comparison, task="SciFact", board=boards.overall)
    assert first.headline == "good leads on BEIR"
    assert "ranks first in 100 % of resamples" in first.evidence
    page = headline_findings(comparison, task="SciFact", boards=boards, folder="runs/")
    assert 'href="runs/leaderboard.html"' in page
    assert "good leads on BEIR" in page
