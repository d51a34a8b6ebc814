"""From an encoder-decoder checkpoint to a stock model directory, verified.

The directory is written beside its final name, loaded again from the disk, compared
with the source encoder, and only then renamed. An export that differs from its
source, or that runs causally, is removed and the extraction fails.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import qwen3nb
from qwen3nb import paths
from qwen3nb.checkpoints.checkpoint import (
    SINGLE,
    Checkpoint,
    open_checkpoint,
    trainer_state,
)
from qwen3nb.checkpoints.provenance import PROVENANCE
from qwen3nb.checkpoints.tied_weights import EMBEDDINGS, embedding_name
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.checkpoints.weight_names import encoder_name
from qwen3nb.checkpoints.writer import Piece, transfer
from qwen3nb.extraction.export import (
    Options,
    copy_tokenizer,
    named_token,
    write_model_files,
    write_readme,
)
from qwen3nb.extraction.verify import MAX_DIFFERENCE, Verification, verify
from qwen3nb.models.modeling.configuration import Qwen3EncoderConfig, ignored_settings
from qwen3nb.models.modeling.configuration import encoder_config as build_config
from qwen3nb.models.modeling.qwen3_encoder import Qwen3EncoderModel
from qwen3nb.utils.atomic_files import may_replace, new_folder, read_json, write_json
from qwen3nb.utils.choices import one_of

__all__ = ["ALLOWANCES", "MAX_DIFFERENCE", "Extraction", "extract", "is_seq2seq"]

_STORED = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}
MODEL_TYPES = ("qwen3_encdec", "qwen3_encoder_decoder")
# What may be let through on request. A missing weight is never: it would be random.
ALLOWANCES = {
    "decoder": "a decoder that is incomplete or not finite; the encoder has no use for it",
    "unexpected": "tensors that belong to neither encoder nor decoder",
    "untied": "copies of the shared embedding that differ; the encoder's own is taken",
}
_DECODER_LAYER = re.compile(r"model\.decoder\.layers\.(\d+)\.(.+)")


@dataclass(frozen=True)
class Extraction:
    """What was written and how it was verified.

    Attributes:
        folder: the model directory.
        label: its name in results and tables.
        parameters: number of parameters, embeddings included.
        verification: what was compared.
        warnings: what is odd about the source, in words.
    """

    folder: Path
    label: str
    parameters: int
    verification: Verification
    warnings: tuple[str, ...] = ()

    @property
    def max_difference(self) -> float:
        """Greatest absolute difference between the export and the source encoder."""
        return self.verification.max_difference


def is_seq2seq(config: dict[str, Any]) -> bool:
    """Whether a ``config.json`` is that of a Qwen3 encoder-decoder."""
    return config.get("model_type") in MODEL_TYPES


def extract(
    checkpoint: Path | str,
    output: Path | str,
    *,
    label: str | None = None,
    allow: Collection[str] = (),
    show_progress: bool = True,
    **options: Any,
) -> Extraction:
    """Write the encoder of ``checkpoint`` to the directory ``output``.

    Args:
        checkpoint: a folder with ``config.json``, weights and a tokenizer.
        output: the directory to make; an earlier one is replaced when all is verified.
        label: name in results; by default the last two parts of the checkpoint's path.
        allow: what to let through, of `ALLOWANCES`.
        show_progress: whether long work shows a bar.
        options: the fields of `qwen3nb.extraction.export.Options`, such as ``pooling``,
            ``normalize``, ``max_length``, ``dtype``, ``prefix``, ``append_eos``.

    Raises:
        CheckpointError: the checkpoint is not what it should be, or the export does not
            compute what its source does. Nothing is left at ``output`` then.
        ValueError: an unknown choice.
    """
    chosen = Options(**options)
    for name in allow:
        one_of("allowance", name, ALLOWANCES)
    source = open_checkpoint(checkpoint)
    output = Path(output)
    _check_output(output, source.folder)
    config = _read_config(source, chosen)
    pieces = _plan(source, config, dtype=_STORED[chosen.dtype], allow=allow)
    with new_folder(output) as work:
        tokenizer = copy_tokenizer(source.folder, work, rows=config.vocab_size, options=chosen)
        notes = [*ignored_settings(source.config), *_tokenizer_notes(source, chosen)]
        odd = transfer(
            [source], pieces, work / SINGLE, label="extracting", show_progress=show_progress
        )
        write_model_files(work, config, chosen)
        embedding = next(p.sources[0] for p in pieces if p.name == "embed_tokens.weight")
        verification = verify(
            source, embedding, work, config=config, options=chosen, tokenizer=tokenizer
        )
        extraction = Extraction(
            folder=output,
            label=label or _default_label(source.folder),
            parameters=sum(source.tensors[p.sources[0]].count for p in pieces if p.name),
            verification=verification,
            warnings=tuple(notes + odd),
        )
        provenance = _provenance(extraction, source, config=config, options=chosen)
        write_json(work / PROVENANCE, provenance, indent=2)
        write_readme(work, provenance)
        source.check_unchanged()
    return extraction


def _check_output(output: Path, source: Path) -> None:
    """Refuse to write over the source, or over anything that is no export."""
    if output.resolve() in (source.resolve(), *source.resolve().parents):
        raise CheckpointError(f"{output}: is, or holds, the checkpoint itself; name another")
    if not may_replace(output, mark=PROVENANCE):
        raise CheckpointError(
            f"{output}: is there and was not made by an extraction; it stays. Name another folder"
        )


def _read_config(source: Checkpoint, options: Options) -> Qwen3EncoderConfig:
    if not is_seq2seq(source.config):
        raise CheckpointError(
            f"{source.folder}: model_type is {source.config.get('model_type')!r}, expected "
            f"one of {', '.join(MODEL_TYPES)}; only an encoder-decoder has an encoder to extract"
        )
    try:
        return build_config(source.config, pooling=options.pooling, normalize=options.normalize)
    except ValueError as error:
        raise CheckpointError(f"{source.folder}: {error}") from None


def _default_label(folder: Path) -> str:
    folder = folder.resolve()
    return f"{folder.parent.name}-{folder.name}" if folder.parent.name else folder.name


def _plan(
    source: Checkpoint, config: Qwen3EncoderConfig, *, dtype: str, allow: Collection[str]
) -> list[Piece]:
    """What to write, and what only to read, after checking names and shapes both ways.

    Raises:
        CheckpointError: tensors that are missing, unexpected, or of another shape.
    """
    embedding = embedding_name(source, allow=allow)
    found = {new: name for name in source.tensors if (new := encoder_name(name)) is not None}
    if embedding is not None:
        found["embed_tokens.weight"] = embedding
    problems = _encoder_problems(source, config, found)
    rest = sorted(source.tensors.keys() - set(found.values()) - set(EMBEDDINGS))
    if "unexpected" not in allow:
        strangers = [name for name in rest if not name.startswith("model.decoder.")]
        problems += [f"{name}: unexpected (--allow unexpected)" for name in strangers]
    if "decoder" not in allow:
        problems += _decoder_problems(source)
    if problems:
        shown = "\n  ".join(sorted(problems)[:8])
        more = f"\n  and {len(problems) - 8} more" if len(problems) > 8 else ""
        raise CheckpointError(
            f"{source.folder}: the weights do not fit config.json\n  {shown}{more}"
        )
    checked = set() if "decoder" in allow or "unexpected" in allow else set(source.tensors)
    return [
        *(Piece(new, dtype, (name,)) for new, name in found.items()),
        *(Piece(None, dtype, (name,)) for name in sorted(checked - set(found.values()))),
    ]


def _encoder_problems(
    source: Checkpoint, config: Qwen3EncoderConfig, found: dict[str, str]
) -> list[str]:
    layers = {int(name.split(".")[1]) for name in found if re.match(r"layers\.\d{1,9}\.", name)}
    if len(layers) != config.num_hidden_layers:
        return [
            f"{config.num_hidden_layers} encoder layers in config.json, "
            f"{len(layers)} among the weights"
        ]
    with torch.device("meta"):
        expected = {
            name: tuple(tensor.shape)
            for name, tensor in Qwen3EncoderModel(config).state_dict().items()
        }
    problems = [f"{name}: missing" for name in expected.keys() - found.keys()]
    problems += [f"{found[name]}: unexpected" for name in found.keys() - expected.keys()]
    problems += [
        f"{found[name]}: shape {source.tensors[found[name]].shape}, config says {expected[name]}"
        for name in expected.keys() & found.keys()
        if source.tensors[found[name]].shape != expected[name]
    ]
    return problems


def _decoder_problems(source: Checkpoint) -> list[str]:
    """A decoder that is there must be whole; whether its sizes are right is its own affair."""
    decoder = {name for name in source.tensors if name.startswith("model.decoder.")}
    decoder -= set(EMBEDDINGS)
    if not decoder:
        return []
    layers: dict[int, set[str]] = {}
    for name in decoder:
        if match := _DECODER_LAYER.fullmatch(name):
            layers.setdefault(int(match[1]), set()).add(match[2])
    parts = set().union(*layers.values())
    wanted = {
        f"model.decoder.layers.{index}.{part}" for index in range(len(layers)) for part in parts
    } | {"model.decoder.norm.weight"}
    hint = "(--allow decoder)"
    return [f"{name}: missing {hint}" for name in wanted - decoder] + [
        f"{name}: unexpected {hint}" for name in decoder - wanted
    ]


def _tokenizer_notes(source: Checkpoint, options: Options) -> list[str]:
    """What does not fit between tokenizer, configuration and pooling, in words."""
    notes = []
    if options.pooling == "last" and not options.append_eos:
        notes.append(
            "last-token pooling without an end-of-text token: the vector is that of whatever "
            "token a text ends with (--append-eos, if the training appended one)"
        )
    try:
        end = named_token(source.folder, "eos_token")
    except CheckpointError:
        return [*notes, "the tokenizer's configuration names no eos_token"]
    entries = read_json(source.folder / "tokenizer.json")
    added = entries.get("added_tokens", ()) if isinstance(entries, dict) else ()
    ids = [each.get("id") for each in added if each.get("content") == end]
    said = source.config.get("eos_token_id")
    if ids and isinstance(said, int) and said not in ids:
        notes.append(f"config.json says eos_token_id {said}, the tokenizer's {end} is {ids[0]}")
    return notes


def _provenance(
    extraction: Extraction,
    source: Checkpoint,
    *,
    config: Qwen3EncoderConfig,
    options: Options,
) -> dict[str, Any]:
    import sentence_transformers
    import transformers

    averaging = source.folder / "averaging_metadata.json"
    return {
        "schema": "qwen3nb.export/1",
        "qwen3nb": qwen3nb.__version__,
        "label": extraction.label,
        "parameters": extraction.parameters,
        "dimension": config.hidden_size,
        **asdict(options),
        "source": {
            "folder": paths.shown(source.folder),
            "digest": source.digest(),
            "step": trainer_state(source.folder).get("global_step"),
            "averaging": read_json(averaging) if averaging.is_file() else None,
        },
        "verification": extraction.verification.as_dict(),
        "warnings": list(extraction.warnings),
        "probe": extraction.verification.probe,
        "versions": {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "sentence-transformers": sentence_transformers.__version__,
        },
    }
