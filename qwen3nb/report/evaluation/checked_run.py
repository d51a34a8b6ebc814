"""The page of one evaluation: check its needs, evaluate, compare with a baseline."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from qwen3nb.analysis.comparison.against_baseline import AgainstBaseline, against_baseline
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.mteb.plan import Preflight, load_checked, preflight
from qwen3nb.evaluation.mteb.select import SELECTION, choose_tasks, task_key
from qwen3nb.evaluation.run import EvaluationRun, Run
from qwen3nb.evaluation.studies.prompts import evaluate_prompts
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.kinds.prompts import names_prompt_set, prompt_warning
from qwen3nb.models.kinds.resolve import default_model, find_source
from qwen3nb.models.kinds.source import Source
from qwen3nb.models.types import SpecError
from qwen3nb.records.results import Results
from qwen3nb.records.store import load_results
from qwen3nb.report.evaluation.run_trace import RunTrace
from qwen3nb.report.leaderboard.all_results import Summary, summarise, write_all_results
from qwen3nb.utils.choices import one_of, split_names


@dataclass(frozen=True)
class CheckedRun:
    """An evaluation with its baseline: the records, and what was reused, skipped or failed."""

    model: Any  # the loaded model
    sources: list[Any]  # the folders or tasks that were evaluated
    requested: list[str]  # names of all requested tasks
    evaluation: EvaluationRun
    run: Run
    baseline: str  # label of the model to compare with; empty for a reference model
    tier: str  # tier whose mean is shown; empty if only a part of it was requested
    caution: str  # warning if the model was used without its authors' prompts

    @property
    def results(self) -> Results:
        """The records."""
        return self.evaluation.results

    @property
    def failures(self) -> Mapping[str, str]:
        """Why tasks failed, by name."""
        return self.evaluation.reasons

    @cached_property
    def scores(self) -> list[AgainstBaseline]:
        """Each score with its paired difference from the baseline."""
        return against_baseline(
            self.results,
            load_results(self.run.folder, adapters=False),
            baseline=self.baseline,
            tier=self.tier,
            seed=self.run.seed,
        )

    @cached_property
    def summary(self) -> Summary:
        """Means by type or benchmark, with what is missing."""
        reasons = {**self.evaluation.skipped, **self.evaluation.reasons}
        return summarise(self.results, requested=self.requested, reasons=reasons)

    @property
    def trace(self) -> RunTrace:
        """The scores as data, for a page."""
        done = self.evaluation
        return RunTrace(tuple(self.scores), done.reused, done.skipped)


def look(
    checkpoint: str,
    *,
    data: str = "",
    limit: int = 0,
    only: Collection[str] = (),
    data_needed: bool = True,
    tokens_per_second: float = 0,
    **options: Any,
) -> tuple[Any, list[Any], Run, Preflight]:
    """Check data and weights, load the model, encode a few batches and estimate the needs.

    Return the loaded model, its MTEB tasks (none for other data), the run and what it needs.
    Arguments and errors are those of `check_and_evaluate`. With ``fresh``, stored records and
    vectors count for nothing; without ``data_needed``, data may be missing.
    """
    selection = {name: options.pop(name, "") for name in SELECTION}
    options.pop("relevance_threshold", None)  # of data, not of a model
    tasks = [] if data else choose_tasks(**selection)
    tasks = [task for task in tasks if not only or task_key(task) in only]
    how: dict[str, Any] = {n: options[n] for n in ("seed", "batch_size") if n in options}
    how |= {name: options.pop(name, False) for name in ("runs", "fresh")}
    run = Run(output=options.pop("output_dir", "") or None, **how)
    options = {"cache": True, "tier": selection["tier"], **options}
    if names_prompt_set(options.get("prompts")):  # evaluated after the model's own
        del options["prompts"]
    model = load_checked(checkpoint, tasks, run, limit=limit, data=data_needed, **options)
    planned = preflight(model, tasks, run, limit=limit, tokens_per_second=tokens_per_second)
    return model, tasks, run, planned


def plan_runs(
    runs: Iterable[Mapping[str, Any]], *, tokens_per_second: float = 0
) -> list[tuple[str, Preflight | str]]:
    """Return the needs of runs of ``eval.ipynb`` by model, as if nothing were stored; or a reason.

    Of models with the same settings and the same ``config.json``, one is loaded and timed. Data may
    be missing. For ``tokens_per_second`` see `preflight`.
    """
    known: dict[str, Preflight] = {}
    planned: list[tuple[str, Preflight | str]] = []
    for values in runs:
        options = {name: value for name, value in values.items() if name != "baseline"}
        name = options["checkpoint"]
        try:
            source = find_source(name, base=options["base"])
            shape = source.folder.object("config.json") if source.folder else name
            key = repr((source.kind.name, shape, sorted((options | {"checkpoint": ""}).items())))
            if key not in known:
                options |= {"fresh": True, "data_needed": False}
                known[key] = look(**options, tokens_per_second=tokens_per_second)[-1]
            planned.append((name, known[key]))
        except ValueError as error:  # such a run would fail; the others would not
            planned.append((name, str(error).splitlines()[0]))
    return planned


def check_and_evaluate(
    checkpoint: str, *, baseline: str = "", only: Collection[str] = (), **options: Any
) -> CheckedRun:
    """Evaluate a model as in ``eval.ipynb``: check its needs, evaluate, compare with a baseline.

    The parameters are stored in each record. A task that fails does not stop the others; see
    `EvaluationRun.raise_failures`.

    Args:
        checkpoint: a model spec; empty for the study's only export, else bm25.
        baseline: label of a model to compare with; empty for a reference model.
        only: keys of the tasks to evaluate now, a part of those selected; empty for all of them.
        options: ``tier``, ``tasks``, ``benchmark``, ``types``, ``languages``, ``splits``,
            ``subsets`` (see `choose_tasks`); ``data``, comma-separated folders to evaluate on
            instead; ``limit``, ``runs`` and ``cache`` (see `evaluate`); ``output_dir``, the folder
            of the records; and those of `load_encoder`. ``prompts`` may also name a set of them,
            which are evaluated after the model's own; see `evaluate_prompts`.

    Raises:
        ValueError: no such tasks, or a baseline without a record.
        MirrorError: data sets or weights are missing; lists them.
        PreflightError: too little memory or disk. Tasks for which memory is too small are left out
            if others remain.
        EncoderError: a batch does not fit into memory, or a vector is not finite.
    """
    if not checkpoint:  # in a notebook run interactively
        checkpoint, taken = default_model()
        print(taken)
    if baseline and not only:
        known = load_results(options.get("output_dir") or None, adapters=False)
        one_of("baseline", baseline, sorted({result.model.label for result in known}))
    sets = names_prompt_set(options.get("prompts"))
    model, tasks, run, ready = look(checkpoint, only=only, **options)
    if sets and not isinstance(model, Encoder):
        raise SpecError(f"{checkpoint} takes no prompts; a set of them is for an encoder")
    ready.require()
    selection = {name: options.get(name, "") for name in SELECTION}
    data, limit = options.get("data", ""), options.get("limit", 0)
    tasks = [task for task in tasks if task_key(task, limit=limit) not in ready.left_out]
    folders = split_names(data)
    # Records store parameters that affect results, not locations.
    apart = {*SELECTION, "data", "limit", "runs", "output_dir", "cache", "prompts", "base"}
    apart.add("relevance_threshold")  # in records of data that it changes
    evaluation = evaluate(
        model,
        folders or None,
        tier=selection["tier"],
        tasks=None if folders else tasks,
        limit=limit,
        relevance_threshold=options.get("relevance_threshold", 1),
        output=run.output,
        seed=run.seed,
        batch_size=run.batch_size,
        config={
            "checkpoint": checkpoint,
            **selection,
            "data": data,
            "limit": limit,
            **{name: value for name, value in options.items() if name not in apart},
            **{name: options[name] for name in ("prompts", "base") if options.get(name)},
            "baseline": baseline,
        },
        runs=run.runs,
        strict=False,
    )
    if sets:
        evaluate_prompts(
            model, options["prompts"], folders or tasks, evaluation.results, run=run, limit=limit
        )
    if not only:
        write_all_results(run.output)
    given = (not sets and options.get("prompts")) or options.get("prefix")
    part = data or any(value for name, value in selection.items() if name != "tier")
    return CheckedRun(
        model=model,
        sources=[*folders] or tasks,
        requested=[each.task for each in ready.planned],
        evaluation=replace(evaluation, skipped={**evaluation.skipped, **ready.left_out}),
        run=run,
        baseline=baseline,
        tier="" if part else selection["tier"],
        caution=_caution(model.source, given),
    )


def _caution(source: Source, given: object) -> str:
    """Return the warning about a model's prompts; none with a prefix of the user's."""
    if not given:
        return prompt_warning(source)
    return prompt_warning(replace(source, prompts={}), source.prompts)
