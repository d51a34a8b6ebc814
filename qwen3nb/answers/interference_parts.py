"""Which part of a joint adapter costs something? Each part is exchanged for its specialist's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from qwen3nb import paths
from qwen3nb.analysis.comparison.differences import ALPHA, TEST, correction_words
from qwen3nb.analysis.inventory.training_logs import find_outputs
from qwen3nb.analysis.training.exchange_costs import (
    JOINT,
    SPECIALIST,
    ExchangedScores,
    PartCost,
    TaskCosts,
    into,
    task_costs,
)
from qwen3nb.answers.answer import Answer
from qwen3nb.answers.soup import score_matrices
from qwen3nb.evaluation.studies.exchanges import (
    ExchangePair,
    ExchangeRecords,
    ExchangeSettings,
    evaluate_exchanges,
    find_pairs,
)
from qwen3nb.models.types import SpecError
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.report.render.figure import (
    ACCENT,
    GREY,
    QUIET,
    Figure,
    MplFigure,
    draw_estimate,
    grid,
    name_rows,
    panels,
    plain,
    row_height,
)
from qwen3nb.report.render.table import Cell, Conclusion, Table, number, plural, short_task
from qwen3nb.utils.format import escaped, json_text, names_in_words, number_text, p_value_text
from qwen3nb.utils.imports import DataFrame
from qwen3nb.utils.secrets import write_public

_MOST_NAMED = 3  # parts in a sentence
_MOST_DRAWN = 40  # parts in a panel of the figure, those with the largest costs


def _cost_text(part: PartCost) -> str:
    """Return a cost with its interval."""
    if part.interval is None:
        return number_text(part.cost)
    low, high = (number_text(end) for end in part.interval)
    return f"{number_text(part.cost)} [{low}, {high}]"


class _Row(NamedTuple):
    """A part of one joint configuration on one task."""

    configuration: str
    costs: TaskCosts
    part: PartCost


@dataclass(frozen=True, repr=False)
class InterferenceByPart(Answer):
    """What each part of the joint adapters costs on the tasks of their specialists."""

    by: str  # ``layer``, ``kind`` or ``module``
    configurations: tuple[tuple[str, TaskCosts], ...]  # names with costs, one per task
    notes: tuple[str, ...]  # adapters without a specialist, and trainings that differ
    data: DataUsed

    @property
    def noun(self) -> str:
        """What a part is called."""
        return {"layer": "layer", "kind": "kind of module", "module": "module"}[self.by]

    @property
    def conclusion(self) -> Conclusion:
        """The parts that cost something on each task, or that none is shown to."""
        sentences = []
        for name, costs in self.configurations:
            sentences.append(self._sentence(name, costs))
        if not sentences:
            sentences.append("No joint adapter has a specialist to compare it with.")
        strong = [
            self._name(part)
            for _, costs in self.configurations
            for part in costs.named[:_MOST_NAMED]
        ]
        return Conclusion(" ".join(sentences), data=self.data, strong=tuple(strong))

    def _sentence(self, configuration: str, costs: TaskCosts) -> str:
        """Say which parts of a joint adapter cost something on a task."""
        if not costs.parts:
            return (
                f"In {costs.task}, no {self.noun} of {configuration} differs from the "
                "specialist's: there is no cost."
            )
        named = costs.named
        if not named:
            return (
                f"In {costs.task}, no {self.noun} of {configuration} is shown to cost anything "
                f"({len(costs.parts)} tested on {costs.queries} queries)."
            )
        if len(named) == 1:
            return (
                f"In {costs.task}, {self._name(named[0])} of {configuration} costs "
                f"{_cost_text(named[0])} {costs.metric}."
            )
        texts = [f"{self._name(part)} {_cost_text(part)}" for part in named[:_MOST_NAMED]]
        if len(named) > _MOST_NAMED:
            texts.append(f"{len(named) - _MOST_NAMED} more")
        return (
            f"In {costs.task}, {len(named)} parts of {configuration} cost {costs.metric}: "
            f"{names_in_words(texts)}."
        )

    def _name(self, part: PartCost) -> str:
        """Return the name of a part: ``layer 3``, or that of the module."""
        if self.by == "layer" and part.part.isdigit():
            return f"layer {part.part}"
        return part.part

    @property
    def _rows(self) -> list[_Row]:
        rows = []
        for name, costs in self.configurations:
            rows += [_Row(name, costs, part) for part in costs.parts]
        return rows

    def table(self) -> Table:
        """Each part's cost with interval and p-value, and what both directions say."""
        return Table.of(
            [self._table_row(row) for row in self._rows],
            note="Cost: the mean of both exchanges. Above 0, the joint adapter's part is worse "
            f"than the specialist's. Bold: corrected p < {ALPHA:g}.",
            method=self._method(),
            empty=f"No {self.noun} of a joint adapter differs from its specialist's.",
            name=f"interference-by-{self.by}",
            caption=f"What each {self.noun} of the joint adapter costs, by exchanging it for the "
            "specialist's.",
            data=self.data,
        )

    def _method(self) -> str:
        """Say how costs, intervals and p-values are computed, and what they speak of."""
        sentences = [
            "The specialist's part is put into the joint adapter, and the joint adapter's part "
            "into the specialist.",
            "Both changes of the score are averaged per query.",
            "So two trainings of one kind have a cost of 0 on average, however badly their parts "
            "fit.",
            f"p: {self._test()}.",
        ]
        families = len(self.configurations)
        if families > 1:
            sentences.append(
                f"It is also corrected over {families} adapters and tasks (Bonferroni)."
            )
        seeds = {seed for _, costs in self.configurations for seed in costs.seeds}
        sentences.append(
            f"Means over {plural(len(seeds), 'seed')}: interval and p speak of other queries, not "
            "of other trainings."
        )
        return " ".join(sentences)

    def _test(self) -> str:
        """Name the test and its correction over the parts of an adapter."""
        words = [TEST]
        for correction in sorted({costs.correction for _, costs in self.configurations}):
            parts = max(len(costs.parts) for _, costs in self.configurations)
            words.append(correction_words(correction, parts, "parts"))
        if any(costs.units for _, costs in self.configurations):
            words.append("by clusters of queries")
        return ", ".join(word for word in words if word)

    def _table_row(self, row: _Row) -> dict[str, object]:
        part = row.part
        cells: dict[str, object] = {
            f"{self.noun}\nadapter, task": (
                Cell(self._name(part), strong=part.costs),
                f"{row.configuration}, {row.costs.task}",
            ),
            "cost\n95 % interval": number(
                part.cost, "+.3f", interval=part.interval, strong=part.is_significant
            ),
            "p\ncorrected": Cell(p_value_text(part.corrected), strong=part.is_significant),
            "specialist's\ninto joint": number(part.into_joint, "+.3f"),
            "joint's into\nspecialist": number(-part.into_specialist, "+.3f"),
        }
        if len(row.costs.seeds) > 1:
            by_seed = [number_text(cost, sign=True) for cost in part.by_seed]
            cells["cost\nby seed"] = ", ".join(by_seed)
        return cells

    def totals(self) -> Table:
        """Both adapters' scores on each task, and the sum of the costs of all parts."""
        rows = []
        for name, costs in self.configurations:
            total = sum(part.cost for part in costs.parts)
            row = {
                "adapter\ntask": (name, costs.task),
                "data sets\nqueries": (
                    ", ".join(short_task(data_set) for data_set in costs.data_sets),
                    f"{costs.queries}",
                ),
                "joint": number(costs.joint),
                "specialist": number(costs.specialist),
                "specialist\n− joint": number(
                    costs.specialist - costs.joint, "+.3f", interval=costs.difference
                ),
                "sum of\nall costs": number(total, "+.3f"),
            }
            rows.append(row)
        return Table.of(
            rows,
            note="The sum of all costs need not be the difference: parts act together. Of two "
            "parts, it is.",
            empty="No joint adapter has a specialist to compare it with.",
            name=f"interference-by-{self.by}-totals",
            caption="Scores of the joint adapter and its specialist.",
            data=self.data,
        )

    def refusals(self) -> Table:
        """Joint adapters without a specialist, and pairs whose trainings differ."""
        return Table.of(
            [(note,) for note in dict.fromkeys(self.notes)],
            ("what",),
            empty="Every joint adapter has a specialist that was trained alike.",
            kind="words",
            name=f"interference-by-{self.by}-notes",
            caption="What was not compared, and what else differs.",
        )

    def figure(self) -> Figure | None:
        """A row per part: its cost with interval, and single seeds as rings; None without any."""
        if not self._rows:
            return None
        words = [
            f"{self._name(row.part)} ({row.costs.task}): {number_text(row.part.cost, sign=True)}"
            for row in self._rows
        ]
        return Figure(
            name=f"interference-by-{self.by}",
            draw=partial(_draw, self),
            caption=f"What each {self.noun} of the joint adapter costs, with its 95 % interval. "
            "Colour: shown to cost something. Rings: single seeds, where there are several.",
            alt=f"Costs by {self.noun}. {'; '.join(words)}.",
            data=self.data,
        )

    def to_frame(self) -> DataFrame:
        """Return a row per part: costs, both directions, interval and p-values."""
        import pandas as pd

        rows = []
        for row in self._rows:
            low, high = row.part.interval or (float("nan"), float("nan"))
            values = {
                "configuration": row.configuration,
                "task": row.costs.task,
                "metric": row.costs.metric,
                self.by: row.part.part,
                "cost": row.part.cost,
                "low": low,
                "high": high,
                "p_value": row.part.p_value,
                "corrected": row.part.corrected,
                "into_joint": row.part.into_joint,
                "into_specialist": row.part.into_specialist,
                "n": row.costs.queries,
            }
            rows.append(values)
        return pd.DataFrame(rows)

    def to_markdown(self) -> str:
        """Return conclusion, tables and notes as Markdown."""
        parts = [
            f"# Interference by {self.noun}",
            f"**{escaped(self.conclusion.text)}**",
            self.table().to_markdown(),
            self.totals().to_markdown(),
            self.refusals().to_markdown(),
        ]
        return "\n\n".join(parts) + "\n"

    def to_json(self) -> str:
        """Return all costs as strict JSON."""
        configurations = [
            {"configuration": name, "costs": costs, "named": [part.part for part in costs.named]}
            for name, costs in self.configurations
        ]
        return json_text(
            {
                "by": self.by,
                "conclusion": self.conclusion.text,
                "configurations": configurations,
                "notes": list(self.notes),
            }
        )

    def write(self, folder: Path) -> list[Path]:
        """Write ``interference-by-layer.md`` and ``.json``, figure and table; return the files."""
        folder.mkdir(parents=True, exist_ok=True)
        name = f"interference-by-{self.by}"
        text = self.to_markdown()
        files = []
        figure = self.figure()
        if figure is not None:
            text += f"\n![{figure.name}]({figure.name}.svg)\n\n{escaped(figure.legend)}\n"
            files += [figure.save(folder / f"{name}.svg"), figure.save(folder / f"{name}.pdf")]
        files.append(write_public(folder / f"{name}.md", text))
        files.append(write_public(folder / f"{name}.json", self.to_json()))
        if self._rows:
            files.append(write_public(folder / f"{name}.tex", self.table().to_latex()))
        return files


def _draw(answer: InterferenceByPart, width: float) -> MplFigure:
    """Draw a panel per joint configuration and task, with a row per part."""
    shown = [(name, costs) for name, costs in answer.configurations if costs.parts]
    most = max(min(len(costs.parts), _MOST_DRAWN) for _, costs in shown)
    labels = [["0"] * most]
    height = 1.0 + most * row_height(labels[0])
    figure, axes, _ = panels(len(shown), width, height=height)
    for axis, (name, costs) in zip(axes, shown, strict=True):
        largest = sorted(costs.parts, key=lambda part: -abs(part.cost))[:_MOST_DRAWN]
        parts = [part for part in costs.parts if part in largest]  # in the order of the model
        axis.axvline(0, color=GREY, linewidth=1)
        for row, part in enumerate(parts):
            color = ACCENT if part.costs else QUIET
            draw_estimate(axis, row, part.cost, part.interval, color=color, marker="o")
            if len(part.by_seed) > 1:
                places = [row] * len(part.by_seed)
                axis.plot(part.by_seed, places, "o", mfc="none", mec=color, markersize=4)
        name_rows(axis, [plain(answer._name(part)) for part in parts])
        axis.set_ylim(len(parts) - 0.4, -0.6)
        axis.set_title(plain(f"{name}, {costs.task}"))
        axis.set_xlabel(f"cost in {costs.metric}")
        grid(axis)
    return figure


def interference_by(
    by: str = "layer",
    outputs: Path | str | Sequence[Path | str] = (),
    *,
    specialist: Path | str | None = None,
    resamples: int = 10_000,
    seed: int = 0,
    **settings: Any,
) -> InterferenceByPart:
    """Exchange each part of joint adapters for their specialists', and say what it costs.

    Args:
        by: ``layer``, ``kind`` (all q_proj, and so on) or ``module`` (one at a time).
        outputs: folders of ``<configuration>/seed_<n>``; by default all below `paths.runs`. With a
            ``specialist``, the folder of one joint adapter.
        specialist: folder of the adapter to compare with, in place of those in ``outputs``.
        resamples: number of sign flips.
        seed: of the sign flips.
        settings: of `qwen3nb.evaluation.studies.exchanges.ExchangeSettings`, such as ``kind``,
            ``tier``, ``tasks``, ``data``, ``limit`` and ``device``.

    Raises:
        SpecError: no joint adapter in stated ``outputs``, none with a specialist, or adapters that
            cannot be exchanged.
        ValueError: unlike metrics, or an unknown setting.
    """
    given = ExchangeSettings(by=by, **settings)
    stated = [outputs] if isinstance(outputs, str | Path) else list(outputs)
    stated = [folder for folder in stated if str(folder)]
    if specialist is not None:
        pairs = [_stated_pair(stated, specialist, given.kind)]
        notes: list[str] = []
    else:
        pairs, notes = find_pairs(stated or find_outputs(paths.runs()), kind=given.kind)
        if stated and not pairs:
            raise SpecError("; ".join(notes))
    studies = evaluate_exchanges(pairs, given)
    for pair in pairs:
        notes += pair.notes
    return InterferenceByPart(
        by=by,
        configurations=tuple(_configurations(studies, resamples=resamples, seed=seed)),
        notes=tuple(notes),
        data=DataUsed.of(_all_records(studies)),
    )


def _stated_pair(outputs: Sequence[Path | str], specialist: Path | str, kind: str) -> ExchangePair:
    """Return the pair of two adapters that were named."""
    if len(outputs) != 1:
        raise SpecError(
            f"expected one joint adapter to compare with {specialist}; got {len(outputs)} folders"
        )
    joint = Path(outputs[0])
    return ExchangePair(
        task=kind or "embedding",
        configuration=joint.name,
        seed=0,
        joint=joint,
        specialist=Path(specialist),
    )


def _configurations(
    studies: Sequence[ExchangeRecords], *, resamples: int, seed: int
) -> list[tuple[str, TaskCosts]]:
    """Return the costs of each joint configuration and task, over its seeds."""
    by_task: dict[tuple[str, str], list[ExchangedScores]] = {}
    for study in studies:
        key = (study.pair.configuration, study.pair.task)
        by_task.setdefault(key, []).append(_scores(study))
    costs = []
    for (name, task), scores in by_task.items():
        found = task_costs(task, scores, families=len(by_task), n_resamples=resamples, seed=seed)
        costs.append((name, found))
    return costs


def _scores(study: ExchangeRecords) -> ExchangedScores:
    """Return the scores of a pair's adapters, a matrix per data set."""
    records = {JOINT: study.joint, SPECIALIST: study.specialist}
    for part in study.modules:
        records[into(JOINT, part)] = study.into_joint[part]
        records[into(SPECIALIST, part)] = study.into_specialist[part]
    matrices = score_matrices(records)
    return ExchangedScores(study.pair.seed, tuple(study.modules), tuple(matrices))


def _all_records(studies: Sequence[ExchangeRecords]) -> list[Result]:
    records: list[Result] = []
    for study in studies:
        records += [*study.joint, *study.specialist]
    return records
