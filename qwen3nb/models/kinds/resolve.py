"""Resolve a model spec to its source, without loading the model.

A *spec* is a folder, a name from ``registry.toml`` or from the study's own ``models.toml``, the id
of a model on the Hugging Face hub, ``api:URL#MODEL`` for a model behind an OpenAI-compatible
endpoint (see `qwen3nb.models.kinds.api`), ``random`` or ``bm25``; ``newest-export`` and
``newest-adapter`` are what was made last in the study.

Prompts, pooling and maximum length given by the user take precedence over those of the registry,
and these over those stored in the model's folder. Prompts are replaced as a whole. Settings of the
registry apply whether the model is named by its registry name, its hub id, or a folder in the
mirror or a hub cache, whose path identifies the model.
"""

import difflib
import importlib.util
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.checkpoints.folder import ModelFolder, list_checkpoints
from qwen3nb.checkpoints.provenance import MODEL_FILES, PROVENANCE, read_provenance
from qwen3nb.metrics.fusion_weights import MOST_PARTS
from qwen3nb.models.gate.declared import check_dense, static_files
from qwen3nb.models.kinds.api import API
from qwen3nb.models.kinds.lora import ADAPTER, CONFIG, adapter_config, is_foreign
from qwen3nb.models.kinds.newest import (
    NothingMadeError,
    exports_of,
    newest,
)
from qwen3nb.models.kinds.prompts import named_prompts, stored_prompts
from qwen3nb.models.kinds.sentence import SENTENCE, STATIC
from qwen3nb.models.kinds.source import (
    FITTED_BY_RANK,
    FITTED_BY_SCORE,
    Kind,
    Source,
    fingerprint,
    fusion_label,
    registry,
    safe_label,
)
from qwen3nb.models.kinds.transformer import DECODER, ENCODER, ENCODER_DECODER, RERANKER, SEQ2SEQ
from qwen3nb.models.options import ModelOptions
from qwen3nb.models.search.multi_vector import MultiVectorKind
from qwen3nb.models.search.sparse import SparseKind
from qwen3nb.models.types import NEWEST, NEWEST_EXPORT, NEWEST_TRAINING, SpecError


class _Random(Kind):
    """Chance level, ``random`` or ``random:WIDTH``: a random vector per text."""

    name = "random"
    library = ""
    weightless = True

    def named(self, spec: str) -> Source | None:
        if not re.fullmatch(r"random(:[1-9]\d{0,4})?", spec):
            return None
        return Source(spec, self, safe_label(spec))

    def load(self, source: Source, options: ModelOptions) -> Any:
        from qwen3nb.models.encoders.base import RandomEncoder

        return RandomEncoder(source, options)


class _BM25(Kind):
    """The search model ``bm25``."""

    name = "bm25"
    only_searches = "has no vectors"
    weightless = True

    def named(self, spec: str) -> Source | None:
        return Source(spec, self, spec) if spec == self.name else None

    def load(self, source: Source, options: ModelOptions) -> Any:
        from qwen3nb.models.search.bm25 import BM25

        return BM25(source, cache=options.cache)


class _Fusion(Kind):
    """Several searches fused by rank, ``a+b``, or by fitted weights, ``a+b@cv``."""

    name = "fusion"
    only_searches = "has no vectors"

    def fingerprint(self, source: Source) -> dict[str, Any]:
        content = {"kind": self.name, "of": [fingerprint(part) for part in source.parts]}
        if source.fitted:
            content["fitted"] = source.fitted
        return content


class _OnHub(Kind):
    """A model of the hub, whose kind is known once it is fetched."""

    name = "hub"
    of_others = True


RANDOM, BM25_KIND, FUSION_KIND, ON_HUB = _Random(), _BM25(), _Fusion(), _OnHub()


# In the order of matching a spec or a folder. A new kind is a class like those above and an entry
# here.
KINDS: tuple[Kind, ...] = (
    BM25_KIND,
    SparseKind(),
    MultiVectorKind(),
    RANDOM,
    API,
    RERANKER,
    STATIC,
    SEQ2SEQ,
    ENCODER,
    SENTENCE,
    ENCODER_DECODER,
    DECODER,
)
_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f-\x9f]")  # such as a line break
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
DEMO = "demo"
_PACKAGED = "all-MiniLM-L6-v2"  # which a Python package brings


def find_source(spec: str, *, base: str | Path | None = None) -> Source:
    """Return the source of the model that ``spec`` names.

    Args:
        spec: see the module's docstring.
        base: base model of an adapter; empty for the one that the adapter names.

    Raises:
        SpecError: no such model (lists the known ones), or a base for a model that is not an
            adapter.
    """
    spec = str(spec)
    if _CONTROL_CHARACTER.search(spec):  # no record could name it
        raise SpecError(f"{spec!r} has a control character; rename the folder")
    if base:
        return adapter_source(_existing_folder(spec) or Path(spec), base=base)
    # From here on, the order decides what a name means that could be several things.
    if spec == DEMO:
        return _demo_source()
    if spec in NEWEST:
        return find_source(newest_model(spec))
    for kind in KINDS:
        source = kind.named(spec)  # such as "bm25" or "api:…", which name no folder
        if source is not None:
            return source
    if spec in registry():
        return _registered_source(spec)
    folder = _existing_folder(spec)
    if folder is not None:
        return _local_source(spec, folder)
    if "+" in spec:
        return _fusion_source(spec)
    # "runs/x" without a folder is a mistake, though it looks like an id of the hub.
    in_study = spec.startswith(("runs/", "results/"))
    if _HUB_ID.fullmatch(spec) and not in_study:
        return _hub_source(spec)
    raise _no_model(spec)


def _demo_source() -> Source:
    folder = paths.runs() / "demo" / "encoder" / "contrastive-checkpoint-240"
    if not folder.is_dir():
        raise SpecError(
            f"the demo's model does not exist yet ({folder}); `qwen3nb demo` trains and extracts "
            "it in a few minutes"
        )
    return _folder_source(DEMO, folder)


def _local_source(spec: str, folder: Path) -> Source:
    """Return the source of a folder, with the settings of the registry if it has any."""
    source = _folder_source(paths.shown(folder), folder)
    hub_id, revision = _hub_id_and_revision(folder)
    name = _registered_name(hub_id or spec, folder=folder)
    if name is None:
        return source
    registered = _entry_source(name)  # a copy of a registered model has the same settings
    source = _with_settings(source, registered)
    return replace(source, revision=revision or registered.revision)


def _fusion_source(spec: str) -> Source:
    joined_parts, fitted = split_fusion(spec)
    parts = tuple(find_source(part) for part in joined_parts.split("+"))
    if fitted and len(parts) > MOST_PARTS:
        raise SpecError(
            f"{spec}: weights are chosen for at most {MOST_PARTS} models; got {len(parts)}"
        )
    source = Source(spec, FUSION_KIND, "", parts=parts, fitted=fitted)
    return replace(source, label=fusion_label([part.label for part in parts], source))


def split_fusion(spec: str) -> tuple[str, str]:
    """Return a spec without what says how its weights are fitted, and this; it may be empty.

    >>> split_fusion("bm25+e5-base@cv"), split_fusion("bm25+e5-base")
    (('bm25+e5-base', 'cv'), ('bm25+e5-base', ''))
    """
    last_part = spec.rpartition("+")[2]
    joined_parts, _, fitted = spec.rpartition("@")
    names_a_folder = _existing_folder(last_part) is not None  # such as runs/x@cv
    if fitted in (FITTED_BY_SCORE, FITTED_BY_RANK) and not names_a_folder:
        return joined_parts, fitted
    return spec, ""


def _hub_source(spec: str) -> Source:
    name = _registered_name(spec)
    if name is not None:
        return replace(_registered_source(name), spec=spec)
    return Source(spec, ON_HUB, safe_label(spec), id=spec)


def _no_model(spec: str) -> SpecError:
    """Return the error about a spec that names nothing, with the names that it may mean."""
    names = ["bm25", "random", DEMO, *registry()]
    # "e5" for "e5-base" and "e5-large"; else the closest spelling.
    similar = [name for name in names if name.startswith(f"{spec}-")]
    if not similar:
        similar = difflib.get_close_matches(spec, names, n=1)
    message = (
        f"no model {spec!r}: neither a folder, nor one of {', '.join(names)}, nor a hub id "
        "(organisation/name), nor api:URL#MODEL."
    )
    if "@" in spec:
        message += f" A fusion ends in @{FITTED_BY_SCORE} or @{FITTED_BY_RANK}, as bm25+MODEL@cv."
    if similar:
        message += f" Did you mean {' or '.join(map(repr, similar))}?"
    return SpecError(message)


def default_model() -> tuple[str, str]:
    """Return the default model, and a sentence that names it.

    This is the study's only export, anywhere in the study; if there are several or none, bm25.
    """
    exports = exports_of(paths.root())
    if len(exports) == 1:
        model = paths.shown(exports[0])
        reason = "the study's only export"
    elif exports:
        model = "bm25"
        reason = f"the study has {len(exports)} exports: name the one to take"
    else:
        model = "bm25"
        reason = "the study has no export"
    return model, f"No model was named: this is {model} ({reason})."


def newest_model(spec: str) -> str:
    """Return the model that `newest-export` or `newest-adapter` stands for in this study.

    Without an export, it is the model that comes with a package, if that is installed.

    Raises:
        NothingMadeError: the study has none.
    """
    try:
        return paths.shown(newest(spec))
    except NothingMadeError:
        is_installed = _package_folder(registry()[_PACKAGED]["package"]) is not None
        if spec == NEWEST_EXPORT and is_installed:
            return _PACKAGED
        raise


def find_training(spec: str) -> Path:
    """Return the folder of a training's checkpoints.

    It is given by its path, as ``demo``, or as ``newest-training``.

    Raises:
        SpecError: no such folder, or no ``checkpoint-N`` in it.
    """
    if spec == NEWEST_TRAINING:
        return newest(spec)
    if spec == DEMO:
        folder: Path | None = paths.runs() / "demo" / "train"
        hint = "; `qwen3nb demo` trains it"
    else:
        folder = _existing_folder(spec)
        hint = ""
    if folder is None or not folder.is_dir():
        raise SpecError(f"no folder {spec!r} with the checkpoints of a training{hint}")
    list_checkpoints(folder)  # raises if there is none
    return folder


def training_named(spec: str) -> Path | None:
    """Return the training that a spec names in place of a model; None if it names a model."""
    if spec == NEWEST_TRAINING:
        return newest(spec)
    folder = _existing_folder(spec)
    if folder is None or not any(folder.glob("checkpoint-*/")):
        return None
    return folder


def _existing_folder(spec: str) -> Path | None:
    """Return the folder ``spec``, relative to the working directory or to the root.

    Notebooks run in ``notebooks/``, commands in the root; both accept ``runs/x``.
    """
    if not spec:
        return None
    for folder in (Path(spec).expanduser(), paths.root() / spec):
        copy = paths.kept_copy(folder)
        if copy is not None:
            return copy
        if folder.is_dir():
            return folder
    return None


def fetch_model(source: Source) -> Source:
    """Download a hub model to the hub's own cache and return the source of its folder.

    Only safetensors weights, configuration and tokenizer files are downloaded, and compared
    with the hub's digests.

    Raises:
        SpecError: the model is not available, with the reason.
    """
    assert source.id is not None  # noqa: S101 - a hub source has an id
    folder = _in_mirror(source, source.id)
    if folder is None:
        folder = _download(source, source.id)
    return _with_settings(_folder_source(source.spec, folder), source)


def _in_mirror(source: Source, hub_id: str) -> Path | None:
    """Return the folder of a hub model in the mirror; None if it is not there."""
    mirror = paths.mirror()
    if mirror is None or not (mirror / hub_id).is_dir():
        return None
    folder = mirror / hub_id
    for part in folder.rglob("*.incomplete"):  # one is enough
        raise SpecError(
            f"{part}: an incomplete download; remove {folder} and fetch it again "
            f"on a connected machine: `qwen3nb fetch --model {source.spec} --mirror {mirror}`"
        )
    return folder


def _download(source: Source, hub_id: str) -> Path:
    """Return the folder of a hub model in the hub's cache, after downloading what it lacks."""
    from qwen3nb.hub import HubError, cached_snapshot

    try:
        return cached_snapshot(hub_id, kind="model", revision=source.revision, files=MODEL_FILES)
    except HubError as error:
        message = f"{hub_id}: no folder of this name, and not available from the hub ({error})"
        if error.lasting:  # trying again later would not help
            message += (
                ". On a machine without a network, give the folder of a copy instead, or set "
                f"QWEN3NB_MIRROR to a mirror; `qwen3nb fetch --model {source.spec} --mirror DIR` "
                "fills one on a connected machine"
            )
        raise SpecError(message) from None


def adapter_source(path: Path, *, base: str | Path | None = None) -> Source:
    """Return the source of the adapter in a folder, with its base.

    The base is ``base``, else the one named in ``adapter_config.json``: a folder next to the
    adapter or further up, a folder relative to the working directory, or a hub id.

    Raises:
        SpecError: no adapter, or no base. Compatibility is checked on loading.
    """
    folder = ModelFolder(path)
    config = adapter_config(folder)
    if base is None:
        name = str(config.get("base_model_name_or_path") or "")
        base_source = _stated_base(path, name)
    else:
        name = str(base)
        base_source = _given_base(path, name)
    if base_source.on_hub:
        base_source = fetch_model(base_source)
    if not base_source.kind.adaptable or base_source.folder is None:
        raise SpecError(
            f"{name}: not a causal language model, so it cannot be the base of {folder}"
        )
    return Source(paths.shown(path), ADAPTER, _adapter_label(path), folder=folder, base=base_source)


def _adapter_label(path: Path) -> str:
    """Return ``rank_only_r4-seed_42`` for ``…/rank_only_r4/seed_42/checkpoints/final``."""
    parts = [part for part in path.resolve().parts if part not in ("checkpoints", "final")]
    label = safe_label("-".join(parts[-2:])).strip("-.")
    return label or "adapter"


def _with_settings(local: Source, registered: Source) -> Source:
    """Return ``local`` with label, id and settings of ``registered``, if it has any."""
    return replace(
        local,
        label=registered.label,
        prompts=registered.prompts or local.prompts,
        instruction=registered.instruction,
        pooling=registered.pooling,
        max_length=registered.max_length,
        revision=registered.revision,
        id=registered.id,
    )


def _registered_name(hub_id: str, *, folder: Path | None = None) -> str | None:
    """Return the name in the registry of a hub model or a folder; the hub ignores case."""
    for name, entry in registry().items():
        if "id" in entry:  # a model on the hub, which ignores case; else a folder of the study
            is_entry = entry["id"].lower() == hub_id.lower()
        else:
            registered_folder = paths.root() / entry["folder"]
            is_entry = folder is not None and registered_folder.resolve() == folder.resolve()
        if is_entry:
            return name
    return None


def _hub_id_and_revision(folder: Path) -> tuple[str | None, str | None]:
    """Return the hub id and revision of a folder in the mirror or a hub cache."""
    folder = folder.resolve()
    mirror = paths.mirror()
    is_snapshot = folder.parent.name == "snapshots"
    repository = folder.parent.parent
    if is_snapshot and repository.name.startswith("models--"):
        # models--ORGANISATION--NAME/snapshots/REVISION
        hub_id = repository.name.removeprefix("models--").replace("--", "/")
        return hub_id, folder.name
    if mirror is not None and repository == mirror.resolve():
        # MIRROR/ORGANISATION/NAME
        organisation, name = folder.parts[-2:]
        return f"{organisation}/{name}", None
    return None, None


def _registered_source(name: str) -> Source:
    """Return the source of a model of the registry, with its folder if it is on this machine."""
    entry = registry()[name]
    source = _entry_source(name)
    if "id" not in entry:  # a folder of the study
        folder = paths.root() / entry["folder"]
    elif "package" in entry:  # a model that a Python package brings, if that is installed
        package_folder = _package_folder(entry["package"])
        if package_folder is None:
            return source
        folder = package_folder / entry["folder"]
    else:  # on the hub: its folder is known when it has been fetched
        return source
    return _with_settings(_folder_source(name, folder), source)


def _package_folder(name: str) -> Path | None:
    """Return the folder of a package; None if it is not installed."""
    package = importlib.util.find_spec(name)
    if package is None or not package.submodule_search_locations:
        return None
    return Path(package.submodule_search_locations[0])


def _entry_source(name: str) -> Source:
    """Return the source of a model of the registry, without its folder."""
    entry = registry()[name]
    return Source(
        spec=name,
        kind=ON_HUB,
        label=name,
        prompts=named_prompts(entry.get("prompts", {})),
        revision=entry.get("revision"),
        id=entry.get("id"),
        instruction=entry.get("instruction", ""),
        pooling=entry.get("pooling"),
        max_length=entry.get("max_length"),
    )


def _folder_source(spec: str, path: Path) -> Source:
    folder = ModelFolder(path)
    has_config = folder.has("config.json")
    has_modules = folder.has("modules.json")
    is_peft_adapter = folder.has(CONFIG)
    is_mlx_adapter = not has_modules and is_foreign(folder)
    if not has_config and (is_peft_adapter or is_mlx_adapter):
        return adapter_source(path)  # refuses one of MLX, with what to do
    if not (has_config or has_modules or static_files(folder)):
        raise SpecError(
            f"{folder}: no config.json, so this is not a model.{folder.configured_inside()}"
        )
    folder.check_files()
    kind = _kind_of(folder)
    return Source(spec, kind, _label(folder), folder=folder, prompts=stored_prompts(folder))


def _kind_of(folder: ModelFolder) -> Kind:
    """Return the first kind that a folder matches; only searchers have no vector per text."""
    for kind in KINDS:
        if kind.searches and kind.matches(folder):
            return kind
    check_dense(folder)
    return next(kind for kind in KINDS if kind.matches(folder))


def _label(folder: ModelFolder) -> str:
    """Return the label given at extraction, else the last two parts of the path."""
    path = folder.path.resolve()
    if folder.has(PROVENANCE):
        provenance = read_provenance(folder) or {}
        label = str(provenance.get("label", folder.path.name))
    else:
        label = "-".join(part for part in path.parts[-2:] if part != path.anchor)
    return safe_label(label).strip("-.") or "model"


def _stated_base(folder: Path, name: str) -> Source:
    """Return the source of the base that the adapter in ``folder`` names."""
    _check_base_name(folder, name)
    if not Path(name).is_absolute():  # next to the adapter, or above it: the nearest comes first
        for parent in folder.resolve().parents:
            _refuse_adapter(folder, name, parent / name)
            if (parent / name / "config.json").is_file():
                return find_source(str(parent / name))
    reason = (
        f"adapter_config.json names {name!r:.200}, which is neither a folder nor a known "
        "model; give its folder as base (--base, or base=)"
    )
    return _found_base(folder, name, reason=reason)


def _given_base(folder: Path, name: str) -> Source:
    """Return the source of the base that a user gives for the adapter in ``folder``."""
    _check_base_name(folder, name)
    return _found_base(folder, name)


def _check_base_name(folder: Path, name: str) -> None:
    if not 0 < len(name) <= 1000:
        raise SpecError(f"{folder}: adapter_config.json names no base; give it as base")


def _found_base(folder: Path, name: str, *, reason: str = "") -> Source:
    """Return the source of a base; without one, ``reason`` is part of the error."""
    local = _existing_folder(name)
    if local is not None:
        _refuse_adapter(folder, name, local)
    try:
        return find_source(name)
    except SpecError as error:
        raise SpecError(f"{folder}: its base was not found: {reason or error}") from None


def _refuse_adapter(folder: Path, name: str, base: Path) -> None:
    """Refuse a ``base`` of the adapter in ``folder`` that is an adapter itself."""
    if (base / CONFIG).is_file() and not (base / "config.json").is_file():
        raise SpecError(
            f"{folder}: its base {name!r:.200} is an adapter; give a whole model as base. If it "
            "was trained on top of that adapter, merge that one into its base first"
        )
