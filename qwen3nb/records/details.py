"""What a record says about its run, besides model, task and scores.

Records up to schema 3 keep all of it in one mapping, ``config``. `details_of` reads such a mapping,
and `config_of` returns it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict
from typing_extensions import TypedDict

from qwen3nb.utils.schema import Amount, FileName, Name, bounded_json, shortened

TOP_DEPTH = 10  # first documents of a query that a record names, on own data with their grades
_ONLY_THESE = ConfigDict(extra="forbid")
Json = Annotated[Any, AfterValidator(bounded_json)]
JsonObject = Annotated[dict[str, Any], AfterValidator(bounded_json)]
JsonList = Annotated[list[Any], AfterValidator(bounded_json)]
Digests = dict[FileName, Name]  # SHA-256 by file name


class Judgements(TypedDict):
    """Grades of one query: of its first documents, and of all relevant ones, highest first."""

    first: list[int | float]
    ideal: list[int | float]


class GeneratedFacts(TypedDict):
    """How many queries were generated from documents, and how."""

    queries: int  # how many of those that are scored
    kinds: dict[Name, int]  # the same by how they were made
    origins: JsonList  # with which seed and model, and from which documents


class FittedWeights(TypedDict):
    """The weights of a fusion, chosen by the grades; see `qwen3nb.metrics.fusion_weights`."""

    parts: list[str]  # labels of the models
    metric: str  # by which the weights were chosen
    weights: list[Amount]  # of the parts, for other queries: chosen on all queries
    folds: list[list[Amount]]  # those for the queries of each fold; empty if none were chosen
    totals: list[list[Amount]]  # by fold, the sum of scores for each combination of weights
    same_queries: Amount | None  # mean score with the weights that all queries chose
    reason: str  # why no weights were chosen; or empty


class NanoFacts(TypedDict):
    """How a small set was cut from a large one; see `qwen3nb.datasets.nano`."""

    part: Name  # the collection; of a task with several, with its subset and split
    rule: int  # number of the rule
    seed: int  # of its draws
    limits: list[int]  # most queries and documents
    queries: list[int]  # how many were drawn, of how many with a relevant document
    documents: list[int]  # how many were taken, of how many
    relevant: int  # how many of the documents are relevant for a query
    candidates: int  # others that came with the queries
    judged_zeros: int  # others that were judged not to be relevant
    hard_negatives: int  # others that BM25 found
    others: int  # drawn
    source: Name  # SHA-256 of the large set
    sha256: Name  # of the small set


def lacks_queries(part: NanoFacts) -> bool:
    """Return whether documents that must stay left no room for all queries that it could have."""
    drawn, available = part["queries"]
    most_queries, _ = part["limits"]
    return drawn < min(most_queries, available)


@dataclass(frozen=True)
class DataFacts:
    """What the scores depend on in the data; a field is None where the record does not say."""

    __pydantic_config__ = _ONLY_THESE
    collection: str | None = None  # name of the reranked collection
    group: str | None = None  # the group of collections that it is part of, such as ``CQADupStack``
    parts: int | None = None  # number of collections in the group; 0 without a group
    limit: int | None = None  # the limit applied to a reranked collection; 0 for none
    nano: list[NanoFacts] | None = None  # None where the data are whole, or were limited
    # lowest grade that is relevant for binary metrics
    relevance_threshold: int | float | None = None
    boosts: JsonObject | None = None  # how scores of own documents are multiplied
    negative_cosine: str | None = None  # how boosts change a cosine below 0
    dropped: JsonList | None = None  # queries without a relevant document
    notes: JsonList | None = None  # irregularities of own data, a sentence each
    queries: JsonObject | None = None  # text by query id
    judgements: dict[str, Judgements] | None = None  # by query id
    generated: GeneratedFacts | None = None  # None if people asked all queries

    @property
    def complete(self) -> bool:
        """Whether own documents without a grade are stated not to be relevant."""
        return self.boosts is not None and self.judgements is None


class SplitDocuments(TypedDict):
    """Own documents that a model searched by their chunks; see `qwen3nb.models.search.chunks`."""

    model: Name  # label; of a part, for a fusion
    size: int  # of a chunk, at most
    unit: Name  # ``tokens`` or ``characters``
    documents: int  # that were longer
    chunks: int  # of these documents


@dataclass(frozen=True)
class SearchFacts:
    """How the documents were found, and what a query cost."""

    __pydantic_config__ = _ONLY_THESE
    depth: int | None = None  # documents per query of a collection
    words: str = ""  # how BM25 read the words; empty for English, as in records that do not say
    first: JsonObject | None = None  # recipe of the first stage of a reranking
    counts: JsonObject | None = None  # numbers of pairs that were reranked, and of cuts
    dimensions: int | None = None  # of the vectors; None without vectors
    seconds_per_query: Amount | None = None  # median of single queries
    bytes_per_document: Amount | None = None  # of vectors that are sparse, or one per token
    fitted: FittedWeights | None = None  # of a fusion whose weights grades have chosen
    split: list[SplitDocuments] | None = None  # documents in chunks; None where none was split


class FirstRun(TypedDict):
    """The run of the first stage, which all rerankers share."""

    name: FileName
    sha256: Name


@dataclass(frozen=True)
class RunFiles:
    """Files of the run, by name with their SHA-256, as `qwen3nb.records.side_files` says."""

    __pydantic_config__ = _ONLY_THESE
    qrels: Digests = field(default_factory=dict)  # judgements, next to the record
    runs: Digests = field(default_factory=dict)  # ranking, next to the record
    first_run: FirstRun | None = None


@dataclass(frozen=True)
class Training:
    """The training of an adapter; a field is None where its record does not say."""

    __pydantic_config__ = _ONLY_THESE
    kind: Json = None  # ``reranking`` or ``embedding``: what was evaluated
    configuration: Json = None  # name of the folder of all seeds
    seed: Json = None
    mode: Json = None  # such as ``rank_only``
    rank: Json = None  # of the adapter's matrices
    base: Json = None  # name of the base model
    data_seed: Json = None
    steps: Json = None  # number of optimiser steps
    change: JsonList | None = None  # see `qwen3nb.models.kinds.lora.adapter_change`
    settings: JsonObject | None = None  # the training's own configuration

    @property
    def name(self) -> str:
        """The configuration, else the mode; empty if neither is stated."""
        return str(self.configuration or self.mode or "")

    def stated(self) -> dict[str, Any]:
        """Return the fields that the record states, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class UsedPrompt:
    """A prompt of a set that takes the place of the model's own."""

    __pydantic_config__ = _ONLY_THESE
    name: str
    text: str
    of: str  # identity of the model with its own prompts


_TRAINING_FIELDS = tuple(one.name for one in fields(Training))
# The field of `Result` for each fact in an older record's ``config``, in the order there.
_PLACES = {
    **dict.fromkeys(("collection", "group", "parts", "limit"), "data"),
    **dict.fromkeys(("first", "counts", "depth"), "search"),
    **dict.fromkeys(("boosts", "negative_cosine", "relevance_threshold"), "data"),
    **dict.fromkeys(("dropped", "notes", "queries"), "data"),
    "dimensions": "search",
    "judgements": "data",
    "generated": "data",
    "nano": "data",
    **dict.fromkeys(("words", "seconds_per_query", "bytes_per_document"), "search"),
    **dict.fromkeys(("fitted", "split"), "search"),
    **dict.fromkeys(("qrels", "runs", "first_run"), "files"),
}


def details_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the details in an older record's ``config`` as JSON, by field of `Result`.

    What is no detail of a known kind is an option.

    Raises:
        ValueError: it is not an object of JSON.
    """
    if not isinstance(config, Mapping):
        raise ValueError(f"config: expected an object; got {shortened(config)}")
    options = dict(config)  # what is no detail stays here
    details: dict[str, Any] = {"options": options, "data": {}, "search": {}, "files": {}}
    details |= {"training": None, "prompt": None, "top": None}
    training = options.get("training")
    # An option may be called so, too, but it has other fields.
    is_training = isinstance(training, Mapping) and set(training) <= set(_TRAINING_FIELDS)
    if is_training:
        details["training"] = options.pop("training")
    for name in ("prompt", "top"):
        if isinstance(options.get(name), Mapping):
            details[name] = options.pop(name)
    for name, field_of_result in _PLACES.items():
        if name in options and not _is_option(name, config):
            value = options.pop(name)
            if value is not None:
                details[field_of_result][name] = value
    return details


def _is_option(name: str, config: Mapping[str, Any]) -> bool:
    """Whether a name that also a parameter has is that parameter."""
    if name == "limit":  # rerankings state it as a fact
        return "first" not in config
    if name == "dimensions":  # records on own data state it as a fact
        return "boosts" not in config
    return False


def typed_details(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the details of a run that is given such parameters, by field of `Result`."""
    details = details_of(config)
    if details["training"] is not None:
        details["training"] = Training(**details["training"])
    if details["prompt"] is not None:
        details["prompt"] = UsedPrompt(**details["prompt"])
    details["data"] = DataFacts(**details["data"])
    details["search"] = SearchFacts(**details["search"])
    details["files"] = RunFiles(**details["files"])
    return details


def config_of(details: Mapping[str, Any]) -> dict[str, Any]:
    """Return the details of a record, by field, as one mapping; the inverse of `details_of`."""
    config = dict(details["options"])
    for name in ("training", "prompt"):
        if details[name] is not None:
            config[name] = asdict(details[name])
    facts = {name: stated(details[name]) for name in ("data", "search", "files")}
    is_on_own_data = "boosts" in facts["data"]
    if is_on_own_data:  # these records state the dimensions also of a model without vectors
        facts["search"].setdefault("dimensions", None)
    # In the order of older records.
    for name, field_of_result in _PLACES.items():
        if name in facts[field_of_result]:
            config[name] = facts[field_of_result][name]
        if name == "queries" and details["top"] is not None:  # there, `top` comes next
            config["top"] = details["top"]
    return config


def stated(details: DataFacts | SearchFacts | RunFiles) -> dict[str, Any]:
    """Return the fields that differ from their defaults, by name."""
    default = type(details)()
    values = {entry.name: getattr(details, entry.name) for entry in fields(details)}
    return {name: value for name, value in values.items() if value != getattr(default, name)}
