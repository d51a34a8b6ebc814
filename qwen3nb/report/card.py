"""Model cards, from an export's provenance, its results and facts stated by the authors.

Unknown facts are marked as missing; nothing is guessed. The hub checks licence, languages and ids
when a card is uploaded; see https://huggingface.co/docs/hub/model-cards.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

import qwen3nb
from qwen3nb import paths
from qwen3nb.analysis.comparison.alignment import comparable, newest_records
from qwen3nb.answers.all_results import summarise
from qwen3nb.answers.comparison import Comparison, compare
from qwen3nb.answers.leaderboard import leaderboard
from qwen3nb.answers.one_model import parts_table, results_table, suite_table
from qwen3nb.checkpoints.folder import ModelFolder, trainer_state
from qwen3nb.checkpoints.model_card import CARD, card_fields
from qwen3nb.checkpoints.provenance import read_provenance
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.datasets.rows import finite_number
from qwen3nb.metrics.aggregate import Aggregate
from qwen3nb.models.kinds.prompts import named_prompts
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.kinds.source import fingerprint
from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.records.results import newest
from qwen3nb.records.store import latest
from qwen3nb.report.render.table import MANY
from qwen3nb.tiers import TIERS
from qwen3nb.utils.book_settings import book_settings
from qwen3nb.utils.format import code, escaped
from qwen3nb.utils.schema import read_toml
from qwen3nb.utils.secrets import known_secrets

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

    from qwen3nb.answers.extraction import ExtractedModel


log = logging.getLogger(__name__)

_TAGS = ("sentence-transformers", "feature-extraction", "sentence-similarity", "qwen3", "encoder")
# Baselines that any encoder should beat: random vectors, and lexical search without training.
_FLOORS = ("random", "bm25")


def card_text(
    folder: Path | str,
    results: Sequence[Result],
    *,
    tier: str = "smoke",
    facts: Path | None = None,
    license: str = "",
    hub_id: str = "",
    name: str = "",
    front: bool = True,
) -> str:
    """Return the card as Markdown, with front matter for the hub.

    Args:
        folder: an extracted model directory.
        results: any records; those of this model on the tier are shown.
        tier: the tier whose tasks the comparison shows.
        facts: a TOML file with facts from the authors; see `qwen3nb.report.card.Facts`.
        license: licence, if neither the facts nor the training's files state one.
        hub_id: the model's id on the hub, for the examples; by default they name the folder.
        name: name used in the examples for a folder that is not finished.
        front: whether to include the front matter; pages of the book omit it.

    Raises:
        ValueError: the folder was not written by `extract`, or a fact is invalid.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    folder = Path(folder)
    provenance = read_provenance(folder) or {}
    if "source" not in provenance:
        raise ValueError(
            f"{folder}: no qwen3nb.json of `qwen3nb extract`; expected a model directory it wrote"
        )
    stated = stated_facts(source_folder(provenance), facts, license=license)
    own = records_of(folder, results)
    if not stated.get("language"):
        stated["language"] = languages(own)
    # Not HTML: every outside value goes through `escaped`.
    template = Environment(
        loader=PackageLoader("qwen3nb.report", "."),
        undefined=StrictUndefined,
        trim_blocks=False,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - Markdown, escaped value by value
    ).get_template("card.md.j2")
    body = template.render(
        **(provenance | _about(folder, provenance, stated)),
        name=name or loaded_name(folder, hub_id),
        code=code,
        **_measured(own, results, tier=tier),
        version=qwen3nb.__version__,
    )
    if not front:
        return body
    return f"---\n{front_matter(folder, own, stated, name=provenance['label'])}\n---\n\n{body}"


def extract(
    checkpoint: Path | str,
    output: Path | str,
    *,
    facts: Path | str | None = None,
    license: str = "",
    hub_id: str = "",
    **options: Any,
) -> ExtractedModel:
    """Write the encoder of ``checkpoint`` to the directory ``output``, verified and described.

    Its README is the complete model card; `qwen3nb card` updates it once there are results.

    Args:
        checkpoint: a folder with ``config.json``, weights and a tokenizer.
        output: the directory to create; an earlier export is replaced after verification.
        facts: a TOML file with facts from the authors; see
            `qwen3nb.report.card.Facts`.
        license: licence, if neither the facts nor the training's files state one.
        hub_id: the model's id on the hub, for the card's examples.
        options: of `qwen3nb.extraction.extract.extract`: ``label``, ``onnx``, and those of
            `qwen3nb.extraction.export.ExportOptions`, such as ``pooling``, ``normalize``,
            ``max_length``, ``dtype``, ``prefix``, ``append_eos``.

    Raises:
        CheckpointError: the checkpoint is invalid, or the export does not reproduce its
            source. ``output`` is then left unchanged.
        ValueError: an unknown choice, or an invalid fact.
    """
    from qwen3nb.answers.extraction import ExtractedModel
    from qwen3nb.extraction import extract as extraction  # loads torch

    file = None if facts is None else Path(facts)
    read_facts(file)  # raises before anything is written
    name = loaded_name(Path(output), hub_id)

    def described(folder: Path) -> str:
        card = card_text(folder, [], facts=file, license=license, hub_id=hub_id, name=name)
        known_secrets().refuse(card, place=str(Path(output) / "README.md"))
        return card

    return ExtractedModel.of(extraction.extract(checkpoint, output, describe=described, **options))


def loaded_name(folder: Path, hub_id: str) -> str:
    """Return the name loaded in the examples: the id on the hub, or the folder's name, quotable.

    Raises:
        ValueError: not a valid id on the hub.
    """
    if hub_id and not HUB_ID.fullmatch(hub_id):
        raise ValueError(f"expected an id on the hub such as organisation/name; got {hub_id!r}")
    return hub_id or re.sub(r"""["'`\\\s<>]""", "-", folder.name)


def _about(folder: Path, provenance: dict[str, Any], stated: dict[str, Any]) -> dict[str, Any]:
    """Return the template's fields on the model, in addition to the provenance."""
    source = find_source(str(folder))
    training = training_of(source_folder(provenance))
    pooling = provenance["pooling"]
    others = [name for name in POOLINGS if name != pooling]
    objective = str(training.get("objective", stated.get("objective", "")))
    citation = stated.get("citation", "")
    bibtex = ""
    if citation.lstrip().startswith("@") and "```" not in citation:
        bibtex, citation = citation.strip(), ""
    return {
        # Themes print titles unescaped in places: use only the label, which is safe.
        "label": source.label,
        "parameters": f"{provenance['parameters']:,}",
        "other_pooling": others[0],
        "pooling_code": POOLINGS[pooling].code,
        "prompts": named_prompts(provenance.get("prompts", {})),
        "graph": provenance["verification"].get("onnx"),
        "toy": str(training.get("data", "")).startswith("PyDocs"),
        "details": _escaped(details(ModelFolder(folder).config, provenance, stated)),
        "origin": _escaped(origin(provenance, fingerprint(source))),
        "training": _escaped(training_facts(training, stated)),
        "unrecorded": not training,
        "ul2": "ul2" in objective.lower(),
        "bibtex": bibtex,
        "citation": escaped(citation),
        "thanks": escaped(stated.get("acknowledgements", "")),
    }


def _escaped(rows: Rows) -> Rows:
    """Escape the rows, and link the base model to the hub if it is a hub id."""
    cells = []
    for name, value in rows:
        text = escaped(value)
        if name == "base model" and HUB_ID.fullmatch(value):
            text = f"[{text}](https://huggingface.co/{value})"
        cells.append((escaped(name), text))
    return cells


def _measured(own: Sequence[Result], results: Sequence[Result], *, tier: str) -> dict[str, Any]:
    """Return the template's fields on the results; with many tasks, the means come first."""
    tier_tasks = TIERS[tier].task_keys
    other_tasks = [record.task.key for record in own if record.task.key not in tier_tasks]
    on_tier = compare(results, tier=tier)
    on_all = compare(results, tasks=[*tier_tasks, *other_tasks], baseline=on_tier.baseline)
    fields: dict[str, Any] = {
        "evaluation": "",
        "suite": "",
        "comparison": "",
        "many": len(own) > MANY,
        "substitutes": escaped(DataUsed.of(own).banner),
        "limits": [escaped(sentence) for sentence in limitations(own, on_all)],
        "runs": ", ".join(sorted({escaped(record.run) for record in own})),
    }
    if own:
        tables = [results_table(own), parts_table(own)]
        board = leaderboard(results, tier=tier, comparison=on_tier)
        fields["evaluation"] = "\n\n".join(table.to_markdown() for table in tables if table)
        fields["suite"] = suite_table(summarise(own, requested=tier_tasks)).to_markdown()
        fields["comparison"] = board.table().to_markdown()
    return fields


def records_of(folder: Path, results: Sequence[Result]) -> list[Result]:
    """Return the records of the model in ``folder``: same weights and files, any label.

    If a model was evaluated in several ways, such as with different poolings, the one with most
    records is shown; if tied, the newest.
    """
    if not results:
        return []
    content = fingerprint(find_source(str(folder)))
    same = [record for record in latest(results) if record.model.settings.get("model") == content]
    by_way: dict[str, list[Result]] = {}
    for record in newest_records(same)[0]:
        by_way.setdefault(record.model.identity, []).append(record)
    if not by_way:
        return []
    most = max(len(records) for records in by_way.values())
    tied = [record for records in by_way.values() if len(records) == most for record in records]
    return by_way[newest(tied).model.identity]


def front_matter(
    folder: Path, results: Sequence[Result], stated: Mapping[str, Any], *, name: str
) -> str:
    """Return the front matter as YAML, with the main score of every task.

    Base models and data sets that are not on the hub are left out.
    """
    import yaml
    from huggingface_hub import ModelCardData

    evaluated = _eval_results(results)
    modular = (folder / "modules.json").is_file()
    base = stated.get("base_model") or ""
    data = ModelCardData(
        model_name=name,
        library_name="sentence-transformers" if modular else "transformers",
        pipeline_tag="sentence-similarity" if modular else "feature-extraction",
        tags=[*_TAGS, *(["mteb"] if evaluated else [])],
        license=stated.get("license"),
        language=stated.get("language") or None,
        datasets=list(filter(HUB_ID.fullmatch, stated.get("datasets", ()))) or None,
        base_model=base if HUB_ID.fullmatch(base) else None,
        eval_results=evaluated or None,
        **{key: stated[key] for key in ("license_name", "license_link") if stated.get(key)},
    )
    # One line per innermost list or mapping: 250 lines for 61 tasks instead of 1,400.
    style: dict[str, Any] = {"default_flow_style": None, "width": 1000, "sort_keys": False}
    return str(yaml.dump(data.to_dict(), Dumper=_dumper(), allow_unicode=True, **style)).rstrip()


def _dumper() -> Any:
    """Return a safe dumper that also quotes what only YAML 1.2 takes for a number, as ``1e3``."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def represent_str(self, text: str) -> Any:
            style = "'" if _NUMBER.fullmatch(text) else None
            return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, Dumper.represent_str)
    return Dumper


def _eval_results(results: Sequence[Result]) -> list[EvalResult]:
    """Return entries for the hub's index of results: the main score of each split and subset.

    Scores on substitutes for a task's data are left out: the index would name other data.
    """
    from huggingface_hub import EvalResult

    entries = []
    for result in results:
        task = result.task
        if task.is_substitute:
            continue
        for subset, split, score in _scores_by_part(result):
            if score.value is None:
                continue
            name = task.name
            if subset not in (None, "default"):
                name = f"{name} ({subset})"
            entry = EvalResult(
                task_type=task.type,
                dataset_type=task.dataset,
                dataset_name=name,
                dataset_config=subset,
                dataset_split=split,
                dataset_revision=task.revision,
                metric_type=task.mteb.metric if task.mteb else task.main_metric,
                metric_value=round(score.value, 6),
            )
            entries.append(entry)
    return entries


def _scores_by_part(result: Result) -> list[tuple[str | None, str | None, Aggregate]]:
    """Return subset, split and score of each part of a task, or of the whole."""
    if result.parts:
        return [(part.subset, part.split, part.score) for part in result.parts]
    subset, split = None, None
    if len(result.task.subsets) == 1:
        subset = result.task.subsets[0]
    if len(result.task.splits) == 1:
        split = result.task.splits[0]
    return [(subset, split, result.main)]


def limitations(own: Sequence[Result], comparison: Comparison) -> list[str]:
    """Return sentences on tasks where a model is no better than a floor, and on missing tasks.

    Significance is that of the comparison with other models on the same tasks.
    """
    if not own:
        return ["Not measured yet: nothing is known about its quality."]
    sentences = []
    floors = [record for record in comparison.records.values() if record.model.label in _FLOORS]
    for result in sorted(own, key=lambda record: record.task.key):
        for floor in floors:
            if comparable(result, floor):
                sentences += _no_better(comparison, result, floor)
    types = sorted({str(result.task.type) for result in own})
    sentences.append(
        f"Measured on {len(own)} tasks of the types {', '.join(types)} (see above); nothing is "
        "known about other tasks, domains or languages."
    )
    return sentences


def _no_better(comparison: Comparison, result: Result, floor: Result) -> list[str]:
    """Return a sentence if a record is not shown to be better than a floor."""
    difference = comparison.between(result, floor)
    if difference is None:
        return []
    is_clear = difference.significant(comparison.procedure.alpha)
    if is_clear and difference.difference > 0:
        return []
    verdict = "behind" if is_clear else "not significantly different from"
    label = floor.model.label
    return [f"{difference.task}: {verdict} {label} ({difference.metric} {difference})."]


HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_NOT_GIVEN = "not given"
_LISTS = ("language", "datasets")
# Facts that the files of a training may state.
_NULLS = ("", "null", "Null", "NULL", "~")  # YAML's nothing, as text
_OF_LICENCE = ("license", "license_name", "license_link")
_RECORDED = (*_OF_LICENCE, "language", "datasets", "base_model")
# Text that YAML 1.2, which the hub reads, takes for a number; PyYAML writes it without quotes.
_NUMBER = re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?|0o[0-7]+")
Rows = list[tuple[str, str]]


def languages(results: Iterable[Result]) -> list[str]:
    """Return the languages of a model's tasks, in the hub's notation.

    MTEB writes ``eng-Latn`` for English and ``python-Code`` for a programming language.
    """
    codes = set()
    for result in results:
        names = [*result.task.languages]
        for part in result.parts:
            names += part.languages
        for name in names:
            language, _, script = name.partition("-")
            if script == "Code":
                language = "code"
            elif language == "eng":
                language = "en"  # the hub accepts three letters for other languages
            codes.add(language)
    return sorted(codes)


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
    facts: Facts = read_toml(file, Facts, known={"": Facts.model_fields})
    return facts.model_dump(exclude_unset=True)


def stated_facts(source: Path, file: Path | None, *, license: str = "") -> dict[str, Any]:
    """Return all stated facts, from a facts file and the training's files.

    Precedence: the facts file, ``training.json``, the card of the checkpoint ``source``, which need
    not exist any more, and the base model's name in its configuration. If none states a licence, it
    is ``license``, by default that of the book. A licence that is stated but cannot be read is not
    replaced by the book's; a warning names its file.

    Raises:
        ValueError: as in `read_facts`.
    """
    stated: dict[str, Any] = {}
    name = ModelFolder(source).config.get("_name_or_path")
    if isinstance(name, str) and HUB_ID.fullmatch(name) and not Path(name).exists():
        stated["base_model"] = name
    unreadable: list[str] = []
    for read in (_of_card, _of_training):
        try:
            facts = read(source)
        except _LicenceError as error:
            facts = error.others
            unreadable.append(str(error))
        _add_facts(stated, facts)
    _add_facts(stated, read_facts(file))
    if "license" not in stated and license:
        stated["license"] = license
    elif "license" not in stated and not unreadable and book_settings().license:
        stated["license"] = book_settings().license
    if "license" not in stated:
        for reason in unreadable:
            log.warning("%s; the card states no licence: give one by --license or --facts", reason)
    return stated


class _LicenceError(ValueError):
    """A licence that is stated, but cannot be read; has the ``others`` of the same file."""

    def __init__(self, message: str, others: dict[str, Any]) -> None:
        super().__init__(message)
        self.others = others


def _of_card(source: Path) -> dict[str, Any]:
    try:
        fields = card_fields(source)
    except CheckpointError as error:
        raise _LicenceError(str(error), {}) from None
    return _listed(_without_nulls(_with_usual_names(fields)), where=source / CARD)


def _with_usual_names(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields with ``License`` or ``licence`` as ``license``, unless that is there, too."""
    named = dict(fields)
    for name, value in fields.items():
        named.setdefault(name.lower().replace("licence", "license"), value)
    return named


def _without_nulls(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields of YAML read as text, without those that state nothing."""
    present: dict[str, Any] = {}
    for name, value in fields.items():
        values = value if isinstance(value, list) else [value]
        stated = [entry for entry in values if entry not in _NULLS]
        if stated:
            present[name] = stated if isinstance(value, list) else value
    return present


def _of_training(source: Path) -> dict[str, Any]:
    return _listed(training_of(source), where=source / "training.json")


def _add_facts(stated: dict[str, Any], facts: Mapping[str, Any]) -> None:
    """Add facts in place; a licence replaces the earlier one with its name and link."""
    if "license" in facts:
        for name in _OF_LICENCE:
            stated.pop(name, None)
    stated.update(facts)


def _listed(fields: Mapping[str, Any], *, where: Path) -> dict[str, Any]:
    """Return the recorded facts: lists where the card has lists; several licences are a list."""
    facts: dict[str, Any] = {}
    for name in _RECORDED:
        value = fields.get(name)
        values = value if isinstance(value, list) else [value]
        texts = [text.strip() for text in values if isinstance(text, str) and text.strip()]
        if not texts:
            continue
        several = name in _LISTS or (name == "license" and len(texts) > 1)
        facts[name] = texts if several else texts[0]
    if fields.get("license") and "license" not in facts:
        licence = str(fields["license"])
        raise _LicenceError(f"{where}: its licence {licence!r:.80} is no text", facts)
    return facts


def details(
    config: Mapping[str, Any], provenance: Mapping[str, Any], facts: Mapping[str, Any]
) -> Rows:
    """Return the model's details: its shape from ``config.json``, its use from the export."""
    heads = f"{config['num_attention_heads']}, key/value {config['num_key_value_heads']}"
    length = "length 1" if provenance["normalize"] else "not normalised"
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
            f"{provenance['dimension']} dimensions, pooling {provenance['pooling']}, {length}",
        ),
        ("input", _input_text(provenance)),
    ]
    if provenance.get("prompts"):
        rows.append(("prompts", _prompts_text(provenance["prompts"])))
    rows += [
        ("longest text", f"{provenance['max_length']} tokens; the rest is truncated"),
        ("context length", f"{config['max_position_embeddings']:,} tokens (its positions)"),
        ("stored as", provenance["dtype"]),
        ("languages", ", ".join(facts.get("language", ()))),
        ("licence", _licence(facts)),
    ]
    return _stated(rows)


def _input_text(provenance: Mapping[str, Any]) -> str:
    """Say what is put around a text."""
    parts = []
    if provenance["prefix"]:
        parts.append(f"starts with {provenance['prefix']!r}")
    if provenance["append_eos"]:
        parts.append("ends with the end-of-text token")
    return ", ".join(parts) or "the text as it is"


def _prompts_text(prompts: Mapping[str, str]) -> str:
    """Return the prompts by role, and who applies them."""
    parts = ", ".join(f"{role} {text!r}" for role, text in prompts.items())
    text = f"{parts}; applied by encode_query and encode_document"
    if "symmetric" in prompts:
        text = f"{text}, symmetric by encode alone"
    return text


def _licence(facts: Mapping[str, Any]) -> str:
    """Return the licence in words, with the name that stands behind ``other``."""
    licence = facts.get("license", "")
    if isinstance(licence, list):
        licence = ", ".join(licence)
    name = facts.get("license_name")
    if not name:
        return str(licence)
    return f"{licence} ({name})" if licence else str(name)


def origin(provenance: Mapping[str, Any], fingerprint: Mapping[str, Any]) -> Rows:
    """Return the source checkpoint, the digests, and what was verified."""
    source, check = provenance["source"], provenance["verification"]
    rows = [
        ("extracted from", Path(source["folder"]).name),
        ("SHA-256 of the source's weights", source["digest"]),
    ]
    averaging = source.get("averaging")
    if averaging:
        names = ", ".join(averaging["averaged_from"])
        rows.append(("average of", f"{averaging['rule']}: {names}"))
        for name, digest in averaging.get("digests", {}).items():
            rows.append((f"SHA-256 of {name}", digest))
    elif source.get("step") is not None:
        rows.append(("training step", str(source["step"])))
    tokens = check["tokens"]
    peer = check.get("sentence_transformers_difference")
    in_peer = "not checked" if peer is None else f"differs by at most {peer:.1e}"
    versions = [f"{library} {version}" for library, version in provenance["versions"].items()]
    rows += [
        ("SHA-256 of these weights", str(fingerprint["weights"])),
        (
            "verified",
            f"largest difference from the source encoder {check['max_difference']:.1e} (bound "
            f"{check['bound']:.0e}) over {check['texts']} texts of {min(tokens)} to {max(tokens)} "
            f"tokens, padded {' and '.join(check['padding'])}",
        ),
        ("in sentence-transformers", in_peer),
        ("written with", ", ".join(versions)),
    ]
    return rows


def training_of(source: Path) -> dict[str, Any]:
    """Read ``training.json`` and ``trainer_state.json`` in or above a checkpoint's folder.

    The content of ``trainer_state.json`` is under the key ``trainer``.
    """
    name = "training.json"
    folder = source
    if not (source / name).is_file() and (source.parent / name).is_file():
        folder = source.parent
    return {**ModelFolder(folder).object(name), "trainer": trainer_state(source)}


def training_facts(training: Mapping[str, Any], facts: Mapping[str, Any]) -> Rows:
    """Return facts of the training from its own files, or else from its authors."""
    settings, trainer = training.get("settings", {}), training.get("trainer", {})
    log = [entry for entry in trainer.get("log_history", ()) if isinstance(entry, dict)]
    step = trainer.get("global_step")
    denoisers = [
        f"{denoiser['mode']} {denoiser['share']:.0%}" for denoiser in training.get("denoisers", ())
    ]
    data = training.get("data") or facts.get("data") or ", ".join(facts.get("datasets", ()))
    rows: list[tuple[str, Any]] = [
        ("objective", training.get("objective") or facts.get("objective")),
        ("mixture", "; ".join(denoisers) or facts.get("mixture")),
        ("data", data),
        ("tokens seen", _tokens_seen(training, facts)),
        ("steps", settings.get("steps") or step),
        ("epochs", _epochs(trainer.get("epoch"))),
        ("texts per step", settings.get("batch") or trainer.get("train_batch_size")),
        ("peak learning rate", settings.get("learning_rate") or _peak_rate(log)),
        ("eval_loss at this step", _loss_at(step, log)),
        ("hardware", training.get("hardware") or facts.get("hardware")),
        ("duration", _duration(training, facts)),
        ("seed", settings.get("seed")),
    ]
    return _stated(rows)


def _tokens_seen(training: Mapping[str, Any], facts: Mapping[str, Any]) -> str | None:
    if training.get("tokens_seen"):
        return f"{training['tokens_seen']:,}"
    tokens: str | None = facts.get("tokens")
    return tokens


def _epochs(epoch: object) -> str | None:
    if not isinstance(epoch, int | float):
        return None
    return f"{epoch:.3g}"


def _peak_rate(log: Sequence[Mapping[str, Any]]) -> float | None:
    rates = [finite_number(entry.get("learning_rate")) for entry in log]
    return max((rate for rate in rates if rate is not None), default=None)


def _loss_at(step: object, log: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the loss of exactly that step; a cumulative log may end at an earlier one."""
    for entry in log:
        if entry.get("step") == step and "eval_loss" in entry:
            return f"{entry['eval_loss']:.4f}"
    return None


def _duration(training: Mapping[str, Any], facts: Mapping[str, Any]) -> str | None:
    if training.get("seconds") is not None:
        return f"{training['seconds']:,.0f} s"
    duration: str | None = facts.get("duration")
    return duration


def _stated(rows: Iterable[tuple[str, Any]]) -> Rows:
    return [(name, _NOT_GIVEN if value in (None, "") else str(value)) for name, value in rows]


def source_folder(provenance: Mapping[str, Any]) -> Path:
    """Return the folder of the checkpoint at the time of extraction; it may not exist any more."""
    return paths.root() / str(provenance["source"]["folder"])
