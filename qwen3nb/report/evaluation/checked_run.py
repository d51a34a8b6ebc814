"""The page of one evaluation: look at its needs, evaluate, compare with a baseline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from qwen3nb.analysis.comparison.against_baseline import AgainstBaseline, against_baseline
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.mteb.plan import Preflight, load_checked, preflight
from qwen3nb.evaluation.mteb.select import choose_tasks, split_names
from qwen3nb.evaluation.run import EvaluationRun, Run
from qwen3nb.models.kinds.prompts import prompt_warning
from qwen3nb.models.kinds.resolve import default_model
from qwen3nb.records.results import Results
from qwen3nb.records.store import load_results
from qwen3nb.report.evaluation.run_trace import RunTrace
from qwen3nb.report.leaderboard.all_results import write_all_results
from qwen3nb.report.leaderboard.one_model import Summary, summarise
from qwen3nb.utils.choices import one_of

_SELECTION = ("tier", "tasks", "benchmark", "types", "languages", "splits", "subsets")


@dataclass(frozen=True)
class Needs:
    """What an evaluation takes: the loaded model, its data, and what the machine must have."""

    model: Any
    tasks: list[Any]  # of MTEB; none if there are data
    data: list[str]  # folders to evaluate on instead
    preflight: Preflight
    selection: dict[str, str]  # the options that the tasks were selected by
    run: Run
    limit: int  # of queries and rows, or 0


@dataclass(frozen=True)
class CheckedRun:
    """An evaluation with its baseline: the records, and what was reused, skipped or failed."""

    needs: Needs
    evaluation: EvaluationRun
    caution: str = ""  # that the model was used without the prompts of its authors, if so
    baseline: str = ""  # label of the model to compare with; empty for a reference model

    @property
    def results(self) -> Results:
        """The records."""
        return self.evaluation.results

    @property
    def model(self) -> Any:
        """The loaded model."""
        return self.needs.model

    @property
    def failures(self) -> Mapping[str, str]:
        """Why tasks failed, by name."""
        return self.evaluation.reasons

    @property
    def sources(self) -> list[Any]:
        """The folders or tasks that were evaluated."""
        return self.needs.data or self.needs.tasks

    @cached_property
    def scores(self) -> list[AgainstBaseline]:
        """Each score next to its paired difference from the baseline."""
        own, run = self.needs.selection, self.needs.run
        restricted = self.needs.data or any(own[name] for name in own if name != "tier")
        return against_baseline(
            self.results,
            load_results(run.folder, adapters=False),
            baseline=self.baseline,
            tier="" if restricted else own["tier"],
            seed=run.seed,
        )

    @cached_property
    def summary(self) -> Summary:
        """Means by type or benchmark, with what is missing."""
        requested = [each.task for each in self.needs.preflight.planned]
        reasons = {**self.evaluation.skipped, **self.evaluation.reasons}
        return summarise(self.results, requested=requested, reasons=reasons)

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
    runs: bool = False,
    output_dir: str = "",
    cache: bool = True,
    **options: Any,
) -> Needs:
    """Look for data and weights, load the model, encode a few batches and add up the needs.

    Args:
        checkpoint: a model spec.
        data: comma-separated folders to evaluate on instead of tasks.
        limit: as in `evaluate`, like the next.
        runs: whether searches keep their runs.
        output_dir: folder of the records; empty for ``results/``.
        cache: whether vectors are kept.
        options: those of `choose_tasks`, and of `load_encoder`.

    Raises:
        ValueError: no such tasks.
        MirrorError: one list of the data sets and weights that are missing.
        PreflightError: the weights are larger than the free memory.
        EncoderError: a batch does not fit into memory, or a vector is not finite.
    """
    selection = {name: options.pop(name, "") for name in _SELECTION}
    tasks = [] if data else choose_tasks(**selection)
    how = {name: options[name] for name in ("seed", "batch_size") if name in options}
    run = Run(output=output_dir or None, runs=runs, **how)
    own: dict[str, Any] = {"tier": selection["tier"], "limit": limit, "cache": cache, **options}
    model = load_checked(checkpoint, tasks, run, **own)
    ready = preflight(model, tasks, run, limit=limit)
    return Needs(model, tasks, split_names(data), ready, selection, run, limit)


def check_and_evaluate(checkpoint: str, *, baseline: str = "", **options: Any) -> CheckedRun:
    """Evaluate a model as ``eval.ipynb`` does: after a look at its needs, beside a baseline.

    The parameters are stored in each record. A task that fails does not stop the others; see
    `EvaluationRun.raise_failures`.

    Args:
        checkpoint: a model spec; empty for the study's only export, else bm25.
        baseline: label of a model to compare with; empty for a reference model.
        options: ``tier``, ``tasks``, ``benchmark``, ``types``, ``languages``, ``splits``,
            ``subsets`` (see `choose_tasks`); ``data``, ``limit``, ``runs``, ``output_dir`` and
            ``cache`` (see `look`); and those of `load_encoder`.

    Raises:
        ValueError: no such tasks, or a baseline without a record.
        MirrorError: one list of the data sets and weights that are missing.
        PreflightError: too little memory or disk.
    """
    if not checkpoint:  # in a notebook that is run by hand
        checkpoint, taken = default_model()
        print(taken)
    if baseline:
        known = load_results(options.get("output_dir") or None, adapters=False)
        one_of("baseline", baseline, sorted({result.model.label for result in known}))
    needs = look(checkpoint, **options)
    needs.preflight.require()
    # What a record stores is what changes it, not where it is kept.
    apart = {*_SELECTION, "data", "limit", "runs", "output_dir", "cache", "prompts", "base"}
    config = {
        "checkpoint": checkpoint,
        **needs.selection,
        "data": options.get("data", ""),
        "limit": needs.limit,
        **{name: value for name, value in options.items() if name not in apart},
        **{name: options[name] for name in ("prompts", "base") if options.get(name)},
        "baseline": baseline,
    }
    evaluation = evaluate(
        needs.model,
        needs.data or None,
        tier=needs.selection["tier"],
        tasks=None if needs.data else needs.tasks,
        limit=needs.limit,
        output=needs.run.output,
        seed=needs.run.seed,
        batch_size=needs.run.batch_size,
        config=config,
        runs=needs.run.runs,
        strict=False,
    )
    write_all_results(needs.run.output)
    given = options.get("prompts") or options.get("prefix")
    caution = "" if given else prompt_warning(needs.model.source)
    return CheckedRun(needs, evaluation, caution, baseline)
