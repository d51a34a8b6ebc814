"""Score models on real queries and on queries that are generated from the same documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict, Unpack

from qwen3nb import paths
from qwen3nb.datasets.collection import TestCollection, find_collections
from qwen3nb.datasets.custom.documents import DocumentLayout, Documents, read_documents
from qwen3nb.datasets.custom.load import Domain, load_domain
from qwen3nb.datasets.custom.queries import QueryFile, read_queries
from qwen3nb.datasets.generated.queries import generate_queries
from qwen3nb.datasets.generated.query_file import query_file_of
from qwen3nb.datasets.rows import DataError, variant
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.retrieval.custom import evaluate_domain
from qwen3nb.models.model import Model
from qwen3nb.models.search.chunks import BEST, CUT
from qwen3nb.records.record import Result

FOLDER = "worth"  # of the records, below those of the study
LEAST_MODELS = 3  # of which an order can be compared
_LEAST_QUERIES = 2


@dataclass(frozen=True)
class WorthData:
    """Documents with real queries."""

    name: str
    documents: Mapping[str, str]
    titles: Mapping[str, str]
    real: Domain | TestCollection


@dataclass(frozen=True)
class WorthScores:
    """The records of each model on real and on generated queries."""

    name: str  # of the data
    real: tuple[Result, ...]
    generated: tuple[Result, ...]


class GenerationOptions(TypedDict, total=False):
    """What is generated; see `generate_queries`."""

    kinds: Sequence[str]
    number: int
    seed: int


def read_worth_data(
    data: object,
    documents: object = None,
    *,
    layout: DocumentLayout | None = None,
    titles: Mapping[str, str] | None = None,
) -> WorthData:
    """Read documents and real queries.

    Args:
        data: a query file with grades, if there are ``documents``; else a BEIR folder, an MTEB
            retrieval task, or a test collection.
        documents: a file or rows of documents.
        layout: the columns that make up a document.
        titles: title by document; by default those of a BEIR folder.

    Raises:
        DataError: unreadable data, or no real query.
    """
    if documents is not None:
        read = documents if isinstance(documents, Documents) else read_documents(documents, layout)
        real_queries = _real_queries(read_queries(data))
        domain = load_domain(real_queries, read)
        return WorthData(domain.name, read.texts, titles or {}, domain)
    collections = find_collections(data)
    if len(collections) > 1:
        names = ", ".join(collection.name for collection in collections)
        raise DataError(f"{data}: expected one collection; got {len(collections)}: {names}")
    (collection,) = collections
    return WorthData(
        collection.name, collection.documents, titles or _titles_of_folder(data), collection
    )


def _real_queries(file: QueryFile) -> QueryFile:
    """Return a query file without its generated queries.

    Raises:
        DataError: too few queries remain.
    """
    real = tuple(query for query in file.queries if not query.generated_kind)
    if len(real) < _LEAST_QUERIES:
        raise DataError(
            f"{file.file}: expected real queries with grades, at least {_LEAST_QUERIES}; "
            f"{len(file.queries) - len(real)} of {len(file.queries)} are generated"
        )
    return replace(file, queries=real, origins=())


def _titles_of_folder(data: object) -> dict[str, str]:
    """Return the titles of a BEIR folder; empty for other data."""
    if not isinstance(data, str | Path):
        return {}
    corpus = variant(Path(data).expanduser(), "corpus.jsonl")
    if corpus is None:
        return {}
    layout = DocumentLayout(id_column="_id", text="{title}")
    with suppress(DataError):  # no titles
        return dict(read_documents(corpus, layout).texts)
    return {}


def models_of(specs: Iterable[str | Model], dimensions: Sequence[int] = ()) -> list[Model]:
    """Return models, and those of one encoder also with fewer dimensions.

    Args:
        specs: models, or their specs.
        dimensions: leading dimensions to keep, where a model has more.
    """
    models: list[Model] = []
    for spec in specs:
        model = spec if isinstance(spec, Model) else Model(spec)
        models.append(model)
        is_encoder = not (model.only_searches or model.parts or model.spec == "random")
        if not dimensions or not is_encoder:
            continue
        for length in dimensions:
            if length < (model.facts.dimension or 0):
                models.append(replace(model, dimensions=length))
    return models


def score_worth(
    models: Iterable[str | Model],
    data: WorthData,
    *,
    dimensions: Sequence[int] = (),
    output: Path | None = None,
    **options: Unpack[GenerationOptions],
) -> WorthScores:
    """Generate queries, and score each model on them and on the real ones.

    Records are kept, so that a second call measures nothing again.

    Args:
        models: at least three; values of `Model`, or specs.
        data: documents with real queries.
        dimensions: as for `models_of`.
        output: folder of the records; by default ``results/worth``.
        options: what is generated.

    Raises:
        DataError: fewer than three models, or no query could be generated.
    """
    chosen = models_of(models, dimensions)
    if len(chosen) < LEAST_MODELS:
        raise DataError(
            f"expected {LEAST_MODELS} models or more, as orders are compared; got {len(chosen)}"
        )
    generation = generate_queries(data.documents, titles=data.titles, **options)
    if not generation.queries:
        raise DataError(f"{data.name}: no query could be generated: {generation.reasons}")
    documents = Documents(data.name, data.documents, stars={}, updated={})
    generated = load_domain(query_file_of(generation), documents)
    folder = output or paths.results() / FOLDER
    real_records = []
    generated_records = []
    # A collection's documents are cut where they are longer than a model: so are these then.
    chunks = BEST if isinstance(data.real, Domain) else CUT
    for model in chosen:
        real_records.append(_record(model, data.real, folder, chunks))
        generated_records.append(_record(model, generated, folder, chunks))
    return WorthScores(data.name, tuple(real_records), tuple(generated_records))


def _record(model: Model, data: Domain | TestCollection, folder: Path, chunks: str) -> Result:
    """Return the record of a model on real or generated queries."""
    if isinstance(data, Domain):
        run = evaluate_domain([model], data, output=folder, chunks=chunks, strict=True)
    else:
        run = evaluate(model, data, output=folder)
    return run.results[0]
