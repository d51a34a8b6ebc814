"""Model cards, made from an export's provenance and its results alone.

Unknown facts are marked as missing; nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import qwen3nb
from qwen3nb.analysis.comparison.alignment import newest_records
from qwen3nb.analysis.comparison.compare import compare
from qwen3nb.checkpoints.provenance import read_provenance
from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.models.sources.fingerprint import fingerprint
from qwen3nb.models.sources.prompt_names import named_prompts
from qwen3nb.models.sources.resolve import find_source
from qwen3nb.records.record import Result
from qwen3nb.records.store import latest
from qwen3nb.report.card.facts import (
    details,
    origin,
    source_folder,
    stated_facts,
    training_facts,
    training_of,
)
from qwen3nb.report.card.hub_rules import HUB_ID
from qwen3nb.report.card.limitations import limitations
from qwen3nb.report.card.metadata import front_matter
from qwen3nb.report.leaderboard.one_model import main_scores_table, parts_table
from qwen3nb.report.leaderboard.score_table import leaderboard
from qwen3nb.report.leaderboard.suite import suite_table, summarise
from qwen3nb.report.leaderboard.tables import results_table
from qwen3nb.report.render.sections import MANY
from qwen3nb.tiers import TIERS
from qwen3nb.utils.atomic_files import read_json
from qwen3nb.utils.markdown import code, escaped

__all__ = ["card_body", "card_text", "loaded_name"]

# For states (B, T, D) and a mask (B, T), as a reader of the card would write it.
_POOLING_CODE = {
    "mean": "vectors = (states * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)",
    "cls": "first = mask.argmax(1)\nvectors = states[torch.arange(len(states)), first]",
    "last": "last = (mask.cumsum(1) * mask).argmax(1)\n"
    "vectors = states[torch.arange(len(states)), last]",
    "weighted_mean": "weights = (mask.cumsum(1) * mask).unsqueeze(-1)\n"
    "vectors = (states * weights).sum(1) / weights.sum(1)",
}


def card_body(
    folder: Path | str,
    results: Sequence[Result],
    *,
    tier: str = "smoke",
    facts: Path | None = None,
    license: str = "",
    hub_id: str = "",
    name: str = "",
) -> str:
    """Return the card as Markdown, without its front matter.

    Args:
        folder: an extracted model directory.
        results: any records; those of this model and on its tier are shown.
        tier: the tier whose tasks the comparison shows.
        facts: a TOML file with facts that only the authors know; see `FACTS`.
        license: the licence if neither the facts nor the files of the training state one.
        hub_id: the model's id on the hub, for the examples; by default they name the folder.
        name: what the examples name instead, of a folder that is not finished.

    Raises:
        ValueError: the folder was not written by `extract`, or a fact is invalid.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    folder = Path(folder)
    provenance = _provenance(folder)
    stated = stated_facts(source_folder(provenance), facts, license=license)
    # Not HTML: every outside value goes through `escaped`.
    template = Environment(
        loader=PackageLoader("qwen3nb.report.card", "."),
        undefined=StrictUndefined,
        trim_blocks=False,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - Markdown, escaped value by value
    ).get_template("card.md.j2")
    name = name or loaded_name(folder, hub_id)
    return template.render(
        **_about(folder, provenance, stated),
        **_prompted(named_prompts(provenance.get("prompts", {})), name=name),
        name=name,
        **_measured(folder, results, tier=tier),
        version=qwen3nb.__version__,
    )


def _about(folder: Path, provenance: dict[str, Any], stated: dict[str, Any]) -> dict[str, Any]:
    """Return what the template says about the model itself."""
    source = find_source(str(folder))
    training = training_of(source_folder(provenance))
    pooling = provenance["pooling"]
    return {
        # Themes print a page's title unescaped in places: only the file-safe label is safe.
        "label": source.label,
        "parameters": f"{provenance['parameters']:,}",
        "dimension": provenance["dimension"],
        "pooling": pooling,
        "other_pooling": next(each for each in POOLINGS if each != pooling),
        "pooling_code": _POOLING_CODE[pooling],
        "normalize": provenance["normalize"],
        "max_length": provenance["max_length"],
        "prefix": bool(provenance["prefix"]),
        "graph": provenance["verification"].get("onnx"),
        "toy": str(training.get("data", "")).startswith("PyDocs"),
        "details": _linked(details(read_json(folder / "config.json"), provenance, stated)),
        "origin": _escaped(origin(provenance, fingerprint(source))),
        "training": _escaped(training_facts(training, stated)),
        "unrecorded": not training,
        "ul2": "ul2" in str(training.get("objective", stated.get("objective", ""))).lower(),
        **_citation(stated.get("citation", "")),
        "thanks": escaped(stated.get("acknowledgements", "")),
    }


def _prompted(prompts: Mapping[str, str], *, name: str) -> dict[str, Any]:
    """Return what the template says about prompts: what each program does, and how it gets them."""
    if not {"query", "passage"} & prompts.keys():
        return {"prompts": [], "symmetric": False, "unprompted": ""}
    symmetric = "symmetric" in prompts
    plain = "that of any text" if symmetric else "none"
    by_name = [code(f"encode_kwargs={{'prompt_name': {role!r}}}") for role in ("query", "document")]
    query, document = (prompts.get(role, "") for role in ("query", "passage"))
    rows = [
        ("langchain-huggingface 1.2.3", plain,
         code(f"HuggingFaceEmbeddings(model_name={name!r}, query_encode_kwargs={{'prompt_name': "
              "'query'}, encode_kwargs={'prompt_name': 'document'})")),
        ("llama-index-embeddings-huggingface 0.8.0", "none",
         code(f"HuggingFaceEmbedding(model_name={name!r}, query_instruction={query!r}, "
              f"text_instruction={document!r})")),
        ("Haystack 3.4.0 (sentence-transformers-haystack 2.0.0)", plain,
         f"`SentenceTransformersTextEmbedder` with {by_name[0]}, "
         f"`SentenceTransformersDocumentEmbedder` with {by_name[1]}"),
        ("txtai 9.14.0", "applied",
         code(f"Embeddings(path={name!r}, method='sentence-transformers')")
         + "; `instructions` would add them twice"),
        ("Chroma 1.5.9", plain, "no option; pass vectors: "
         "`collection.add(…, embeddings=model.encode_document(texts))`, "
         "`collection.query(query_embeddings=model.encode_query(texts))`"),
        ("LanceDB 0.40.0", plain, "no option; pass vectors: "
         "`table.search(model.encode_query(text))`"),
        ("pyterrier-dr 0.8.1", plain, "no option; in a subclass of `SBertBiEncoder`, let "
         "`encode_queries` return `self.model.encode_query(list(texts))`, and `encode_docs` alike"),
        ("text-embeddings-inference", plain, '`"prompt_name": "query"` in a request (documented)'),
        ("others, such as transformers and transformers.js", "none",
         f"put the prompt before the text: {code(repr(query))}, {code(repr(document))}"),
    ]  # fmt: skip
    unprompted = ", but without the prompts: see below"
    return {"prompts": rows, "symmetric": symmetric, "unprompted": unprompted}


def _measured(folder: Path, results: Sequence[Result], *, tier: str) -> dict[str, Any]:
    """Return what the template says about the results."""
    own = _of_model(folder, results)
    tasks = TIERS[tier].task_keys
    on_tier = compare(results, tier=tier)
    measured = [*tasks, *(r.task.key for r in own if r.task.key not in tasks)]
    limits = limitations(own, compare(results, tasks=measured, baseline=on_tier.baseline))
    table = leaderboard(results, tier=tier, comparison=on_tier)
    return {
        "evaluation": _evaluation(own),
        "suite": suite_table(summarise(own, requested=tasks)).to_markdown() if own else "",
        "comparison": table.to_markdown() if own else "",
        "limits": [escaped(limit) for limit in limits],
        "runs": ", ".join(sorted({escaped(result.run) for result in own})),
    }


def _evaluation(own: Sequence[Result]) -> str:
    """Return the model's scores, of many tasks the main ones, and those by language."""
    if not own:
        return ""
    table = results_table(own) if len(own) <= MANY else main_scores_table(own)
    parts = parts_table(own)
    return "\n\n".join(each.to_markdown() for each in (table, parts) if each.rows)


def card_text(
    folder: Path | str,
    results: Sequence[Result],
    *,
    tier: str = "smoke",
    facts: Path | None = None,
    license: str = "",
    hub_id: str = "",
    name: str = "",
) -> str:
    """Return the whole card, with the front matter that the hub reads.

    Raises:
        ValueError: as in `card_body`.
    """
    folder = Path(folder)
    body = card_body(
        folder, results, tier=tier, facts=facts, license=license, hub_id=hub_id, name=name
    )
    provenance = _provenance(folder)
    stated = stated_facts(source_folder(provenance), facts, license=license)
    front = front_matter(folder, _of_model(folder, results), stated, name=provenance["label"])
    return f"---\n{front}\n---\n\n{body}"


def loaded_name(folder: Path, hub_id: str) -> str:
    """Return what the examples load: the id on the hub, or the folder's name, safe in quotes.

    Raises:
        ValueError: an id that the hub cannot have.
    """
    if hub_id and not HUB_ID.fullmatch(hub_id):
        raise ValueError(f"expected an id on the hub such as organisation/name; got {hub_id!r}")
    return hub_id or re.sub(r"""["'`\\\s<>]""", "-", folder.name)


def _provenance(folder: Path) -> dict[str, Any]:
    provenance = read_provenance(folder)
    if provenance is None:
        raise ValueError(
            f"{folder}: no qwen3nb.json; expected a model directory written by `qwen3nb extract`"
        )
    return provenance


def _escaped(rows: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(escaped(name), escaped(value)) for name, value in rows]


def _linked(rows: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Escape the rows, and link the base model to the hub if it is named by its id there."""
    hub = "https://huggingface.co"
    return [
        (name, f"[{text}]({hub}/{value})" if HUB_ID.fullmatch(value) else text)
        if name == "base model"
        else (name, text)
        for (name, text), (_, value) in zip(_escaped(rows), rows, strict=True)
    ]


def _citation(text: str) -> dict[str, str]:
    """Return a citation as BibTeX, for a code block, or as escaped text."""
    if text.lstrip().startswith("@") and "```" not in text:
        return {"bibtex": text.strip(), "citation": ""}
    return {"bibtex": "", "citation": escaped(text)}


def _of_model(folder: Path, results: Sequence[Result]) -> list[Result]:
    """Return the records of the model in ``folder``: same weights and files, any label.

    A model that was evaluated in several ways, as with another pooling, is shown in the one with
    most records; of several, in the newest.
    """
    if not results:
        return []
    content = fingerprint(find_source(str(folder)))
    same = [r for r in latest(results) if r.model.settings.get("model") == content]
    ways: dict[str, list[Result]] = {}
    for record in newest_records(same)[0]:
        ways.setdefault(record.model.identity, []).append(record)
    return max(ways.values(), key=lambda own: (len(own), max(r.finished for r in own)), default=[])
