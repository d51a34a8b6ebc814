"""Resolved model specs, kinds of models, and the parts of an identity."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import ConfigDict, Field
from typing_extensions import TypedDict

from qwen3nb import paths
from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.checkpoints.provenance import check_checksums
from qwen3nb.checkpoints.weights import Weights
from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.models.options import ModelOptions
from qwen3nb.models.types import NEWEST, SpecError
from qwen3nb.utils.atomic_files import file_stamp, sha256_json
from qwen3nb.utils.schema import FileName, choice, read_toml

if TYPE_CHECKING:
    import torch
    from mteb.models.model_meta import ModelMeta
    from transformers import PreTrainedModel

Fingerprint: TypeAlias = dict[str, Any]  # what identifies a model's content, as JSON
Registry: TypeAlias = Mapping[str, Mapping[str, Any]]  # entries by name
STUDY_REGISTRY = "models.toml"  # at the top of a study
FITTED_BY_SCORE = "cv"  # a fusion whose weights are chosen by cross-validation, by score
FITTED_BY_RANK = "cv-ranks"  # and by rank
# Files other than the weights that affect what a model computes.
_IDENTIFYING = re.compile(
    r"(config|config_sentence_transformers|modules|sentence_\w+_config|tokenizer|"
    r"tokenizer_config|special_tokens_map|added_tokens|vocab|"
    r"(cnn|lstm|wordembedding|whitespacetokenizer|phrasetokenizer)_config)\.json|"
    r"(merges|vocab)\.txt|.*\.model|chat_template\.jinja"
)


class RegistryEntry(TypedDict, total=False):
    """A model of the registry, as a study declares it."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)  # type: ignore[misc]
    id: str
    revision: str
    folder: str
    licence: str
    instruction: str
    pooling: Annotated[str, choice(*POOLINGS)]
    max_length: Annotated[int, Field(ge=1)]
    prompts: dict[str, str]
    baseline: bool  # whether it may serve as the default baseline


class StoredSettings(TypedDict, total=False):
    """The settings stored with a model."""

    pooling: str | None
    normalize: bool
    max_length: int | None


class Kind:
    """Base class of the kinds of models listed in `qwen3nb.models.kinds.resolve`."""

    name: str = "object"  # part of every identity
    # the module to import first for such a model; empty for none
    library: str = "transformers.modeling_utils"
    only_searches: str = ""  # why it does no other tasks, such as ``has no vectors``; or empty
    scores_pairs: bool = False  # whether it scores pairs of texts, as a reranker
    weightless: bool = False  # whether it has neither weights nor files
    # whether its authors may prescribe prompts that are not stored in its folder
    of_others: bool = False
    cosine: bool = False  # whether vectors are compared by cosine by default
    directed: bool = False  # whether its direction, causal or not, is the user's choice
    adapts: bool = False  # whether it is a LoRA adapter of another model
    adaptable: bool = False  # whether LoRA adapters may have it as their base

    def __repr__(self) -> str:
        return repr(self.name)

    @property
    def searches(self) -> bool:
        """Whether it only searches, without a vector per text."""
        return bool(self.only_searches)

    def named(self, spec: str) -> Source | None:
        """Return the source of a ``spec`` without a folder if it is of this kind, else None."""
        return None

    def matches(self, folder: ModelFolder) -> bool:
        """Return whether ``folder`` contains a model of this kind."""
        return False

    def prompted(self, source: Source) -> Source:
        """Return ``source`` with the prompts of its training, if it has none of its own."""
        return source

    def check(self, source: Source) -> None:
        """Check, before anything is built, that a model can be loaded as declared.

        Raises:
            CheckpointError: names the file and the key or tensor, what was expected, what it
                contains, and what to do.
            CheckpointError: a JSON or weight file that is malformed.
        """

    def content(self, source: Source, folder: ModelFolder) -> Fingerprint:
        """Return the content of a ``folder`` of ``source`` that its vectors depend on."""
        raise NotImplementedError

    def fingerprint(self, source: Source) -> Fingerprint:
        """Return what identifies ``source``, apart from its settings."""
        if source.folder is None:
            return {"kind": self.name, "spec": source.spec, "revision": source.revision}
        return self.content(source, source.folder.current())

    def stored(self, source: Source) -> StoredSettings:
        """Return the pooling, normalisation and maximum length stored with the model."""
        return {}

    def model(
        self, source: Source, dtype: torch.dtype, *, bidirectional: bool = False
    ) -> PreTrainedModel:
        """Load the transformer whose states are pooled, without a head.

        Raises:
            SpecError: the kind has none, it cannot be loaded, a weight is not finite, or it runs
                causally although it should be bidirectional.
        """
        raise SpecError(f"{source.label} is of kind {self.name!r}, which is not a transformer")

    def check_causal(self, source: Source) -> PreTrainedModel:
        """Check a causal language model with its output matrix; return it on the meta device."""
        name = source.label
        if source.folder is not None:
            name = f"{source.folder}: {name}"
        raise SpecError(
            f"{name} is of kind {self.name!r}; a yes/no reranker is a causal "
            "language model, with or without a LoRA adapter. `qwen3nb eval` runs dense encoders"
        )

    def causal(self, source: Source, dtype: torch.dtype) -> PreTrainedModel:
        """Load a checked causal language model with its output matrix."""
        raise NotImplementedError

    def load(self, source: Source, options: ModelOptions) -> Any:
        """Return the `Encoder` or search model of a checked ``source``."""
        raise SpecError(f"{source.label} is of kind {self.name!r}, which has no vectors")


class _SearcherInMemory(Kind):
    """A searcher that a program makes; its settings say all that its scores depend on."""

    name = "searcher"
    only_searches = "has no vectors"
    weightless = True


IN_MEMORY = Kind()  # an object provided by the user
SEARCHER_IN_MEMORY = _SearcherInMemory()


class FolderKind(Kind):
    """A model in a folder, identified by its weights and by the files that affect its vectors."""

    def content(self, source: Source, folder: ModelFolder) -> Fingerprint:
        """Return digests of the weights, the other files and the modules' folders."""
        file_digests = {name: folder.sha256(name) for name in self._identifying_files(folder)}
        weights = self.weights(folder)
        check_checksums(folder)
        content: Fingerprint = {
            "kind": self.name,
            "weights": weights.digest,
            "files": sha256_json(file_digests),
        }
        module_weights = self.modules(folder)
        if module_weights:
            content["modules"] = {
                path: module_weights[path].digest for path in sorted(module_weights)
            }
        return content

    def _identifying_files(self, folder: ModelFolder) -> list[str]:
        """Return the files besides weights that affect the vectors, in order.

        Other folders inside, such as checkpoints or exports, are not of this model.
        """
        module_folders = []
        for module in folder.modules:
            if module.folder.path != folder.path:
                module_folders.append(module.folder.path)
        extra_names = self.files(folder)  # files that only this kind of model has
        names = []
        for file in sorted(folder.path.rglob("*")):
            name = file.relative_to(folder.path).as_posix()
            # Other subfolders, such as checkpoints, are not of this model.
            in_module = any(file.is_relative_to(module_folder) for module_folder in module_folders)
            of_model = in_module or file.parent == folder.path
            is_identifying = of_model and _IDENTIFYING.fullmatch(file.name) and file.is_file()
            if is_identifying or name in extra_names:
                names.append(name)
        return names

    def files(self, folder: ModelFolder) -> tuple[str, ...]:
        """Return names of files that affect the vectors, in addition to those of every kind."""
        return ()

    def weights(self, folder: ModelFolder) -> Weights:
        """Return the weights, without those in folders of modules."""
        folder.check_whole()
        return folder.weights

    def modules(self, folder: ModelFolder) -> dict[str, Weights]:
        """Return the weights of modules of sentence-transformers, such as 2_Dense, by path."""
        weights = {}
        for module in folder.modules:
            path = module.folder.path
            file = path / "model.safetensors"
            if path.parent == folder.path and "_" in path.name and file.is_file():
                weights[path.name] = folder.weights_in(f"{path.name}/model.safetensors")
        return weights


@dataclass(frozen=True)
class Source:
    """A resolved model spec."""

    spec: str  # the spec as given
    kind: Kind  # the kind of model
    label: str  # a name that is safe in file names and tables
    # the model's folder, if it has one, opened once
    folder: ModelFolder | None = None
    # text prepended to an input, per role or task; see `prompt_for` and
    # `qwen3nb.models.kinds.resolve`
    prompts: dict[str, str] = field(default_factory=dict)
    revision: str | None = None  # the pinned revision of a hub model
    id: str | None = None  # its id on the hub
    base: Source | None = None  # the base model of an adapter; see `qwen3nb.models.kinds.lora`
    parts: tuple[Source, ...] = ()  # the parts of a fusion (``a+b``)
    fitted: str = ""  # how a fusion fits its weights (``a+b@cv``); empty for one by rank
    instruction: str = ""  # default replacement for ``{instruction}`` in a prompt
    pooling: str | None = None  # the registry's pooling, for a model that does not define one
    max_length: int | None = None  # the registry's maximum length, likewise
    # its `fingerprint` before it is loaded; see `unchanged`
    content: Mapping[str, Any] | None = None

    @property
    def on_hub(self) -> bool:
        """Whether only its hub id is known, so that it must be fetched to find its kind."""
        return self.id is not None and self.folder is None

    @property
    def own_folder(self) -> ModelFolder:
        """The folder; for an adapter, the adapter's.

        Raises:
            SpecError: the model has no folder.
        """
        if self.folder is None:
            raise SpecError(f"{self.label} is of kind {self.kind.name!r}, which has no folder")
        return self.folder

    @property
    def model_folder(self) -> ModelFolder:
        """The folder of the model; for an adapter, that of its base; see `own_folder`."""
        return (self.base or self).own_folder

    @property
    def tokenizer_folder(self) -> ModelFolder:
        """The folder of the tokenizer: an adapter's own with modules of sentence-transformers."""
        return self.own_folder if self.own_folder.modules else self.model_folder


def registry() -> Registry:
    """Return the registered models, by name: those of the package, then the study's own.

    A study's ``models.toml`` has the fields of ``registry.toml``. Its models have an ``id`` on the
    hub, with an optional ``revision``, or a ``folder``, relative to the study.

    Raises:
        SpecError: an invalid ``models.toml``; names the file, the model and the field.
    """
    built_in = _package_registry()
    study = paths.find_root()
    if study is None:
        return built_in
    file = study / STUDY_REGISTRY
    if not file.is_file():
        return built_in
    # The stamp (size and times) is for its cache: a file that has changed is read again.
    study_entries = _study_registry(file, tuple(file_stamp(file)))
    taken_names = {*built_in, "bm25", "random", "demo", *NEWEST}
    repeated_names = study_entries.keys() & taken_names
    if repeated_names:
        name = min(repeated_names)
        raise SpecError(f"{file}: [{name}] is a built-in model; choose another name")
    return {**built_in, **study_entries}


@functools.cache
def _package_registry() -> Registry:
    text = Path(__file__).with_name("registry.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@functools.lru_cache(maxsize=4)
def _study_registry(file: Path, stamp: tuple[object, ...]) -> Registry:
    """Return the checked entries of a study's file; a changed ``stamp`` reads it again."""
    fields = {"": RegistryEntry.__annotations__}  # to suggest one for a misspelt one
    entries: dict[str, dict[str, Any]] = read_toml(
        file, dict[FileName, RegistryEntry], known=fields, refusal=SpecError
    )
    for name, entry in entries.items():
        has_id = "id" in entry
        has_folder = "folder" in entry
        if has_id == has_folder:  # both or neither
            raise SpecError(f"{file}: {name}: expected either id, of a model on the hub, or folder")
        entry.setdefault("baseline", False)
    return entries


def safe_label(text: str) -> str:
    """Return ``text`` without characters that are not allowed in file names."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)


def fusion_label(labels: Iterable[str], source: Source) -> str:
    """Return the label of a fusion of models with these labels."""
    label = "-plus-".join(labels)
    if source.fitted:
        label += f"-{source.fitted}"
    return label


def fingerprint(source: Source) -> Fingerprint:
    """Return what identifies ``source``, apart from the settings it is used with.

    This is its content (weights, tokenizer and configuration), not its path.

    Raises:
        CheckpointError: weights that cannot be read or could run code; a modified export.
    """
    return source.kind.fingerprint(source)


def described(source: Source) -> Fingerprint:
    """Return the fingerprint of ``source`` with the settings of its folder or the registry.

    The label, which follows the folder's name, is not included.
    """
    settings = {
        "prompts": source.prompts,
        "instruction": source.instruction,
        "pooling": source.pooling,
        "max_length": source.max_length,
    }
    parts = [described(part) for part in source.parts]  # of a fusion; none otherwise
    return {**fingerprint(source), "settings": settings, "parts": parts}


def unchanged(source: Source) -> Fingerprint:
    """Return the fingerprint of a loaded ``source``, after checking that its files are unchanged.

    Raises:
        SpecError: a file has changed since it was first read, so the loaded content is uncertain.
        CheckpointError: see `fingerprint`.
    """
    if source.content is None:
        return fingerprint(source)
    folders = _folders_of(source)
    for folder in folders:
        if folder.rewritten_file() is not None:  # written again, replaced or removed
            raise _changed(folder)
    for folder in folders:
        # Without another content, only the ctime of a file has changed.
        if folder.touched_file() is not None and fingerprint(source) != source.content:
            raise _changed(folder)
    return dict(source.content)


def _folders_of(source: Source) -> list[ModelFolder]:
    """Return the folder of a model, and that of an adapter's base."""
    folders = []
    for part in (source, source.base):
        if part is not None and part.folder is not None:
            folders.append(part.folder)
    return folders


def _changed(folder: ModelFolder) -> SpecError:
    return SpecError(
        f"{folder}: its files changed while the model was loaded; load it again when "
        "they have been written completely"
    )


def mteb_meta(
    model: Any,
    *,
    dimension: int | None,
    kinds: list[str],
    similarity: str | None = None,
    parts: Sequence[Any] = (),
) -> ModelMeta:
    """Return MTEB's metadata of a loaded model, or of the ``parts`` of a fusion.

    Name and revision come from its identity, because MTEB keys its result cache by them: if two
    local checkpoints shared them, the second would get the scores of the first.
    """
    from mteb.models.model_meta import ModelMeta

    parts = parts or [model]
    hub_id = model.source.id
    reference = None
    if hub_id:
        reference = f"https://huggingface.co/{hub_id}"
    return ModelMeta(
        # MTEB finds stored scores by name and revision, so two models must not share both.
        name=f"qwen3nb/{model.label}",
        revision=model.identity[:40],
        n_parameters=_parameters(parts),
        max_tokens=getattr(model, "max_length", None),
        embed_dim=dimension,
        framework=[],
        reference=reference,
        similarity_fn_name=similarity,
        use_instructions=any(part.source.prompts for part in parts),
        model_type=kinds,
        # not stated
        languages=None,
        license=None,
        loader=None,
        memory_usage_mb=None,
        open_weights=None,
        public_training_code=None,
        public_training_data=None,
        release_date=None,
        training_datasets=None,
    )


def _parameters(parts: Sequence[Any]) -> int | None:
    """Return the number of parameters of all parts; None if one is unknown."""
    total = 0
    for part in parts:
        if part.source.kind.weightless:  # BM25 and random vectors have no parameters
            continue
        count = getattr(part, "parameters", None)
        if count is None:
            return None
        total += count
    return total
