"""Commands that run a notebook, with its parameters as options.

A parameter ``max_length: int = 0  # tokens …`` becomes the option ``--max-length INTEGER``
with that comment as its help; a bool becomes a pair ``--x/--no-x``. A notebook is read only when
its command is invoked, never by `qwen3nb --help`. Outside a study, the help describes the notebooks
of a new study.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import click

from qwen3nb import paths
from qwen3nb.cli import options as opt
from qwen3nb.cli.program import Command, CommandGroup, CommandSettings
from qwen3nb.execution import parameters as params
from qwen3nb.utils.atomic_files import FileStamp, file_stamp
from qwen3nb.utils.option import Option

if TYPE_CHECKING:
    from qwen3nb.answers.run_trace import RunTrace
    from qwen3nb.execution.executors import RunOutcome
    from qwen3nb.execution.shares import Share
    from qwen3nb.execution.sweep import Job, SweepPlan

_FRESH = opt.flag("--fresh", help="Run again, and measure again what has records.")
_PARAMETER = opt.option(
    "-p",
    "--parameter",
    "typed",
    type=(str, str),
    multiple=True,
    metavar="NAME VALUE",
    help="Set a parameter, as in papermill; repeatable.",
)
_PAGE = opt.option(
    "--page",
    metavar="NAME",
    default="",
    help="Name of the page.  [default: from parameters]",
)


def _parsed_share(_: click.Context, __: click.Parameter, text: str | None) -> Share | None:
    """Return the share that --part names, or None."""
    if text is None:
        return None
    from qwen3nb.execution.shares import Share

    try:
        return Share.parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


_PART = opt.option(
    "--part",
    metavar="I/N",
    callback=_parsed_share,
    help="Share the work with N-1 other processes by the disk.",
)
_RUN = opt.options(_FRESH, opt.MIRROR, opt.CACHE_LIMIT, opt.PASS_ENV)


class NotebookCommand(Command):
    """A command with an option for every parameter of a notebook.

    Options of the command itself take precedence over parameters of the same name.
    """

    def __init__(
        self, *args: Any, notebook: Path | str, **settings: Unpack[CommandSettings]
    ) -> None:
        super().__init__(*args, **settings)
        self.notebook = notebook

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the options of the notebook, then those of the command."""
        command_options = super().get_params(ctx)
        own_spellings: set[str] = set()
        for command_option in command_options:
            own_spellings.update(command_option.opts)
        declared = params.read_parameters(_notebook(self.notebook))
        # A short spelling, such as --model, must not be that of another option.
        used_spellings = own_spellings | {f"--{name}" for name in declared}
        options: list[click.Parameter] = []
        for name, parameter in declared.items():
            option = opt.parameter_option(
                name,
                used_spellings=used_spellings,
                type=_click_type(parameter),
                default=parameter.default,
                show_default=parameter.default != "",
                help=parameter.help,
            )
            used_spellings.update(option.opts)
            # The command's own option wins, such as --fresh.
            if own_spellings.isdisjoint(option.opts):
                options.append(option)
        return [*options, *command_options]


def _notebook(name: Path | str) -> Path:
    """Return a notebook of the study; outside a study, the one of a new study."""
    try:
        return paths.find_notebook(name)
    except paths.NoStudyError as error:
        # Outside a study, the notebook that a new study would have.
        from qwen3nb.study import template_folder

        notebook = template_folder() / "notebooks" / f"{name}.ipynb"
        if not notebook.is_file():
            raise click.ClickException(str(error)) from None
        return notebook
    except FileNotFoundError as error:
        raise click.UsageError(str(error)) from None


def _click_type(parameter: params.Parameter) -> Any:
    rule = params.RULES.get(parameter.name, Option())
    if rule.choices and not rule.takes_list:
        return click.Choice(rule.plain_choices)
    if parameter.type == "int" and rule.minimum is not None:
        return click.IntRange(min=rule.minimum)
    return {"str": str, "int": int, "float": float, "bool": bool}[parameter.type]


def given_parameters(values: Mapping[str, object]) -> dict[str, object]:
    """Return the notebook parameters given on the command line, without defaults."""
    context = click.get_current_context()
    typed_values = {}
    for name, value in values.items():
        source = context.get_parameter_source(name)
        if source is not click.core.ParameterSource.DEFAULT:
            typed_values[name] = value
    return typed_values


def run_and_print(
    notebook: Path | str, parameters: Mapping[str, object], *, fresh: bool, name: str = ""
) -> None:
    """Run a notebook, print the end of its page, and raise the error if the run failed."""
    from qwen3nb.execution.notebook import NotebookError, run_notebook

    stamps_before = _stamps_of_pages(notebook)
    try:
        page = run_notebook(notebook, parameters, fresh=fresh, name=name)
    except NotebookError as error:
        if error.page is not None:
            # Some tasks failed; the page has the others.
            _print_page(error.page, stamps_before)
        raise
    _print_page(page, stamps_before)


def _stamps_of_pages(notebook: Path | str) -> dict[Path, FileStamp]:
    """Return the stamp of each page of the study of a notebook."""
    with paths.within(paths.study_of(paths.find_notebook(notebook))):
        pages = sorted(paths.book_runs().rglob("*.ipynb"))
    return {page: file_stamp(page) for page in pages if page.is_file()}


def _print_page(page: Path, stamps_before: Mapping[Path, FileStamp]) -> None:
    """Print the scores and conclusions of a page, whether it was reused, and its path.

    Args:
        page: a finished page.
        stamps_before: of pages before the command; a page that still has its own was reused.
    """
    from qwen3nb.analysis.comparison.benchmark_means import MEAN
    from qwen3nb.answers.run_trace import read_conclusions, read_finished, read_trace

    trace = read_trace(page)
    finished = read_finished(page)
    # A page that is still the same file as before the command was not written again.
    page_is_reused = bool(finished) and stamps_before.get(page) == file_stamp(page)
    if trace is not None:
        if page_is_reused:
            # All scores on such a page were reused, too.
            trace = replace(trace, reused=tuple(score.task for score in trace.scores))
        _print_scores(trace)
    # The first conclusion is the summary, so it comes last.
    for text in reversed(read_conclusions(page)):
        opt.print_text(f"\n{text}")
    click.echo()
    if page_is_reused:
        date = finished[:16].replace("T", " ")
        click.echo(f"reused: nothing has changed since {date} UTC")
    elif trace is not None and trace.reused:
        of_tasks = [score for score in trace.scores if score.type != MEAN]
        click.echo(f"reused: {len(trace.reused)} of {len(of_tasks)} records were stored")
    click.echo(page)
    if finished:
        click.echo("`qwen3nb book` shows it as a page of the book")


def _print_scores(trace: RunTrace) -> None:
    """Print the scores that a page has: a line per task, then the means."""
    from qwen3nb.answers.evaluation import mean_lines, terminal_tables
    from qwen3nb.report.render import console

    console.print_table(*terminal_tables(trace.scores, skipped=trace.skipped))
    lines = mean_lines(trace.scores)
    if lines:
        click.echo()
    for line in lines:
        opt.print_text(line, bold=True)


@click.command("eval", cls=NotebookCommand, notebook="eval", writes=True)
@opt.flag(
    "--dry-run",
    help="Check data, weights, time, memory; run nothing.",
)
@opt.option("--config", type=opt.EXISTING, help="TOML, YAML or JSON of parameters; options win.")
@opt.flag(
    "--until-certain",
    help="Only whether it beats --baseline, for a part of the cost.",
)
@opt.option(
    "--margin",
    type=click.FloatRange(min=0, max=1, max_open=True),
    help="With --until-certain: by how much.  [default: 0]",
)
@_PART
@_RUN
def evaluate(
    dry_run: bool,
    config: Path | None,
    until_certain: bool,
    margin: float | None,
    part: Share | None,
    fresh: bool,
    **parameters: object,
) -> None:
    """Run the evaluation notebook on one model and publish its page.

    \b
    qwen3nb eval --model encoder
    qwen3nb eval --model e5-base-v2 --tier fast --mirror /data/mirror
    qwen3nb eval --model encoder --tier fast --dry-run
    qwen3nb eval --model encoder --tasks STSBenchmark,SciFact --limit 200
    qwen3nb eval --model encoder --tasks all --types Summarization \\
        --languages eng
    qwen3nb eval --model bm25 --data beir/scifact --no-cache
    qwen3nb eval --model encoder --tasks PyDocsSampleRetrieval --prompts 3
    qwen3nb eval --model encoder --baseline e5-base-v2 --until-certain

    Before the first task, every run checks that data, weights, memory and disk are there. With
    --dry-run it only checks, and exits with 1 if anything is missing.

    With --until-certain, the model and the baseline run the tasks of a benchmark, MTEB(eng, v2) by
    default, until it is certain which has the higher mean. There is no page and no test.

    With --part 3/8, eight processes that see one disk share the tasks: each does an eighth, then
    what is left, and takes over from one that dies. The last one makes the page. Parts count from
    0 or from 1, as in --part $SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT.
    """
    from qwen3nb.models.kinds.prompts import names_prompt_set

    values: dict[str, object] = {}
    if config is not None:
        values |= params.read_config(config)
    values |= given_parameters(parameters)
    if part is not None:
        _refuse_with_part(
            {"--dry-run": dry_run, "--until-certain": until_certain, "--fresh": fresh}
        )
        if names_prompt_set(values.get("prompts")):
            raise click.UsageError("--part is for one prompt per role, not for a set of prompts")
        _evaluate_share(values, part)
        return
    if until_certain:
        _refuse_dry_run(dry_run)
        _race_against_baseline(values, margin=margin or 0.0, fresh=fresh)
        return
    if margin is not None:
        raise click.UsageError("--margin goes with --until-certain")
    if dry_run:
        _preview_evaluation(values, fresh=fresh)
        return
    run_and_print("eval", values, fresh=fresh)
    if names_prompt_set(values.get("prompts")):
        click.echo("`qwen3nb run prompts` shows what the prompts change")


def _refuse_with_part(options: Mapping[str, object]) -> None:
    """Raise if an option is given that --part cannot be combined with."""
    reasons = {
        "--dry-run": "--dry-run without --part checks all of them",
        "--until-certain": "--until-certain decides after each task which is next",
        "--fresh": "parts find what others have done; give --out a new folder, or run it alone",
        "--ray": "Ray divides the runs among its nodes",
    }
    for spelling, is_given in options.items():
        if is_given:
            raise click.UsageError(f"--part does not go with {spelling}: {reasons[spelling]}")


def _evaluate_share(parameters: Mapping[str, object], share: Share) -> None:
    """Evaluate a share of the tasks, print what was done, and make the page if it is the last."""
    from qwen3nb.execution.notebook import page_path, partial_folder, resolved_parameters
    from qwen3nb.execution.shares import share_of_evaluation
    from qwen3nb.execution.study_paths import relative_to_working_directory

    notebook = paths.find_notebook("eval")
    with paths.within(paths.study_of(notebook)):
        values = resolved_parameters(notebook, parameters)
        file = partial_folder() / f"{paths.page_key(page_path(notebook, values))}.ipynb"
        values = relative_to_working_directory(values)
        with share_of_evaluation(values, share, file=file) as shared:
            click.echo(shared.line)
            if shared.is_last:
                # Also what has failed is tried once more, and reported.
                run_and_print("eval", parameters, fresh=False)
                return
    shared.run.raise_failures()


def _preview_evaluation(parameters: Mapping[str, object], *, fresh: bool) -> None:
    """Print what an evaluation would take; raise if anything is missing or does not fit."""
    from qwen3nb.answers.one_model import plan_by_type_table, preflight_table
    from qwen3nb.evaluation.mteb.availability import require_data
    from qwen3nb.execution.notebook import resolved_parameters
    from qwen3nb.execution.study_paths import relative_to_working_directory
    from qwen3nb.report.evaluation.checked_run import check_needs_of_parameters

    opt.hide_library_bars()
    values = resolved_parameters(paths.find_notebook("eval"), parameters)
    values = relative_to_working_directory(values)
    # Missing data are an error only below, after the tables.
    checked = check_needs_of_parameters(values, fresh=fresh, data_needed=False)
    needs = checked.preflight
    opt.print_table(plan_by_type_table(needs.planned))
    opt.print_table(preflight_table(needs))
    # Each raises if something is missing, unreadable, or does not fit.
    require_data(
        checked.model, checked.tasks, checked.run, tier=values["tier"], limit=values["limit"]
    )
    needs.require_readable()
    needs.require()


@click.command(cls=NotebookCommand, notebook="choose", writes=True)
@click.argument("folders", nargs=-1, metavar="[FOLDER]...")
@_RUN
def choose(folders: tuple[str, ...], fresh: bool, **parameters: object) -> None:
    """Choose a model on one half of the queries, and report it on the other.

    \b
    qwen3nb choose runs/ul2
    qwen3nb choose runs/ul2 --soup
    qwen3nb choose runs/a/checkpoint-900 runs/b/checkpoint-900 --tier smoke
    qwen3nb choose runs/ul2 --data beir/scifact

    FOLDER is a model, or a training, which stands for its checkpoints. The best of many is partly
    the luckiest, so a score on the queries that chose it is too high.
    """
    values = given_parameters(parameters)
    if folders:
        values["candidates"] = ",".join(folders)
    run_and_print("choose", values, fresh=fresh)


class _NotebookGroup(CommandGroup):
    """A group with one command per notebook, by name or path."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        if paths.find_root() is None:
            return []
        return paths.notebook_names()

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        try:
            notebook = _notebook(name)
        except click.ClickException:
            if ctx.resilient_parsing:  # completion in a shell, which shows no errors
                return None
            raise
        try:
            title = params.notebook_title(notebook)
        except (params.ParameterError, OSError) as error:  # its own command reports it
            title = f"Cannot be run: {_first_line(error)}"
        options = opt.options(_PARAMETER, _PAGE, _FRESH, opt.CACHE_LIMIT, opt.PASS_ENV)
        command = click.command(
            name, cls=NotebookCommand, notebook=notebook, help=title, writes=True
        )
        return command(options(_run_given))


def _first_line(error: Exception) -> str:
    text = str(error)
    if isinstance(error, click.ClickException):
        text = error.message
    return text.split("\n")[0]


@click.group("run", cls=_NotebookGroup, subcommand_metavar="NOTEBOOK [ARGS]...")
def run() -> None:
    """Run a notebook, given by name or path, and publish its page.

    \b
    qwen3nb run leaderboard --tier smoke
    qwen3nb run leaderboard -p tier smoke

    Its parameters are options; `qwen3nb run NOTEBOOK --help` lists them.
    """


def _run_given(
    typed: tuple[tuple[str, str], ...], fresh: bool, page: str, **parameters: object
) -> None:
    """Run the notebook of the invoked command."""
    command: Any = click.get_current_context().command
    values = params.typed_parameters(params.read_parameters(command.notebook), dict(typed))
    values |= given_parameters(parameters)
    if not re.fullmatch(r"[\w.-]*", page):
        raise click.UsageError(f"--page: expected letters, digits, '.', '_' and '-', got {page!r}")
    run_and_print(command.notebook, values, fresh=fresh, name=page)


@click.command(cls=NotebookCommand, notebook="eval", writes=True)
@click.argument("file", required=False, type=opt.EXISTING)
@opt.model_option(
    "models", "--checkpoint", repeatable=True, help="A model, or a glob of folders; repeatable."
)
@opt.option(
    "--tier",
    "tiers",
    multiple=True,
    help="smoke, pydocs, fast, full, multilingual or nano; repeatable.",
)
@opt.option(
    "--notebook", "notebooks", multiple=True, help="A notebook; repeatable.  [default: eval]"
)
@_PARAMETER
@opt.option("--at-once", minimum=0, help="Parallel runs; 0: as many as fit, at most four.")
@opt.RAY
@opt.option(
    "--gpus-each",
    type=click.FloatRange(min=0, min_open=True),
    help="GPUs per run; 0.5: two share one.  [default: 1]",
)
@opt.option(
    "--until-certain",
    minimum=1,
    metavar="N",
    help="Only find the best N models, for a part of the cost.",
)
@_PART
@opt.flag("--no-book", help="Do not build the book afterwards.")
@opt.flag("--dry-run", help="List runs, time, memory and disk; run nothing.")
@opt.option(
    "--tokens-per-second",
    type=click.FloatRange(min=0, min_open=True),
    help="With --dry-run: plan for GPUs of this speed.",
)
@_RUN
def sweep(
    file: Path | None,
    models: tuple[str, ...],
    tiers: tuple[str, ...],
    notebooks: tuple[str, ...],
    typed: tuple[tuple[str, str], ...],
    at_once: int | None,
    ray: str | None,
    gpus_each: float | None,
    until_certain: int | None,
    part: Share | None,
    no_book: bool,
    dry_run: bool,
    tokens_per_second: float | None,
    fresh: bool,
    **parameters: object,
) -> None:
    """Run every model on every tier in every notebook, then build the book.

    \b
    qwen3nb sweep sweep.toml
    qwen3nb sweep sweep.toml --ray auto
    qwen3nb sweep --model "runs/ul2/checkpoint-*" --model bm25 --tier smoke
    qwen3nb sweep sweep.toml --max-length 256 --dry-run
    qwen3nb sweep --model e5-base-v2 --model gte-base --until-certain 1

    FILE is TOML with the keys models, tiers, notebooks, parameters, runs, at_once,
    book, ray, gpus_each and pass_env; options override it. Options of eval.ipynb, and -p, apply to
    every notebook that declares the parameter.

    Finished runs are reused. A failed run does not stop the others; the exit status is
    then 1. With GPUs, each run uses one of them. With --ray, runs are spread over the nodes
    of a cluster, and this machine publishes their pages and records.

    With --until-certain, all models run the tasks of a benchmark, MTEB(eng, v2) by default, in the
    order that tells most of its mean. Those that cannot be among the best any more are dropped.

    With --part 3/8, eight processes that see one disk share the runs, as those of `qwen3nb eval`
    share tasks. The last one runs the notebooks that read the results, and builds the book.
    """
    from qwen3nb.execution.sweep import check_jobs

    if file is None and not (models or tiers or notebooks):
        raise click.UsageError("nothing to run; give a TOML file, --model or --notebook")
    plan = _read_plan(file)  # what the command line names takes precedence
    if at_once is None:
        at_once = plan.at_once
    if ray is None:
        ray = plan.ray
    plan = replace(
        plan,
        models=models or plan.models,
        tiers=tiers or plan.tiers,
        notebooks=notebooks or plan.notebooks,
        at_once=at_once,
        ray=ray,
        gpus_each=gpus_each or plan.gpus_each,
        book=plan.book and not no_book,
    )
    # Parameters by -p, and by options of their own, as both are texts.
    texts = dict(typed)
    for name, value in given_parameters(parameters).items():
        texts[name] = str(value)
    plan = _with_parameters(plan, texts)
    opt.pass_names(plan.pass_env)
    jobs = plan.jobs()
    check_jobs(jobs)
    if part is not None:
        given = {"--dry-run": dry_run, "--until-certain": until_certain, "--fresh": fresh}
        _refuse_with_part({**given, "--ray": plan.ray})
        if _sweep_share(jobs, plan, part):
            sys.exit(1)
    elif until_certain:
        _refuse_dry_run(dry_run)
        _race_of_jobs(jobs, top=until_certain, fresh=fresh)
    elif dry_run:
        _print_plan(jobs, fresh=fresh, tokens_per_second=tokens_per_second or 0)
    # `_sweep` returns the number of failed runs.
    elif _sweep(jobs, plan, fresh=fresh):
        sys.exit(1)


def _read_plan(file: Path | None) -> SweepPlan:
    """Return the plan in a file; an empty one without a file."""
    from qwen3nb.execution.sweep import SweepPlan, read_plan

    if file is None:
        return SweepPlan()
    return read_plan(file)


def _with_parameters(plan: SweepPlan, texts: Mapping[str, str]) -> SweepPlan:
    """Return a plan with parameters of the command line, which override those of the file."""
    shared = {name: value for name, value in plan.parameters.items() if name not in texts}
    return replace(plan, parameters=shared, typed=dict(texts))


# Parameters of eval.ipynb that choose other tasks than a benchmark's, or only a part of their data.
_NOT_OF_A_RACE = (
    "tasks",
    "types",
    "languages",
    "splits",
    "subsets",
    "preview",
    "data",
    "limit",
    "runs",
)


def _refuse_dry_run(dry_run: bool) -> None:
    """Raise if what a race would take is asked for: that depends on its scores."""
    if dry_run:
        raise click.UsageError(
            "--until-certain stops by its scores, so what it takes is not known before; "
            "--benchmark with --dry-run says what all tasks of a benchmark would take"
        )


def _race_of_jobs(jobs: Sequence[Job], *, top: int, fresh: bool) -> None:
    """Measure the models of a sweep until the best are certain, and print which they are."""
    models = []
    settings: list[dict[str, object]] = []
    for job in jobs:
        if job.notebook != "eval":
            raise click.UsageError(f"--until-certain runs eval alone; leave out {job.notebook}")
        parameters = dict(job.parameters)
        models.append(str(parameters.pop("checkpoint", "")))
        settings.append(parameters)
    if not all(models):
        raise click.UsageError("--until-certain needs models; give --model or a TOML file")
    if any(shared != settings[0] for shared in settings):
        raise click.UsageError("--until-certain uses all models alike; give them equal parameters")
    if settings[0].get("baseline"):
        raise click.UsageError(
            "`qwen3nb eval --until-certain` compares with a --baseline; a sweep finds the best"
        )
    _print_race(list(dict.fromkeys(models)), settings[0], top=top, fresh=fresh)


def _race_against_baseline(values: Mapping[str, object], *, margin: float, fresh: bool) -> None:
    """Measure a model and its baseline until it is certain whether it is better, and print it."""
    from qwen3nb.utils.book_settings import book_settings

    model = str(values.get("checkpoint") or "")
    baseline = str(values.get("baseline") or book_settings().baseline)
    if not model or not baseline:
        raise click.UsageError(
            "--until-certain needs two models: --model, and --baseline for the one to beat"
        )
    _print_race([model, baseline], values, baseline=baseline, margin=margin, fresh=fresh)


def _print_race(
    models: Sequence[str],
    parameters: Mapping[str, object],
    *,
    top: int = 1,
    baseline: str = "",
    margin: float = 0.0,
    fresh: bool = False,
) -> None:
    """Measure models until the goal is certain, and print what was found.

    Args:
        models: two or more specs.
        parameters: of eval.ipynb, which all models share.
        top: how many best models to find.
        baseline: instead, the model to beat.
        margin: by how much.
        fresh: whether to measure again what has a record.
    """
    from qwen3nb.execution.notebook import resolved_parameters
    from qwen3nb.models.kinds.prompts import names_prompt_set

    if parameters.get("tier", "full") != "full":
        raise click.UsageError(
            f"--until-certain runs a whole benchmark, not tier {parameters['tier']}; "
            "name another one by --benchmark"
        )
    values = resolved_parameters(paths.find_notebook("eval"), parameters)
    unused = [name for name in _NOT_OF_A_RACE if values[name]]
    if unused or names_prompt_set(values["prompts"]):
        names = ", ".join(f"--{name}" for name in unused or ["prompts"])
        raise click.UsageError(
            f"--until-certain runs whole tasks of a benchmark: leave out {names}"
        )
    # These load MTEB, so only now.
    from qwen3nb.answers.forecast import DEFAULT
    from qwen3nb.answers.race import FOLDER, until_certain
    from qwen3nb.models.model import Model
    from qwen3nb.models.options import OPTIONS

    opt.hide_library_bars()
    model = Model.from_parameters({**values, "checkpoint": models[0]})
    answer = until_certain(
        models,
        benchmark=values["benchmark"] or DEFAULT,
        top=top,
        baseline=baseline,
        margin=margin,
        model_options={name: getattr(model, name) for name in OPTIONS},
        seed=values["seed"],
        output=Path(values["output_dir"]) / FOLDER if values["output_dir"] else None,
        fresh=fresh,
    )
    opt.print_table(answer.table())
    opt.print_text(f"\n{answer.conclusion.text}", bold=True)


def _print_plan(jobs: Sequence[Job], *, fresh: bool, tokens_per_second: float) -> None:
    """Print which runs would be reused, and what the others would take."""
    from qwen3nb.execution.sweep import reusable

    evaluations = []
    reused_count = 0
    with params.cached_calls():
        for job in jobs:
            if not fresh and reusable(job):
                reused_count += 1
                click.echo(f"reused     {job.name}")
                continue
            click.echo(f"would run  {job.name}")
            # Time and memory are only estimated for evaluations.
            if job.notebook == "eval":
                evaluations.append(job.values)
    click.echo(f"{reused_count} of {len(jobs)} runs would be reused")
    if evaluations:
        from qwen3nb.answers.one_model import sweep_table
        from qwen3nb.report.evaluation.checked_run import plan_runs

        opt.hide_library_bars()
        opt.print_table(sweep_table(plan_runs(evaluations, tokens_per_second=tokens_per_second)))


def _sweep(jobs: Sequence[Job], plan: SweepPlan, *, fresh: bool) -> int:
    """Run the jobs, build the book from the finished ones, and return how many failed."""
    from qwen3nb.execution.sweep import sweep as run_all

    _require_program_of_book(plan)
    outcomes = run_all(
        jobs, at_once=plan.at_once, fresh=fresh, ray=plan.ray, gpus_each=plan.gpus_each
    )
    counts = _counts(outcomes)
    click.echo(f"{len(outcomes)} runs: {', '.join(counts)}")
    _build_book(plan)
    return _number_failed(outcomes)


def _sweep_share(jobs: Sequence[Job], plan: SweepPlan, share: Share) -> int:
    """Run a share of the jobs, and build the book if it is the last; return how many failed."""
    from qwen3nb.execution.shares import share_line
    from qwen3nb.execution.sweep import sweep_share

    _require_program_of_book(plan)
    with sweep_share(jobs, share, at_once=plan.at_once) as shared:
        outcomes, is_last = shared.outcomes, shared.is_last
        click.echo(share_line(share, _counts(outcomes), shared.left, is_last=is_last))
        if is_last:
            _build_book(plan)
    return _number_failed(outcomes)


def _counts(outcomes: Sequence[RunOutcome]) -> list[str]:
    """Return how many runs were done, reused and failed."""
    counts = Counter(outcome.status for outcome in outcomes)
    return [f"{counts[status]} {status}" for status in ("done", "reused", "failed")]


def _number_failed(outcomes: Sequence[RunOutcome]) -> int:
    return sum(outcome.status == "failed" for outcome in outcomes)


def _require_program_of_book(plan: SweepPlan) -> None:
    """Raise if the plan has a book that cannot be built: now rather than after hours of runs."""
    if plan.book:
        from qwen3nb.book.build import require_jupyter_book

        require_jupyter_book()


def _build_book(plan: SweepPlan) -> None:
    """Build the book of a sweep, if the plan has one, and print where it is."""
    if plan.book:
        from qwen3nb.book.build import build_book

        tier = "smoke"
        if plan.tiers:
            tier = plan.tiers[0]
        click.echo(f"Open {build_book(tier=tier)}")
