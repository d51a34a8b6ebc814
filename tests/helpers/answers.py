"""An example of each answer, by the name of its class."""

from types import SimpleNamespace

import numpy as np

from helpers import studies
from helpers.migration import migration_example
from helpers.records import RERANKING, RETRIEVAL, amend, make, state
from helpers.records import own as records_of_own_data
from qwen3nb.analysis.comparison.plan import Plan
from qwen3nb.analysis.comparison.prompt_effects import PromptScores, prompt_pairs
from qwen3nb.analysis.forecasting.race import Goal, Race, Standing
from qwen3nb.analysis.stats.score_matrix import join
from qwen3nb.analysis.training.choosing import choose, split
from qwen3nb.analysis.training.exchange_costs import (
    JOINT,
    SPECIALIST,
    ExchangedScores,
    into,
    task_costs,
)
from qwen3nb.answers.ablation import Ablation
from qwen3nb.answers.ann import ApproximateSearch
from qwen3nb.answers.calibration import calibration
from qwen3nb.answers.candidates import compare_candidates
from qwen3nb.answers.changes import Changes
from qwen3nb.answers.checks import Checks
from qwen3nb.answers.choosing import Choosing
from qwen3nb.answers.comparison import compare
from qwen3nb.answers.contamination import ContaminationAnswer
from qwen3nb.answers.data import Data
from qwen3nb.answers.evaluation import Evaluation
from qwen3nb.answers.explorer import explore
from qwen3nb.answers.extraction import Checkpoints
from qwen3nb.answers.forecast import forecast
from qwen3nb.answers.forgetting import forgetting
from qwen3nb.answers.how_sure import how_sure
from qwen3nb.answers.interference import interference
from qwen3nb.answers.interference_parts import InterferenceByPart
from qwen3nb.answers.leaderboard import leaderboard
from qwen3nb.answers.own_data import own_data
from qwen3nb.answers.parity import ParityAnswer
from qwen3nb.answers.planned import plan_comparison
from qwen3nb.answers.prompts import Prompts
from qwen3nb.answers.query_worth import QueryWorth
from qwen3nb.answers.race import RaceAnswer
from qwen3nb.answers.reproduction import Reproductions
from qwen3nb.answers.reranking import reranking
from qwen3nb.answers.seeds import over_seeds
from qwen3nb.answers.soup import score_matrices
from qwen3nb.answers.speed import Precision, Speed
from qwen3nb.answers.status import status
from qwen3nb.answers.trainings import trainings
from qwen3nb.evaluation.contamination import Contamination
from qwen3nb.evaluation.embeddings.sanity_check import Check, SanityCheck
from qwen3nb.evaluation.run import EvaluationRun, Run
from qwen3nb.evaluation.studies.reproduce import Published, Reproduction
from qwen3nb.models.kinds.prompts import QueryPrompt
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.results import Results


def finished_race(data=None):
    """Two models of which one has lost."""
    forecasts = {
        "bm25": forecast({"STSBenchmark": 0.8, "ArguAna": 0.5}),
        "other": forecast({"STSBenchmark": 0.3, "ArguAna": 0.1}),
    }
    race = Race(tuple(forecasts), Goal())
    standings = {"bm25": Standing(0.6, 0.01), "other": Standing(0.2, 0.01)}
    for _ in range(3):
        race.advance(standings)
    not_run = {name: each.next_tasks for name, each in forecasts.items()}
    return RaceAnswer("MTEB(eng, v2)", race, forecasts, not_run, data or DataUsed())


PUBLISHED = Published("bm25", "SciFact", 0.41, 0.005, "paper")


def records():
    """Three models with scores of 40 queries on two tasks."""
    rng = np.random.default_rng(0)
    return [
        make(label, scores=(mean + rng.normal(0, 0.1, 40)).clip(0, 1), task=task)
        for label, mean in (("bm25", 0.4), ("encoder", 0.5), ("other", 0.45))
        for task in (RETRIEVAL, RERANKING)
    ]


def query_worth(of=None):
    """Models on the queries of the first task, half of which count as generated."""
    of = of or records()
    compared = compare(of, tasks=[RETRIEVAL], metric="nDCG@10").tasks[0]
    first, *others = compared.columns
    queries = compared.columns[first].queries
    return QueryWorth(
        name="notes",
        real=compared,
        generated=compared,
        categories={query: ("title", "masked")[row % 2] for row, query in enumerate(queries)},
        lexical=(first,),
        others=tuple(others),
        data=compare(of).data_used(),
    )


def chosen(of=None):
    """One of three models, chosen on one half of the queries."""
    of = of or records()
    by_model = {}
    for record in of:
        if record.task.key == RETRIEVAL:
            by_model[record.model.label] = [record]
    matrices = score_matrices(by_model)
    return Choosing(
        choice=choose(matrices, n_resamples=200, splits=2),
        matrices=tuple(matrices),
        halves=split(matrices),
        data=DataUsed.of(record for found in by_model.values() for record in found),
    )


def forgotten(of=None):
    """Two models on queries of two topics, of which the later one has lost the second."""
    of = of or records()
    both = [record for record in of if record.task.key == RETRIEVAL][:2]
    texts = {}
    lost = {}
    for row, query in enumerate(both[0].per_query["nDCG@10"]):
        texts[query] = f"{('sort the list', 'open a file')[row % 2]} number {row}"
        lost[query] = both[0].per_query["nDCG@10"][query] - 0.3 * (row % 2)
    for record in both:
        state(record, queries=texts)
    later = make(both[1].model.label, lost, config={"queries": texts})
    amend(later, "task", revision=both[0].task.revision)
    return forgetting([both[0], later], both[0].model.label, later.model.label, n_resamples=200)


def exchanged_layers(of=None):
    """Two layers of a joint adapter, of which the second costs something."""
    of = of or records()
    rng = np.random.default_rng(1)
    quality = {JOINT: 0.4, SPECIALIST: 0.5, into(JOINT, "0"): 0.4, into(JOINT, "1"): 0.5}
    quality |= {into(SPECIALIST, "0"): 0.5, into(SPECIALIST, "1"): 0.4}
    columns = {}
    for name, mean in quality.items():
        scores = (mean + rng.normal(0, 0.05, 40)).clip(0, 1)
        columns[name] = {f"q{place:02}": float(score) for place, score in enumerate(scores)}
    matrix = join(columns, task=RETRIEVAL, metric="nDCG@10")
    costs = task_costs("embedding", [ExchangedScores(42, ("0", "1"), (matrix,))], n_resamples=200)
    return InterferenceByPart("layer", (("joint_r8", costs),), (), DataUsed.of(of))


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


def seeds(revision="r" * 12):
    """Two trainings of two seeds each."""
    rng = np.random.default_rng(1)
    both = []
    for name, gain in (("new", 0.2), ("old", 0.0)):
        of_training = rng.uniform(0.2, 0.6, 60) + gain
        for seed in (1, 2):
            scores = of_training + rng.normal(0, 0.01, 60)
            both.append(make(f"{name}-seed_{seed}", scores.clip(0, 1), revision=revision))
    return over_seeds(both, draws=200)


def training_of_many_steps():
    """A training with enough checkpoints for a curve."""
    rng = np.random.default_rng(0)
    records = []
    for number in range(1, 10):
        scores = 0.6 - 0.3 / number + rng.normal(0, 0.02, 40)
        records.append(make(f"demo-checkpoint-{100 * number}", scores.clip(0, 1)))
    return records


EXAMPLES = {
    "Changes": changes,
    "Choosing": chosen,
    "Checks": checks,
    "Evaluation": evaluation,
    "Migration": migration_example,
    "PlannedComparison": plan,
    "Prompts": prompts,
    "SeedComparison": seeds,
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
    "Forecast": lambda: forecast({"STSBenchmark": 0.8, "ArguAna": 0.5}),
    "RaceAnswer": lambda: finished_race(),
    "Data": lambda: Data("smoke", {}, {"bm25": studies.BM25, "random": studies.RANDOM}),
    "ExtractedModel": studies.extraction,
    "TrainingForecasts": lambda: trainings(training_of_many_steps()).forecast(),
    "HowSure": lambda: how_sure(records()),
    "Interference": lambda: interference(steps()),
    "InterferenceByPart": exchanged_layers,
    "ParityAnswer": lambda: ParityAnswer("m", "n", False, (), {"a": 0.5, "b": None}, 0.9, 0.99),
    "Precision": lambda: Precision((studies.precision(studies.EXACT, studies.ROUNDED),)),
    "ProbedVectors": studies.probes,
    "Reranking": reranked,
    "Speed": lambda: Speed((studies.bench(2),)),
    "Trainings": lambda: trainings(steps()),
    "Comparison": lambda: compare(records(), draws=200),
    "Explorer": lambda: explore(records(), task=RETRIEVAL),
    "Leaderboard": lambda: leaderboard(records()),
    "QueryWorth": query_worth,
    "Reproductions": lambda: Reproductions((Reproduction(PUBLISHED, None, 0.4),)),
    "Forgetting": forgotten,
    "NoForgetting": lambda: forgetting([make("a")]),
    "NoExplorer": lambda: explore([make("a")], task=RETRIEVAL),
}
