"""Facts on a model card, read from the files of the model and its training.

The hub checks licence, languages and ids when a card is uploaded. See
https://huggingface.co/docs/hub/model-cards.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from qwen3nb import paths
from qwen3nb.checkpoints.provenance import card_fields
from qwen3nb.records.record import Result
from qwen3nb.utils.atomic_files import read_json
from qwen3nb.utils.book_settings import book_settings
from qwen3nb.utils.choices import one_of
from qwen3nb.utils.schema import field_problem

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_NOT_GIVEN = "not given"
_LISTS = ("language", "datasets")
# Facts that the files of a training may state.
_RECORDED = ("license", "license_name", "license_link", "language", "datasets", "base_model")
Rows = list[tuple[str, str]]


def languages(results: Iterable[Result]) -> list[str]:
    """Return the languages of a model's tasks, in the hub's notation.

    MTEB writes ``eng-Latn`` for English and ``python-Code`` for a programming language.
    """
    named = {each for result in results for each in result.task.languages}
    named |= {each for r in results for part in r.parts for each in part.languages}
    codes = (each.partition("-") for each in named)
    short = {"eng": "en"}  # the hub accepts three letters for other languages
    return sorted({"code" if script == "Code" else short.get(c, c) for c, _, script in codes})


class Facts(BaseModel):
    """Content of a facts file: facts that no file of the model or its training has."""

    model_config = ConfigDict(extra="forbid", strict=True)

    license: str = ""
    license_name: str = ""
    license_link: str = ""
    language: list[str] = []
    datasets: list[str] = []
    base_model: str = ""
    objective: str = ""
    mixture: str = ""
    data: str = ""
    tokens: str = ""
    hardware: str = ""
    duration: str = ""
    citation: str = ""
    acknowledgements: str = ""


def read_facts(file: Path | None) -> dict[str, Any]:
    """Read facts about a model from a TOML file; empty without one.

    Raises:
        ValueError: not TOML, an unknown key (lists the known ones), or a value of a wrong type.
    """
    if file is None:
        return {}
    try:
        facts = tomllib.loads(file.read_text(encoding="utf-8"))
        return Facts.model_validate(facts).model_dump(exclude_unset=True)
    except ValidationError as error:
        one_of("fact", str(error.errors()[0]["loc"][0]), Facts.model_fields)
        raise ValueError(f"{file}: {field_problem(error, facts)}") from None
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError
        raise ValueError(f"{file}: not TOML: {error}") from None


def stated_facts(source: Path, file: Path | None, *, license: str = "") -> dict[str, Any]:
    """Return all stated facts, from a facts file and the training's files.

    Precedence: the facts file, ``training.json``, the card of the checkpoint, and the base model's
    name in its configuration.

    Args:
        source: the checkpoint, which need not exist any more.
        file: a facts file; see `read_facts`.
        license: licence, if none of these states one; by default that of the book.

    Raises:
        ValueError: as in `read_facts`.
    """
    license = license or book_settings().license
    known: dict[str, Any] = {"license": license} if license else {}
    config = source / "config.json"
    name = read_json(config).get("_name_or_path") if config.is_file() else ""
    if isinstance(name, str) and HUB_ID.fullmatch(name) and not Path(name).exists():
        known["base_model"] = name
    recorded = _listed(card_fields(source)) | _listed(training_of(source))
    return known | recorded | read_facts(file)


def _listed(stated: Mapping[str, Any]) -> dict[str, Any]:
    """Return the known facts, as lists where the card has lists."""
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
        (
            "vectors",
            f"{provenance['dimension']} dimensions, pooling {provenance['pooling']}, "
            + ("length 1" if provenance["normalize"] else "not normalised"),
        ),
        ("input", ", ".join(surround) or "the text as it is"),
        *([("prompts", by_role)] if prompts else []),
        ("longest text", f"{provenance['max_length']} tokens; the rest is truncated"),
        ("context length", f"{config['max_position_embeddings']:,} tokens (its positions)"),
        ("stored as", provenance["dtype"]),
        ("languages", ", ".join(facts.get("language", ()))),
        ("licence", facts.get("license")),
    ]
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
            (f"SHA-256 of {name}", digest) for name, digest in averaging.get("digests", {}).items()
        ]
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
    step, epoch = trainer.get("global_step"), trainer.get("epoch")
    # The entry of exactly that step; a cumulative log may end at an earlier one.
    losses = (e["eval_loss"] for e in log if e.get("step") == step and "eval_loss" in e)
    loss, tokens, seconds = next(losses, None), training.get("tokens_seen"), training.get("seconds")
    denoisers = [f"{each['mode']} {each['share']:.0%}" for each in training.get("denoisers", ())]
    rows: list[tuple[str, Any]] = [
        ("objective", training.get("objective") or facts.get("objective")),
        ("mixture", "; ".join(denoisers) or facts.get("mixture")),
        ("data", training.get("data") or facts.get("data") or ", ".join(facts.get("datasets", ()))),
        ("tokens seen", f"{tokens:,}" if tokens else facts.get("tokens")),
        ("steps", settings.get("steps") or step),
        ("epochs", f"{epoch:.3g}" if isinstance(epoch, int | float) else None),
        ("texts per step", settings.get("batch") or trainer.get("train_batch_size")),
        ("peak learning rate", settings.get("learning_rate") or max(rates, default=None)),
        ("eval_loss at this step", None if loss is None else f"{loss:.4f}"),
        ("hardware", training.get("hardware") or facts.get("hardware")),
        ("duration", facts.get("duration") if seconds is None else f"{seconds:,.0f} s"),
        ("seed", settings.get("seed")),
    ]
    return _stated(rows)


def _stated(rows: Iterable[tuple[str, Any]]) -> Rows:
    return [(name, _NOT_GIVEN if value in (None, "") else str(value)) for name, value in rows]


def source_folder(provenance: Mapping[str, Any]) -> Path:
    """Return the folder of the checkpoint at the time of extraction; it may not exist any more."""
    return paths.root() / str(provenance["source"]["folder"])
