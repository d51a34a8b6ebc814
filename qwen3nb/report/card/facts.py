"""The facts on a model card, read from the files of the model and its training, never guessed."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.report.card.hub_rules import HUB_ID, license_problem, not_a_language
from qwen3nb.utils.atomic_files import read_json
from qwen3nb.utils.book_settings import book_settings
from qwen3nb.utils.choices import one_of

__all__ = [
    "FACTS",
    "NOT_GIVEN",
    "details",
    "origin",
    "read_facts",
    "source_folder",
    "stated_facts",
    "training_facts",
    "training_of",
]

NOT_GIVEN = "not given"
# Keys of a facts file, for what no file of the model or its training records.
FACTS = (
    "license", "license_name", "license_link", "language", "datasets", "base_model",
    "objective", "mixture", "data", "tokens", "hardware", "duration",
    "citation", "acknowledgements",
)  # fmt: skip
_LISTS = ("language", "datasets")
# Of these, what the files of a training may state themselves.
_RECORDED = ("license", "license_name", "license_link", "language", "datasets", "base_model")
Rows = list[tuple[str, str]]


def read_facts(file: Path | None) -> dict[str, Any]:
    """Read what the authors say about their model from a TOML file; empty without one.

    ``language`` and ``datasets`` are lists of strings, everything else is a string.

    Raises:
        ValueError: an unknown key (the message lists the known ones), a value of a wrong type, or
            a licence or language that the hub would refuse.
    """
    if file is None:
        return {}
    try:
        facts = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file}: not TOML: {error}") from None
    for name, value in facts.items():
        one_of("fact", name, FACTS)
        texts = value if name in _LISTS else [value]
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            wanted = "a list of strings" if name in _LISTS else "a string"
            raise ValueError(f"{file}: {name} is {value!r}; expected {wanted}")
    if "license" in facts and (problem := license_problem(facts["license"])):
        raise ValueError(f"{file}: {problem}")
    for code in filter(not_a_language, facts.get("language", ())):
        raise ValueError(f"{file}: language {code!r}; expected a code such as 'en' or 'zh'")
    return facts


def stated_facts(source: Path, file: Path | None, *, license: str = "") -> dict[str, Any]:
    """Return the facts that are stated anywhere: in a facts file, or in the training's own files.

    The facts file wins over ``training.json``, that over the card of the checkpoint, and that over
    the name that its configuration keeps of the model that the training began with.

    Args:
        source: the checkpoint; it may be gone.
        file: a facts file; see `read_facts`.
        license: the licence where none of these states one; by default that of the book, if the
            hub knows it.

    Raises:
        ValueError: as in `read_facts`, or ``license`` is none that the hub knows.
    """
    if license and (problem := license_problem(license)):
        raise ValueError(problem)
    book = book_settings().license
    license = license or ("" if license_problem(book) else book)
    training = training_of(source)
    recorded = {name: training[name] for name in _RECORDED if training.get(name)}
    known = _known(source) | _listed(recorded)
    return ({"license": license} if license else {}) | known | read_facts(file)


def _known(source: Path) -> dict[str, Any]:
    """Return what the checkpoint's configuration and its own card, if it has one, state."""
    known: dict[str, Any] = {}
    config = source / "config.json"
    name = read_json(config).get("_name_or_path") if config.is_file() else ""
    if isinstance(name, str) and HUB_ID.fullmatch(name) and not Path(name).exists():
        known["base_model"] = name
    card = source / "README.md"
    if card.is_file():
        known |= _listed(_front_matter(card))
    return known


def _front_matter(card: Path) -> dict[str, Any]:
    """Return the front matter of a card; empty if it has none that can be read."""
    import yaml

    parts = card.read_text(encoding="utf-8", errors="replace").split("---\n", 2)
    try:
        front = yaml.safe_load(parts[1]) if len(parts) == 3 and not parts[0].strip() else {}
    except yaml.YAMLError:
        return {}
    return front if isinstance(front, dict) else {}


def _listed(stated: Mapping[str, Any]) -> dict[str, Any]:
    """Return the recorded facts, with lists where the card has lists; others are left out."""
    facts: dict[str, Any] = {}
    for name in _RECORDED:
        value = stated.get(name)
        texts = [value] if isinstance(value, str) else value if isinstance(value, list) else []
        texts = [text for text in texts if isinstance(text, str) and text]
        if texts:
            facts[name] = texts if name in _LISTS else texts[0]
    return facts


def details(
    config: Mapping[str, Any], provenance: Mapping[str, Any], facts: Mapping[str, Any]
) -> Rows:
    """Return the model's details: its shape from ``config.json``, its use from the export."""
    heads = f"{config['num_attention_heads']}, key/value {config['num_key_value_heads']}"
    surround = [f"starts with {provenance['prefix']!r}"] if provenance["prefix"] else []
    surround += ["ends with the end-of-text token"] if provenance["append_eos"] else []
    prompts = [f"{role} {text!r}" for role, text in provenance.get("prompts", {}).items()]
    by_role = ", ".join(prompts) + "; applied by encode_query and encode_document"
    if "symmetric" in provenance.get("prompts", {}):
        by_role += ", symmetric by encode alone"
    rows: list[tuple[str, Any]] = [
        ("type", "Qwen3 encoder, bidirectional attention"),
        ("base model", facts.get("base_model")),
        ("parameters", f"{provenance['parameters']:,}, embeddings included"),
        ("layers", config["num_hidden_layers"]),
        ("hidden size", config["hidden_size"]),
        ("attention heads", f"{heads}, of {config['head_dim']} dimensions"),
        ("vocabulary", f"{config['vocab_size']:,} rows"),
        ("vectors", f"{provenance['dimension']} dimensions, pooling {provenance['pooling']}, "
                    + ("length 1" if provenance["normalize"] else "not normalised")),
        ("input", ", ".join(surround) or "the text as it is"),
        *([("prompts", by_role)] if prompts else []),
        ("longest text", f"{provenance['max_length']} tokens; the rest is truncated"),
        ("context length", f"{config['max_position_embeddings']:,} tokens (its positions)"),
        ("stored as", provenance["dtype"]),
        ("languages", ", ".join(facts.get("language", ()))),
        ("licence", facts.get("license")),
    ]  # fmt: skip
    return _stated(rows)


def origin(provenance: Mapping[str, Any], fingerprint: Mapping[str, Any]) -> Rows:
    """Return the source checkpoint, the digests, and what was verified."""
    source, check = provenance["source"], provenance["verification"]
    rows = [
        ("extracted from", Path(source["folder"]).name),
        ("SHA-256 of the source's weights", source["digest"]),
    ]
    if averaging := source.get("averaging"):
        rows.append(("average of", f"{averaging['rule']}: {', '.join(averaging['averaged_from'])}"))
        rows += [
            (f"SHA-256 of {name}", digest)
            for name, digest in averaging.get("digests", {}).items()
        ]  # fmt: skip
    elif source.get("step") is not None:
        rows.append(("training step", str(source["step"])))
    rows += [
        ("SHA-256 of these weights", str(fingerprint["weights"])),
        (
            "verified",
            f"largest difference from the source encoder {check['max_difference']:.1e} (bound "
            f"{check['bound']:.0e}) over {check['texts']} texts of {min(check['tokens'])} to "
            f"{max(check['tokens'])} tokens, padded {' and '.join(check['padding'])}",
        ),
        (
            "in sentence-transformers",
            f"differs by at most {check['sentence_transformers_difference']:.1e}"
            if check.get("sentence_transformers_difference") is not None
            else "not checked",
        ),
        ("written with", ", ".join(f"{k} {v}" for k, v in provenance["versions"].items())),
    ]
    return rows


def training_of(source: Path) -> dict[str, Any]:
    """Read ``training.json`` and ``trainer_state.json`` in or above a checkpoint's folder.

    The content of ``trainer_state.json`` is under the key ``trainer``.
    """
    training: dict[str, Any] = {}
    for folder in (source, source.parent):
        if (folder / "training.json").is_file():
            training = dict(read_json(folder / "training.json"))
            break
    state = source / "trainer_state.json"
    if state.is_file():
        training["trainer"] = read_json(state)
    return training


def training_facts(training: Mapping[str, Any], facts: Mapping[str, Any]) -> Rows:
    """Return facts of the training from its own files, or else from its authors."""
    settings, trainer = training.get("settings", {}), training.get("trainer", {})
    log = [entry for entry in trainer.get("log_history", ()) if isinstance(entry, dict)]
    rates = [entry["learning_rate"] for entry in log if "learning_rate" in entry]
    tokens = training.get("tokens_seen")
    rows: list[tuple[str, Any]] = [
        ("objective", training.get("objective") or facts.get("objective")),
        ("mixture", _mixture(training) or facts.get("mixture")),
        ("data", training.get("data") or facts.get("data") or ", ".join(facts.get("datasets", ()))),
        ("tokens seen", f"{tokens:,}" if tokens else facts.get("tokens")),
        ("steps", settings.get("steps") or trainer.get("global_step")),
        ("epochs", _rounded(trainer.get("epoch"))),
        ("texts per step", settings.get("batch") or trainer.get("train_batch_size")),
        ("peak learning rate", settings.get("learning_rate") or max(rates, default=None)),
        ("eval_loss at this step", _at_step(log, trainer.get("global_step"), "eval_loss")),
        ("hardware", training.get("hardware") or facts.get("hardware")),
        ("duration", _seconds(training.get("seconds")) or facts.get("duration")),
        ("seed", settings.get("seed")),
    ]
    return _stated(rows)


def _rounded(number: object) -> str | None:
    return f"{number:.3g}" if isinstance(number, int | float) else None


def _mixture(training: Mapping[str, Any]) -> str:
    return "; ".join(
        f"{each['mode']} {each['share']:.0%}" for each in training.get("denoisers", ())
    )


def _at_step(log: Iterable[Mapping[str, Any]], step: object, metric: str) -> str | None:
    """Return the entry of exactly that step; a cumulative log may end at an earlier one."""
    value = next((e[metric] for e in log if e.get("step") == step and metric in e), None)
    return None if value is None else f"{value:.4f}"


def _seconds(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds:,.0f} s"


def _stated(rows: Iterable[tuple[str, Any]]) -> Rows:
    return [(name, NOT_GIVEN if value in (None, "") else str(value)) for name, value in rows]


def source_folder(provenance: Mapping[str, Any]) -> Path:
    """Return the folder of the checkpoint at the time of extraction; it may be gone."""
    return paths.root() / str(provenance["source"]["folder"])
