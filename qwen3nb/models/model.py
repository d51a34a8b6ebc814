"""A model as a value: a spec and its options. It loads nothing until its weights are needed.

`Model` is what every verb of the package accepts. Its label and its source follow from files alone.
Its identity also depends on what loading finds out, such as the attention that the library picks.
It is therefore kept on disk after a model has been loaded once on a machine, and then known
without loading it again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from qwen3nb import paths
from qwen3nb.metrics.retrieval import rank_documents
from qwen3nb.models.capabilities import scores_pairs
from qwen3nb.models.kinds.prompts import names_prompt_set, parse_prompts, prompt_warning
from qwen3nb.models.kinds.resolve import fetch_model, find_source
from qwen3nb.models.kinds.source import (
    Source,
    described,
    fingerprint,
    fusion_label,
    unchanged,
)
from qwen3nb.models.options import OPTIONS, WITHOUT_EFFECT, ModelOptions
from qwen3nb.models.search.chunks import CUT, ONLY_SEARCHES, check_chunks, suffix
from qwen3nb.models.types import SpecError
from qwen3nb.utils.atomic_files import read_json, sha256_json, write_json
from qwen3nb.utils.code_version import code_digest, installed_version
from qwen3nb.utils.hardware import gpus
from qwen3nb.utils.imports import load_library

if TYPE_CHECKING:
    from qwen3nb.models.encoders.base import Encoder
    from qwen3nb.models.rerankers import Reranker
    from qwen3nb.models.search.fusion import Fusion
    from qwen3nb.models.search.searcher import Searcher

    LoadedModel: TypeAlias = Encoder | Searcher

_log = logging.getLogger(__name__)
# Libraries that an identity may depend on.
_LIBRARIES = (
    "torch",
    "transformers",
    "tokenizers",
    "sentence-transformers",
    "peft",
    "numpy",
    "bm25s",
    "PyStemmer",
)


@dataclass(frozen=True)
class ModelFacts:
    """What loading a model finds out, kept on disk."""

    label: str
    identity: str
    only_searches: str  # why it does no other tasks, such as ``has no vectors``; or empty
    dimension: int | None = None  # length of its vectors; None without vectors
    width: int | None = None  # their length before they are truncated

    @classmethod
    def of(cls, model: LoadedModel) -> ModelFacts:
        """Return the facts of a loaded model."""
        return cls(
            label=model.label,
            identity=model.identity,
            only_searches=model.only_searches,
            dimension=getattr(model, "dimension", None),
            width=getattr(model, "width", None),
        )


@dataclass(frozen=True)
class Model(ModelOptions):
    """A model, named by its spec, with the options that it is used with.

    Making one reads no file. Two values with equal fields are equal. The weights are loaded when
    they are first needed, once for each value.

    Attributes:
        spec: a folder (an extracted encoder, an encoder-decoder checkpoint, a sentence-transformers
            model, a causal language model, a LoRA adapter, another encoder-decoder such as
            T5Gemma 2, whose encoder is used), a name from ``registry.toml``, a hub id,
            ``api:URL#MODEL`` for one behind an OpenAI-compatible endpoint, ``bm25``, ``random``,
            or a fusion such as ``bm25+e5-base-v2``; ``bm25+e5-base-v2@cv`` fits its weights to
            the grades of own data.
        chunks: what a search does with documents longer than the model takes. ``cut`` reads their
            beginning. ``max`` splits them into chunks as long as the model takes, of which the
            best counts; a number, such as ``"800"``, into chunks of so many characters. A model
            with chunks only searches. See `qwen3nb.models.search.chunks` for the rule.

    Raises:
        ValueError: an unknown pooling, dtype or device, or a number below its bound.
        SpecError: prompts that cannot be read.
    """

    spec: str
    chunks: str = CUT

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "spec", str(self.spec))
        check_chunks(self.chunks)
        object.__setattr__(self, "prompts", parse_prompts(self.prompts))
        if self.base is not None:
            object.__setattr__(self, "base", str(self.base))

    @classmethod
    def from_parameters(cls, values: Mapping[str, Any]) -> Model:
        """Return the model that the parameters of a notebook describe.

        Prompts that name a set are left out: its prompts are evaluated one after the other.
        """
        options = {name: values[name] for name in OPTIONS if name in values}
        if names_prompt_set(options.get("prompts")):
            del options["prompts"]
        return cls(values["checkpoint"], **options)

    def __getstate__(self) -> dict[str, object]:
        """Return the fields alone: weights are loaded again by who gets a copy."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def source(self) -> Source:
        """What the spec names, fetched if it is on the hub, with the label and prompts in use.

        Raises:
            SpecError: no such model.
        """
        return self._with_options(self._found_source())

    @cached_property
    def parts(self) -> tuple[Model, ...]:
        """The models of a fusion; empty for any other."""
        if self.chunks != CUT:
            return tuple(part.with_chunks(self.chunks) for part in self.whole.parts)
        return tuple(replace(self, spec=part.spec, name="") for part in self.source.parts)

    @cached_property
    def whole(self) -> Model:
        """The same model without chunks."""
        return replace(self, chunks=CUT)

    def with_chunks(self, chunks: str) -> Model:
        """Return the model with chunks; it shares the loaded weights of this one, its `whole`."""
        if chunks == self.chunks:
            return self
        model = replace(self, chunks=chunks)
        vars(model)["whole"] = self if self.chunks == CUT else self.whole
        return model

    @property
    def splits(self) -> bool:
        """Whether it splits documents, unlike BM25, which reads whole ones."""
        reads_whole = self.source.kind.weightless and bool(self.source.kind.only_searches)
        return self.chunks != CUT and not self.parts and not reads_whole

    @property
    def label(self) -> str:
        """Its name in records and tables, which is safe in file names."""
        if self.is_loaded or self.dimensions:  # the width decides whether any are left out
            return self.facts.label
        if self.parts and not self.name:
            return fusion_label([part.label for part in self.parts], self.source)
        if self.splits and not self.name:
            return f"{self.whole.label}{suffix(self.chunks)}"
        return self.source.label

    @property
    def identity(self) -> str:
        """SHA-256 of its content and of all that its results depend on."""
        return self.facts.identity

    @property
    def only_searches(self) -> str:
        """Why it does no other tasks, such as ``has no vectors``; empty if it does."""
        if self.splits:
            return ONLY_SEARCHES
        return self.source.kind.only_searches

    @property
    def fits_weights(self) -> bool:
        """Whether it is a fusion whose weights are chosen by the grades of own data."""
        return bool(self.source.fitted)

    @property
    def scores_pairs(self) -> bool:
        """Whether it is a reranker: declared as one, or a causal language model without pooling."""
        source = self.source
        if self.splits:
            return False
        if source.kind.scores_pairs:
            return True
        pooling = self.pooling or source.pooling
        return source.kind.adaptable and not pooling

    @property
    def is_loaded(self) -> bool:
        """Whether the weights are in memory."""
        return "_loaded" in vars(self)

    @cached_property
    def facts(self) -> ModelFacts:
        """What loading finds out, from an earlier run if the model has not changed since.

        The facts are stored under a digest of everything that they depend on: the content of the
        files, the options, versions, code and hardware.
        """
        if self.is_loaded:
            return ModelFacts.of(self.load())
        digest = self._digest()
        file = paths.cache() / "identities" / f"{digest[:32]}.json"
        with suppress(OSError, ValueError, TypeError):  # missing or damaged
            return ModelFacts(**read_json(file))
        facts = ModelFacts.of(self.load())
        has_same_files = self._digest() == digest  # otherwise they were replaced during loading
        if has_same_files:
            try:
                write_json(file, asdict(facts))
            except OSError as error:
                _log.warning("%s: not written (%s)", file, error)
        return facts

    def load(self) -> LoadedModel:
        """Return the encoder or search model; the weights are loaded by the first call.

        Raises:
            SpecError: no such model, a model that cannot be loaded, or one with fewer
                ``dimensions``.
            ValueError: a device that this machine does not have.
        """
        return self._loaded

    def encode(self, texts: str | Sequence[str], *, role: str | None = None, **options: Any) -> Any:
        """Return vectors (N, D) of texts, or (D,) of one; see `Encoder.encode`.

        Raises:
            SpecError: the model has no vectors.
        """
        return self.load_encoder().encode(texts, role=role, **options)

    def search(
        self, queries: Sequence[str], documents: Sequence[str], k: int = 10
    ) -> list[dict[int, float]]:
        """Return the ``k`` best documents of each query: scores by position, best first."""
        searcher = self._searcher()
        searcher.index(_numbered_rows(documents))
        query_rows = _numbered_rows(queries)
        run = searcher.search(query_rows, top_k=k)  # ids are positions, as strings
        rankings = []
        for row in query_rows:
            scores = run.get(row["id"], {})
            best_documents = rank_documents(scores)[:k]
            rankings.append({int(document): scores[document] for document in best_documents})
        return rankings

    def score(self, query: str, documents: Sequence[str]) -> list[float]:
        """Return a score of each document for a query: a reranker's log-odds, else similarities.

        Raises:
            SpecError: the model neither scores pairs nor has vectors.
        """
        if self.scores_pairs:
            scores = self.reranker.score(query, documents).log_odds
            return [float(score) for score in scores]
        model = self.load()
        if scores_pairs(model):
            return [float(score) for score in model.score_documents(query, documents)]
        encoder = self.load_encoder()
        document_vectors = encoder.encode(documents, role="passage")
        query_vector = encoder.encode(query, role="query")
        (similarities,) = encoder.similarity(query_vector, document_vectors)
        return [float(score) for score in similarities]

    def load_encoder(self) -> Encoder:
        """Return the encoder; see `load`.

        Raises:
            SpecError: the model has no vectors, as BM25 and fusions.
        """
        if self.only_searches:
            raise SpecError(f"{self.spec} {self.only_searches}; load_model gives a search model")
        return cast("Encoder", self.load())

    @cached_property
    def _loaded(self) -> LoadedModel:
        if self.parts:
            return self._load_fusion()
        if self.splits:
            return self._load_chunked()
        if self.source.kind.weightless and self.only_searches:
            return self._load_search()
        return self._load_checked()

    def _load_fusion(self) -> Fusion:
        from qwen3nb.models.search.fusion import fusion_of

        parts: list[Any] = [part.load() for part in self.parts]
        fusion = fusion_of(self.source, parts)
        if self.name:
            fusion.label = self.name
        return fusion

    def _load_chunked(self) -> Searcher:
        from qwen3nb.models.search.chunked import ChunkedSearch, splits

        model = self.whole.load()
        if not splits(model):
            raise SpecError(f"{model.label} reads whole documents; chunks are for other models")
        return ChunkedSearch(model, self.chunks, label=self.name)

    def _load_search(self) -> Searcher:
        if self.prompts:
            raise SpecError(f"{self.spec} has no vectors, so it takes no prompts")
        model: Searcher = self.source.kind.load(self.source, self)
        return model

    def _load_checked(self) -> LoadedModel:
        """Check the files of a model, then load its weights."""
        # Found again: its files may have changed since the value was made.
        found_source = self._found_source()
        source = self._with_options(found_source)
        if source.kind.library:
            load_library(source.kind.library)
        warning = prompt_warning(found_source, parse_prompts(self.prompts))
        # A prefix may be the prompt.
        if warning and not self.prefix:
            _log.warning(warning)
        if self.bidirectional and not source.kind.directed:
            raise SpecError(
                f"{source.label} is of kind {source.kind.name!r}; bidirectional is for causal "
                "language models; other models have a fixed direction"
            )
        source.kind.check(source)
        source = replace(source, content=fingerprint(source))  # before loading; compared after
        options = self
        if self.max_length is None:
            options = replace(self, max_length=source.max_length)
        try:
            model: LoadedModel = source.kind.load(source, options)
        except Exception:
            unchanged(source)  # files that are being replaced may have caused the error
            raise
        return model

    @cached_property
    def reranker(self) -> Reranker:
        """The model as a yes/no reranker, loaded once; see `load_reranker`."""
        from qwen3nb.models.rerankers import MAX_LENGTH, load_reranker

        return load_reranker(
            self.spec,
            instruction=self.instruction,
            device=self.device,
            dtype=self.dtype,
            max_length=self.max_length or MAX_LENGTH,
        )

    def _searcher(self) -> Any:
        """Return the model as a search model of MTEB."""
        from qwen3nb.models.search.dense import as_searcher

        return as_searcher(self.load())

    def _found_source(self) -> Source:
        """Return what the spec names, with the prompts that its authors prescribe."""
        source = find_source(self.spec, base=self.base)
        if source.on_hub:  # only its files show its kind
            source = fetch_model(source)
        return source.kind.prompted(source)

    def _with_options(self, source: Source) -> Source:
        """Return a source with the prompts and the label that these options give it."""
        # BM25, and fusions of other models.
        takes_no_options = source.kind.searches and (source.kind.weightless or source.parts)
        if takes_no_options:
            return replace(source, label=self.name or source.label)
        # Records of one model with other options must not share a label.
        label = source.label
        prompts = parse_prompts(self.prompts)
        if prompts is None:
            prompts = source.prompts
        elif prompts != source.prompts:
            label += "-prompts" if prompts else "-no-prompts"
        if self.dtype == "int8":
            label += "-int8"
        if self.cache_dtype == "float16":
            label += "-float16-vectors"
        instruction = self.instruction
        if instruction is None:
            instruction = source.instruction
        return replace(source, label=self.name or label, prompts=prompts, instruction=instruction)

    def _digest(self) -> str:
        """Return a digest of all that `facts` depend on."""
        options = {}
        for field in fields(ModelOptions):
            if field.name not in WITHOUT_EFFECT:
                options[field.name] = str(getattr(self, field.name))
        if self.chunks != CUT:
            options["chunks"] = self.chunks
        versions = [installed_version(name) for name in _LIBRARIES]
        # Files, options, code, libraries and hardware: whatever may change the facts.
        sources = []
        for part in self.parts or (self,):
            source = part._with_options(part._found_source())
            sources.append([described(source), source.label])
        if self.fits_weights:
            options["fitted"] = self.source.fitted
        return sha256_json([sources, options, code_digest(), versions, gpus()])


def _numbered_rows(texts: Sequence[str]) -> list[dict[str, str]]:
    """Return texts as rows of MTEB, whose ids are their positions."""
    return [{"id": str(position), "text": text} for position, text in enumerate(texts)]
