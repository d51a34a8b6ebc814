"""The record of one model on one task: its schema, its file, its consistency.

    results/<label>-<identity>/seed_<n>/<task>.json
    results/<label>-<identity>/seed_<n>/<task>.<digest>.scores.parquet
    results/checksums.jsonl                    of every record ever written there

The dataclasses below are the schema: files are validated against their annotations, and their
fields are what is written. A record with an invalid field is refused as a whole; the error names
the field.

A record stores the score of every query; its aggregates are derived from these scores and
can be recomputed (`verification.problems`). Data with a row per query (scores and best documents)
is in files next to the JSON (`qwen3nb.records.side_files`), which contains their digests; they are
read when needed. Records are written atomically, as strict JSON, and looked up by the identity of
model and task, never by name alone. A record's checksum is the SHA-256 of everything else in its
JSON.
"""

from __future__ import annotations

import functools
import glob
import importlib
import json
import platform
import re
import reprlib
import stat
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pydantic import ConfigDict, SkipValidation, TypeAdapter, ValidationError

from qwen3nb import paths
from qwen3nb.metrics.aggregate import Aggregate
from qwen3nb.metrics.query_scores import QueryScores
from qwen3nb.records.details import (
    DataFacts,
    JsonObject,
    RunFiles,
    SearchFacts,
    Training,
    UsedPrompt,
    config_of,
    details_of,
    stated,
)
from qwen3nb.records.known_records import occasion_of
from qwen3nb.records.side_files import (
    STEM,
    ResultError,
    ScoresEntry,
    SideEntry,
    SideFile,
    StoredScores,
    StoredTop,
    named_files,
    remove_unnamed,
    write_tables,
)
from qwen3nb.utils.atomic_files import exclusive_lock, read_json, sha256_json, write_json
from qwen3nb.utils.code_version import installed_version
from qwen3nb.utils.hints import missing_attribute
from qwen3nb.utils.imports import DataFrame
from qwen3nb.utils.journal import Journal, append, noted
from qwen3nb.utils.schema import (
    Amount,
    Count,
    Label,
    Moment,
    Name,
    Names,
    Number,
    PathText,
    Text,
    Unicode,
    field_problem,
    shortened,
)
from qwen3nb.utils.secrets import known_secrets

CHECKSUMS = "checksums.jsonl"
SCHEMA = "qwen3nb.result/5"
ONE_FILE = "qwen3nb.result/4"  # with the scores and the best documents in the JSON
# Older schemas, with all details in one mapping, ``config``; see `qwen3nb.records.details`.
_UNTYPED = {"qwen3nb.result/3": SCHEMA, "qwen3nb.result/2": ONE_FILE}
GENERATED = "generated-"  # how the revision of own data begins that have generated queries
SUBSTITUTE = "local-"  # how the revision of a mirror's folder begins that is not MTEB's data
_VERSIONS = """
    qwen3nb torch transformers sentence-transformers mteb datasets bm25s numpy scipy scikit-learn
""".split()  # noqa: SIM905 - a list of words reads better as a line
# What to write for attributes that one might guess.
_INSTEAD = {
    "high": "record.main.high",
    "interval": "record.main.low, record.main.high",
    "label": "record.model.label",
    "low": "record.main.low",
    "metric": "record.task.main_metric",
    "n": "record.main.n",
    "queries": "record.scores.queries",
    "summary": "record.to_frame()",
}
_NAME = re.compile(STEM)
_ONLY_THESE = ConfigDict(extra="forbid")
# Of a record; those of 100,000 queries in the oldest schema, in one file, take a quarter.
_MOST_BYTES = 512 << 20
_MOST_METRICS = 1000  # each takes milliseconds to verify; a search has about ten


def is_substitute(revision: str) -> bool:
    """Return whether a revision is that of substitutes for MTEB's data.

    >>> is_substitute("local-0123456789abcdef"), is_substitute("0228b52cf27578f30900b9e5271d331663")
    (True, False)
    """
    return revision.startswith(SUBSTITUTE)


def is_generated(revision: str) -> bool:
    """Return whether a revision is that of queries some of which were generated from documents.

    >>> is_generated("generated-0123456789abcdef"), is_generated("0123456789abcdef")
    (True, False)
    """
    return revision.startswith(GENERATED)


def short_revision(revision: str) -> str:
    """Return the first digits of a revision.

    >>> short_revision("0228b52cf27578f30900b9e5271d331663"), short_revision("generated-0123456789")
    ('0228b52c', '01234567')
    """
    return revision.removeprefix(GENERATED)[:8]


@dataclass(frozen=True)
class ModelInfo:
    """The model of a record."""

    __pydantic_config__ = _ONLY_THESE
    label: Label  # a name that is safe in file names and tables
    identity: Label  # SHA-256 of everything its vectors or scores depend on
    spec: PathText = ""  # the spec it was loaded from: a folder, a registry name, a hub id
    # what the identity is computed from
    settings: JsonObject = field(default_factory=dict)
    parameters: Count | None = None  # number of parameters; None if the model has none


@dataclass(frozen=True)
class MTEBScore:
    """The main score that MTEB itself reports for a task, under MTEB's own metric name.

    ``file`` is the SHA-256 of MTEB's own file of the same evaluation; empty if there is none.
    """

    __pydantic_config__ = _ONLY_THESE
    metric: Name
    value: Number
    file: Name = ""


@dataclass(frozen=True)
class TaskInfo:
    """The task of a record, and the part of its data that was evaluated."""

    __pydantic_config__ = _ONLY_THESE
    name: Label  # MTEB's name of the task, or the name of a test collection
    type: Name  # MTEB's task type, such as ``Retrieval``
    main_metric: Label  # the metric reported first
    dataset: Text = ""  # hub id or name of the data set
    revision: Text = ""  # revision, or digest, of the data
    unit: Name = "queries"  # what n counts: ``queries``, ``pairs``, ``items``
    size: dict[Name, Count] = field(default_factory=dict)  # numbers of documents, queries or texts
    mteb: MTEBScore | None = None  # MTEB's own main score, if MTEB ran the task
    group: Name = ""  # the task that this one is part of, such as ``CQADupStack``
    # category per query id, for custom queries
    categories: dict[Unicode, Text] = field(default_factory=dict)
    splits: Names = ()  # splits that were evaluated; empty if the record does not say
    subsets: Names = ()  # subsets that were evaluated, likewise
    languages: Names = ()  # languages that were evaluated, likewise
    selection: Name = ""  # subsets and splits, if only some were evaluated; see `key`
    # notes on the data with their counts, such as queries without a relevant document; empty if
    # there are none
    counts: dict[Name, Count] = field(default_factory=dict)
    # cluster per query id: queries of one document, module or user, treated as dependent by tests;
    # omitted from the file if empty
    clusters: dict[Unicode, Unicode] = field(default_factory=dict)
    # revision of a mirror's substitute for the data of an MTEB task, where ``revision`` is the
    # digest of a collection; omitted from the file if empty
    substitute: Name = ""
    # key of the whole task, of the record of one of its parts; omitted from the file if empty
    part_of: Name = ""

    @property
    def is_substitute(self) -> bool:
        """Whether the data are a mirror's, in the place of those that MTEB pins."""
        return is_substitute(self.substitute or self.revision)

    @property
    def short_revision(self) -> str:
        """The first digits of the revision."""
        return short_revision(self.revision)

    @property
    def is_generated(self) -> bool:
        """Whether some of the queries were generated from the documents."""
        return is_generated(self.revision)

    @property
    def key(self) -> str:
        """The task's name and selection, as in ``STS17-en-en``; also the record's file name."""
        return f"{self.name}-{self.selection}" if self.selection else self.name

    @property
    def whole(self) -> str:
        """The key of the whole task, of which this may be a part."""
        return self.part_of or self.key


@dataclass(frozen=True)
class Part:
    """One split of one subset of a task, and the score on it."""

    __pydantic_config__ = _ONLY_THESE
    split: Name  # name of the split
    subset: Name  # name of the subset; of a multilingual task, often a language
    languages: Names  # its languages, as MTEB writes them, such as ``eng-Latn``
    score: Aggregate  # the aggregate of the task's main metric on this part
    mteb: Number  # the main score that MTEB reports for it

    @property
    def prefix(self) -> str:
        """How the ids of its queries begin in the record of the whole task."""
        return f"{self.split}/{self.subset}/"


@dataclass(frozen=True)
class Environment:
    """The software and hardware that produced a record."""

    __pydantic_config__ = _ONLY_THESE
    versions: dict[Name, Name] = field(default_factory=dict)
    python: Name = ""
    platform: Text = ""
    device: Name = "cpu"
    precision: Name = "float32"
    linear: Name = ""  # onednn or mkl, in float32 on a CPU; the GPU, and whether with TF32

    @classmethod
    def current(
        cls, *, device: str = "cpu", precision: str = "float32", linear: str = ""
    ) -> Environment:
        """Return the environment of this process."""
        return cls(
            versions={name: installed_version(name) for name in _VERSIONS},
            python=platform.python_version(),
            platform=platform.platform(),
            device=device,
            precision=precision,
            linear=linear,
        )


@dataclass(frozen=True)
class RunCost:
    """The cost of producing a record."""

    __pydantic_config__ = _ONLY_THESE
    seconds: Amount = 0.0  # wall-clock time
    texts: Count = 0  # texts, or pairs, requested from the model, duplicates included
    encoded: Count = 0  # of these, computed by the model
    cached: Count = 0  # distinct texts read from the embedding cache
    texts_per_second: Amount | None = None  # throughput of the model; None if it computed nothing
    # peak memory of the process; None if the platform does not report it
    peak_memory_bytes: Count | None = None


@dataclass(frozen=True)
class Result:
    """The scores of one model on one task.

    Attributes:
        model: the model.
        task: the task and its data.
        metrics: aggregate per metric name.
        per_query: column, then query id, to value. If the task has several splits or subsets,
            ids begin with the part, as in ``test/en/q7``. In a loaded record, values are read from
            the file next to it when needed; see `scores`.
        seed: seed of the run, for intervals and random vectors.
        options: parameters of the call or notebook that made the record, by name.
        training: the training of an adapter; None for another model.
        prompt: the prompt of a set that took the place of the model's own, or None.
        data: what the scores depend on in the data.
        search: how documents were found.
        files: rankings and judgements that are stored.
        top: for a search, the ids of each query's best documents, best first, read when needed.
        environment: versions, device, precision.
        cost: seconds, texts per second, peak memory.
        run: id of the run, shared by all its records.
        finished: time of completion, UTC, ISO 8601.
        checksum: as stored in the file, see `checksum`; empty if there is none.
        parts: splits and subsets over which the scores are averaged; empty if there is only one.
        place: its place among all records ever written to its folder or used again there, from 1;
            0 if unknown. Set by `load_results`, and not stored.
    """

    model: ModelInfo
    task: TaskInfo
    metrics: dict[Name, Aggregate]
    per_query: SkipValidation[Mapping[str, Mapping[str, float]]]
    seed: Count
    options: JsonObject = field(default_factory=dict)
    training: Training | None = None
    prompt: UsedPrompt | None = None
    data: DataFacts = field(default_factory=DataFacts)
    search: SearchFacts = field(default_factory=SearchFacts)
    files: RunFiles = field(default_factory=RunFiles)
    top: SkipValidation[Mapping[str, Sequence[str]]] | None = None
    environment: Environment = field(default_factory=Environment)
    cost: RunCost = field(default_factory=RunCost)
    run: Text = ""
    finished: Moment = ""
    checksum: Name = field(default="", compare=False)
    parts: tuple[Part, ...] = ()
    place: int = field(default=0, compare=False)

    def __repr__(self) -> str:
        """Model, task and main score with its interval."""
        name = f"{self.model.label} on {self.task.key}"
        main = self.metrics.get(self.task.main_metric)
        if main is None or main.value is None:
            return f"<Result {name}: {self.task.main_metric} undefined>"
        interval = ""
        if main.low is not None:
            interval = f" [{main.low:.3f}, {main.high:.3f}]"
        return (
            f"<Result {name}: {self.task.main_metric} {main.value:.3f}{interval}, "
            f"n = {main.n} {self.task.unit}>"
        )

    if not TYPE_CHECKING:  # which knows the attributes

        def __getattr__(self, name: str) -> NoReturn:
            raise missing_attribute(self, name, _INSTEAD)

    def _repr_html_(self) -> str:
        html: str = self._alone._repr_html_()
        return html

    @property
    def main(self) -> Aggregate:
        """The aggregate of the task's main metric."""
        return self.metrics[self.task.main_metric]

    @property
    def value(self) -> float | None:
        """The main score; None if it is undefined."""
        return self.main.value

    score = value

    @property
    def occasion(self) -> str:
        """A digest of when, by what and of what it was made; no two records share it.

        Empty if that is not stated, as in a record that no evaluation made.
        """
        if not (self.run and self.finished):
            return ""
        return occasion_of(self.run, self.finished, self.model.identity, self.task.key)

    @property
    def _alone(self) -> Any:
        """The record as `Results`, which stands on a higher floor, so that it is looked up."""
        return importlib.import_module("qwen3nb.records.results").Results([self])

    def to_frame(self, *, all_metrics: bool = False, per_query: bool = False) -> DataFrame:
        """Return the main score as a data frame; the options are those of `Results.to_frame`."""
        frame: DataFrame = self._alone.to_frame(all_metrics=all_metrics, per_query=per_query)
        return frame

    def worst(self, k: int = 5) -> DataFrame:
        """Return the ``k`` queries with the lowest main score; see `Results.worst`."""
        frame: DataFrame = self._alone.worst(k)
        return frame

    @property
    def tier(self) -> str:
        """The tier that the evaluation was asked for; empty if it was asked for something else."""
        return str(self.options.get("tier") or "")

    @property
    def limit(self) -> int:
        """The largest number of queries that the evaluation was asked for; 0 for all."""
        return int(self.data.limit or self.options.get("limit") or 0)

    @property
    def dimensions(self) -> int | None:
        """Number of dimensions of the vectors, as measured or asked for; None if not stated."""
        if self.search.dimensions is not None:
            return self.search.dimensions
        return self.options.get("dimensions")

    @property
    def config(self) -> dict[str, Any]:
        """All details in one mapping, as older records and summaries have them."""
        names = ("options", "training", "prompt", "data", "search", "files", "top")
        return config_of({name: getattr(self, name) for name in names})

    def path(self, folder: Path | None = None) -> Path:
        """Return the record's path under ``folder`` (by default `paths.results`)."""
        name = f"{self.model.label}-{self.model.identity[:8]}"
        return result_path(folder, name, self.seed, self.task.key)

    @property
    def scores(self) -> QueryScores:
        """The per-query scores as arrays, one per column.

        Raises:
            ResultError: an id that is not a string, or a value that is not a finite number.
        """
        try:
            return QueryScores.of(self.per_query)
        except ValueError as error:
            raise ResultError(str(error)) from None

    def save(self, folder: Path | None = None) -> Path:
        """Write the record with its checksum atomically, and return its path.

        Raises:
            ResultError: a name, a query id or a score that cannot be stored.
        """
        path = self.path(folder)
        content = {"schema": SCHEMA, **_fields_without_rows(self)}
        # Raises an error for what could not be read back.
        _checked(json.loads(json.dumps(content)), path.name, per_query={})
        _refuse_secrets(content, path)
        with exclusive_lock(path):
            replaced = named_files(path)
            content |= write_tables(path, self.scores, self.top)
            digest = checksum(content)
            # Listed before and after, so that a kill in between shows.
            with in_checksums(path, digest):
                write_json(path, {**content, "checksum": digest})
            remove_unnamed(path, replaced=replaced)
        return path

    def in_one_file(self) -> dict[str, Any]:
        """Return the record as one JSON value, including what `save` stores in files next to it."""
        fields = _fields_without_rows(self)
        value = {"schema": ONE_FILE, **fields, "per_query": dict(self.scores)}
        if self.top is not None:
            value["top"] = {query: list(documents) for query, documents in self.top.items()}
        return value | {"checksum": checksum(value)}

    @classmethod
    def load(cls, file: Path) -> Result:
        """Read a record; its scores are read when needed.

        Raises:
            ResultError: not JSON, an unknown schema, or a missing or invalid field.
        """
        return read_record(file)[0]


def read_record(file: Path) -> tuple[Result, dict[str, Any]]:
    """Return the record in a file, and its JSON.

    Raises:
        ResultError: as `Result.load`.
    """
    file = Path(file)
    try:
        check_file(file)
        value = read_json(file, unique_names=True)
        return _record_of(value, file), value
    except ResultError:  # is a ValueError, but its message says all
        raise
    except OSError as error:
        raise ResultError(f"{file}: cannot be read ({error.strerror or error})") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = repr(error)
        if isinstance(error, ValueError):
            reason = str(error).removeprefix(f"{file}: ")
        raise ResultError(f"{file}: not a result record ({reason:.200})") from None


def _record_of(value: Any, file: Path) -> Result:
    """Return the record in a JSON value, of any schema, that was read from ``file``."""
    # For the error, if it is no object: its type.
    schema: object = type(value).__name__
    if isinstance(value, dict):
        schema = value.get("schema")
    if isinstance(value, dict) and len(value.get("metrics", ())) > _MOST_METRICS:
        raise ResultError(f"{file}: expected at most {_MOST_METRICS:,} metrics")
    fields = value
    if schema in _UNTYPED:  # older: all details are in one mapping
        fields = {**value, **details_of(value["config"])}
        del fields["config"]
        schema = _UNTYPED[schema]  # that of which all else is the same
    if schema == ONE_FILE:  # without files next to it
        scores = QueryScores.of(value["per_query"])
        return _checked(fields, file, per_query=scores, top=fields.get("top"))
    if schema != SCHEMA:
        raise ResultError(f"{file}: schema is {reprlib.repr(schema)}, expected {SCHEMA!r}")
    scores_entry = _validated(ScoresEntry | None, value["scores"], file, "scores")
    top_entry = _validated(SideEntry | None, value["top"], file, "top")
    per_query: Mapping[str, Mapping[str, float]] = {}
    top = None
    if scores_entry:
        per_query = StoredScores(SideFile.of(file, scores_entry), scores_entry)
    if top_entry:
        top = StoredTop(SideFile.of(file, top_entry))
    return _checked(fields, file, per_query=per_query, top=top)


_reader = functools.cache(TypeAdapter)


def _validated(kind: Any, value: Any, file: Path | str, *within: str) -> Any:
    """Return a JSON value as ``kind``.

    Raises:
        ResultError: names the file and the field.
    """
    try:
        return _reader(kind).validate_python(value)
    except ValidationError as error:
        raise ResultError(f"{file}: {field_problem(error, value, within=within)}") from None


def _checked(
    value: Mapping[str, Any], file: Path | str, *, per_query: Any, top: Any = None
) -> Result:
    """Return the record in a JSON value.

    Raises:
        ResultError: names the file and the field.
    """
    fields = {**value, "per_query": per_query, "top": top, "place": 0}
    result: Result = _validated(Result, fields, file)
    if result.task.main_metric not in result.metrics:
        main = shortened(result.task.main_metric)
        raise ResultError(f"{file}: task.main_metric: {main} is not among the metrics")
    return result


def check_file(file: Path) -> None:
    """Check, before opening it, that a record is a regular file inside its results folder.

    Raises:
        ResultError: a folder, a pipe or device, a link that leaves the folder, or a file that is
            too large to be a record.
        OSError: no such file, or a link to itself.
    """
    status = file.stat()
    folders = file.absolute().parents
    if len(folders) < 3:
        raise ResultError(f"{file}: expected a record, a file such as MODEL/seed_N/TASK.json")
    seed_folder, model_folder, base = folders[:3]
    has_link = any(path.is_symlink() for path in (model_folder, seed_folder, file))
    is_inside = not has_link or file.resolve().is_relative_to(base.resolve())
    if not (stat.S_ISREG(status.st_mode) and is_inside):
        raise ResultError(f"{file}: expected a record, a file in {base.resolve()}")
    if status.st_size > _MOST_BYTES:
        raise ResultError(
            f"{file}: expected a record of at most {_MOST_BYTES >> 20} MiB; "
            f"it has {status.st_size >> 20}"
        )


def _fields_without_rows(result: Result) -> dict[str, object]:
    """Return the fields of a record as JSON, without data with a row per query."""
    fields = asdict(replace(result, per_query={}, top=None))
    for name in ("per_query", "top", "checksum", "place"):
        del fields[name]
    # Facts that are not known are left out.
    for name in ("data", "search", "files"):
        fields[name] = stated(getattr(result, name))
    task = fields["task"]
    # Older records have no such field.
    for name in ("clusters", "substitute", "part_of"):
        if not task[name]:
            del task[name]
    return fields


def _refuse_secrets(content: dict[str, Any], path: Path) -> None:
    """Raise an error if the JSON of a record has a known secret, or what looks like one."""
    secrets = known_secrets()
    # Known values are refused in any field.
    secrets.values.refuse(json.dumps(content), place=str(path))
    # Data in options, or the id of a document, may look like a secret.
    free_fields = ("options", "training", "prompt", "data", "search", "files")
    task = {**content["task"], "clusters": None}
    own_words = {**content, **dict.fromkeys(free_fields), "task": task}
    secrets.refuse(json.dumps(own_words), place=str(path))


def result_path(folder: Path | None, model: str, seed: int, task: str) -> Path:
    """Return ``folder/<model>/seed_<seed>/<task>.json``.

    Raises:
        ResultError: a model or task name that is not safe in a path.
    """
    base = (folder or paths.results()) / safe_name(model)
    return base / f"seed_{seed}" / f"{safe_name(task)}.json"


def safe_name(name: str) -> str:
    """Return ``name`` if it is safe in a path.

    Raises:
        ResultError: it is not safe.
    """
    if not _NAME.fullmatch(name):
        raise ResultError(f"{name!r} is not safe as a file name; use letters, digits, . _ -")
    return name


def in_checksums(record: Path, digest: str) -> AbstractContextManager[None]:
    """Record in the folder's list, before and after the block, that it writes a record.

    A listed record that is missing was removed; a record whose checksum is not listed was written
    by another program.
    """
    return noted(record.absolute().parents[2] / CHECKSUMS, in_list(record, digest))


def in_list(record: Path, digest: str) -> str:
    """Return how the list of a folder names a record: its path in the folder, and its checksum."""
    file = record.absolute()
    return f"{file.relative_to(file.parents[2]).as_posix()} {digest}"


def places(folder: Path) -> dict[str, int]:
    """Return the place of each record in the list of ``folder``; see `Result.place`.

    The keys are path and checksum, as in the list.
    """
    entries = Journal(folder / CHECKSUMS).keys()
    return {entry: place for place, entry in enumerate(entries, start=1)}


def used_again(record: Path, digest: str) -> None:
    """Note that a record is that of the model which its label now names.

    Of several records under one label, tables show the one that was written or used last. The list
    grows only if there is a later one.
    """
    file = record.absolute()
    other_paths = _records_under_label(file)
    if not other_paths:
        return
    base = file.parents[2]
    place_by_entry = places(base)
    entry = in_list(file, digest)
    own_place = place_by_entry.get(entry, 0)
    # Listed again only if another record of the label was written or used since.
    for other_entry, place in place_by_entry.items():
        # Of ``<path> <checksum>``.
        path, _, _ = other_entry.rpartition(" ")
        if path in other_paths and place > own_place:
            with suppress(OSError):  # a study that cannot be written can be read
                append(base / CHECKSUMS, entry, True)
            return


def _records_under_label(file: Path) -> set[str]:
    """Return the paths of other records with the label, seed and task of a record."""
    base = file.parents[2]
    label = _label_of(file)
    # As in ``<label>-<identity>/seed_<n>/<task>.json``; a longer label may match, too.
    pattern = f"{glob.escape(label)}-*/{file.parent.name}/{glob.escape(file.name)}"
    paths_of_others = set()
    for other_file in base.glob(pattern):
        if other_file != file and _label_of(other_file) == label:
            paths_of_others.add(other_file.relative_to(base).as_posix())
    return paths_of_others


def _label_of(file: Path) -> str:
    """Return the label in the name of a record's folder, ``<label>-<identity>``."""
    label, _, _ = file.parents[1].name.rpartition("-")
    return label


def is_copy_in_one_file(value: Mapping[str, object]) -> bool:
    """Return whether the JSON of a record has its scores, as in the copies of a book."""
    return value.get("schema") == ONE_FILE


def is_of_first_release(value: Mapping[str, object]) -> bool:
    """Return whether the JSON of a record is as of version 0.1, which listed no records."""
    return value.get("schema") in _UNTYPED


def checksum(value: Mapping[str, object]) -> str:
    """Return the SHA-256 of a record's JSON without its checksum, for any order of keys."""
    content = {name: part for name, part in value.items() if name != "checksum"}
    return sha256_json(json.loads(json.dumps(content, allow_nan=False)))
