"""Evaluate a model with each of many prompts, and read the scores back.

Each prompt takes the place of a query's, and of that of a text without a role; a passage keeps its
own, so that it is encoded once. Records go to ``results/prompts``, where no leaderboard lists them;
the record of the model with its own prompts, the default, stays where all records are.
`qwen3nb.analysis.comparison.prompt_effects` says what the prompts change.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from qwen3nb import paths
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.mteb.select import task_key
from qwen3nb.evaluation.run import Run
from qwen3nb.metrics.intervals import Array
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.kinds.prompts import QueryPrompt, prompt_for, read_prompts
from qwen3nb.records.record import Result
from qwen3nb.records.store import PROMPTS, load_results
from qwen3nb.utils.progress import tqdm


@dataclass(frozen=True, eq=False)
class PromptScores:
    """The main metric of one model on one task, by prompt.

    Shapes: P prompts, n queries, S seeds.
    """

    model: str  # label
    task: str
    metric: str
    prompts: tuple[QueryPrompt, ...]
    default: float  # with the model's own prompts, the mean over seeds
    values: Array  # (P,), likewise
    queries: tuple[str, ...]  # ids; none if the metric is not a mean over queries
    scores: Array  # (n, P, S)


def evaluate_prompts(
    model: Encoder,
    given: str,
    sources: Iterable[Any],
    defaults: Iterable[Result],
    *,
    run: Run,
    limit: int = 0,
) -> list[Result]:
    """Evaluate a model with each prompt of a set; stored records are reused.

    Args:
        model: with its own prompts.
        given: the set, as for `read_prompts`.
        sources: MTEB task objects, or folders of test collections.
        defaults: records of the model with its own prompts; tasks without one are left out.
        run: how those were made.
        limit: as for `evaluate`.

    Raises:
        EvaluationError: a task failed that had not failed with the model's own prompts.
    """
    done = {each.task.key for each in defaults}
    results: list[Result] = []
    jobs: list[tuple[Any, Any, QueryPrompt]] = []
    for source in sources:
        task = getattr(source, "metadata", None)
        if task is None or task_key(source, limit=limit) in done:
            kind = task.type if task is not None else "Retrieval"
            jobs += [(source, task, each) for each in read_prompts(given, kind)]
    for source, task, prompt in tqdm(jobs, desc="prompts", unit="prompt"):
        passage = prompt_for(
            model.prompts, role="passage", task=task, instruction=model.source.instruction
        )
        given_text = {"query": prompt.text, "symmetric": prompt.text, "passage": passage}
        results += evaluate(
            model.prompted(given_text),
            source if task is None else None,
            tasks=None if task is None else [source],
            limit=limit,
            output=run.folder / PROMPTS,
            seed=run.seed,
            batch_size=run.batch_size,
            config={"prompt": {"name": prompt.name, "text": prompt.text, "of": model.identity}},
            show_progress=False,
        )
    return results


def read_prompt_scores() -> list[PromptScores]:
    """Return the scores of every model and task that was evaluated with a set of prompts.

    A model's prompts are those of all sets. Of several contents of a model, as of a checkpoint that
    was overwritten, the newest counts. Prompts that a seed lacks are left out.
    """
    every = paths.results()
    defaults = {
        (each.model.identity, each.seed, each.task.key): each
        for each in load_results(every)
        if each.main.value is not None
    }
    contents: dict[tuple[str, str, int], dict[str, list[Result]]] = {}
    for result in sorted(load_results(every / PROMPTS), key=lambda each: each.finished):
        use, of = (result.model.label, result.task.key, result.seed), result.config["prompt"]["of"]
        if (of, result.seed, result.task.key) in defaults and result.main.value is not None:
            own = contents.setdefault(use, {})
            own[of] = [*own.pop(of, []), result]  # the content of the newest record is the last
    seeds: dict[tuple[str, str], list[tuple[Result, dict[str, Result]]]] = {}
    for (label, task, seed), content in contents.items():
        of, results = list(content.items())[-1]
        by_text = {each.config["prompt"]["text"]: each for each in results}
        seeds.setdefault((label, task), []).append((defaults[of, seed, task], by_text))
    return [_scores(label, runs) for (label, _), runs in sorted(seeds.items())]


def _scores(label: str, runs: Sequence[tuple[Result, dict[str, Result]]]) -> PromptScores:
    """Join seeds, each of which has the record of its default and those of prompts, by text."""
    (first, known), *others = runs
    texts = [text for text in known if all(text in by_text for _, by_text in others)]
    if not texts:  # of seeds without a common prompt, the newest counts
        return _scores(label, [max(runs, key=lambda run: run[0].finished)])
    records = [[by_text[text] for _, by_text in runs] for text in texts]  # (P, S)
    metric = first.task.main_metric
    columns = [[each.per_query.get(metric, {}) for each in row] for row in records]
    ids = set.intersection(*(set(each) for row in columns for each in row))
    means = all(each.main.how == "mean" for row in records for each in row)
    queries = tuple(sorted(ids)) if means else ()
    scores = [[[each[query] for query in queries] for each in row] for row in columns]
    return PromptScores(
        label,
        first.task.key,
        metric,
        tuple(QueryPrompt(known[text].config["prompt"]["name"], text) for text in texts),
        float(np.mean([default.main.value for default, _ in runs])),
        np.array([np.mean([each.main.value for each in row]) for row in records]),
        queries,
        np.moveaxis(np.array(scores, dtype=float), -1, 0),
    )
