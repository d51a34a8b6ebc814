"""The page of one evaluation: check its needs, evaluate, compare with a baseline."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypedDict, Unpack

from qwen3nb.answers.all_results import write_all_results
from qwen3nb.answers.evaluation import Evaluation
from qwen3nb.answers.one_model import PlannedRun
from qwen3nb.answers.preview import preview_keys, progress_line, whole_benchmarks
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.mteb.availability import load_checked
from qwen3nb.evaluation.mteb.plan import Preflight, preflight
from qwen3nb.evaluation.mteb.select import SELECTION, choose_tasks, task_key
from qwen3nb.evaluation.run import Run
from qwen3nb.evaluation.studies.prompts import evaluate_prompts
from qwen3nb.models.capabilities import takes_prompts
from qwen3nb.models.kinds.prompts import (
    names_prompt_set,
    parse_prompts,
    prompt_warning,
    prompts_line,
)
from qwen3nb.models.kinds.resolve import default_model, find_source
from qwen3nb.models.kinds.source import Source
from qwen3nb.models.load import named
from qwen3nb.models.model import Model
from qwen3nb.models.options import OPTIONS, OptionArguments
from qwen3nb.models.types import SpecError
from qwen3nb.records.store import records_under
from qwen3nb.utils.choices import check_choice, split_names


class CheckArguments(TypedDict, total=False):
    """How the needs of a run are checked; see `check_needs`."""

    data_needed: bool
    fresh: bool
    tokens_per_second: float


class CheckedRun(NamedTuple):
    """A loaded model, what it is to be evaluated on, and what that needs."""

    model: Any
    tasks: list[Any]  # MTEB's objects; none for other data
    run: Run
    preflight: Preflight
    forecast_benchmarks: tuple[str, ...] = ()  # those that a preview forecasts


class EvaluationArguments(OptionArguments, total=False):
    """The parameters of ``eval.ipynb`` besides its model and baseline."""

    tier: str
    tasks: str
    benchmark: str
    types: str
    languages: str
    splits: str
    subsets: str
    data: str
    limit: int
    relevance_threshold: int
    runs: bool
    output_dir: str
    preview: bool


def check_needs(
    model: Model,
    *,
    only: Sequence[str] = (),
    data_needed: bool = True,
    fresh: bool = False,
    tokens_per_second: float = 0,
    **arguments: Unpack[EvaluationArguments],
) -> CheckedRun:
    """Check data and weights, load the model, encode a few batches and estimate the needs.

    Arguments and errors are those of `check_and_evaluate`. With ``fresh``, stored records and
    vectors count for nothing; without ``data_needed``, data may be missing.
    """
    selection = _selection(arguments)
    limit = arguments.get("limit", 0)
    tasks = []
    if not arguments.get("data"):
        tasks = choose_tasks(**selection)
    benchmarks: tuple[str, ...] = ()
    if arguments.get("preview"):
        if arguments.get("data") or limit:
            raise ValueError("a preview forecasts from whole tasks: leave out data and limit")
        by_key = {task_key(task): task for task in tasks}
        tasks = [by_key[key] for key in preview_keys(by_key)]
        benchmarks = tuple(benchmark.name for benchmark in whole_benchmarks(set(by_key)))
    if only:
        tasks_by_key = {task_key(task): task for task in tasks}
        tasks = [tasks_by_key[key] for key in only if key in tasks_by_key]
    run = Run(
        output=arguments.get("output_dir") or None,
        seed=model.seed,
        batch_size=model.batch_size,
        runs=arguments.get("runs", False),
        fresh=fresh,
    )
    loaded_model = load_checked(
        model, tasks, run, tier=selection["tier"], limit=limit, data=data_needed
    )
    needs = preflight(loaded_model, tasks, run, limit=limit, tokens_per_second=tokens_per_second)
    return CheckedRun(loaded_model, tasks, run, needs, benchmarks)


def _selection(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return what selects tasks, for `choose_tasks`."""
    return {name: arguments.get(name, "") for name in SELECTION}


def check_needs_of_parameters(
    parameters: Mapping[str, Any], **check: Unpack[CheckArguments]
) -> CheckedRun:
    """Return `check_needs` of the parameters of ``eval.ipynb``."""
    names = EvaluationArguments.__annotations__.keys() - OPTIONS.keys()
    arguments: Any = {name: parameters[name] for name in names if name in parameters}
    return check_needs(Model.from_parameters(parameters), **arguments, **check)


def plan_runs(
    runs: Iterable[Mapping[str, Any]], *, tokens_per_second: float = 0
) -> list[PlannedRun]:
    """Return the needs of runs of ``eval.ipynb``, as if nothing were stored.

    ``runs`` are their parameters. Of models with the same settings and the same ``config.json``,
    one is loaded and timed. Data may be missing. For ``tokens_per_second`` see `preflight`.
    """
    needs_by_shape: dict[str, Preflight] = {}
    planned_runs = []
    for parameters in runs:
        spec = parameters["checkpoint"]
        try:
            # Models with the same shape have the same needs, so only one of them is timed.
            shape = _shape(parameters)
            if shape not in needs_by_shape:
                checked = check_needs_of_parameters(
                    parameters, fresh=True, data_needed=False, tokens_per_second=tokens_per_second
                )
                needs_by_shape[shape] = checked.preflight
            planned_runs.append(PlannedRun(spec, needs_by_shape[shape]))
        except ValueError as error:  # such a run would fail; the others would not
            first_line = str(error).splitlines()[0]
            planned_runs.append(PlannedRun(spec, None, problem=first_line))
    return planned_runs


def _shape(parameters: Mapping[str, Any]) -> str:
    """Return what the time and memory of a run depend on, as text."""
    spec = parameters["checkpoint"]
    source = find_source(spec, base=parameters["base"])
    config: Any = spec
    if source.folder is not None:
        config = source.folder.object("config.json")
    settings = {**parameters, "checkpoint": "", "baseline": ""}
    return repr((source.kind.name, config, sorted(settings.items())))


def check_and_evaluate(
    checkpoint: Model | str,
    *,
    baseline: str = "",
    only: Sequence[str] = (),
    wait_for: Callable[[Sequence[str]], bool] | None = None,
    **arguments: Unpack[EvaluationArguments],
) -> Evaluation:
    """Evaluate a model as in ``eval.ipynb``: check its needs, evaluate, compare with a baseline.

    The parameters are stored in each record. A task that fails does not stop the others; see
    `EvaluationRun.raise_failures`.

    Args:
        checkpoint: a `Model` or its spec; empty for the study's only export, else bm25.
        baseline: label of a model to compare with; empty for a reference model.
        only: keys of the tasks to evaluate now, in this order, or folders of ``data``: a part of
            those selected; empty for all of them.
        wait_for: whether to wait for tasks of other processes; see `evaluate`.
        arguments: ``tier``, ``tasks``, ``benchmark``, ``types``, ``languages``, ``splits``,
            ``subsets`` (see `choose_tasks`); ``data``, comma-separated folders to evaluate on
            instead; ``limit`` and ``runs`` (see `evaluate`); ``output_dir``, the folder of the
            records; ``preview``, to run only the tasks that tell most of the benchmarks' means;
            and options of `Model`, which replace its own. ``prompts`` may also name a set of them,
            which are evaluated after the model's own; see `evaluate_prompts`.

    Raises:
        ValueError: no such tasks, or a baseline without a record.
        MirrorError: data sets or weights are missing; lists them.
        PreflightError: too little memory or disk. Tasks for which memory is too small are left out
            if others remain.
        EncoderError: a batch does not fit into memory, or a vector is not finite.
    """
    model = _with_options(checkpoint, arguments)
    if not only:
        check_baseline(baseline, arguments.get("output_dir", ""))
    prompts = arguments.get("prompts")
    has_prompt_set = names_prompt_set(prompts)
    loaded_model, tasks, run, needs, benchmarks = check_needs(model, only=only, **arguments)
    if has_prompt_set and not takes_prompts(loaded_model):
        raise SpecError(f"{model.spec} takes no prompts; a set of them is for an encoder")
    needs.require()
    selection = _selection(arguments)
    data, limit = arguments.get("data", ""), arguments.get("limit", 0)
    tasks = [task for task in tasks if task_key(task, limit=limit) not in needs.left_out]
    folders = split_names(data)
    if only:
        folders = [folder for folder in only if folder in folders]
    evaluation = evaluate(
        loaded_model,
        folders or None,
        tier=selection["tier"],
        tasks=None if folders else tasks,
        limit=limit,
        relevance_threshold=arguments.get("relevance_threshold", 1),
        output=run.output,
        seed=run.seed,
        batch_size=run.batch_size,
        config={
            "checkpoint": model.spec,
            **selection,
            "data": data,
            "limit": limit,
            **model.recorded(),
            **_prompts_and_base(model, prompts),
            "baseline": baseline,
            **({"preview": True} if benchmarks else {}),
        },
        runs=run.runs,
        strict=False,
        watch=partial(progress_line, benchmarks=benchmarks) if benchmarks else None,
        wait_for=wait_for,
    )
    if has_prompt_set:
        evaluate_prompts(
            loaded_model,
            str(prompts),
            folders or tasks,
            evaluation.results,
            run=run,
            limit=limit,
            tier=selection["tier"],
        )
    if not only:
        write_all_results(run.output)
    return Evaluation(
        model=loaded_model,
        sources=[*folders] or tasks,
        requested=[task.task for task in needs.planned],
        evaluation=replace(evaluation, skipped={**evaluation.skipped, **needs.left_out}),
        run=run,
        baseline=baseline,
        tier="" if benchmarks else _whole_tier(selection, data),
        forecast_benchmarks=benchmarks,
        caution=_caution(loaded_model.source, model),
    )


def check_baseline(baseline: str, output_dir: str) -> None:
    """Raise ValueError if no record in the folder is of the baseline, if there is to be one."""
    if baseline:
        records = records_under(output_dir or None, adapters=False)
        check_choice("baseline", baseline, sorted({result.model.label for result in records}))


def _whole_tier(selection: Mapping[str, str], data: str) -> str:
    """Return the tier if all of it was selected, else nothing."""
    narrowing = [value for name, value in selection.items() if value and name != "tier"]
    if data or narrowing:
        return ""
    return selection["tier"]


def _with_options(checkpoint: Model | str, arguments: Mapping[str, Any]) -> Model:
    """Return the model with those of its options that are among the arguments."""
    model: Model = named(checkpoint)
    if not model.spec:  # in a notebook run interactively
        # The sentence names the model, and why it is this one.
        spec, sentence = default_model()
        print(sentence)
        model = replace(model, spec=spec)
    options: Any = {name: arguments[name] for name in OPTIONS if name in arguments}
    # A set of prompts is tried after the model's own; it is no option of the model.
    if names_prompt_set(options.get("prompts")):
        del options["prompts"]
    return replace(model, **options)


def _prompts_and_base(model: Model, prompts: object) -> dict[str, object]:
    """Return the prompts, as they were written, and the base; without those that are not given."""
    if not prompts and model.prompts is not None:
        prompts = prompts_line(parse_prompts(model.prompts) or {})
    settings = {"prompts": prompts, "base": model.base}
    return {name: value for name, value in settings.items() if value}


def _caution(source: Source, model: Model) -> str:
    """Return the warning about a model's prompts; none with a prefix of the user's."""
    if model.prompts or model.prefix:
        return prompt_warning(replace(source, prompts={}), source.prompts)
    return prompt_warning(source)
