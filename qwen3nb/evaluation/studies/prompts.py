"""Evaluate a model with each of many prompts.

Each prompt takes the place of a query's, and of that of a text without a role; a passage keeps its
own, so that it is encoded once. Records go to ``results/prompts``, where no leaderboard lists them;
the record of the model with its own prompts, the default, stays where all records are.
`qwen3nb.analysis.comparison.prompt_effects` says what the prompts change.
"""

from collections.abc import Iterable
from typing import Any

from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.mteb.select import task_key
from qwen3nb.evaluation.run import Run
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.kinds.prompts import QueryPrompt, prompt_for, read_prompts
from qwen3nb.records.record import Result
from qwen3nb.records.store import PROMPTS
from qwen3nb.utils.progress import tqdm


def evaluate_prompts(
    model: Encoder,
    given: str,
    sources: Iterable[Any],
    defaults: Iterable[Result],
    *,
    run: Run,
    limit: int = 0,
    tier: str = "",
) -> list[Result]:
    """Evaluate a model with each prompt of a set; stored records are reused.

    Args:
        model: with its own prompts.
        given: the set, as for `read_prompts`.
        sources: MTEB task objects, or folders of test collections.
        defaults: records of the model with its own prompts; tasks without one are left out.
        run: how those were made.
        limit: as for `evaluate`.
        tier: likewise; folders are cut by the tier `nano`.

    Raises:
        EvaluationError: a task failed that had not failed with the model's own prompts.
    """
    tasks_with_default = {record.task.key for record in defaults}
    jobs: list[tuple[Any, Any, QueryPrompt]] = []
    for source in sources:
        metadata = getattr(source, "metadata", None)  # of a task; a folder has none
        if metadata is None:
            prompts = read_prompts(given, "Retrieval")
        elif task_key(source, limit=limit) in tasks_with_default:
            prompts = read_prompts(given, metadata.type)
        else:
            continue
        jobs += [(source, metadata, prompt) for prompt in prompts]
    results: list[Result] = []
    for source, metadata, prompt in tqdm(jobs, desc="prompts", unit="prompt"):
        passage = prompt_for(
            model.prompts, role="passage", task=metadata, instruction=model.source.instruction
        )
        prompt_by_role = {"query": prompt.text, "symmetric": prompt.text, "passage": passage}
        data, tasks = source, None
        if metadata is not None:
            data, tasks = None, [source]
        results += evaluate(
            model.prompted(prompt_by_role),
            data,
            tasks=tasks,
            limit=limit,
            tier=tier,
            output=run.folder / PROMPTS,
            seed=run.seed,
            batch_size=run.batch_size,
            config={"prompt": {"name": prompt.name, "text": prompt.text, "of": model.identity}},
            show_progress=False,
        )
    return results
