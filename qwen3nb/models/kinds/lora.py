"""LoRA adapters: checked against their base model by headers alone, and merged into it.

PEFT hardly complains if an adapter does not fit: a tensor without a module is skipped, a
module without a tensor keeps its random initial values. Here, names and shapes of adapter
and base are compared in both directions before anything is loaded. PEFT does the merging
(Hu et al. 2021, https://arxiv.org/abs/2106.09685, section 4.1), in float32.

Only ``adapter_model.safetensors`` is read: a pickle can run code.
"""

from __future__ import annotations

import re
import time
import warnings
from pathlib import Path
from typing import Any

from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.checkpoints.types import CheckpointError, TensorEntry
from qwen3nb.models.gate.tokenizer import TOKENIZER, rust_tokenizer
from qwen3nb.models.kinds.source import Source
from qwen3nb.models.types import SpecError

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
_TENSOR = re.compile(
    r"base_model\.model\.(?P<module>.+)\.lora_(?P<side>[AB])(?:\.default)?\.weight"
)
# Fields of adapter_config.json that change what is computed, and their supported values.
_PLAIN: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "task_type": ("CAUSAL_LM", None),
    "bias": ("none", None),
    "modules_to_save": (None, []),
    "use_dora": (False, None),
    "layers_to_transform": (None,),
    "layer_replication": (None,),
    "trainable_token_indices": (None,),
    "target_parameters": (None, []),
    "fan_in_fan_out": (False, None),
    "init_lora_weights": (True, False, None, "gaussian", "eva", "orthogonal", "olora", "pissa"),
    **dict.fromkeys(
        (
            "alora_invocation_tokens",
            "arrow_config",
            "kasa_config",
            "lora_bias",
            "megatron_config",
            "monteclora_config",
            "use_bdlora",
            "use_qalora",
            "velora_config",
        ),
        (None, False),
    ),
}
_LARGEST_RANK = 65_536
_LARGEST_ALPHA = 1e6
_LONGEST_NAME = 1000
_PATTERN_SECONDS = 5.0  # for the patterns of an adapter; a malicious one may take forever


def load_merged(source: Source, model: Any) -> Any:
    """Merge the adapter into ``model`` (the base in float32, with its head) and return it.

    PEFT gets the names of the adapted modules and the fields of `adapter_config` that were
    checked, and no others: some name modules of Python to import.

    Raises:
        CheckpointError: a tensor of the adapter is not of a float type, or not finite.
        SpecError: PEFT refuses the adapter.
    """
    from peft import LoraConfig, PeftModel

    assert source.folder is not None  # noqa: S101 - adapters have one
    opened, config = source.folder.weights_in(WEIGHTS), adapter_config(source.folder)
    file = source.folder.path / CONFIG
    for name in opened.tensors:
        opened.read(name)  # checks every value
    modules = sorted({match["module"] for n in opened.tensors if (match := _TENSOR.fullmatch(n))})
    plain = LoraConfig(
        r=config["r"],
        lora_alpha=config.get("lora_alpha", 8),
        use_rslora=bool(config.get("use_rslora")),
        init_lora_weights=_initialisation(config),
        target_modules=modules,
        rank_pattern={m: r for m in modules if (r := _rank(file, config, m)) != config["r"]},
        alpha_pattern=_of_pattern(file, config.get("alpha_pattern") or {}, modules),
    )
    with warnings.catch_warnings():
        # PEFT still uses a property that transformers has renamed.
        warnings.filterwarnings("ignore", category=FutureWarning, module=r"transformers\..*")
        try:
            adapted = PeftModel.from_pretrained(
                model, str(source.folder), is_trainable=False, config=plain
            )
            return adapted.merge_and_unload(safe_merge=True)
        except (RuntimeError, ValueError, TypeError, KeyError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise SpecError(f"{source.folder}: PEFT cannot merge it ({reason:.200})") from None


def _initialisation(config: dict[str, Any]) -> Any:
    """Return how PEFT initialises the adapter; two ways change the base, the others nothing."""
    way = config.get("init_lora_weights", True)
    return way if way in ("olora", "pissa") else True


def adapter_config(folder: ModelFolder) -> dict[str, Any]:
    """Return the content of ``adapter_config.json``.

    Raises:
        SpecError: no such file, or not the configuration of a plain LoRA adapter.
    """
    file = folder.path / CONFIG
    if not folder.path.is_dir():
        raise SpecError(f"{folder}: no such folder; expected a LoRA adapter")
    if not folder.has(CONFIG):
        raise SpecError(f"{folder}: no adapter_config.json, so this is not a LoRA adapter")
    if not folder.has(WEIGHTS):
        pickled = ", ".join(sorted(each.name for each in folder.path.glob("adapter_model.*")))
        raise SpecError(
            f"{folder}: no {WEIGHTS}"
            + (f"; {pickled} is not read, because such a file can run code" if pickled else "")
        )
    try:
        folder.check_files()
        config = folder.object(CONFIG)
    except CheckpointError as error:
        raise SpecError(str(error)) from None
    for name, known in _PLAIN.items():
        if config.get(name) not in known and not (name not in config and None in known):
            raise SpecError(
                f"{file}: {name} is {config.get(name)!r:.60}; only plain LoRA is supported "
                f"({name} {known[0]!r})"
            )
    _check_numbers(file, config)
    return config


def _check_numbers(file: Path, config: dict[str, Any]) -> None:
    """Check rank and alpha, in general and per module."""
    patterns = {key: config.get(key) or {} for key in ("rank_pattern", "alpha_pattern")}
    if odd := [key for key, value in patterns.items() if not isinstance(value, dict)]:
        raise SpecError(f"{file}: {odd[0]} is {config[odd[0]]!r:.60}, expected an object")
    for rank in (config.get("r"), *patterns["rank_pattern"].values()):
        if type(rank) is not int or not 1 <= rank <= _LARGEST_RANK:
            raise SpecError(
                f"{file}: r is {rank!r:.60}, expected a positive whole number of at most "
                f"{_LARGEST_RANK:,}"
            )
    for alpha in (config.get("lora_alpha", 8), *patterns["alpha_pattern"].values()):
        number = isinstance(alpha, int | float) and not isinstance(alpha, bool)
        if not number or not 0 < alpha <= _LARGEST_ALPHA:
            raise SpecError(
                f"{file}: lora_alpha is {alpha!r:.60}, expected a positive number of at most "
                f"{_LARGEST_ALPHA:,.0f}"
            )
    named = config.get("base_model_name_or_path") or ""
    if not isinstance(named, str) or len(named) > _LONGEST_NAME:
        raise SpecError(f"{file}: base_model_name_or_path is {named!r:.80}, expected a model")
    targets = config.get("target_modules")
    names = isinstance(targets, list) and all(isinstance(each, str) for each in targets)
    if not isinstance(targets, str) and not names:
        raise SpecError(f"{file}: target_modules is {targets!r:.60}, expected names of modules")


def check_fit(folder: ModelFolder, config: dict[str, Any], base: ModelFolder) -> None:
    """Compare names and shapes of the adapter's and the base's tensors, in both directions.

    Raises:
        SpecError: a tensor that does not fit; names it.
    """
    file = folder.path / WEIGHTS
    try:
        base.check_whole()
        adapter, tensors = folder.weights_in(WEIGHTS).tensors, base.weights.tensors
    except CheckpointError as error:
        raise SpecError(str(error)) from None
    pairs: dict[str, dict[str, TensorEntry]] = {}
    for name, entry in adapter.items():
        match = _TENSOR.fullmatch(name)
        if match is None or match["side"] in pairs.get(match["module"], ()):
            raise SpecError(f"{file}: {name:.120} is not a tensor of a plain LoRA adapter")
        pairs.setdefault(match["module"], {})[match["side"]] = entry
    if not pairs:
        raise SpecError(f"{file}: contains no tensors")
    for module, sides in pairs.items():
        _check_module(file, config, module, sides, tensors.get(f"{module}.weight"))
    _check_vocabulary(folder, base)
    _check_targets(file, config, set(pairs), [name for name in tensors if name.endswith(".weight")])


def _check_vocabulary(folder: ModelFolder, base: ModelFolder) -> None:
    """Check that a tokenizer next to the adapter has the vocabulary of the base's."""
    both = [each for each in (folder, base) if each.has(TOKENIZER)]
    if len({each.sha256(TOKENIZER) for each in both}) < 2:
        return
    try:
        ours, theirs = (rust_tokenizer(each.path / TOKENIZER).get_vocab() for each in both)
    except CheckpointError as error:
        raise SpecError(str(error)) from None
    if odd := sorted(dict(ours.items() ^ theirs.items())):
        raise SpecError(
            f"{folder.path / TOKENIZER}: the token {odd[0]!r:.60} is not the same in the base's "
            f"({len(odd)} such tokens); was the adapter trained on another base?"
        )


def _check_module(
    file: Path,
    config: dict[str, Any],
    module: str,
    sides: dict[str, TensorEntry],
    base: TensorEntry | None,
) -> None:
    if base is None:
        raise SpecError(
            f"{file}: adapts {module}, which the base does not have; was it trained on another?"
        )
    if missing := {"A", "B"} - sides.keys():
        raise SpecError(f"{file}: {module} has no lora_{missing.pop()}")
    rank = _rank(file.with_name(CONFIG), config, module)
    if len(base.shape) != 2:
        raise SpecError(f"{file}: adapts {module}, which is not a linear layer: {list(base.shape)}")
    outputs, inputs = base.shape
    for side, expected in (("A", (rank, inputs)), ("B", (outputs, rank))):
        if tuple(sides[side].shape) != expected:
            raise SpecError(
                f"{file}: lora_{side} of {module} has shape {list(sides[side].shape)}; rank "
                f"{rank} of adapter_config.json and the base's weight {list(base.shape)} "
                f"need {list(expected)}"
            )


def _rank(file: Path, config: dict[str, Any], module: str) -> int:
    """Return the rank of a module, with the exceptions in ``rank_pattern`` as PEFT reads them."""
    exceptions = _of_pattern(file, config.get("rank_pattern") or {}, [module])
    return int(exceptions.get(module, config["r"]))


def _of_pattern(file: Path, patterns: dict[str, Any], modules: list[str]) -> dict[str, Any]:
    """Return the value of the first pattern that matches, per module that one matches."""
    values: dict[str, Any] = {}
    for pattern, value in patterns.items():
        for module in _matching(file, rf"(.*\.)?({pattern})", modules):
            values.setdefault(module, value)
    return values


def _matching(file: Path, pattern: str, names: list[str]) -> set[str]:
    """Return the names that a pattern from the configuration ``file`` matches as a whole.

    Raises:
        SpecError: no regular expression, or one that takes longer than seconds.
    """
    import regex

    end = time.monotonic() + _PATTERN_SECONDS
    try:
        compiled = regex.compile(pattern)
        return {
            name
            for name in names
            if compiled.fullmatch(name, timeout=max(end - time.monotonic(), 1e-3))
        }
    except (regex.error, RecursionError) as error:
        raise SpecError(f"{file}: {pattern!r:.80} is not a regular expression ({error})") from None
    except TimeoutError:
        raise SpecError(
            f"{file}: the pattern {pattern!r:.80} takes more than "
            f"{_PATTERN_SECONDS:.0f} s; list the names of the target modules instead"
        ) from None


def _check_targets(
    file: Path, config: dict[str, Any], adapted: set[str], weights: list[str]
) -> None:
    """Check that all target modules have tensors, and no other modules do."""
    targets = config["target_modules"]
    modules = [name.removesuffix(".weight") for name in weights]
    if isinstance(targets, str):
        if targets == "all-linear":
            return
        wanted = _matching(file.with_name(CONFIG), targets, modules)
    else:
        endings = tuple(targets)
        wanted = {m for m in modules if m in endings or m.endswith(tuple(f".{e}" for e in endings))}
        for ending in endings:
            if not any(m == ending or m.endswith(f".{ending}") for m in modules):
                raise SpecError(f"{file}: its target module {ending!r} is not in the base")
    if odd := sorted(wanted ^ adapted):
        what = "has no tensors" if odd[0] in wanted else "is not a target of adapter_config.json"
        raise SpecError(f"{file}: {odd[0]} {what} ({len(odd)} such modules)")
