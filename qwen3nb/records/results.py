"""A collection of records, to be filtered, compared and converted to a DataFrame or a file."""

from __future__ import annotations

import functools
import importlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, overload

from qwen3nb.records.record import Result
from qwen3nb.records.side_files import ResultError, is_side_file
from qwen3nb.tiers import TIERS
from qwen3nb.utils.atomic_files import new_file
from qwen3nb.utils.choices import check_choice
from qwen3nb.utils.format import first_names, inert_text
from qwen3nb.utils.hints import missing_attribute
from qwen3nb.utils.imports import DataFrame

Names = str | Iterable[str]
# The tier that pages, cards and tables show.
_RICHEST_FIRST = ("full", "multilingual", "nano", "fast", "pydocs", "smoke")
_TYPES_WITH_TEXTS = ("Retrieval", "Reranking")  # of MTEB's tasks, whose queries have ids
# What to write for attributes that one might guess.
_INSTEAD = {
    "best": "results.leaderboard()",
    "data": "results.to_frame()",
    "df": "results.to_frame()",
    "score": "results[0].value, of a single record",
    "scores": "results.to_frame(per_query=True)",
}
_NAMES_SHOWN = 4  # of models and of tasks
_COLUMNS = """
    model task type metric value low high n unit seed identity revision finished
""".split()  # noqa: SIM905 - a list of words reads better as a line
_SUMMARY_COLUMNS = ["model", "task", "metric", "value", "low", "high", "n"]
_QUERY_COLUMNS = """
    model task type metric query value text length category seed identity
""".split()  # noqa: SIM905 - a list of words reads better as a line
_SCORE_COLUMNS = """
    model identity seed task type revision split subset query metric value finished record
""".split()  # noqa: SIM905


class Results(Sequence[Result]):
    """Records in a fixed order.

    >>> Results([]).filter(tier="smoke")
    <Results: no records>

    ``results[0]`` is a record; ``results[:5]`` and ``results["bm25"]`` are `Results`.

    Attributes:
        unreadable: reason for each record that could not be loaded, by file.
    """

    def __init__(
        self, records: Iterable[Result] = (), *, unreadable: Mapping[str, str] | None = None
    ) -> None:
        self._records = tuple(records)
        self.unreadable = dict(unreadable or {})

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Result]:
        return iter(self._records)

    @overload
    def __getitem__(self, index: int) -> Result: ...
    @overload
    def __getitem__(self, index: slice | str) -> Results: ...
    def __getitem__(self, index: int | slice | str) -> Result | Results:
        if isinstance(index, str):
            if self._has_model(index):
                return self.filter(model=index)
            choices = [*self.models, *self.tasks, *self._types]
            return self.filter(task=check_choice("model or task", index, choices))
        if isinstance(index, slice):
            return Results(self._records[index], unreadable=self.unreadable)
        return self._records[index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # records hold dictionaries

    def __repr__(self) -> str:
        """Number of records, and their models and tasks."""
        unreadable = ""
        if self.unreadable:
            unreadable = f"; {len(self.unreadable)} unreadable"
        if not self._records:
            return f"<Results: no records{unreadable}>"
        noun = "record"
        if len(self) > 1:
            noun = "records"
        models = first_names(self.models, most=_NAMES_SHOWN)
        tasks = first_names(self.tasks, most=_NAMES_SHOWN)
        return f"<Results: {len(self)} {noun}; models {models}; tasks {tasks}{unreadable}>"

    if not TYPE_CHECKING:  # which knows the attributes

        def __getattr__(self, name: str) -> NoReturn:
            raise missing_attribute(self, name, _INSTEAD)

    def _repr_html_(self) -> str:
        return str(self.to_frame().to_html(max_rows=20, float_format="{:.3f}".format))

    @property
    def without_adapters(self) -> Results:
        """The records of all but trained adapters, as of ``load_results(adapters=False)``."""
        records = (record for record in self if record.training is None)
        return Results(records, unreadable=self.unreadable)

    @property
    def models(self) -> tuple[str, ...]:
        """Labels of the models, sorted."""
        return tuple(sorted({record.model.label for record in self}))

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks, sorted."""
        return tuple(sorted({record.task.key for record in self}))

    @property
    def _types(self) -> list[str]:
        return sorted({record.task.type for record in self})

    def filter(
        self,
        name: str = "",
        *,
        model: Names | None = None,
        task: Names | None = None,
        tier: str | None = None,
    ) -> Results:
        """Return the records that meet all given conditions.

        Args:
            name: a model, a task or a type of tasks, as in ``results[name]``.
            model: a label, a spec, or the first digits (at least 8) of an identity; or several.
            task: the name of a task or a type of tasks, such as ``Retrieval``; or several.
            tier: a tier; keeps records of its tasks and those made by a run of the tier.

        Raises:
            ValueError: a model or task that no record has, or an unknown tier.
        """
        records = list(self._records)
        if name:
            records = list(self[name])
        if model is not None:
            models = _as_list(model)
            for name in models:
                self._check_model(name)
            records = [record for record in records if _is_any_model(record, models)]
        if task is not None:
            choices = [*self.tasks, *self._types]
            selected = {check_choice("task", name, choices) for name in _as_list(task)}
            records = [
                record
                for record in records
                if record.task.key in selected or record.task.type in selected
            ]
        if tier is not None:
            tasks_of_tier = TIERS[check_choice("tier", tier, TIERS)].task_keys
            records = [
                record
                for record in records
                if record.task.key in tasks_of_tier or record.tier == tier
            ]
        return Results(records, unreadable=self.unreadable)

    def _has_model(self, name: str) -> bool:
        return any(_is_model(record, name) for record in self)

    def _check_model(self, name: str) -> None:
        """Raise ValueError if no record has a model of this name; lists the labels."""
        if not self._has_model(name):
            check_choice("model", name, self.models)

    def to_frame(self, *, all_metrics: bool = False, per_query: bool = False) -> DataFrame:
        """Return a row per record with its main metric, or per record and metric.

        Columns: model, task, type, metric, value, low and high (the confidence interval), n,
        unit, seed, identity, revision, finished. An undefined value is missing.

        Args:
            all_metrics: whether to include every metric of a record.
            per_query: whether to return a row per query instead. Columns: model, task, type,
                metric, query, value, text, length (words of the text), category, seed, identity. A
                text is that of the record, or of the task if its data are available locally, else
                missing. Tasks without scores of single queries, such as STS, have no rows unless
                ``all_metrics``.
        """
        import pandas as pd

        if per_query:
            return _query_frame(self, all_metrics=all_metrics)
        rows = []
        for record in self:
            metrics = [record.task.main_metric]
            if all_metrics:
                metrics = list(record.metrics)
            for metric in metrics:
                score = record.metrics[metric]
                row = {
                    "model": record.model.label,
                    "task": record.task.key,
                    "type": record.task.type,
                    "metric": metric,
                    "value": score.value,
                    "low": score.low,
                    "high": score.high,
                    "n": score.n,
                    "unit": record.task.unit,
                    "seed": record.seed,
                    "identity": record.model.identity[:8],
                    "revision": record.task.revision,
                    "finished": record.finished,
                }
                rows.append(row)
        return pd.DataFrame(rows, columns=_COLUMNS)

    def worst(self, k: int = 5) -> DataFrame:
        """Return the ``k`` queries of each record with the lowest main score, the lowest first.

        The columns are those of ``to_frame(per_query=True)``; of equal scores, earlier queries come
        first.
        """
        frame = self.to_frame(per_query=True)
        ascending = frame.sort_values("value", kind="stable")
        records = ["model", "identity", "seed", "task"]
        lowest = ascending[ascending.groupby(records, sort=False).cumcount() < k]
        # Record by record, as in this collection.
        order_of_records = frame.groupby(records, sort=False).ngroup()
        record_by_record = order_of_records[lowest.index].sort_values(kind="stable").index
        return lowest.loc[record_by_record].reset_index(drop=True)

    def summary(self) -> DataFrame:
        """Return a row per model and task with its main score: the short form of `to_frame`."""
        return self.to_frame()[_SUMMARY_COLUMNS]

    def pivot(self, metric: str = "") -> DataFrame:
        """Return a table of numbers: a row per model, a column per task, missing where not run.

        Args:
            metric: by default each task's main metric. The newest of several records counts.

        Raises:
            ValueError: a metric that no record has; lists the available ones.
        """
        records = from_oldest(self)
        if metric:
            available: set[str] = set()
            for record in self:
                available.update(record.metrics)
            check_choice("metric", metric, sorted(available))
            records = [record for record in records if metric in record.metrics]
        # Of several records of a model on a task, the newest comes last and stays.
        last = {(record.model.label, record.task.key): record for record in records}
        frame = Results(last.values()).to_frame(all_metrics=bool(metric))
        if metric:
            frame = frame[frame["metric"] == metric]
        return frame.pivot(index="model", columns="task", values="value")

    def compare(self, *models: Names, **options: object) -> Any:
        """Compare models, by default all, query by query; the options are `qwen3nb.compare`'s.

        Models are named one by one, in a list, or as ``models``.
        """
        return _lookup("answers.comparison", "compare")(self, *models, **options)

    def leaderboard(self, *, tier: str = "", **options: object) -> Any:
        """Return all models with scores and ranks; the options are `qwen3nb.leaderboard`'s.

        By default, on the richest tier with records, else on all tasks.
        """
        if not tier:
            tier = richest_tier(self)
            is_on_tier = any(record.task.key in TIERS[tier].task_keys for record in self)
            if self and not is_on_tier:
                options = {"tasks": self.tasks, **options}
        return _lookup("answers.leaderboard", "leaderboard")(self, tier=tier, **options)

    def how_sure(self, *, tier: str = "", seed: int = 0) -> Any:
        """Explain how sure the lead of the best model is; see `answers.how_sure`.

        By default, on the richest tier with records.
        """
        explain = _lookup("answers.how_sure", "how_sure")
        return explain(self, tier=tier or richest_tier(self), seed=seed)

    def explore(self, task: str = "", **options: object) -> Any:
        """Return two or more models query by query; see `answers.explorer.explore`."""
        return _lookup("answers.explorer", "explore")(self, task=task, **options)

    def candidates(self, *, current: str, **options: object) -> Any:
        """Return whether a candidate should replace the ``current`` model on one task.

        It takes the options of `qwen3nb.answers.candidates.compare_candidates`.
        """
        return _lookup("answers.candidates", "compare_candidates")(self, current=current, **options)

    def choose(self, candidates: Iterable[str], **options: Any) -> Any:
        """Choose a model on one half of the queries, report it on the other; measures what lacks.

        Args:
            candidates: models, and trainings that stand for their checkpoints.
            options: of `qwen3nb.answers.choosing.choose`, such as ``tier`` and ``soup``.
        """
        return _lookup("answers.choosing", "choose")(list(candidates), **options)

    def forgetting(self, before: str = "", after: str = "", **options: Any) -> Any:
        """Return which queries a training lost and won, by groups; see `answers.forgetting`.

        Args:
            before: label of the earlier model; by default, the first step of the newest training.
            after: label of the later model; by default, its last step.
            options: of `qwen3nb.answers.forgetting.forgetting`, such as ``task`` and ``topics``.
        """
        return _lookup("answers.forgetting", "forgetting")(self, before, after, **options)

    def race(self, models: Iterable[str], **options: Any) -> Any:
        """Measure models on a benchmark until the best are certain; see `answers.race`.

        Args:
            models: two or more specs.
            options: of `qwen3nb.answers.race.until_certain`, such as ``benchmark`` and ``top``.
        """
        return _lookup("answers.race", "until_certain")(list(models), **options)

    def own_data(self, name: str = "", *, current: str = "", seed: int = 0) -> Any:
        """Return which model to use on one's own search data; see `answers.own_data`.

        Args:
            name: the collection that `qwen3nb domain` has evaluated; by default the only one.
            current: label of the model in use; by default the one that was evaluated first.
            seed: seed of the resampling.
        """
        question = _lookup("answers.own_data", "own_data")
        return question(self, name, current=current, seed=seed)

    def query_worth(self, models: Iterable[Any], data: object, **options: Any) -> Any:
        """Measure what generated queries are worth; see `answers.query_worth`.

        Args:
            models: three or more; values of `Model`, or specs.
            data: real queries and their documents: a BEIR folder, an MTEB retrieval task, or a
                query file with ``documents``.
            options: of `qwen3nb.answers.query_worth.query_worth`, such as ``number`` and ``kinds``.
        """
        return _lookup("answers.query_worth", "query_worth")(models, data, **options)

    def migration(self, old: object, new: object, **options: Any) -> Any:
        """Rehearse the change from one model to another on own data; see `answers.migration`.

        Args:
            old: the model in use: a value of `Model`, or a spec.
            new: its successor.
            options: of `qwen3nb.answers.migration.migration`, such as ``queries`` and
                ``documents``.
        """
        return _lookup("answers.migration", "migration")(old, new, **options)

    def prompts(self, *, seed: int = 0) -> Any:
        """Return what the choice of a prompt changes, from the records of sets of prompts.

        They are next to the study's other records; `qwen3nb eval --prompts 15` makes them.
        """
        return _lookup("answers.prompts", "compare_prompts")(seed=seed)

    def provenance_table(self) -> Any:
        """Return a row per record: its file, the formula of its metric, and the command."""
        return _lookup("answers.one_model", "provenance_table")(self)

    def model_and_run_table(self) -> Any:
        """Return the model of the newest record, and the software that measured it."""
        return _lookup("answers.one_model", "model_and_run_table")(self)

    def page_links(self) -> dict[str, str]:
        """Return the page of each run id, relative to the other pages of the book."""
        links: dict[str, str] = _lookup("book.build", "page_links")(self)
        return links

    def landing_page(self, board: Any) -> dict[str, str]:
        """Return the parts of the book's landing page as HTML, from its leaderboard."""
        parts: dict[str, str] = _lookup("answers.landing", "landing_page")(self, board)
        return parts

    def plot(self, *, tier: str = "", **options: object) -> Any:
        """Return a figure of all scores with their intervals, a panel per task or mean.

        Args:
            tier: the tier whose tasks are shown; by default as in `leaderboard`.
            options: ``tasks`` in place of the tier's.
        """
        return self.leaderboard(tier=tier, **options).figure()

    def interference(self, outputs: Path | str = "", **options: object) -> Any:
        """Compare jointly trained adapters with specialists; see `answers.interference`."""
        return _lookup("answers.interference", "interference")(self, outputs, **options)

    def interference_by(
        self, by: str = "layer", outputs: Path | str = "", **options: object
    ) -> Any:
        """Exchange each part of joint adapters for the specialists'; measures what lacks.

        Args:
            by: ``layer``, ``kind`` of module, or single ``module``.
            outputs: folder of ``<configuration>/seed_<n>``; by default all below ``runs/``.
            options: of `qwen3nb.answers.interference_parts.interference_by`, such as ``kind``,
                ``tier``, ``data`` and ``specialist``.
        """
        return _lookup("answers.interference_parts", "interference_by")(by, outputs, **options)

    def reranking(self, data_sets: Iterable[Any] = (), **options: object) -> Any:
        """Compare reranked runs with their first stage; see `answers.reranking`."""
        return _lookup("answers.reranking", "reranking")(self, data_sets, **options)

    def over_seeds(self, *arms: str, **options: object) -> Any:
        """Compare trainings of several seeds; see `qwen3nb.answers.seeds.over_seeds`."""
        return _lookup("answers.seeds", "over_seeds")(self, *arms, **options)

    def trainings(self, **options: object) -> Any:
        """Return scores by step, losses and gradient conflicts; see `answers.trainings`."""
        return _lookup("answers.trainings", "trainings")(self, **options)

    def write_scores(self, file: Path | str) -> Path:
        """Write the score of every query to a ``.parquet`` or ``.csv`` file, a row per score.

        Every column of a record's scores is a metric, including inputs of aggregates, such as
        ``cosine`` and ``gold`` of STS. In CSV, text that a spreadsheet would read as a formula is
        preceded by an apostrophe; numbers and Parquet are unchanged.

            model, identity, seed     the model's label, its whole identity, and the seed
            task, type, revision      name, type and data of the task
            split, subset             of the query; empty where the record does not say
            query, metric, value      the query's id without split and subset, and its score
            finished, record          when the record was made, and its file, if its label has one

        Raises:
            ValueError: another ending, or the name of a file next to a record.
            ResultError: the scores of a record are missing or changed; ``file`` is left as it was.
        """
        import pyarrow as pa
        import pyarrow.csv
        import pyarrow.parquet as pq

        target = Path(file)
        is_csv = check_choice("ending of the file", target.suffix, (".parquet", ".csv")) == ".csv"
        if is_side_file(target):
            raise ValueError(f"{target}: that is the name of a record's own scores; take another")
        types_of_numbers = {"seed": pa.int64(), "value": pa.float64()}
        text_columns = [name for name in _SCORE_COLUMNS if name not in types_of_numbers]
        types = {**dict.fromkeys(_SCORE_COLUMNS, pa.large_string()), **types_of_numbers}
        schema = pa.schema(types)
        with new_file(target) as handle:
            if is_csv:
                writer = pa.csv.CSVWriter(handle, schema)
            else:
                writer = pq.ParquetWriter(handle, schema, compression="zstd")
            with writer:
                for record in self:
                    frame = _score_rows(record)
                    if is_csv:
                        # A spreadsheet would run a text such as ``=1+1``.
                        frame[text_columns] = frame[text_columns].map(inert_text)
                    writer.write_table(pa.Table.from_pandas(frame, schema, preserve_index=False))
        return target


def _as_list(names: Names) -> list[str]:
    if isinstance(names, str):
        return [names]
    return list(names)


def _lookup(module: str, name: str) -> Callable[..., Any]:
    """Return the function that answers a question about records.

    Answers stand on a higher floor than records, so that they are looked up when they are asked.
    """
    function: Callable[..., Any] = getattr(importlib.import_module(f"qwen3nb.{module}"), name)
    return function


def _query_frame(records: Iterable[Result], *, all_metrics: bool) -> DataFrame:
    """Return a row per score of a query, record by record; see `Results.to_frame`."""
    import pandas as pd

    texts_of_tasks: dict[tuple[str, str], Any] = {}
    rows: list[dict[str, object]] = []
    for record in records:
        task = (record.task.key, record.task.revision)
        if not record.data.queries and task not in texts_of_tasks:
            texts_of_tasks[task] = _texts_of_task(record)
        rows += _query_rows(record, texts_of_tasks.get(task), all_metrics=all_metrics)
    frame = pd.DataFrame(rows, columns=_QUERY_COLUMNS)
    # Whole numbers, missing where a text is unknown.
    return frame.astype({"value": "float64", "length": "Int64"})


def _query_rows(record: Result, texts: Any, *, all_metrics: bool) -> list[dict[str, object]]:
    """Return a row per query and metric of a record; ``texts`` of its task, or None."""
    scores = record.scores
    metrics = [record.task.main_metric]
    if all_metrics:
        metrics = list(scores)
    recorded_texts = record.data.queries or {}
    facts = {
        "model": record.model.label,
        "task": record.task.key,
        "type": record.task.type,
        "seed": record.seed,
        "identity": record.model.identity[:8],
    }
    rows: list[dict[str, object]] = []
    for metric in metrics:
        if metric not in scores:  # such as a correlation, which single queries do not have
            continue
        for query, value in scores[metric].items():
            text = recorded_texts.get(query, "")
            if texts is not None:
                text = text or texts.text(query)
            row: dict[str, object] = {**facts, "metric": metric, "query": query, "value": value}
            row["category"] = record.task.categories.get(query)
            if text:
                row |= {"text": text, "length": len(text.split())}
            rows.append(row)
    return rows


def _texts_of_task(record: Result) -> Any:
    """Return the texts of a task's queries; None if its data are not available locally."""
    is_of_mteb = record.task.mteb is not None
    if not is_of_mteb or record.task.type not in _TYPES_WITH_TEXTS:
        return None
    texts_class: Any = _lookup("evaluation.mteb.per_query", "SearchTexts")
    with suppress(ValueError, OSError):  # own data, or data that were not loaded here
        return texts_class.of_task(record.task)
    return None


def _score_rows(record: Result) -> DataFrame:
    """Return a row per score of a record, metric by metric."""
    import pandas as pd

    model, task, scores = record.model, record.task, record.scores
    columns = ["split", "subset", "query"]
    queries = pd.DataFrame(list(_located(record)), columns=columns, dtype=object)
    frames = [queries.assign(metric=name, value=scores.array(name)) for name in scores]
    # One frame at least, of which no row is left.
    if not frames:
        frames = [queries.assign(metric="", value=math.nan)]
    frame = pd.concat(frames).dropna(subset="value")
    return frame.assign(
        model=model.label,
        identity=model.identity,
        seed=record.seed,
        task=task.key,
        type=task.type,
        revision=task.revision,
        finished=record.finished,
        record=_file_below(record),
    )[_SCORE_COLUMNS]


def _file_below(record: Result) -> str:
    """Return a record's file below its folder; empty if its label or task is no part of a path."""
    try:
        return record.path(Path()).as_posix()
    except ResultError:  # `qwen3nb verify` names it
        return ""


def _located(record: Result) -> Iterator[tuple[str, str, str]]:
    """Yield split, subset and own id of each query of a record, in the order of its scores."""
    parts = _parts(record)
    # Split and subset of ids that have none in front.
    part_without_prefix = ("", "")
    if len(parts) == 1:
        (part_without_prefix,) = parts
    # An id such as ``test/en/00042`` begins with its split and subset.
    part_by_prefix = {f"{split}/{subset}/": (split, subset) for split, subset in parts}
    # As `qwen3nb.evaluation.mteb.per_query` names them: a task with only one part has no prefix.
    _, only_subset = part_without_prefix
    if only_subset == "default":
        part_by_prefix = {}
    # One prefix may be the beginning of another.
    longest_first = sorted(part_by_prefix, key=len, reverse=True)
    for query in record.scores.queries:
        matching_prefixes = [prefix for prefix in longest_first if query.startswith(prefix)]
        if matching_prefixes:
            prefix = matching_prefixes[0]
            split, subset = part_by_prefix[prefix]
        else:
            prefix = ""
            split, subset = part_without_prefix
        yield split, subset, query.removeprefix(prefix)


def _parts(record: Result) -> list[tuple[str, str]]:
    """Return the splits and subsets of a record's task."""
    if record.parts:
        return [(part.split, part.subset) for part in record.parts]
    pairs = itertools.product(record.task.subsets, record.task.splits)
    return [(split, subset) for subset, split in pairs]


def _is_model(record: Result, name: str) -> bool:
    """Return whether a name is label, spec, or the first digits of the identity of a model."""
    model = record.model
    if name in (model.label, model.spec):
        return True
    return len(name) >= 8 and model.identity.startswith(name)


def _is_any_model(record: Result, names: Iterable[str]) -> bool:
    return any(_is_model(record, name) for name in names)


def from_oldest(records: Iterable[Result]) -> list[Result]:
    """Return records in the order in which they were made; see `Result.place`.

    The wall clock decides only where a place is unknown, as it may have been set back.
    """
    return sorted(records, key=functools.cmp_to_key(_age))


def _age(first: Result, second: Result) -> int:
    """Return a negative number if the first record is older, 0 if neither is."""
    if first.place and second.place:
        return first.place - second.place
    return (first.finished > second.finished) - (first.finished < second.finished)


def newest(records: Iterable[Result]) -> Result:
    """Return the record that was made last; see `from_oldest`."""
    return from_oldest(records)[-1]


def richest_tier(results: Iterable[Result]) -> str:
    """Return the largest tier that has results; ``smoke`` if none has.

    A tier has results if a run of it produced one, or if a model has all of its tasks. If there is
    none, the smallest tier with a result of some of its tasks is returned.
    """
    tasks_by_model: dict[str, set[str]] = {}
    tasks_of_runs: dict[str, set[str]] = {}  # by tier
    for result in results:
        tasks_by_model.setdefault(result.model.identity, set()).add(result.task.key)
        # A run of selected tasks does not show that its tier was run.
        is_selection = any(result.options.get(name) for name in ("tasks", "types", "benchmark"))
        if not is_selection:
            tasks_of_runs.setdefault(result.tier, set()).add(result.task.key)
    for name in _RICHEST_FIRST:
        tasks = set(TIERS[name].task_keys)
        has_model_with_all = any(tasks <= evaluated for evaluated in tasks_by_model.values())
        was_run = bool(tasks & tasks_of_runs.get(name, set()))
        if has_model_with_all or was_run:
            return name
    evaluated_tasks = set().union(*tasks_by_model.values())
    # From the smallest.
    for name in reversed(_RICHEST_FIRST):
        if evaluated_tasks.intersection(TIERS[name].task_keys):
            return name
    return "smoke"
