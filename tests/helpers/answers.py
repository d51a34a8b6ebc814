"""An example of each answer, by the name of its class."""

from types import SimpleNamespace

import numpy as np

from helpers import studies
from helpers.records import RERANKING, RETRIEVAL, amend, make
from helpers.records import own as records_of_own_data
from qwen3nb.analysis.comparison.plan import Plan
from qwen3nb.analysis.comparison.prompt_effects import PromptScores, prompt_pairs
from qwen3nb.answers.ablation import Ablation
from qwen3nb.answers.ann import ApproximateSearch
from qwen3nb.answers.calibration import calibration
from qwen3nb.answers.candidates import compare_candidates
from qwen3nb.answers.changes import Changes
from qwen3nb.answers.checks import Checks
from qwen3nb.answers.comparison import compare
from qwen3nb.answers.contamination import ContaminationAnswer
from qwen3nb.answers.data import Data
from qwen3nb.answers.evaluation import Evaluation
from qwen3nb.answers.explorer import explore
from qwen3nb.answers.extraction import Checkpoints
from qwen3nb.answers.how_sure import how_sure
from qwen3nb.answers.interference import interference
from qwen3nb.answers.leaderboard import leaderboard
from qwen3nb.answers.own_data import own_data
from qwen3nb.answers.parity import ParityAnswer
from qwen3nb.answers.planned import plan_comparison
from qwen3nb.answers.prompts import Prompts
from qwen3nb.answers.reproduction import Reproductions
from qwen3nb.answers.reranking import reranking
from qwen3nb.answers.speed import Precision, Speed
from qwen3nb.answers.status import status
from qwen3nb.answers.trainings import trainings
from qwen3nb.evaluation.contamination import Contamination
from qwen3nb.evaluation.embeddings.sanity_check import Check, SanityCheck
from qwen3nb.evaluation.run import EvaluationRun, Run
from qwen3nb.evaluation.studies.reproduce import Published, Reproduction
from qwen3nb.models.kinds.prompts import QueryPrompt
from qwen3nb.records.results import Results

PUBLISHED = Published("bm25", "SciFact", 0.41, 0.005, "paper")


def records():
    """Three models with scores of 40 queries on two tasks."""
    rng = np.random.default_rng(0)
    return [
        make(label, scores=(mean + rng.normal(0, 0.1, 40)).clip(0, 1), task=task)
        for label, mean in (("bm25", 0.4), ("encoder", 0.5), ("other", 0.45))
        for task in (RETRIEVAL, RERANKING)
    ]


def evaluation():
    """The first model, as its page shows it."""
    outcome = EvaluationRun(Results(records()[:2]), label="bm25")
    return Evaluation(None, [], [RETRIEVAL], outcome, Run(), "", "", caution="")


def own():
    """Two models on a collection of own data."""
    both = [records_of_own_data("old", 0.4), records_of_own_data("new", 0.8, seed=1)]
    for record in both:
        amend(record, "task", dataset="domain-notes", main_metric="MRR@10")
    return own_data(both)


def prompts():
    """Two models on a task with two prompts, and their order."""
    values = (RETRIEVAL, "nDCG@10", (QueryPrompt("p0", "find: "), QueryPrompt("p1", "FIND ")))
    both = [
        PromptScores(label, *values, 0.5, np.array(means), (), ())
        for label, means in (("a", [0.4, 0.6]), ("b", [0.45, 0.55]))
    ]
    return Prompts(tuple(both), tuple(prompt_pairs(both)))


def plan():
    """How many queries a difference of 0.05 needs."""
    wanted = Plan(baseline="bm25", models=("encoder",), tasks=(RETRIEVAL,), margin=0.05)
    return plan_comparison(records(), wanted)


def changes():
    """One record that was measured again."""
    return Changes("v1", "v2", (), (), ("bm25 on Retrieval",), 3, (), (), {}, {})


def checks():
    """A model that fails one of two checks."""
    passed = Check("length", "PASSED", "1.00")
    failed = Check("order", "FAILED", "0.1", "> 0.3", value=0.1, low=0.0, high=0.2)
    return Checks(SanityCheck("encoder", "0" * 64, (passed, failed)))


def contaminated():
    """A query of a task that is in the training data."""
    found = Contamination(
        RETRIEVAL, "queries", 40, {"exact": 1, "contained": 0, "13-gram": 0}, ("q1",), (), 1
    )
    training = SimpleNamespace(summary=lambda: "Read 1 file.")
    return ContaminationAnswer((found,), (), training)


def reranked():
    """The gains of a record of reranking, without its runs."""
    scores = {f"q{i}": 0.1 * i for i in range(9)}
    record = make("reranker", scores, task="SciFact.bm25-100")
    for name, factor in {"first nDCG@10": 0.5, "gain nDCG@10": 0.1, "oracle nDCG@10": 0.9}.items():
        record.per_query[name] = {query: value * factor for query, value in scores.items()}
        record.metrics[name] = record.metrics["nDCG@10"]
    record.config["collection"] = "SciFact"
    return reranking([record])


def steps():
    """Records of two checkpoints of a training."""
    rng = np.random.default_rng(0)
    return [
        make(f"demo-checkpoint-{step}", scores=(mean + rng.normal(0, 0.1, 40)).clip(0, 1))
        for step, mean in ((100, 0.4), (200, 0.5))
    ]


EXAMPLES = {
    "Changes": changes,
    "Checks": checks,
    "Evaluation": evaluation,
    "PlannedComparison": plan,
    "Prompts": prompts,
    "Status": lambda: status(records()),
    "Candidates": lambda: compare_candidates(
        records(), current="bm25", task=RETRIEVAL, n_resamples=200
    ),
    "OwnData": own,
    "Ablation": lambda: Ablation({studies.TASK: [studies.NOISE, studies.CLEAR]}, {}),
    "ApproximateSearch": lambda: ApproximateSearch(studies.suite([studies.FLAT, studies.POOR])),
    "Calibration": calibration,
    "ContaminationAnswer": contaminated,
    "Checkpoints": lambda: Checkpoints((), (), "eval_loss"),
    "Data": lambda: Data("smoke", {}, {"bm25": studies.BM25, "random": studies.RANDOM}),
    "ExtractedModel": studies.extraction,
    "HowSure": lambda: how_sure(records()),
    "Interference": lambda: interference(steps()),
    "ParityAnswer": lambda: ParityAnswer("m", "n", False, (), {"a": 0.5, "b": None}, 0.9, 0.99),
    "Precision": lambda: Precision((studies.precision(studies.EXACT, studies.ROUNDED),)),
    "ProbedVectors": studies.probes,
    "Reranking": reranked,
    "Speed": lambda: Speed((studies.bench(2),)),
    "Trainings": lambda: trainings(steps()),
    "Comparison": lambda: compare(records(), draws=200),
    "Explorer": lambda: explore(records(), task=RETRIEVAL),
    "Leaderboard": lambda: leaderboard(records()),
    "Reproductions": lambda: Reproductions((Reproduction(PUBLISHED, None, 0.4),)),
    "NoExplorer": lambda: explore([make("a")], task=RETRIEVAL),
}
