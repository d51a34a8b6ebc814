"""Report on a model and its baselines: scores, paired differences and card, in one folder.

All content comes from records, which are saved in `paths.results` as by every evaluation.
"""

import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from qwen3nb import paths
from qwen3nb.analysis.comparison.alignment import model_names
from qwen3nb.answers.all_results import all_results, write_all_results
from qwen3nb.answers.comparison import Comparison, compare
from qwen3nb.checkpoints.provenance import read_provenance
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.mteb.select import choose_tasks, suite_tasks, task_key
from qwen3nb.evaluation.run import EvaluationError
from qwen3nb.metrics.aggregate import Aggregate
from qwen3nb.metrics.intervals import few_queries_sentence, interval_words
from qwen3nb.models.load import load_model
from qwen3nb.models.types import SpecError
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.records.results import Results
from qwen3nb.records.store import latest, load_results
from qwen3nb.records.verification import scores_of
from qwen3nb.report.card import card_text
from qwen3nb.report.render.table import Table
from qwen3nb.utils.format import escaped, json_text
from qwen3nb.utils.secrets import write_public

_SEARCH_METRICS = ("nDCG@10", "MRR@10", "Recall@1", "Recall@10", "Recall@100")


@dataclass(frozen=True)
class ModelReport:
    """Records of a model and its baselines on the same tasks."""

    model: str  # its label
    spec: str  # the model as given
    results: Results  # those of the model first
    tasks: tuple[str, ...]  # keys of those requested
    tier: str  # tier of the card's comparison
    config: Mapping[str, Any]  # of the evaluation
    failures: Mapping[str, str]  # label or spec -> what failed; the others are complete
    created: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def by_model(self) -> dict[str, list[Result]]:
        """The records of each model, by a unique name."""
        names = model_names(self.results)
        records = defaultdict(list)
        for result in self.results:
            name = names[result.model.identity]
            records[name].append(result)
        return dict(records)

    @property
    def comparison(self) -> Comparison:
        """The paired differences of the baselines from the model."""
        return compare(self.results, baseline=self.model, tasks=self.tasks)

    def tables(self) -> dict[str, Table]:
        """Tables of scores by type of task, with a mean per type, and of differences."""
        types = dict.fromkeys(result.task.type for result in self.results)
        tables = {name: self._of_type(name) for name in types}
        if len(self.by_model) > 1:
            tables["Paired differences"] = self.comparison.differences_table()
        return tables

    def _of_type(self, task_type: str) -> Table:
        """The scores of every model on the tasks of one type, with a mean of like metrics."""
        on_type = [result for result in self.results if result.task.type == task_type]
        tasks = {result.task.key for result in on_type}
        # Keys of a dict are unique, and keep their order.
        columns: dict[Column, None] = {}
        all_scores: list[Aggregate] = []
        for result in on_type:
            columns |= dict.fromkeys(_scores(result))
            all_scores += result.metrics.values()
        rows = []
        for name, records in self.by_model.items():
            of_model = [record for record in records if record.task.key in tasks]
            scores: dict[Column, Aggregate] = {}
            for record in of_model:
                scores |= _scores(record)
            cells = [scores.get(column, "not run") for column in columns]
            rows.append((name, *cells, _mean(of_model, len(tasks))))
        heads = [f"{column.task}\n{column.metric}" for column in columns]
        methods = interval_words(score.interval for score in all_scores)
        few_queries = few_queries_sentence(all_scores)
        return Table.of(
            rows,
            ("model", *heads, "Avg\nmain metrics"),
            best=True,
            note=f"Intervals: 95 %, {methods}.{few_queries} Avg: of models with all tasks of the "
            "type, if their main metrics are the same.",
            data=DataUsed.of(on_type),
        )

    def comparison_json(self) -> str:
        """The models, their scores by type of task, and the paired differences."""
        # By type of task, then by model, then by task.
        scores: dict[str, dict[str, dict[str, object]]] = {}
        for name, records in self.by_model.items():
            for record in records:
                scores_of_type = scores.setdefault(record.task.type.lower(), {})
                scores_of_model = scores_of_type.setdefault(name, {})
                scores_of_model[record.task.key] = scores_of(record)
        models = {name: records[0].model for name, records in self.by_model.items()}
        differences = []
        if len(models) > 1:
            differences = list(self.comparison.differences)
        return json_text({"models": models, "results": scores, "differences": differences})

    def to_markdown(self) -> str:
        """The tables under their titles."""
        parts = [f"# {escaped(self.model)} and its baselines"]
        for title, table in self.tables().items():
            parts += [f"## {escaped(title)}", table.to_markdown()]
        if self.failures:
            lines = []
            for name, reason in self.failures.items():
                lines.append(f"- {escaped(name)}: {escaped(reason)}")
            parts += ["## Failed", "\n".join(lines)]
        return "\n\n".join(parts) + "\n"

    def write(self, folder: Path | str, *, facts: Path | None = None) -> list[Path]:
        """Write the report to ``folder`` and return its files and folders.

        These are ``all_results.json`` and ``comparison.json``, each with a copy named by the time,
        ``comparison.md``, MTEB's own files in ``mteb/``, and, for an extracted encoder,
        ``MODEL_CARD.md``.
        """
        folder = Path(folder)
        summary = all_results(
            self.results,
            requested=self.tasks,
            config=self.config,
            failures=self.failures,
            when=self.created,
        )
        texts = {"all_results": json_text(summary), "comparison": self.comparison_json()}
        files = []
        for name, text in texts.items():
            files.append(write_public(folder / f"{name}.json", text))
            # A copy with the time in its name is not replaced by the next report.
            copy = folder / f"{name}_{self.created:%Y%m%d_%H%M%S}.json"
            files.append(write_public(copy, text))
        files.append(write_public(folder / "comparison.md", self.to_markdown()))
        is_extracted = read_provenance(Path(self.spec)) is not None
        if is_extracted:
            card = card_text(self.spec, self.results, tier=self.tier, facts=facts)
            files.append(write_public(folder / "MODEL_CARD.md", card))
        mteb_folder = self._copy_mteb_files(folder / "mteb")
        if mteb_folder.is_dir():
            files.append(mteb_folder)
        return files

    def _copy_mteb_files(self, target: Path) -> Path:
        """Copy MTEB's own files of these models; limited tasks have none."""
        source = paths.results() / "mteb" / "results"
        # MTEB's files are <model>/<revision>/<task>.json; our revisions start with the identity.
        revisions = tuple({result.model.identity[:8] for result in self.results})
        for file in source.glob("*/*/*.json"):
            if file.parent.name.startswith(revisions):
                copy = target / file.relative_to(source)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, copy)
        return target


class Column(NamedTuple):
    """A column of scores."""

    task: str
    metric: str


def _scores(result: Result) -> dict[Column, Aggregate]:
    """Return the scores of a record: by the main metric, and by the usual ones of a search."""
    metrics = [result.task.main_metric]
    if result.task.type in ("Retrieval", "Reranking"):
        metrics += [name for name in _SEARCH_METRICS if name in result.metrics]
    return {Column(result.task.key, metric): result.metrics[metric] for metric in metrics}


def _mean(records: Sequence[Result], tasks: int) -> float | None:
    """Return the mean of the main metrics over all tasks; None if one is missing, or unlike."""
    values = {
        record.task.key: record.main.value for record in records if record.main.value is not None
    }
    if len(values) < tasks or len({record.task.main_metric for record in records}) != 1:
        return None
    return sum(values.values()) / tasks


def report_model(
    model: Path | str,
    *,
    baselines: Sequence[str] = (),
    tier: str = "smoke",
    tasks: Sequence[str] | str = (),
    types: Sequence[str] | str = (),
    limit: int = 0,
    seed: int = 0,
    batch_size: int = 32,
    show_progress: bool = True,
    **options: Any,
) -> ModelReport:
    """Evaluate ``model`` and its baselines on the same tasks, and compare them.

    Stored records are reused. A baseline or a task that fails does not stop the others. Models are
    given by their specs; MTEB tasks named in ``tasks`` replace the tier's; of these, only those of
    ``types`` are run, such as ``STS``, if there are any. ``limit``, ``seed`` and
    ``batch_size`` are those of `evaluate`; ``options`` are options of `load_encoder` for the model,
    not for the baselines.

    Raises:
        SpecError: ``model`` is not a known model.
        EvaluationError: the model has no result.
    """
    names = tasks if isinstance(tasks, str) else ",".join(tasks)
    selected_tasks = suite_tasks(tier=tier, tasks=names)
    if types:
        tasks_of_types = choose_tasks(tier=tier, tasks=names, types=types)
        selected_tasks = suite_tasks(tier=tier, tasks=tasks_of_types)
    config: dict[str, Any] = {
        "tier": tier,
        "tasks": names,
        "limit": limit,
        "seed": seed,
        "batch_size": batch_size,
    }
    settings = {**config, "show_progress": show_progress}
    if types:
        settings["tasks"] = selected_tasks
    own_model = load_model(model, batch_size=batch_size, show_progress=show_progress, **options)
    identities = [own_model.identity]
    failures: dict[str, str] = {}
    try:
        evaluate(own_model, **settings)
    except (EvaluationError, SpecError, OSError) as error:
        failures[own_model.label] = str(error)
    for spec in baselines:
        try:
            baseline = load_model(spec, show_progress=show_progress)
            identities.append(baseline.identity)
            evaluate(baseline, **settings)
        except (EvaluationError, SpecError, OSError) as error:
            failures[spec] = str(error)
    write_all_results()
    keys = [task_key(task, limit=limit) for task in selected_tasks]
    results = _results_of(identities, keys, seed)
    if not results or results[0].model.identity != own_model.identity:
        reason = failures.get(own_model.label, "")
        raise EvaluationError(f"{own_model.label} has no result; {reason}")
    return ModelReport(
        model=own_model.label,
        spec=str(model),
        results=results,
        tasks=tuple(keys),
        tier=tier,
        config={**config, "baselines": list(baselines), **options},
        failures=failures,
    )


def _results_of(identities: Sequence[str], keys: Sequence[str], seed: int) -> Results:
    """Return the newest records of these models, in their order and that of the tasks."""
    records = []
    for record in latest(load_results()):
        is_requested = record.task.key in keys and record.model.identity in identities
        if is_requested and record.seed == seed:
            records.append(record)
    records.sort(
        key=lambda record: (
            identities.index(record.model.identity),
            keys.index(record.task.key),
        )
    )
    return Results(records)
