"""Resolve a model spec to its source, without loading the model.

A *spec* is a folder, a name from ``registry.toml`` or from the study's own ``models.toml``, the id
of a model on the Hugging Face hub, ``api:URL#MODEL`` for a model behind an OpenAI-compatible
endpoint (see `qwen3nb.models.kinds.api`), ``random`` or ``bm25``.

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
from qwen3nb.models.gate.declared import check_dense, static_files
from qwen3nb.models.kinds.api import API
from qwen3nb.models.kinds.lora import ADAPTER, CONFIG, adapter_config, is_foreign
from qwen3nb.models.kinds.prompts import named_prompts, stored_prompts
from qwen3nb.models.kinds.sentence import SENTENCE, STATIC
from qwen3nb.models.kinds.source import Kind, Source, fingerprint, registry, safe_label
from qwen3nb.models.kinds.transformer import DECODER, ENCODER, ENCODER_DECODER, RERANKER, SEQ2SEQ
from qwen3nb.models.options import ModelOptions
from qwen3nb.models.search.multi_vector import MultiVectorKind
from qwen3nb.models.search.sparse import SparseKind
from qwen3nb.models.types import SpecError


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
    """Several searches fused by rank, ``a+b``."""

    name = "fusion"
    only_searches = "has no vectors"

    def fingerprint(self, source: Source) -> dict[str, Any]:
        return {"kind": self.name, "of": [fingerprint(part) for part in source.parts]}


class _OnHub(Kind):
    """A model of the hub, whose kind is known once it is fetched."""

    name = "hub"
    of_others = True


RANDOM, BM25_KIND, FUSION_KIND, ON_HUB = _Random(), _BM25(), _Fusion(), _OnHub()


# In the order of matching a spec or a folder. A new kind is a class like those above and an entry
# here.
KINDS: tuple[Kind, ...] = (
    *(BM25_KIND, SparseKind(), MultiVectorKind(), RANDOM, API, RERANKER),
    *(STATIC, SEQ2SEQ, ENCODER, SENTENCE, ENCODER_DECODER, DECODER),
)
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
DEMO = "demo"


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
    if re.search(r"[\x00-\x1f\x7f-\x9f]", spec):  # no record could name it
        raise SpecError(f"{spec!r} has a control character; rename the folder")
    if base:
        return adapter_source(_existing(spec) or Path(spec), base=base)
    known = registry()
    if spec == DEMO:
        demo = paths.runs() / "demo" / "encoder" / "contrastive-checkpoint-240"
        if demo.is_dir():
            return _folder(DEMO, demo)
        raise SpecError(
            f"the demo's model does not exist yet ({demo}); `qwen3nb demo` trains and extracts it "
            "in a few minutes"
        )
    if source := next((each for kind in KINDS if (each := kind.named(spec)) is not None), None):
        return source
    if spec in known:
        return _registered(spec)
    if folder := _existing(spec):
        local = _folder(paths.shown(folder), folder)
        hub_id, revision = _hub_layout(folder)
        if (name := _name_of(hub_id or spec, folder=folder)) is None:
            return local
        registered = _registered(name, there=False)
        return replace(_with_settings(local, registered), revision=revision or registered.revision)
    if "+" in spec:
        parts = tuple(find_source(each) for each in spec.split("+"))
        return Source(spec, FUSION_KIND, "-plus-".join(p.label for p in parts), parts=parts)
    if _HUB_ID.fullmatch(spec) and not spec.startswith(("runs/", "results/")):
        if name := _name_of(spec):
            return replace(_registered(name), spec=spec)
        return Source(spec, ON_HUB, safe_label(spec), id=spec)
    names = ["bm25", "random", DEMO, *known]
    near = [name for name in names if name.startswith(f"{spec}-")]
    near = near or difflib.get_close_matches(spec, names, n=1)
    raise SpecError(
        f"no model {spec!r}: neither a folder, nor one of {', '.join(names)}, nor a hub id "
        "(organisation/name), nor api:URL#MODEL."
        + (f" Did you mean {' or '.join(map(repr, near))}?" if near else "")
    )


def default_model() -> tuple[str, str]:
    """Return the default model, and a sentence that names it.

    This is the study's only export, anywhere in the study; if there are several or none, bm25.
    """
    tops = (each for each in paths.root().iterdir() if not each.name.startswith((".", "_")))
    exports = [
        file.parent
        for top in sorted(tops)
        for depth in range(4)
        for file in sorted(top.glob(f"{'*/' * depth}{PROVENANCE}"))
    ]
    if len(exports) == 1:
        model, why = paths.shown(exports[0]), "the study's only export"
    else:
        many = f"{len(exports)} exports: name the one to take" if exports else "no export"
        model, why = "bm25", f"the study has {many}"
    return model, f"No model was named: this is {model} ({why})."


def find_training(spec: str) -> Path:
    """Return the folder of a training's checkpoints, given by its path or as ``demo``.

    Raises:
        SpecError: no such folder, or no ``checkpoint-N`` in it.
    """
    folder = paths.runs() / "demo" / "train" if spec == DEMO else _existing(spec)
    if folder is None or not folder.is_dir():
        hint = "; `qwen3nb demo` trains it" if spec == DEMO else ""
        raise SpecError(f"no folder {spec!r} with the checkpoints of a training{hint}")
    list_checkpoints(folder)
    return folder


def _existing(spec: str) -> Path | None:
    """Return the folder ``spec``, relative to the working directory or to the root.

    Notebooks run in ``notebooks/``, commands in the root; both accept ``runs/x``.
    """
    if not spec:
        return None
    for folder in (Path(spec).expanduser(), paths.root() / spec):
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
    from qwen3nb.hub import HubError, cached_snapshot

    assert source.id is not None  # noqa: S101 - a hub source has an id
    if (mirror := paths.mirror()) is not None and (mirror / source.id).is_dir():
        if cut := next((mirror / source.id).rglob("*.incomplete"), None):
            raise SpecError(
                f"{cut}: an incomplete download; remove {mirror / source.id} and fetch it again "
                f"on a connected machine: `qwen3nb fetch --model {source.spec} --mirror {mirror}`"
            )
        return _with_settings(_folder(source.spec, mirror / source.id), source)
    try:
        folder = cached_snapshot(
            source.id, kind="model", revision=source.revision, files=MODEL_FILES
        )
    except HubError as error:
        hint = (
            ". On a machine without a network, give the folder of a copy instead, or set "
            f"QWEN3NB_MIRROR to a mirror; `qwen3nb fetch --model {source.spec} --mirror DIR` "
            "fills one on a connected machine"
        )
        raise SpecError(
            f"{source.id}: no folder of this name, and not available from the hub ({error})"
            + hint * error.lasting
        ) from None
    return _with_settings(_folder(source.spec, folder), source)


def adapter_source(path: Path, *, base: str | Path | None = None) -> Source:
    """Return the source of the adapter in a folder, with its base.

    The base is ``base``, else the one named in ``adapter_config.json``: a folder next to the
    adapter or further up, a folder relative to the working directory, or a hub id.

    Raises:
        SpecError: no adapter, or no base. Compatibility is checked on loading.
    """
    folder = ModelFolder(path)
    config = adapter_config(folder)
    named = str(base if base is not None else config.get("base_model_name_or_path") or "")
    base_source = _adapter_base(path, named, given=base is not None)
    if base_source.on_hub:
        base_source = fetch_model(base_source)
    if not base_source.kind.adaptable or base_source.folder is None:
        raise SpecError(
            f"{named}: not a causal language model, so it cannot be the base of {folder}"
        )
    # ``rank_only_r4-seed_42`` for ``…/rank_only_r4/seed_42/checkpoints/final``
    parts = [part for part in path.resolve().parts if part not in ("checkpoints", "final")][-2:]
    label = safe_label("-".join(parts)).strip("-.") or "adapter"
    return Source(paths.shown(path), ADAPTER, label, folder=folder, base=base_source)


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


def _name_of(hub_id: str, *, folder: Path | None = None) -> str | None:
    """Return the name in the registry of a hub model or a folder; the hub ignores case."""
    for name, each in registry().items():
        if each.get("id", "").lower() == hub_id.lower():
            return name
        own = paths.root() / each["folder"] if "id" not in each else None
        if own is not None and folder is not None and own.resolve() == folder.resolve():
            return name
    return None


def _hub_layout(folder: Path) -> tuple[str | None, str | None]:
    """Return the hub id and revision of a folder in the mirror or a hub cache."""
    folder, mirror = folder.resolve(), paths.mirror()
    *_, name, kind, revision = ("", "", *folder.parts)
    if kind == "snapshots" and name.startswith("models--"):
        return name.removeprefix("models--").replace("--", "/"), revision
    if mirror is not None and folder.parent.parent == mirror.resolve():
        return "/".join(folder.parts[-2:]), None
    return None, None


def _registered(name: str, *, there: bool = True) -> Source:
    """Return the source of a model of the registry, with its folder if it is on this machine.

    Args:
        name: name in the registry.
        there: whether to open the folder.
    """
    entry = registry()[name]
    registered = Source(
        name,
        ON_HUB,
        name,
        prompts=named_prompts(entry.get("prompts", {})),
        revision=entry.get("revision"),
        id=entry.get("id"),
        **{key: entry[key] for key in ("instruction", "pooling", "max_length") if key in entry},
    )
    if there and "id" not in entry:
        return _with_settings(_folder(name, paths.root() / entry["folder"]), registered)
    installed = importlib.util.find_spec(entry["package"]) if "package" in entry and there else None
    if installed is None or not installed.submodule_search_locations:
        return registered
    folder = Path(installed.submodule_search_locations[0]) / entry["folder"]
    return _with_settings(_folder(name, folder), registered)


def _folder(spec: str, path: Path) -> Source:
    folder = ModelFolder(path)
    config, modules = folder.has("config.json"), folder.has("modules.json")
    if not (config or modules) and is_foreign(folder):
        return adapter_source(path)
    if folder.has(CONFIG) and not config:
        return adapter_source(path)
    if not (config or modules or static_files(folder)):
        raise SpecError(
            f"{folder}: no config.json, so this is not a model.{folder.configured_inside()}"
        )
    folder.check_files()
    kind = next((kind for kind in KINDS if kind.searches and kind.matches(folder)), None)
    if kind is None:
        check_dense(folder)
        kind = next(kind for kind in KINDS if kind.matches(folder))
    prompts = stored_prompts(folder)
    # The label given at extraction, else the last two parts of the path.
    *_, above, name = ("", *path.resolve().parts)
    label = f"{above}-{name}" if above.strip("/") else name
    if folder.has(PROVENANCE):
        label = str((read_provenance(folder) or {}).get("label", path.name))
    label = safe_label(label).strip("-.") or "model"
    return Source(spec, kind, label, folder=folder, prompts=prompts)


def _adapter_base(folder: Path, named: str, *, given: bool) -> Source:
    if not 0 < len(named) <= 1000:
        raise SpecError(f"{folder}: adapter_config.json names no base; give it as base")
    if not given and not Path(named).is_absolute():
        for above in folder.resolve().parents:
            _refuse_adapter(folder, named, above / named)
            if (above / named / "config.json").is_file():
                return find_source(str(above / named))
    if (local := _existing(named)) is not None:
        _refuse_adapter(folder, named, local)
    try:
        return find_source(named)
    except SpecError as error:
        if given:
            raise SpecError(f"{folder}: its base was not found: {error}") from None
        raise SpecError(
            f"{folder}: its base was not found: adapter_config.json names {named!r:.200}, which is "
            "neither a folder nor a known model; give its folder as base (--base, or base=)"
        ) from None


def _refuse_adapter(folder: Path, named: str, base: Path) -> None:
    """Refuse a ``base`` of the adapter in ``folder`` that is an adapter itself."""
    if (base / CONFIG).is_file() and not (base / "config.json").is_file():
        raise SpecError(
            f"{folder}: its base {named!r:.200} is an adapter; give a whole model as base. If it "
            "was trained on top of that adapter, merge that one into its base first"
        )
