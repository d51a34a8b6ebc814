"""Conclusions are short sentences, and captions and notes are short, whatever a study has."""

import json
from dataclasses import replace

import numpy as np
import pytest
from helpers import REPOSITORY, studies
from helpers.answers import EXAMPLES, PUBLISHED, contaminated
from helpers.records import make, tier_records
from helpers.words import LONGEST_SENTENCE, count_words, long_views, sentences, too_long

from qwen3nb.analysis.comparison.plan import Plan
from qwen3nb.analysis.comparison.prompt_effects import PromptScores, prompt_pairs
from qwen3nb.answers.ablation import Ablation
from qwen3nb.answers.ann import ApproximateSearch
from qwen3nb.answers.calibration import MEANINGS, calibration
from qwen3nb.answers.data import Data
from qwen3nb.answers.interference import interference
from qwen3nb.answers.parity import ParityAnswer
from qwen3nb.answers.planned import plan_comparison
from qwen3nb.answers.prompts import Prompts
from qwen3nb.answers.reproduction import Reproductions
from qwen3nb.answers.reranking import reranking
from qwen3nb.answers.speed import Precision, Speed
from qwen3nb.answers.status import Status
from qwen3nb.answers.trainings import trainings
from qwen3nb.evaluation.parity import Cause, Rankings
from qwen3nb.evaluation.retrieval.ann import Compressed
from qwen3nb.evaluation.studies.reproduce import Reproduction
from qwen3nb.models.kinds.prompts import QueryPrompt

LONG = "Qwen3-0.6B-ul2-last-5-checkpoints-averaged-with-weighted-mean-pooling"
TASKS = [f"ATaskWithALongName{number}" for number in range(20)]


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("QWEN3NB_HOME", str(tmp_path))


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_every_answer_is_short(name):
    assert long_views(EXAMPLES[name]()) == {}


def test_words_are_counted_as_on_a_page():
    page = (
        '<p class="q-conclusion">One is <b>best</b> (0.5 &lt; 0.6). '
        f'{"Very " * 25}long, e.g. this. <a href="x">The numbers of this page</a></p>'
        f'<p class="q-note">{"word " * 41}</p><figcaption>{"word " * 40}</figcaption>'
    )
    (first, first_text), (second, _) = too_long(page)
    assert (first, second) == (28, 41)
    assert first_text.startswith("Very")
    assert sentences("It is e.g. short. So is this.") == ["It is e\0g\0 short.", "So is this."]
    assert count_words("a − b = 0.5") == 3


def significant(count, factor="pooling"):
    return [
        studies.effect(f"level {n} of many", 0.1 + n / 100, 0.001, factor=factor)
        for n in range(count)
    ]


def steps(trainings_, *, gain=0.1, checkpoints=3):
    """Records of checkpoints of several trainings with long names."""
    rng = np.random.default_rng(0)
    records = []
    for number in range(trainings_):
        for step in range(1, checkpoints + 1):
            scores = (0.3 + gain * step + rng.normal(0, 0.1, 40)).clip(0, 1)
            records.append(make(f"{LONG}-{number}-checkpoint-{step * 1000}", scores))
    return records


def many_prompts():
    rng = np.random.default_rng(0)
    queries = tuple(QueryPrompt(f"p{i}", f"find {i}: ") for i in range(15))
    scores = [
        PromptScores(f"{LONG}-{model}", task, "nDCG@10", queries, 0.5, rng.random(15), (), ())
        for model in range(5)
        for task in TASKS[:4]
    ]
    return Prompts(tuple(scores), tuple(prompt_pairs(scores)))


def many_reranked(gain):
    records = []
    for task in TASKS[:5]:
        scores = {f"q{i}": 0.02 * i for i in range(40)}
        record = make(LONG, scores, task=task)
        for name, factor in {
            "first nDCG@10": 1 - gain,
            "gain nDCG@10": gain,
            "oracle nDCG@10": 1.2,
        }.items():
            record.per_query[name] = {query: value * factor for query, value in scores.items()}
            record.metrics[name] = record.metrics["nDCG@10"]
        record.config["collection"] = task
        records.append(record)
    return reranking(records)


def all_contaminated():
    found = contaminated().texts[0]
    texts = tuple(replace(found, task=task, sampled=4, wordless=3) for task in TASKS)
    return replace(contaminated(), texts=texts)


def unlike():
    causes = [
        Cause(name, "a detail of twenty words " * 4)
        for name in ("pooling", "query prompt", "precision", "refused texts", "dimensions")
    ]
    rankings = Rankings(200, 500, 800, 0.5, 0.4, -0.1, (-0.2, -0.05), 12, 0.7)
    return ParityAnswer(
        LONG,
        "http://localhost:8000/v1#model",
        False,
        tuple(causes),
        {"a": 0.5},
        0.9,
        0.99,
        rankings,
    )


def missing_scores():
    outcomes = [Reproduction(PUBLISHED, None, None) for _ in range(9)]
    return Reproductions((Reproduction(PUBLISHED, None, 0.4), *outcomes))


def planned():
    records = [
        make(label, np.linspace(mean, 1, 40), task=task)
        for label, mean in (("bm25", 0.1), (LONG, 0.2))
        for task in TASKS
    ]
    wanted = Plan(baseline="bm25", models=(LONG,), tasks=tuple(TASKS), margin=0.001)
    return plan_comparison(records, wanted)


AWKWARD = {
    "effects of many settings": lambda: Ablation({task: significant(9) for task in TASKS}, {}),
    "no effect": lambda: Ablation({TASKS[0]: [studies.NOISE]}, {}),
    "effects at the floor": lambda: Ablation(
        {
            task: [
                replace(studies.NOISE, estimate=replace(studies.NOISE.estimate, means=(0.01, 0.01)))
            ]
            for task in TASKS[:2]
        },
        {},
    ),
    "no good index": lambda: ApproximateSearch(
        studies.suite([studies.FLAT, studies.POOR], label=LONG)
    ),
    "a good index and small vectors": lambda: ApproximateSearch(
        studies.suite(
            [studies.FLAT, studies.point("hnsw", recall=0.97, qps=250)],
            [Compressed("int8", 8, 8, studies.SHAKY)],
            label=LONG,
        )
    ),
    "many contaminated tasks": all_contaminated,
    "no scores on PyDocs": lambda: Data("smoke", {}, {}),
    "an export that is wrong": lambda: studies.extraction(
        difference=0.1, leak=0, rounding=0.1, warnings=("a", "b")
    ),
    "a server that differs": unlike,
    "a long name": lambda: studies.probes(label=LONG),
    "many prompts": many_prompts,
    "most scores not run": missing_scores,
    "reranking helps": lambda: many_reranked(0.5),
    "reranking changes nothing": lambda: many_reranked(0.0),
    "many models timed": lambda: Speed(
        tuple(
            studies.bench(n, label=f"{LONG}-{n}", texts=f"long documents {n}") for n in range(1, 9)
        )
    ),
    "many dtypes": lambda: Precision(
        tuple(
            studies.precision(studies.EXACT, studies.ROUNDED, label=f"{LONG}-{n}") for n in range(9)
        )
    ),
    "many trainings": lambda: trainings(steps(6)),
    "one training": lambda: trainings(steps(1)),
    "a training that changes nothing": lambda: trainings(steps(1, gain=0.0)),
    "forecasts of many trainings": lambda: trainings(steps(6)).forecast(),
    "a forecast": lambda: trainings(steps(1, gain=0.02, checkpoints=9)).forecast(),
    "no trainings": lambda: trainings([]),
    "files that cannot be read": lambda: replace(
        trainings(steps(1)), problems=tuple("x" * 300 for _ in range(9))
    ),
    "no adapters": lambda: interference([]),
    "many damaged records": lambda: Status(
        tuple(tier_records("m") + tier_records(LONG)),
        tuple(f"a-record-{n}.json" for n in range(30)),
    ),
    "many tasks with too few queries": planned,
}


@pytest.mark.parametrize("name", AWKWARD)
def test_an_awkward_study_has_short_texts(name):
    assert long_views(AWKWARD[name]()) == {}


@pytest.mark.parametrize("kind", MEANINGS)
def test_simulated_shares_have_short_texts(kind):
    table = calibration().table(kind)
    assert too_long(table.to_html()) == []
    assert MEANINGS[kind].split()[-1] in table.to_html()


def test_the_first_paragraph_of_each_notebook_is_short():
    for file in sorted((REPOSITORY / "notebooks").glob("*.ipynb")):
        first_text = "".join(json.loads(file.read_text())["cells"][0]["source"])
        title, _, paragraph = first_text.partition("\n\n")
        assert title.startswith("# "), file
        long = [s for s in sentences(paragraph) if count_words(s) > LONGEST_SENTENCE]
        assert long == [], file
