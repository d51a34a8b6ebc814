"""The page of trainings: scores by step, what changed, losses, and a conclusion."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qwen3nb import paths
from qwen3nb.analysis.comparison.differences import ALPHA, significant
from qwen3nb.analysis.inventory.training_logs import (
    CONFLICTS,
    Conflicts,
    TrainingLog,
    find_logs,
    find_outputs,
    read_conflicts,
    read_log,
    read_trainer_state,
)
from qwen3nb.analysis.training.checkpoint_scores import (
    TrainingSummary,
    Trajectory,
    training_summaries,
    trajectories,
)
from qwen3nb.checkpoints.checkpoint import step_of, trainer_state
from qwen3nb.evaluation.mteb.select import split_names
from qwen3nb.metrics.intervals import Array, interval_words
from qwen3nb.records.record import Result
from qwen3nb.records.results import richest_tier
from qwen3nb.records.store import latest
from qwen3nb.report.render.cell import Cell, number
from qwen3nb.report.render.conclusion import Conclusion
from qwen3nb.report.render.figure import GREY, SMALL, Axes, Figure, MplFigure, grid, panels, plain
from qwen3nb.report.render.format import effect_text, short_task
from qwen3nb.report.render.model_styles import model_styles
from qwen3nb.report.render.table import Table
from qwen3nb.tiers import TIERS
from qwen3nb.utils.format import number_text, p_value_text

if TYPE_CHECKING:
    from pandas import DataFrame

_TITLES = {
    "loss": "training loss",
    "eval_loss": "evaluation loss",
    "loss_rerank": "loss, reranking",
    "loss_emb": "loss, embedding",
    "lr": "learning rate",
}
_SPEED = ("_runtime", "_samples_per_second", "_steps_per_second")  # not scores
_UNLIKE = 8  # times longer than the shortest: from here on, steps are on a logarithmic scale
_LABELLED = 60  # most cells of a heat map that have room for numbers
_MOST = 3  # trainings in the conclusion
_COURSE = {"rising": ", rising at every checkpoint", "falling": ", falling at every checkpoint"}
_COURSE |= {"uneven": ", with ups and downs on the way", "": ""}


@dataclass(frozen=True)
class Trainings:
    """Scores by step, logs and gradient conflicts of trainings."""

    trajectories: tuple[Trajectory, ...]  # one per task and training
    logs: tuple[TrainingLog, ...]  # losses and learning rates, one per run
    conflicts: tuple[Conflicts, ...]  # gradient conflicts of joint runs
    problems: tuple[str, ...]  # unreadable files and truncated lines
    seed: int  # of the draws

    @cached_property
    def summaries(self) -> tuple[TrainingSummary, ...]:
        """What each training changed on each task, tested once for all that shows it."""
        return training_summaries(self.trajectories, seed=self.seed)

    def to_frame(self) -> DataFrame:
        """Return a row per task, training, seed and step: the score and its 95 % interval."""
        from pandas import DataFrame

        names = ("task", "metric", "training", "seed", "step", "score", "low", "high", "n")
        rows = [
            (short_task(each.task), each.metric, each.training, seed, step, *ends, score.n)
            for each in self.trajectories
            for seed, steps in each.records.items()
            for step, score in ((s, steps[s].metrics[each.metric]) for s in sorted(steps))
            for ends in [(score.value, score.low, score.high)]
        ]
        return DataFrame(rows, columns=names)

    def per_query(self, *, task: str = "", training: str = "") -> DataFrame:
        """Return one training's scores on one task: a row per query, a column per step.

        Queries that a step lacks are left out. Without such scores, the frame is empty.

        Args:
            task: its name, with or without ``PyDocsSample``; by default the first.
            training: its name; by default the first with two or more steps.
        """
        from pandas import DataFrame

        for each in self.trajectories:
            named = task in ("", each.task, short_task(each.task))
            steps = next(iter(each.scores.values()), {})
            if named and training in ("", each.training) and len(steps) > 1:
                return DataFrame({step: dict(steps[step]) for step in sorted(steps)}).dropna()
        return DataFrame()


def read_trainings(
    results: Iterable[Result],
    *,
    tier: str = "",
    task: str = "",
    metric: str = "",
    outputs: Path | str = "",
    adapters_only: bool = False,
    seed: int = 0,
) -> Trainings:
    """Gather scores from records, and logs from folders of trainings.

    Args:
        results: any records; the newest of each model and task is used.
        tier: name of the tier whose tasks are included; by default the richest with results.
        task: comma-separated task names, in place of the tier's and those of adapters.
        metric: by default each task's main metric.
        outputs: a folder of checkpoints, or of ``<configuration>/seed_<n>``; by default
            `paths.runs`.
        adapters_only: leave out logs of transformers' Trainer.
        seed: of the draws.

    Raises:
        FileNotFoundError: ``outputs`` does not exist.
    """
    base = Path(outputs).expanduser() if outputs else paths.runs()
    if outputs and not base.is_dir():
        raise FileNotFoundError(f"{outputs}: no such folder")
    given = latest(results)
    tasks = split_names(task) or list(TIERS[tier or richest_tier(given)].task_keys)
    if not task:  # adapters are evaluated on their own tasks
        adapters = {r.task.key for r in given if isinstance(r.config.get("training"), dict)}
        tasks += sorted(adapters - set(tasks))
    problems: list[str] = []

    def readable(reader: Callable[[Path], Any], files: Iterable[Path]) -> Iterator[Any]:
        for file in files:
            try:
                yield reader(file)
            except (ValueError, OSError) as error:
                problems.append(str(error))

    def state_log(checkpoint: Path) -> TrainingLog:
        return read_trainer_state(trainer_state(checkpoint), name=_shown(checkpoint.parent))

    last = {} if adapters_only else _last_checkpoints(base)
    folders = find_outputs(base)
    logs = [*readable(state_log, (last[folder] for folder in sorted(last)))]
    logs += readable(read_log, find_logs(folders))
    conflicts = [*readable(read_conflicts, find_logs(folders, CONFLICTS))]
    problems += [f"{each.name}: {note}" for each in (*logs, *conflicts) for note in each.notes]
    return Trainings(
        tuple(trajectories(given, tasks=tasks, metric=metric)),
        tuple(logs),
        tuple(conflicts),
        tuple(problems),
        seed,
    )


def _last_checkpoints(base: Path) -> dict[Path, Path]:
    """The last checkpoint with a log of transformers' Trainer, by the folder of its training."""
    folders = (file.parent for file in base.rglob("checkpoint-*/trainer_state.json"))
    steps = {folder: step for folder in folders if (step := step_of(folder)) is not None}
    return {folder.parent: folder for folder in sorted(steps, key=steps.__getitem__)}


def _shown(folder: Path) -> str:
    return paths.shown(folder).removeprefix("runs/")


def gains_table(trainings: Trainings) -> Table:
    """A row per task and training: the last step against the first, tested."""
    return Table.of(
        (
            {
                "task": (short_task(each.task), each.metric),
                "training": each.name,
                "first step": (gain.first_mean, f"step {gain.first}"),
                "last step": (gain.last_mean, f"step {gain.last}"),
                "last − first\n95 % interval": number(
                    gain.difference, "+.3f", interval=gain.interval, detail="no interval"
                ),
                "p\nHolm": Cell(
                    p_value_text(gain.p_value), strong=_is_shown(each), value=gain.p_value
                ),
                "queries": number(gain.n, "d"),
                "best step": (each.best.step, f"mean {each.best.mean:.3f}"),
            }
            for each in trainings.summaries
            for gain in [each.gain]
        ),
        note=f"95 % intervals ({interval_words(['paired'])}) and two-sided paired permutation "
        f"tests over the queries, p by Holm over these {len(trainings.summaries)}; p < {ALPHA:g}, "
        "and an interval that leaves out 0, in bold. First and last are not selected by score, so "
        "the difference is not biased, unlike the mean of the best step; training again gives "
        "another model, which a single training cannot show.",
        empty="No training has two or more evaluated steps with scores per query.",
        name="gains",
        caption="What each training changed: its last step against its first, on the same queries.",
    )


def logged_series(logs: Iterable[TrainingLog]) -> list[str]:
    """Names of the logged series worth showing: losses, development scores, learning rate."""
    given = {name for log in logs for name in log.series}
    others = (name for name in given - {*_TITLES} if name.startswith("eval_"))
    scores = sorted(name for name in others if not name.endswith(_SPEED))
    *losses, rate = _TITLES
    return [name for name in (*losses, *scores, rate) if name in given]


def series_title(name: str) -> str:
    """Return a logged series' name in words.

    >>> series_title("eval_ndcg_at_10"), series_title("lr")
    ('development nDCG@10', 'learning rate')
    """
    words = name.removeprefix("eval_").replace("_at_", "@").replace("_", " ")
    return _TITLES.get(name) or "development " + re.sub(r"\bndcg\b", "nDCG", words)


def trajectory_figure(trainings: Trainings) -> Figure | None:
    """Scores by step with 95 % intervals, one panel per task; None without two steps."""
    frame = trainings.to_frame()
    own = frame.groupby(["task", "training", "seed"])
    frame = frame[own["step"].transform("nunique") > 1]
    if frame.empty:
        return None
    several = frame.groupby("training")["seed"].transform("nunique") > 1
    seeded = frame["training"] + ", seed " + frame["seed"].astype(str)
    frame["training"] = frame["training"].mask(several, seeded)
    tasks, names = (list(dict.fromkeys(frame[column])) for column in ("task", "training"))

    def draw(width: float) -> MplFigure:
        styles = model_styles(names)
        figure, axes, _ = panels(len(tasks), width, height=1.9)
        for axis, task in zip(axes, tasks, strict=True):
            on_task = frame[frame["task"] == task]
            for name, line in on_task.groupby("training", sort=False):
                look, label = styles[str(name)], plain(str(name)) if len(names) > 1 else None
                at = line["step"]
                axis.plot(at, line["score"], look.marker, ls="-", c=look.color, ms=4, label=label)
                axis.vlines(at, line["low"], line["high"], color=look.color, linewidth=1.8)
            axis.set_title(plain(task, most=24))
            n, metric = on_task["n"].max(), on_task["metric"].iloc[0]
            axis.set(xlabel="training step", ylabel=f"{metric}, n = {n}")
            grid(axis, which="y")
        _legend(figure, axes)
        return figure

    words = "; ".join(
        f"{task}, {name}: "
        + ", ".join(f"{s} {v:.3f}" for s, v in zip(line["step"], line["score"], strict=True))
        for (task, name), line in frame.groupby(["task", "training"], sort=False)
    )
    return Figure(
        name="trajectory",
        draw=draw,
        caption="Score by training step: mean and 95 % interval over the n given at each panel. "
        "One line per training; step 0 is before training, or the checkpoint that it started from.",
        alt=f"Score by training step. {words}.",
    )


def _legend(figure: MplFigure, axes: Sequence[Axes]) -> None:
    """Draw one legend below all panels if their lines have labels."""
    drawn = {str(line.get_label()): line for axis in axes for line in axis.lines}
    shown = {label: line for label, line in drawn.items() if not label.startswith("_")}
    if shown:
        columns = 3 if figure.get_figwidth() > 5 else 1
        lines, labels = list(shown.values()), list(shown)
        figure.legend(lines, labels, loc="outside lower center", ncols=columns, fontsize=SMALL)


def loss_figure(trainings: Trainings) -> Figure | None:
    """Losses and learning rate by step, one line per training; None without logs."""
    logs = trainings.logs
    keys = logged_series(logs)
    if not keys:
        return None

    def draw(width: float) -> MplFigure:
        styles = model_styles(log.name for log in logs)
        figure, axes, _ = panels(len(keys), width, height=1.9)
        for axis, key in zip(axes, keys, strict=True):
            own = {log.name: log.series[key] for log in logs if log.series.get(key)}
            for name, values in own.items():
                look = styles[name]
                steps, heights = zip(*values, strict=True)
                style: dict[str, Any] = {"c": look.color, "marker": look.marker, "lw": 1.3, "ms": 3}
                axis.plot(steps, heights, label=plain(name), **style)
            axis.set(title=series_title(key), xlabel="training step")
            _fit_steps(axis, list(own.values()))
            grid(axis, which="y")
        _legend(figure, axes)
        return figure

    words = "; ".join(
        f"{log.name}: {series_title(key)} {log.series[key][0][1]:.3f} to "
        f"{log.series[key][-1][1]:.3f}"
        for log in logs
        for key in keys
        if key in log.series and key != "lr"
    )
    return Figure(
        name="losses",
        draw=draw,
        caption="Losses, development scores and learning rate by step, as logged, one line per "
        "training; single values, so without intervals. Values that were not logged have no line.",
        alt=f"Losses by training step. {words}.",
    )


def _fit_steps(axis: Axes, series: Sequence[Sequence[tuple[int, float]]]) -> None:
    """Scale the steps by logarithm if a short training would be a dot next to a long one."""
    from matplotlib.ticker import NullFormatter, ScalarFormatter

    steps = [step for values in series for step, _ in values if step > 0]
    lasts = [values[-1][0] for values in series]
    if not steps or max(lasts) < _UNLIKE * min(lasts):
        return
    axis.set_xscale("symlog", linthresh=min(steps))
    axis.xaxis.set_major_formatter(ScalarFormatter())
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set_xlabel("training step, logarithmic")


def conflict_figure(trainings: Trainings) -> Figure | None:
    """Cosine of the two objectives' gradients: by layer and step, by layer and module, by step.

    One row per joint training on a common colour scale; unmeasured cells are hatched. None if
    there are no measurements.
    """
    given = [each for each in trainings.conflicts if each.cosines]
    if not given:
        return None

    def draw(width: float) -> MplFigure:
        import matplotlib.pyplot as plt

        tables = [table for each in given for table in (each.by_step(), each.by_module())]
        largest = max(float(np.nanmax(np.abs(table))) for table in tables)
        ends = {"vmin": -largest, "vmax": largest}
        height = min(5.0, 1.6 + 0.15 * max(len(each.layers) for each in given))
        lines, ratios = (len(given), (1.2, 1.3, 1)) if width > 5 else (3 * len(given), (1,))
        size: dict[str, Any] = {"figsize": (width, height * lines), "width_ratios": ratios}
        figure, axes = plt.subplots(lines, len(ratios), squeeze=False, **size)
        for (left, middle, right), each in zip(axes.reshape(len(given), 3), given, strict=True):
            _heat(left, each.by_step(), each.layers, each.steps, cbar=False, **ends)
            _heat(middle, each.by_module(), each.layers, each.modules, **ends)
            left.set_title(plain(each.name, most=40), loc="left", fontsize=8)
            left.set(xlabel="training step, mean over modules", ylabel="layer")
            middle.set_title("mean over steps", fontsize=8)
            table = np.ma.masked_invalid(each.by_step())
            right.axhline(0, color=GREY, linewidth=1)
            spread = (table.min(axis=0), table.max(axis=0))
            right.fill_between(each.steps, *spread, alpha=0.2, linewidth=0)
            right.plot(each.steps, table.mean(axis=0), "o-", markersize=3.5)
            right.set_title("mean over layers", fontsize=8)
            right.set_xlabel("training step")
        return figure

    words = "; ".join(
        f"{each.name}: mean {np.nanmean(table):+.3f}, from {np.nanmin(table):+.3f} to "
        f"{np.nanmax(table):+.3f}"
        for each in given
        for table in [each.by_step()]
    )
    return Figure(
        name="conflicts",
        draw=draw,
        caption="Cosine of the gradients of two objectives, one row per joint training: by layer "
        "and step (mean over modules), by layer and module (mean over steps), and over time (line: "
        "mean over layers, band: lowest to highest layer). Hatched: not measured.",
        alt=f"Cosines of gradients by layer, module and step. {words}.",
    )


def _heat(
    axis: Axes, table: Array, rows: Sequence[str], columns: Sequence[object], **options: Any
) -> None:
    """Draw a heat map with hatched gaps, and with numbers if there is room."""
    from pandas import DataFrame
    from seaborn import heatmap

    labelled = table.size <= _LABELLED and len(columns) <= 7
    axis.set_facecolor((0.49, 0.52, 0.56, 0.2))
    axis.patch.set(hatch="///", edgecolor=GREY)
    index, heads = ([plain(str(each), most=12) for each in names] for names in (rows, columns))
    look: dict[str, Any] = {"cmap": "RdBu", "cbar_kws": {"label": "cosine", "shrink": 0.9}}
    look |= {"annot": labelled, "fmt": "+.2f", "annot_kws": {"fontsize": SMALL, "rotation": 90}}
    look["rasterized"] = not labelled  # a page of thousands of rectangles is slow
    heatmap(DataFrame(table, index=index, columns=heads), ax=axis, **look, **options)
    axis.tick_params(length=0)
    axis.tick_params(axis="y", rotation=0)


def training_conclusion(trainings: Trainings) -> Conclusion:
    """Say what each training changed on the first task, and whether one checkpoint is the best."""
    every = trainings.summaries
    if not every:
        return Conclusion(
            "No training has two evaluated checkpoints with scores per query, so nothing can be "
            "said about its course: extract and evaluate several checkpoints of one training."
        )
    own = [each for each in every if each.task == every[0].task]
    sentences = [_in_words(each, every) for each in own[:_MOST]]
    if len(own) > _MOST:
        sentences.append(f"{len(own) - _MOST} more trainings are in the table.")
    sentences += [f"Not read: {problem}." for problem in trainings.problems]
    return Conclusion(" ".join(sentences))


def _in_words(each: TrainingSummary, every: Sequence[TrainingSummary]) -> str:
    """What one training changed on its task and on which others, and its best step."""
    change, best, of = each.gain, each.best, f"{each.metric} on {short_task(each.task)}"
    numbers = effect_text(change.difference, change.interval, change.p_value)
    start = f"{number_text(change.first_mean)} at step {change.first}"
    end = f"{number_text(change.last_mean)} at step {change.last}"
    text = f"shows no effect on {of}: {start}, {end} ({numbers})"
    if _is_shown(each):
        verb = "raised" if change.difference > 0 else "lowered"
        text = f"{verb} {of} from {start} to {end} ({numbers})"
    elsewhere = " and ".join(
        f"{short_task(other.task)} by {other.gain.difference:+.3f}"
        for other in every
        if other.name == each.name and other.task != each.task and _is_shown(other)
    )
    others = elsewhere and f"; it also changed {elsewhere}"
    verdict = "and that is" if best.significant else "but that is not"
    lead = effect_text(best.difference or 0.0, best.interval)
    next_best = f"the next best (p {p_value_text(best.p_value, relation=True)})"
    return (
        f"Training {each.name} {text}{_COURSE[change.course]}{others}. Step {best.step} scores "
        f"best, {verdict} more than noise: {lead} above step {best.next_step}, {next_best}."
    )


def _is_shown(each: TrainingSummary) -> bool:
    """Whether the last step differs significantly from the first."""
    return significant(each.gain.p_value, each.gain.interval)
