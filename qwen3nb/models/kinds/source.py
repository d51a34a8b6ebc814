"""A resolved model spec, the kind of model that it names, and what its identity consists of."""

from __future__ import annotations

import functools
import json
import os
import platform
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from qwen3nb import paths
from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.checkpoints.provenance import check_checksums
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.checkpoints.weights import Weights
from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.models.types import SpecError
from qwen3nb.utils.atomic_files import file_stamp, sha256_json
from qwen3nb.utils.schema import FileName, choice, field_problem

if TYPE_CHECKING:
    from mteb.models.model_meta import ModelMeta

STUDY_REGISTRY = "models.toml"  # at the top of a study
# Environment variable of a run on another machine: what it was started for, see `folder_digests`.
EXPECTED = "QWEN3NB_EXPECTED_MODELS"
# Files other than the weights that affect what a model computes.
_IDENTIFYING = re.compile(
    r"(config|config_sentence_transformers|modules|sentence_\w+_config|tokenizer|"
    r"tokenizer_config|special_tokens_map|added_tokens|vocab|"
    r"(cnn|lstm|wordembedding|whitespacetokenizer|phrasetokenizer)_config)\.json|"
    r"(merges|vocab)\.txt|.*\.model|chat_template\.jinja"
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
    baseline: bool  # whether other models may be compared with it where none is named


_STUDY = TypeAdapter(dict[FileName, _Entry])


@dataclass(frozen=True)
class Settings:
    """What a user sets for an encoder; `load_encoder` explains each."""

    pooling: str | None = None
    max_length: int | None = None
    prefix: str = ""
    append_eos: bool = False
    normalize: bool | None = None
    dimensions: int | None = None
    bidirectional: bool = False
    device: str = "auto"
    dtype: str = "float32"
    batch_size: int = 32
    seed: int = 0
    cache: bool = True
    show_progress: bool = True


class Kind:
    """What differs between kinds of models; `qwen3nb.models.kinds.resolve` lists them."""

    name: str = "object"  # part of every identity
    # the module that is imported first to run such a model; empty for none
    library: str = "transformers.modeling_utils"
    searches: bool = False  # whether it only searches, and has no vectors
    weightless: bool = False  # whether it has neither weights nor files
    # whether its authors may prescribe prompts that its folder does not store
    of_others: bool = False
    cosine: bool = False  # whether vectors are compared by cosine if its folder says nothing
    directed: bool = False  # whether its direction, causal or not, is the user's choice
    adapts: bool = False  # whether it is a LoRA adapter of another model
    adaptable: bool = False  # whether LoRA adapters may have it as their base

    def __repr__(self) -> str:
        return repr(self.name)

    def named(self, spec: str) -> Source | None:
        """Return the source that ``spec`` names without a folder, if it is of this kind."""
        return None

    def matches(self, folder: ModelFolder) -> bool:
        """Return whether ``folder``, which declares a model with a vector per text, is one."""
        return False

    def check(self, source: Source) -> None:
        """Refuse a model that cannot be loaded as what it says it is, before anything is built.

        Raises:
            ModelFolderError: names the file and the key or tensor, what was expected, what it
                contains, and what to do.
            CheckpointError: a JSON or weight file that is malformed.
        """

    def content(self, source: Source, folder: ModelFolder) -> Any:
        """Return what the vectors depend on in the ``folder`` of ``source``."""
        raise NotImplementedError

    def fingerprint(self, source: Source) -> dict[str, Any]:
        """Return what the vectors of ``source`` depend on, apart from its settings."""
        if source.folder is None:
            return {"kind": self.name, "spec": source.spec, "revision": source.revision}
        return dict(expected_content(source))

    def stored(self, folder: ModelFolder) -> dict[str, Any]:
        """Return the pooling, normalisation and maximum length stored with the model."""
        return {}

    def model(self, source: Source, dtype: Any, *, bidirectional: bool = False) -> Any:
        """Load the transformer whose states are pooled, without a head.

        Raises:
            SpecError: there is none, it cannot be loaded, a weight is not finite, or it should be
                bidirectional, but runs causally.
        """
        raise SpecError(f"{source.label} is of kind {self.name!r}, which is not a transformer")

    def check_causal(self, source: Source) -> Any:
        """Check a causal language model with its output matrix; return it without values."""
        dense = "" if source.folder is None else f"{source.folder}: "
        raise SpecError(
            f"{dense}{source.label} is of kind {self.name!r}; a yes/no reranker is a causal "
            "language model, with or without a LoRA adapter. `qwen3nb eval` runs dense encoders"
        )

    def causal(self, source: Source, dtype: Any) -> Any:
        """Load a causal language model with its output matrix, which has been checked."""
        raise NotImplementedError

    def load(self, source: Source, settings: Settings) -> Any:
        """Return the `Encoder`, or search model, that runs ``source``, which has been checked."""
        raise SpecError(f"{source.label} is of kind {self.name!r}, which has no vectors")


IN_MEMORY = Kind()  # an object of the user's


class FolderKind(Kind):
    """A model in a folder, identified by its weights and by the files that affect its vectors."""

    def content(self, source: Source, folder: ModelFolder) -> dict[str, Any]:
        """Return digests of the weights, the other files and those of modules in their folders."""
        extra = self.files(folder)
        files = {
            name: folder.sha256(name)
            for file in sorted(folder.path.rglob("*"))
            if (name := file.relative_to(folder.path).as_posix()) in extra
            or (_IDENTIFYING.fullmatch(file.name) and file.is_file())
        }
        weights = self.weights(folder)
        check_checksums(folder)
        digests = {"kind": self.name, "weights": weights.digest, "files": sha256_json(files)}
        modules = {path: each.digest for path, each in sorted(self.modules(folder).items())}
        return digests | ({"modules": modules} if modules else {})

    def files(self, folder: ModelFolder) -> tuple[str, ...]:
        """Return names of files that affect the vectors, besides those of every kind."""
        return ()

    def weights(self, folder: ModelFolder) -> Weights:
        """Return the weights, without those of modules in folders of their own."""
        folder.check_whole()
        return folder.weights

    def modules(self, folder: ModelFolder) -> dict[str, Weights]:
        """Return the weights of modules of sentence-transformers, such as 2_Dense, by path."""
        return {
            file.parent.name: folder.weights_in(file.relative_to(folder.path).as_posix())
            for file in folder.path.glob("*_*/model.safetensors")
        }


@dataclass(frozen=True)
class Source:
    """A resolved model spec."""

    spec: str  # the spec as given
    kind: Kind  # the kind of model
    label: str  # a name that is safe in file names and tables
    # the model's folder, if it has one, opened once for all that load the model
    folder: ModelFolder | None = None
    # text prepended to an input, per role or task; see `prompt_for`, and
    # `qwen3nb.models.kinds.resolve` for where they come from
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
        """Whether it is known by its hub id alone, and must be fetched to show what it is."""
        return self.id is not None and self.folder is None

    @property
    def own_folder(self) -> ModelFolder:
        """The folder, of an adapter the adapter's.

        Raises:
            SpecError: a model without a folder.
        """
        if self.folder is None:
            raise SpecError(f"{self.label} is of kind {self.kind.name!r}, which has no folder")
        return self.folder

    @property
    def model_folder(self) -> ModelFolder:
        """The folder of the model itself, of an adapter that of its base; see `own_folder`."""
        return (self.base or self).own_folder


def registry() -> Mapping[str, Mapping[str, Any]]:
    """Return the known models, by name: those of the package, then the study's own.

    A study's ``models.toml`` has the fields of ``registry.toml``. Its models have an ``id`` on the
    hub, perhaps with a ``revision``, or a ``folder``, relative to the study.

    Raises:
        SpecError: that file is not such a registry; names the file, the model and the field.
    """
    ours = _read_registry(Path(__file__).with_name("registry.toml"), None)
    root = paths.find_root()
    if root is None or not (own := root / STUDY_REGISTRY).is_file():
        return ours
    entries = _read_registry(own, tuple(file_stamp(own)))
    if same := entries.keys() & {*ours, "bm25", "random", "demo"}:
        raise SpecError(f"{own}: [{min(same)}] is a model that every study has; name yours anew")
    return {**ours, **entries}


@functools.lru_cache(maxsize=4)
def _read_registry(file: Path, stamp: Any) -> dict[str, dict[str, Any]]:
    """Return the entries of a file, those of a study checked; ``stamp`` is its state."""
    try:
        entries = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"{file}: not TOML ({error})") from None
    if stamp:
        try:
            _STUDY.validate_python(entries)
        except ValidationError as error:
            fields = f" (its fields: {', '.join(_Entry.__annotations__)})"
            known = fields if error.errors()[0]["type"] == "extra_forbidden" else ""
            raise SpecError(f"{file}: {field_problem(error, entries)}{known}") from None
        for name, entry in entries.items():
            if ("id" in entry) == ("folder" in entry):
                raise SpecError(
                    f"{file}: {name}: expected either id, of a model on the hub, or folder"
                )
            entry.setdefault("baseline", False)
    return entries


def safe_label(text: str) -> str:
    """Return ``text`` without what file names may not contain."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)


def fingerprint(source: Source) -> dict[str, Any]:
    """Return what the vectors of ``source`` depend on, apart from the settings it is used with.

    It identifies content (weights, tokenizer and configuration), not paths.

    Raises:
        CheckpointError: weights that cannot be read, or that could run code; an export that
            is not as it was written; in a run that was started for other content, that.
    """
    return source.kind.fingerprint(source)


def described(source: Source) -> dict[str, Any]:
    """Return the fingerprint of ``source`` with the settings that its folder or registry gives.

    Without its label, which follows the folder's name.
    """
    names = ("prompts", "instruction", "pooling", "max_length")
    return {
        **fingerprint(source),
        "settings": {name: getattr(source, name) for name in names},
        "parts": [described(part) for part in source.parts],
    }


def unchanged(source: Source) -> dict[str, Any]:
    """Return the fingerprint of ``source``, which has been loaded since its ``content`` was taken.

    Raises:
        SpecError: a file has changed since it was first read, so that what was loaded has neither
            the one content nor the other for sure.
        CheckpointError: see `fingerprint`.
    """
    if source.content is None:
        return fingerprint(source)
    for each in (source, source.base):
        if each is not None and each.folder is not None and each.folder.changed() is not None:
            raise SpecError(
                f"{each.folder}: its files changed while the model was loaded; load it again when "
                "whatever writes them has finished"
            )
    return dict(source.content)


def folder_digests(source: Source) -> dict[str, str]:
    """Return the digest of what each folder of a model holds, by the folder's path.

    As JSON in the environment variable `EXPECTED`, it lets `fingerprint` refuse anything else.
    """
    digests = {}
    for each in (*source.parts, *([source.base] if source.base else [])):
        digests.update(folder_digests(each))
    if source.folder is not None:
        folder = source.folder.current()
        digests[str(folder.path.absolute())] = sha256_json(source.kind.content(source, folder))
    return digests


def expected_content(source: Source) -> Any:
    """Return the content of a folder; refuse another than a run on several machines is for."""
    folder = source.own_folder.current()
    content = source.kind.content(source, folder)
    expected = json.loads(os.environ.get(EXPECTED) or "{}").get(str(folder.path.absolute()))
    if expected not in (None, digest := sha256_json(content)):
        raise CheckpointError(
            f"node {platform.node()}: {folder}: expected the model of identity {expected[:12]}…, "
            f"which this run was started for; found one of {digest[:12]}…. Make the folder the "
            "same on all nodes"
        )
    return content


def mteb_meta(
    model: Any,
    *,
    dimension: int | None,
    kinds: list[str],
    similarity: str | None = None,
    parts: Sequence[Any] = (),
) -> ModelMeta:
    """Describe a loaded model, perhaps with the ``parts`` of a fusion, to MTEB.

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
        loader=None,
        name=f"qwen3nb/{model.label}",
        revision=model.identity[:40],
        release_date=None,
        languages=None,
        n_parameters=None if None in counts else sum(filter(None, counts)),
        memory_usage_mb=None,
        max_tokens=getattr(model, "max_length", None),
        embed_dim=dimension,
        license=None,
        open_weights=None,
        public_training_code=None,
        public_training_data=None,
        framework=[],
        reference=f"https://huggingface.co/{source.id}" if source.id else None,
        similarity_fn_name=similarity,
        use_instructions=any(part.source.prompts for part in parts),
        training_datasets=None,
        model_type=kinds,
    )
