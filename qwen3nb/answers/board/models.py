"""What is known of each model: its type, size, dimensions, longest text and licence.

Nothing is guessed: a fact that neither the record, the registry nor the model's folder states has
a dash.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from qwen3nb import paths
from qwen3nb.answers.board.grid import Links, Records
from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.models.gate.declared import static_files
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.kinds.source import registry
from qwen3nb.models.types import SpecError
from qwen3nb.records.record import Result
from qwen3nb.records.results import newest
from qwen3nb.report.render.table import Cell, Table, number
from qwen3nb.utils.atomic_files import sha256_json

# The type of a model as readers call it, by the name of its kind.
TYPES: Mapping[str, str] = {
    "adapter": "adapter",
    "api": "behind an API",
    "bm25": "keywords",
    "decoder": "decoder",
    "encoder": "encoder",
    "fusion": "fusion",
    "multi-vector-encoder": "a vector per token",
    "random": "random vectors",
    "reranker": "reranker",
    "searcher": "search",
    "sentence-transformers": "sentence encoder",
    "seq2seq": "encoder",
    "sparse-encoder": "weighted words",
    "static": "static",
    "t5": "encoder",
}
_WITHOUT_LIMIT = ("bm25", "random", "static")  # kinds that read whole texts
_WEIGHTLESS = ("bm25", "random")
_WIDTHS = ("hidden_size", "d_model", "hidden_dim")  # keys of a config.json


@dataclass(frozen=True)
class ModelFacts:
    """What is known of one model; None or empty if it is not."""

    kind: str  # name of its kind, as in its identity
    parameters: int | None = None  # 0 for a model without any
    dimensions: int | None = None  # of its vectors
    longest: int | None = None  # tokens that it reads of a text; 0 without a limit
    licence: str = ""

    @property
    def type(self) -> str:
        """The type of the model as readers call it."""
        return TYPES.get(self.kind, self.kind)


def is_toy(result: Result) -> bool:
    """Return whether a model is from the demo: ``demo-…`` below ``runs/demo``."""
    if not result.model.label.startswith("demo-"):
        return False
    folder = (paths.root() / result.model.spec).resolve()
    demo = (paths.runs() / "demo").resolve()
    return folder.is_relative_to(demo)


def model_facts(record: Result, others: Mapping[str, Result] | None = None) -> ModelFacts:
    """Return what is known of the model of a record.

    ``others`` has a record of each other model by identity, for the parts of a fusion.
    """
    settings = record.model.settings
    kind = kind_of(record)
    return ModelFacts(
        kind=kind,
        parameters=_parameters(record, others or {}),
        dimensions=_dimensions(record),
        longest=_longest(kind, settings),
        licence=_licence(record.model.spec),
    )


def kind_of(record: Result) -> str:
    """Return the name of the kind of a record's model; empty if it is not recorded."""
    model = record.model.settings.get("model")
    if isinstance(model, Mapping):
        return str(model.get("kind") or "")
    return ""


def _parameters(record: Result, others: Mapping[str, Result]) -> int | None:
    kind = kind_of(record)
    if kind in _WEIGHTLESS:
        return 0
    if kind != "fusion":
        return record.model.parameters
    # A fusion has those of its parts, each of which is a model of its own.
    counts = []
    for settings in record.model.settings.get("of", ()):
        part = others.get(sha256_json(settings))
        if part is None:
            return None
        count = _parameters(part, others)
        if count is None:
            return None
        counts.append(count)
    return sum(counts)


def _dimensions(record: Result) -> int | None:
    if record.dimensions:
        return record.dimensions
    stated = record.model.settings.get("dimension")
    if isinstance(stated, int):
        return stated
    if kind_of(record) in ("bm25", "fusion", "reranker", "searcher"):
        return None  # no vectors, and perhaps no folder
    return _dimensions_in_folder(record.model.spec)


def _dimensions_in_folder(spec: str) -> int | None:
    """Return the width that the configuration in the model's folder states."""
    try:
        folder = find_source(spec).folder
        if folder is None:
            return None
        tables = static_files(folder)
        if tables:
            return _width_of_table(folder, tables[0])
        config = folder.config if folder.has("config.json") else {}
    except (SpecError, OSError, ValueError):
        return None  # the folder is gone, is another by now, or has an impossible name
    for name in _WIDTHS:
        if isinstance(config.get(name), int):
            return int(config[name])
    return None


def _width_of_table(folder: ModelFolder, name: str) -> int | None:
    """Return the width of a table of vectors, the only tensor of a weight file."""
    shapes = [entry.shape for entry in folder.weights_in(name).tensors.values()]
    if len(shapes) == 1 and len(shapes[0]) == 2:
        return int(shapes[0][1])
    return None


def _longest(kind: str, settings: Mapping[str, object]) -> int | None:
    stated = settings.get("max_length")
    if isinstance(stated, int) and stated > 0:
        return stated
    return 0 if kind in _WITHOUT_LIMIT else None


def _licence(spec: str) -> str:
    for name, entry in registry().items():
        if spec in (name, entry.get("id")):
            return str(entry.get("licence") or "")
    return ""


def facts_by_model(records: Records) -> dict[str, ModelFacts]:
    """Return what is known of each model, by its identity."""
    examples = {identity: newest(by_task.values()) for identity, by_task in records.items()}
    return {identity: model_facts(record, examples) for identity, record in examples.items()}


def models_table(names: Mapping[str, str], records: Records, links: Links) -> Table:
    """Return a row per model with what is known of it; names are by identity."""
    facts = facts_by_model(records)
    rows = []
    for identity, name in names.items():
        newest_record = newest(records[identity].values())
        link = links.get(newest_record.run, "")
        rows.append((Cell(name, link=link), *fact_cells(facts[identity])))
    return Table.of(
        rows,
        ("model", *FACT_HEADS),
        note="Longest text: what a model reads of it, in tokens. A dash: not stated anywhere.",
        name="models",
        caption="Type, size and licence of each model.",
        kind="words",
    )


FACT_HEADS = ("type", "parameters", "dimensions", "longest text", "licence")


def fact_cells(facts: ModelFacts) -> Sequence[Cell]:
    """Return the cells below `FACT_HEADS`."""
    return (
        Cell(facts.type or "–"),
        parameters_cell(facts.parameters),
        number(facts.dimensions, ",d"),
        _longest_cell(facts.longest),
        Cell(facts.licence or "–"),
    )


def parameters_cell(count: int | None) -> Cell:
    """Return a number of parameters in thousands, millions or billions.

    >>> [parameters_cell(count).text for count in (926464, 22713216, 596049920, 0, None)]
    ['0.9 M', '23 M', '596 M', 'none', '–']
    """
    if count is None:
        return Cell("–")
    if count == 0:
        return Cell("none", value=0.0)
    millions = count / 1e6
    if millions >= 1000:
        text = f"{millions / 1000:.1f} B"
    elif millions >= 10:
        text = f"{millions:.0f} M"
    else:
        text = f"{millions:.1f} M"
    return Cell(text, value=float(count))


def _longest_cell(tokens: int | None) -> Cell:
    if tokens == 0:
        return Cell("no limit")
    return number(tokens, ",d")


def specs_of(records: Iterable[Result]) -> set[str]:
    """Return the specs and labels under which models were evaluated."""
    names: set[str] = set()
    for record in records:
        names.update((record.model.spec, record.model.label))
    return names
