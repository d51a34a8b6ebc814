"""The comparison set of the design documents: models that always stand at the leaderboard's end.

Until a study has measured one, its row says so and has the command. A measured one is a row like
any other.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from qwen3nb.answers.board.models import FACT_HEADS, ModelFacts, fact_cells, specs_of
from qwen3nb.models.kinds.source import registry
from qwen3nb.records.record import Result
from qwen3nb.report.render.table import Cell, Table


@dataclass(frozen=True)
class ReferenceModel:
    """One model of the comparison set, by its name in the registry."""

    name: str
    kind: str
    parameters: int  # as its authors state them, rounded
    dimensions: int

    @property
    def facts(self) -> ModelFacts:
        """What its authors and the registry state."""
        entry = registry()[self.name]
        return ModelFacts(
            self.kind,
            self.parameters,
            self.dimensions,
            entry.get("max_length"),
            str(entry.get("licence") or ""),
        )

    @property
    def specs(self) -> frozenset[str]:
        """Its name and its hub id."""
        return frozenset({self.name, str(registry()[self.name].get("id"))})

    def is_one_of(self, specs: Iterable[str]) -> bool:
        """Whether the model is among these specs and labels, by its name or its hub id."""
        return not self.specs.isdisjoint(specs)


REFERENCES = (
    ReferenceModel("Qwen3-0.6B", "decoder", 600_000_000, 1024),
    ReferenceModel("e5-base-v2", "encoder", 110_000_000, 768),
    ReferenceModel("gte-base", "encoder", 110_000_000, 768),
    ReferenceModel("bge-base-en-v1.5", "encoder", 110_000_000, 768),
    ReferenceModel("embeddinggemma-300m", "encoder", 300_000_000, 768),
    ReferenceModel("t5gemma-2-270m-270m", "encoder", 270_000_000, 640),
)


def not_measured(records: Iterable[Result]) -> list[ReferenceModel]:
    """Return the reference models without a record among these."""
    measured = specs_of(records)
    return [model for model in REFERENCES if not model.is_one_of(measured)]


def references_table(models: Sequence[ReferenceModel], *, tasks: str) -> Table:
    """Return a row per reference model that was not run, with the command that measures it.

    ``tasks`` are the options that select them, such as ``--tier smoke``.
    """
    rows = []
    for model in models:
        command = Cell(f"qwen3nb eval --model {model.name} {tasks}", code=True)
        rows.append((Cell(model.name, "not run"), *fact_cells(model.facts), command))
    return Table.of(
        rows,
        ("model", *FACT_HEADS, "command"),
        kind="words",
        name="references",
        note="Facts as their authors state them.",
    )
