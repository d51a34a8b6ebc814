"""Model cards, from an export's provenance and its results.

Unknown facts are marked as missing; nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import qwen3nb
from qwen3nb.analysis.comparison.alignment import comparable, newest_records
from qwen3nb.analysis.comparison.compare import Comparison, compare
from qwen3nb.checkpoints.provenance import read_provenance
from qwen3nb.metrics.aggregate import Aggregate
from qwen3nb.models.kinds.prompts import named_prompts
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.kinds.source import fingerprint
from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.records.record import Result
from qwen3nb.records.store import latest
from qwen3nb.report.card.facts import (
    HUB_ID,
    details,
    languages,
    origin,
    read_facts,
    source_folder,
    stated_facts,
    training_facts,
    training_of,
)
from qwen3nb.report.leaderboard.all_results import summarise
from qwen3nb.report.leaderboard.board import leaderboard
from qwen3nb.report.leaderboard.one_model import (
    parts_table,
    results_table,
    suite_table,
)
from qwen3nb.report.render.table import MANY
from qwen3nb.tiers import TIERS
from qwen3nb.utils.atomic_files import read_json
from qwen3nb.utils.format import code, escaped
from qwen3nb.utils.secrets import known_secrets

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

    from qwen3nb.extraction.extract import Extraction

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
        facts: a TOML file with facts from the authors; see `qwen3nb.report.card.facts.Facts`.
        license: licence, if neither the facts nor the training's files state one.
        hub_id: the model's id on the hub, for the examples; by default they name the folder.
        name: name used in the examples for a folder that is not finished.
        front: whether to include the front matter; pages of the book omit it.

    Raises:
        ValueError: the folder was not written by `extract`, or a fact is invalid.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    folder = Path(folder)
    provenance = read_provenance(folder)
    if provenance is None:
        raise ValueError(
            f"{folder}: no qwen3nb.json; expected a model directory written by `qwen3nb extract`"
        )
    stated = stated_facts(source_folder(provenance), facts, license=license)
    own = _of_model(folder, results)
    if not stated.get("language"):
        stated["language"] = languages(own)
    # Not HTML: every outside value goes through `escaped`.
    template = Environment(
        loader=PackageLoader("qwen3nb.report.card", "."),
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
) -> Extraction:
    """Write the encoder of ``checkpoint`` to the directory ``output``, verified and described.

    Its README is the complete model card; `qwen3nb card` updates it once there are results.

    Args:
        checkpoint: a folder with ``config.json``, weights and a tokenizer.
        output: the directory to create; an earlier export is replaced after verification.
        facts: a TOML file with facts from the authors; see
            `qwen3nb.report.card.facts.Facts`.
        license: licence, if neither the facts nor the training's files state one.
        hub_id: the model's id on the hub, for the card's examples.
        options: of `qwen3nb.extraction.extract.extract_encoder`: ``label``, ``allow``,
            ``onnx``, and those of `qwen3nb.extraction.export.ExportOptions`,
            such as ``pooling``, ``normalize``, ``max_length``, ``dtype``, ``prefix``,
            ``append_eos``.

    Raises:
        CheckpointError: the checkpoint is invalid, or the export does not reproduce its
            source. ``output`` is then left unchanged.
        ValueError: an unknown choice, or an invalid fact.
    """
    from qwen3nb.extraction.extract import extract_encoder  # loads torch

    file = None if facts is None else Path(facts)
    read_facts(file)  # raises before anything is written
    name = loaded_name(Path(output), hub_id)

    def described(folder: Path) -> str:
        card = card_text(folder, [], facts=file, license=license, hub_id=hub_id, name=name)
        known_secrets().refuse(card, where=str(Path(output) / "README.md"))
        return card

    return extract_encoder(checkpoint, output, describe=described, **options)


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
    pooling, citation = provenance["pooling"], stated.get("citation", "")
    is_bibtex = citation.lstrip().startswith("@") and "```" not in citation
    return {
        # Themes print titles unescaped in places: use only the label, which is safe.
        "label": source.label,
        "parameters": f"{provenance['parameters']:,}",
        "other_pooling": next(each for each in POOLINGS if each != pooling),
        "pooling_code": POOLINGS[pooling].code,
        "prompts": named_prompts(provenance.get("prompts", {})),
        "graph": provenance["verification"].get("onnx"),
        "toy": str(training.get("data", "")).startswith("PyDocs"),
        "details": _escaped(details(read_json(folder / "config.json"), provenance, stated)),
        "origin": _escaped(origin(provenance, fingerprint(source))),
        "training": _escaped(training_facts(training, stated)),
        "unrecorded": not training,
        "ul2": "ul2" in str(training.get("objective", stated.get("objective", ""))).lower(),
        "bibtex": citation.strip() if is_bibtex else "",
        "citation": "" if is_bibtex else escaped(citation),
        "thanks": escaped(stated.get("acknowledgements", "")),
    }


def _escaped(rows: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Escape the rows, and link the base model to the hub if it is a hub id."""
    return [
        (escaped(name), f"[{escaped(value)}](https://huggingface.co/{value})")
        if name == "base model" and HUB_ID.fullmatch(value)
        else (escaped(name), escaped(value))
        for name, value in rows
    ]


def _measured(own: Sequence[Result], results: Sequence[Result], *, tier: str) -> dict[str, Any]:
    """Return the template's fields on the results; with many tasks, the means come first."""
    tasks = TIERS[tier].task_keys
    on_tier = compare(results, tier=tier)
    measured = [*tasks, *(r.task.key for r in own if r.task.key not in tasks)]
    limits = limitations(own, compare(results, tasks=measured, baseline=on_tier.baseline))
    shown = dict.fromkeys(("evaluation", "suite", "comparison"), "")
    many = len(own) > MANY
    if own:
        tables = [each.to_markdown() for each in (results_table(own), parts_table(own)) if each]
        board = leaderboard(results, tier=tier, comparison=on_tier)
        shown["evaluation"] = "\n\n".join(tables)
        shown["suite"] = suite_table(summarise(own, requested=tasks)).to_markdown()
        shown["comparison"] = board.to_markdown()
    return {
        **shown,
        "many": many,
        "limits": [escaped(limit) for limit in limits],
        "runs": ", ".join(sorted({escaped(result.run) for result in own})),
    }


def _of_model(folder: Path, results: Sequence[Result]) -> list[Result]:
    """Return the records of the model in ``folder``: same weights and files, any label.

    If a model was evaluated in several ways, such as with different poolings, the one with most
    records is shown; if tied, the newest.
    """
    if not results:
        return []
    content = fingerprint(find_source(str(folder)))
    same = [r for r in latest(results) if r.model.settings.get("model") == content]
    ways: dict[str, list[Result]] = {}
    for record in newest_records(same)[0]:
        ways.setdefault(record.model.identity, []).append(record)
    return max(ways.values(), key=lambda own: (len(own), max(r.finished for r in own)), default=[])


def front_matter(
    folder: Path, results: Sequence[Result], stated: Mapping[str, Any], *, name: str
) -> str:
    """Return the front matter as YAML, with the main score of every task.

    Base models and data sets that are not on the hub are left out.
    """
    import yaml
    from huggingface_hub import ModelCardData

    evaluated = list(_eval_results(results))
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
    return str(yaml.safe_dump(data.to_dict(), allow_unicode=True, **style)).rstrip()


def _eval_results(results: Sequence[Result]) -> Iterator[EvalResult]:
    """Yield entries for the hub's index of results: the main score of each split and subset."""
    from huggingface_hub import EvalResult

    for result in results:
        task = result.task
        only = [names[0] if len(names) == 1 else None for names in (task.subsets, task.splits)]
        scores: list[tuple[str | None, str | None, Aggregate]] = [
            (part.subset, part.split, part.score) for part in result.parts
        ]
        for subset, split, score in scores or [(only[0], only[1], result.main)]:
            if score.value is None:
                continue
            part = "" if subset in (None, "default") else f" ({subset})"
            yield EvalResult(
                task_type=task.type,
                dataset_type=task.dataset,
                dataset_name=f"{task.name}{part}",
                dataset_config=subset,
                dataset_split=split,
                dataset_revision=task.revision,
                metric_type=task.mteb.metric if task.mteb else task.main_metric,
                metric_value=round(score.value, 6),
            )


def limitations(own: Sequence[Result], comparison: Comparison) -> list[str]:
    """Return sentences on tasks where a model is no better than a floor, and on missing tasks.

    Significance is that of the comparison with other models on the same tasks.
    """
    if not own:
        return ["Not measured yet: nothing is known about its quality."]
    sentences = []
    for result in sorted(own, key=lambda each: each.task.key):
        for (task, _), floor in comparison.records.items():
            known = task == result.task.key and floor.model.label in _FLOORS
            if not known or not comparable(result, floor):
                continue
            difference = comparison.between(result, floor)
            if difference is None:
                continue
            clear = difference.significant(comparison.procedure.alpha)
            if not clear or difference.difference < 0:
                verdict = "behind" if clear else "not significantly different from"
                sentences.append(
                    f"{task}: {verdict} {floor.model.label} ({difference.metric} {difference})."
                )
    types = sorted({str(result.task.type) for result in own})
    return [
        *sentences,
        f"Measured on {len(own)} tasks of the types {', '.join(types)} (see above); nothing is "
        "known about other tasks, domains or languages.",
    ]
