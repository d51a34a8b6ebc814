"""Report on a model and its baselines: scores, paired differences and card, in one folder.

All content comes from records, which are saved in `paths.results` as by every evaluation.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.analysis.comparison.alignment import model_names
from qwen3nb.answers.all_results import all_results, write_all_results
from qwen3nb.answers.comparison import Comparison, compare
from qwen3nb.checkpoints.provenance import read_provenance
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.mteb.select import choose_tasks, suite_tasks, task_key
from qwen3nb.evaluation.run import EvaluationError
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

_SEARCH = ("nDCG@10", "MRR@10", "Recall@1", "Recall@10", "Recall@100")


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
        records: dict[str, list[Result]] = {}
        for result in self.results:
            records.setdefault(names[result.model.identity], []).append(result)
        return records

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

    def _of_type(self, type_: str) -> Table:
        own = [result for result in self.results if result.task.type == type_]
        columns = list(dict.fromkeys(pair for result in own for pair in _shown(result)))
        keys = {result.task.key for result in own}
        rows = []
        for name, records in self.by_model.items():
            of_type = [record for record in records if record.task.key in keys]
            values = {pair: r.metrics[pair[1]] for r in of_type for pair in _shown(r)}
            main = {r.task.key: r.main.value for r in of_type if r.main.value is not None}
            metrics = {record.task.main_metric for record in of_type}
            is_averaged = len(main) == len(keys) and len(metrics) == 1  # unlike ones have no mean
            mean = sum(main.values()) / len(main) if is_averaged else None
            rows.append((name, *(values.get(pair, "not run") for pair in columns), mean))
        heads = (f"{task}\n{metric}" for task, metric in columns)
        shown = [value for record in own for value in record.metrics.values()]
        methods = interval_words(value.interval for value in shown)
        note = (
            f"Intervals: 95 %, {methods}.{few_queries_sentence(shown)} Avg: of models with all "
            "tasks of the type, if their main metrics are the same."
        )
        return Table.of(
            rows,
            ("model", *heads, "Avg\nmain metrics"),
            best=True,
            note=note,
            data=DataUsed.of(own),
        )

    def comparison_json(self) -> str:
        """The models, their scores by type of task, and the paired differences."""
        scores: dict[str, dict[str, dict[str, Any]]] = {}
        for name, records in self.by_model.items():
            for result in records:
                of_type = scores.setdefault(result.task.type.lower(), {})
                of_type.setdefault(name, {})[result.task.key] = scores_of(result)
        models = {name: records[0].model for name, records in self.by_model.items()}
        differences = self.comparison.differences if len(models) > 1 else ()
        return json_text({"models": models, "results": scores, "differences": list(differences)})

    def to_markdown(self) -> str:
        """The tables under their titles."""
        parts = [f"# {escaped(self.model)} and its baselines"]
        for title, table in self.tables().items():
            parts += [f"## {escaped(title)}", table.to_markdown()]
        if self.failures:
            lines = [f"- {escaped(name)}: {escaped(why)}" for name, why in self.failures.items()]
            parts += ["## Failed", "\n".join(lines)]
        return "\n\n".join(parts) + "\n"

    def write(self, folder: Path | str, *, facts: Path | None = None) -> list[Path]:
        """Write the report to ``folder`` and return its files and folders.

        These are ``all_results.json`` and ``comparison.json``, each with a copy named by the time,
        ``comparison.md``, MTEB's own files in ``mteb/``, and, for an extracted encoder,
        ``MODEL_CARD.md``.
        """
        folder, stamp = Path(folder), f"{self.created:%Y%m%d_%H%M%S}"
        everything = all_results(
            self.results,
            requested=self.tasks,
            config=self.config,
            failures=self.failures,
            when=self.created,
        )
        texts = {"all_results": json_text(everything), "comparison": self.comparison_json()}
        files = {f"{name}{end}.json": texts[name] for name in texts for end in ("", f"_{stamp}")}
        files["comparison.md"] = self.to_markdown()
        if read_provenance(Path(self.spec)) is not None:
            files["MODEL_CARD.md"] = card_text(self.spec, self.results, tier=self.tier, facts=facts)
        written = [write_public(folder / name, text) for name, text in files.items()]
        revisions = tuple({result.model.identity[:8] for result in self.results})
        source, target = paths.results() / "mteb" / "results", folder / "mteb"
        for file in source.glob("*/*/*.json"):  # limited tasks have none
            if file.parent.name.startswith(revisions):
                to = target / file.relative_to(source)
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, to)
        return [*written, *([target] if target.is_dir() else [])]


def _shown(result: Result) -> list[tuple[str, str]]:
    """Return task and metric of each column: the main metric, and the usual ones of a search."""
    names = [result.task.main_metric]
    if result.task.type in ("Retrieval", "Reranking"):
        names += [name for name in _SEARCH if name in result.metrics and name not in names]
    return [(result.task.key, name) for name in names]


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
    names = ",".join([tasks] if isinstance(tasks, str) else tasks)
    chosen = suite_tasks(tier=tier, tasks=names)
    if types:
        chosen = suite_tasks(tier=tier, tasks=choose_tasks(tier=tier, tasks=names, types=types))
    keys = [task_key(task, limit=limit) for task in chosen]
    own = load_model(model, batch_size=batch_size, show_progress=show_progress, **options)
    config: dict[str, Any] = {
        "tier": tier,
        "tasks": names,
        "limit": limit,
        "seed": seed,
        "batch_size": batch_size,
    }
    identities, failures = [own.identity], {}
    for spec in (own, *baselines):
        name = spec if isinstance(spec, str) else spec.label
        try:
            each = load_model(spec, show_progress=show_progress) if isinstance(spec, str) else spec
            identities.append(each.identity)
            how = {**config, "tasks": chosen} if types else config
            evaluate(each, **how, show_progress=show_progress)
        except (EvaluationError, SpecError, OSError) as error:
            failures[name] = str(error)
    write_all_results()
    records = [r for r in latest(load_results()) if r.task.key in keys and r.seed == seed]
    ordered = [
        record
        for identity in dict.fromkeys(identities)
        for record in sorted(records, key=lambda each: keys.index(each.task.key))
        if record.model.identity == identity
    ]
    if not ordered or ordered[0].model.identity != own.identity:
        raise EvaluationError(f"{own.label} has no result; {failures.get(own.label, '')}")
    return ModelReport(
        model=own.label,
        spec=str(model),
        results=Results(ordered),
        tasks=tuple(keys),
        tier=tier,
        config={**config, "baselines": list(baselines), **options},
        failures=failures,
    )
