"""The model card: from the export's provenance and the results, and nothing else.

What is not known is said to be missing; nothing is filled in.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.extraction.export import read_provenance
from qwen3nb.files import read_json
from qwen3nb.models.source import find_source
from qwen3nb.report.comparison import comparison_table
from qwen3nb.report.tables import markdown_text
from qwen3nb.report.views import latest, results_table
from qwen3nb.results import Result

__all__ = ["card_body", "card_text"]


def card_body(folder: Path | str, results: Sequence[Result], *, tier: str = "smoke") -> str:
    """The card without its front matter, as Markdown.

    Args:
        folder: an extracted model directory.
        results: any records; those of this model and its tier are shown.
        tier: whose tasks the comparison shows.

    Raises:
        ValueError: the folder was not written by `extract`.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    folder = Path(folder)
    provenance = read_provenance(folder)
    if provenance is None:
        raise ValueError(f"{folder}: no qwen3nb.json; a card is made for an extracted model")
    training = _training(paths.root() / provenance["source"]["folder"])
    own = _of_model(folder, results)
    # Not HTML: every value that comes from elsewhere goes through markdown_text.
    template = Environment(
        loader=PackageLoader("qwen3nb.report", "."),
        undefined=StrictUndefined,
        trim_blocks=False,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - Markdown, escaped value by value
    ).get_template("card.md.j2")
    return template.render(
        # Themes print a page's title unescaped in places: only the file-safe label will do.
        label=find_source(str(folder)).label,
        parameters=f"{provenance['parameters']:,}",
        dimension=provenance["dimension"],
        pooling=provenance["pooling"],
        max_length=provenance["max_length"],
        folder=markdown_text(folder.name).replace('"', ""),
        toy=training.get("data", "").startswith("PyDocs"),
        facts=[(markdown_text(k), markdown_text(v)) for k, v in _facts(provenance)],
        training=[(markdown_text(k), markdown_text(v)) for k, v in _training_facts(training)],
        evaluation=results_table(own).markdown() if own else "",
        comparison=comparison_table(results, tier=tier).markdown() if own else "",
    )


def card_text(folder: Path | str, results: Sequence[Result], *, tier: str = "smoke") -> str:
    """The whole card, with the front matter that the hub reads.

    Raises:
        ValueError: as in `card_body`.
    """
    from huggingface_hub import EvalResult, ModelCardData

    folder = Path(folder)
    body = card_body(folder, results, tier=tier)
    provenance = read_provenance(folder) or {}
    evaluated = [
        EvalResult(
            task_type=result.task["type"],
            dataset_type=result.task["dataset"],
            dataset_name=result.task["name"],
            dataset_revision=result.task["revision"],
            metric_type=result.task["main_metric"],
            metric_value=result.main.value,
        )
        for result in _of_model(folder, results)
        if result.main.value is not None
    ]
    data = ModelCardData(
        model_name=provenance["label"],
        library_name="transformers",
        pipeline_tag="sentence-similarity",
        tags=[
            "sentence-transformers",
            "feature-extraction",
            "sentence-similarity",
            "mteb",
            "qwen3",
            "encoder",
        ],
        eval_results=evaluated or None,
    )
    return f"---\n{data.to_yaml()}\n---\n\n{body}"


def _of_model(folder: Path, results: Sequence[Result]) -> list[Result]:
    """The records of the model in ``folder``: same weights and files, whatever its label."""
    fingerprint = find_source(str(folder)).fingerprint()
    return [r for r in latest(results) if r.model["settings"]["model"] == fingerprint]


def _facts(provenance: dict[str, Any]) -> list[tuple[str, str]]:
    source, check = provenance["source"], provenance["verification"]
    facts = [
        ("pooling", provenance["pooling"]),
        ("vectors", "length 1" if provenance["normalize"] else "not normalised"),
        ("dtype", provenance["dtype"]),
        ("taken from", Path(source["folder"]).name),
        ("SHA-256 of the source's weights", source["digest"]),
    ]
    if averaging := source.get("averaging"):
        facts.append(("average of", ", ".join(averaging["averaged_from"])))
    elif source.get("step") is not None:
        facts.append(("training step", str(source["step"])))
    facts.append(
        (
            "verified",
            f"greatest difference to the source encoder {check['max_difference']:.1e} over "
            f"{check['texts']} texts of {min(check['tokens'])} to {max(check['tokens'])} tokens",
        )
    )
    return facts


def _training(source: Path) -> dict[str, Any]:
    """The run's own record of its training, beside or above the checkpoint."""
    for folder in (source, source.parent):
        if (folder / "training.json").is_file():
            return dict(read_json(folder / "training.json"))
    return {}


def _training_facts(training: dict[str, Any]) -> list[tuple[str, str]]:
    if not training:
        return []
    mixture = "; ".join(
        f"{each['mode']} {each['share']:.0%}" for each in training.get("denoisers", ())
    )
    settings = training.get("settings", {})
    facts = {
        "objective": training.get("objective"),
        "mixture": mixture,
        "data": training.get("data"),
        "tokens seen": f"{training['tokens_seen']:,}" if "tokens_seen" in training else None,
        "steps": settings.get("steps"),
        "texts per step": settings.get("batch"),
        "peak learning rate": settings.get("learning_rate"),
        "hardware": training.get("hardware"),
        "seed": settings.get("seed"),
    }
    return [
        (name, str(value) if value not in (None, "") else "not given")
        for name, value in facts.items()
    ]
