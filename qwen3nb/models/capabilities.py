"""What a model can do: it encodes, searches, scores pairs, takes prompts.

Code outside `qwen3nb.models` asks for what it needs and never for a class, so that a new kind of
model is one file:

    encodes(model)          a vector per text
    searches(model)         documents ranked for queries, without a vector per text
    scores_pairs(model)     a score per query and document
    takes_prompts(model)    a text before each query or document
    is_model(model)         any of them, with a label and an identity

`qwen3nb.models.search.dense.as_searcher` makes a search of any model that encodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from typing_extensions import TypeIs

from qwen3nb.models.kinds.source import Source
from qwen3nb.models.types import Settings, Stats

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from qwen3nb.models.encoders.base import Encoder
    from qwen3nb.models.search.fusion import FittedFusion
    from qwen3nb.models.search.searcher import Searcher

SEARCH_TYPES = ("Retrieval", "Reranking")  # of MTEB tasks whose queries are scored here
INSTRUCTED_TYPES = ("InstructionRetrieval", "InstructionReranking")  # searched, scored by MTEB


class NamedModel(Protocol):
    """A model, loaded or not: it has a name, and may do some tasks only."""

    @property
    def label(self) -> str:
        """A name that is safe in file names and tables."""

    @property
    def only_searches(self) -> str:
        """Why it does no other tasks, such as ``has no vectors``; empty if it does."""


class LoadedModel(Protocol):
    """A loaded model: it has a name, and an identity that its results depend on."""

    label: str  # a name that is safe in file names and tables
    settings: Settings  # everything that its results depend on, as JSON
    source: Source  # where it comes from

    @property
    def only_searches(self) -> str:
        """Why it does no other tasks, such as ``has no vectors``; empty if it does."""

    @property
    def identity(self) -> str:
        """SHA-256 of the settings."""

    @property
    def device(self) -> str:
        """The device that it runs on."""

    @property
    def stats(self) -> Stats:
        """The work done so far."""

    @property
    def parts(self) -> Sequence[Any]:
        """The models whose rankings it fuses; the model alone if it fuses none."""


class ScoresPairs(LoadedModel, Protocol):
    """A model that scores a query with given documents."""

    def score_documents(self, query: str, documents: Sequence[str]) -> NDArray[np.float64]:
        """Return the scores (N,) of the texts of N documents for one query."""


class TakesPrompts(LoadedModel, Protocol):
    """A model that puts a text before its inputs."""

    prompts: dict[str, str]  # by role or task

    def prompted(self, prompts: Mapping[str, str]) -> Any:
        """Return the same loaded model with other prompts."""


def is_model(value: object) -> TypeIs[LoadedModel]:
    """Return whether a value is a loaded model of this package, and not an object to wrap."""
    return encodes(value) or searches(value) or scores_pairs(value)


def encodes(model: object) -> TypeIs[Encoder]:
    """Return whether a loaded model has a vector per text."""
    return _has_methods(model, "encode", "similarity", "uncached")


def searches(model: object) -> TypeIs[Searcher]:
    """Return whether a loaded model ranks documents itself, without a vector per text."""
    return _has_methods(model, "index", "search", "rank")


def scores_pairs(model: object) -> TypeIs[ScoresPairs]:
    """Return whether a loaded model scores a query with given documents."""
    return _has_methods(model, "score_documents")


def takes_prompts(model: object) -> TypeIs[TakesPrompts]:
    """Return whether a loaded model puts a text before its inputs."""
    return _has_methods(model, "prompted")


def fits_weights(model: object) -> TypeIs[FittedFusion]:
    """Return whether a loaded model is a fusion whose weights grades choose."""
    return _has_methods(model, "fused_query")


def _has_methods(model: object, *names: str) -> bool:
    """Return whether the class of a model defines methods; nothing of the model is computed."""
    return all(callable(getattr(type(model), name, None)) for name in names)


def reranks_only(model: object) -> TypeIs[ScoresPairs]:
    """Return whether a loaded model scores pairs and can neither search nor encode."""
    return scores_pairs(model) and not searches(model)


def refusal(model: NamedModel, task_type: str) -> str:
    """Return why a model does no MTEB tasks of a type; empty if it does."""
    if getattr(model, "fits_weights", False):
        return (
            f"{model.label} has weights that the grades of own data choose, as `qwen3nb domain` "
            "does; here, fuse by rank: A+B"
        )
    if reranks_only(model):
        return "" if task_type == "Reranking" else f"{model.label} reranks only"
    if model.only_searches and task_type not in (*SEARCH_TYPES, *INSTRUCTED_TYPES):
        return f"{model.label} {model.only_searches}"
    return ""


def empty_rankings(model: LoadedModel) -> Counter[str]:
    """Return how often each part of a fusion has found nothing; empty for other models."""
    counts: Counter[str] | None = getattr(model, "nothing", None)
    return Counter() if counts is None else counts
