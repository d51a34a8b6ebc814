"""Extract an encoder with its whole card, as Python and the command line both do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from qwen3nb.extraction.extract import Extraction, extract_encoder
from qwen3nb.report.card.card import card_text, loaded_name
from qwen3nb.report.card.facts import stated_facts
from qwen3nb.utils.secrets import known_secrets


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

    Its README is the whole model card; `qwen3nb card` writes it again once there are results.

    Args:
        checkpoint: a folder with ``config.json``, weights and a tokenizer.
        output: the directory to create; an earlier export is replaced after verification.
        facts: a TOML file with what only the authors know; see
            `qwen3nb.report.card.facts.Facts`.
        license: the licence if neither the facts nor the files of the training state one.
        hub_id: the model's id on the hub, for the card's examples.
        options: of `qwen3nb.extraction.extract.extract_encoder`: ``label``, ``allow``,
            ``onnx``, ``show_progress``, and those of `qwen3nb.extraction.export.ExportOptions`,
            such as ``pooling``, ``normalize``, ``max_length``, ``dtype``, ``prefix``,
            ``append_eos``.

    Raises:
        CheckpointError: the checkpoint is invalid, or the export does not reproduce its
            source. ``output`` is then left unchanged.
        ValueError: an unknown choice, or an invalid fact.
    """
    file = None if facts is None else Path(facts)
    stated_facts(None, file, license=license)  # refused before anything is written
    name = loaded_name(Path(output), hub_id)

    def described(folder: Path) -> str:
        card = card_text(folder, [], facts=file, license=license, hub_id=hub_id, name=name)
        known_secrets().refuse(card, where=str(Path(output) / "README.md"))
        return card

    return extract_encoder(checkpoint, output, describe=described, **options)
