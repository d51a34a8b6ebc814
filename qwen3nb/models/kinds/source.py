"""Resolved model specs, kinds of models, and the parts of an identity."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field
from typing_extensions import TypedDict

from qwen3nb import paths
from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.checkpoints.provenance import check_checksums
from qwen3nb.checkpoints.weights import Weights
from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.models.options import ModelOptions
from qwen3nb.models.types import SpecError
from qwen3nb.utils.atomic_files import file_stamp, sha256_json
from qwen3nb.utils.schema import FileName, choice, read_toml

STUDY_REGISTRY = "models.toml"  # at the top of a study
# Files other than the weights that affect what a model computes.
_IDENTIFYING = re.compile(
    r"(config|config_sentence_transformers|modules|sentence_\w+_config|tokenizer|"
    r"tokenizer_config|special_tokens_map|added_tokens|vocab|"
    r"(cnn|lstm|wordembedding|whitespacetokenizer|phrasetokenizer)_config)\.json|"
    r"(merges|vocab)\.txt|.*\.model|chat_template\.jinja"
)


# Fields of MTEB's metadata that have no default.
_NOT_STATED = (
    *("languages", "license", "loader", "memory_usage_mb", "open_weights", "release_date"),
    *("public_training_code", "public_training_data", "training_datasets"),
)


class _Entry(TypedDict, total=False):
    """A model of a study's registry."""

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

    def content(self, source: Source, folder: ModelFolder) -> Any:
        """Return the content of a ``folder`` of ``source`` that its vectors depend on."""
        raise NotImplementedError

    def fingerprint(self, source: Source) -> dict[str, Any]:
        """Return what identifies ``source``, apart from its settings."""
        if source.folder is None:
            return {"kind": self.name, "spec": source.spec, "revision": source.revision}
        return dict(self.content(source, source.folder.current()))

    def stored(self, source: Source) -> dict[str, Any]:
        """Return the pooling, normalisation and maximum length stored with the model."""
        return {}

    def model(self, source: Source, dtype: Any, *, bidirectional: bool = False) -> Any:
        """Load the transformer whose states are pooled, without a head.

        Raises:
            SpecError: the kind has none, it cannot be loaded, a weight is not finite, or it runs
                causally although it should be bidirectional.
        """
        raise SpecError(f"{source.label} is of kind {self.name!r}, which is not a transformer")

    def check_causal(self, source: Source) -> Any:
        """Check a causal language model with its output matrix; return it on the meta device."""
        dense = "" if source.folder is None else f"{source.folder}: "
        raise SpecError(
            f"{dense}{source.label} is of kind {self.name!r}; a yes/no reranker is a causal "
            "language model, with or without a LoRA adapter. `qwen3nb eval` runs dense encoders"
        )

    def causal(self, source: Source, dtype: Any) -> Any:
        """Load a checked causal language model with its output matrix."""
        raise NotImplementedError

    def load(self, source: Source, options: ModelOptions) -> Any:
        """Return the `Encoder` or search model of a checked ``source``."""
        raise SpecError(f"{source.label} is of kind {self.name!r}, which has no vectors")


IN_MEMORY = Kind()  # an object provided by the user


class FolderKind(Kind):
    """A model in a folder, identified by its weights and by the files that affect its vectors."""

    def content(self, source: Source, folder: ModelFolder) -> dict[str, Any]:
        """Return digests of the weights, the other files and the modules' folders."""
        extra = self.files(folder)
        modules_of_it = [module.folder.path for module in folder.modules]
        files = {}
        for file in sorted(folder.path.rglob("*")):
            name = file.relative_to(folder.path).as_posix()
            # Other folders, such as checkpoints or exports, are not of this model.
            inside = any(path in file.parents for path in modules_of_it if path != folder.path)
            belongs = file.parent == folder.path or inside
            identifying = belongs and _IDENTIFYING.fullmatch(file.name) and file.is_file()
            if name in extra or identifying:
                files[name] = folder.sha256(name)
        weights = self.weights(folder)
        check_checksums(folder)
        digests = {"kind": self.name, "weights": weights.digest, "files": sha256_json(files)}
        modules = {path: each.digest for path, each in sorted(self.modules(folder).items())}
        return digests | ({"modules": modules} if modules else {})

    def files(self, folder: ModelFolder) -> tuple[str, ...]:
        """Return names of files that affect the vectors, in addition to those of every kind."""
        return ()

    def weights(self, folder: ModelFolder) -> Weights:
        """Return the weights, without those in folders of modules."""
        folder.check_whole()
        return folder.weights

    def modules(self, folder: ModelFolder) -> dict[str, Weights]:
        """Return the weights of modules of sentence-transformers, such as 2_Dense, by path."""
        paths_of_modules = {module.folder.path for module in folder.modules}
        return {
            file.parent.name: folder.weights_in(file.relative_to(folder.path).as_posix())
            for file in folder.path.glob("*_*/model.safetensors")
            if file.parent in paths_of_modules
        }


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


def registry() -> Mapping[str, Mapping[str, Any]]:
    """Return the known models, by name: those of the package, then the study's own.

    A study's ``models.toml`` has the fields of ``registry.toml``. Its models have an ``id`` on the
    hub, with an optional ``revision``, or a ``folder``, relative to the study.

    Raises:
        SpecError: an invalid ``models.toml``; names the file, the model and the field.
    """
    ours = _read_registry(Path(__file__).with_name("registry.toml"), None)
    root = paths.find_root()
    if root is None or not (own := root / STUDY_REGISTRY).is_file():
        return ours
    entries = _read_registry(own, tuple(file_stamp(own)))
    if same := entries.keys() & {*ours, "bm25", "random", "demo"}:
        raise SpecError(f"{own}: [{min(same)}] is a built-in model; choose another name")
    return {**ours, **entries}


@functools.lru_cache(maxsize=4)
def _read_registry(file: Path, stamp: Any) -> dict[str, dict[str, Any]]:
    """Return the entries of a file, validated if of a study; ``stamp`` is a key of the cache."""
    kind, known = dict[FileName, _Entry] if stamp else dict, {"": _Entry.__annotations__}
    entries: dict[str, Any] = read_toml(file, kind, known=known, refusal=SpecError)
    if stamp:
        for name, entry in entries.items():
            if ("id" in entry) == ("folder" in entry):
                raise SpecError(
                    f"{file}: {name}: expected either id, of a model on the hub, or folder"
                )
            entry.setdefault("baseline", False)
    return entries


def safe_label(text: str) -> str:
    """Return ``text`` without characters that are not allowed in file names."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)


def fingerprint(source: Source) -> dict[str, Any]:
    """Return what identifies ``source``, apart from the settings it is used with.

    This is its content (weights, tokenizer and configuration), not its path.

    Raises:
        CheckpointError: weights that cannot be read or could run code; a modified export.
    """
    return source.kind.fingerprint(source)


def described(source: Source) -> dict[str, Any]:
    """Return the fingerprint of ``source`` with the settings of its folder or the registry.

    The label, which follows the folder's name, is not included.
    """
    names = ("prompts", "instruction", "pooling", "max_length")
    return {
        **fingerprint(source),
        "settings": {name: getattr(source, name) for name in names},
        "parts": [described(part) for part in source.parts],
    }


def unchanged(source: Source) -> dict[str, Any]:
    """Return the fingerprint of a loaded ``source``, after checking that its files are unchanged.

    Raises:
        SpecError: a file has changed since it was first read, so the loaded content is uncertain.
        CheckpointError: see `fingerprint`.
    """
    if source.content is None:
        return fingerprint(source)
    parts = [source] if source.base is None else [source, source.base]
    folders = [part.folder for part in parts if part.folder is not None]
    for folder in folders:
        if folder.rewritten() is not None:
            raise _changed(folder)
    touched = [folder for folder in folders if folder.changed() is not None]
    if touched and fingerprint(source) != source.content:  # else only the ctime of a file changed
        raise _changed(touched[0])
    return dict(source.content)


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
) -> Any:
    """Return MTEB's metadata of a loaded model, or of the ``parts`` of a fusion.

    Name and revision come from its identity, because MTEB keys its result cache by them: if two
    local checkpoints shared them, the second would get the scores of the first.
    """
    from mteb.models.model_meta import ModelMeta

    source: Source = model.source
    parts = parts or [model]
    counts = [  # BM25 and random vectors have no parameters
        0 if part.source.kind.weightless else getattr(part, "parameters", None) for part in parts
    ]
    return ModelMeta(
        name=f"qwen3nb/{model.label}",
        revision=model.identity[:40],
        n_parameters=None if None in counts else sum(filter(None, counts)),
        max_tokens=getattr(model, "max_length", None),
        embed_dim=dimension,
        framework=[],
        reference=f"https://huggingface.co/{source.id}" if source.id else None,
        similarity_fn_name=similarity,
        use_instructions=any(part.source.prompts for part in parts),
        model_type=kinds,
        **dict.fromkeys(_NOT_STATED),
    )
