"""Extract the encoder of an encoder-decoder checkpoint into a stock model directory.

The export is written under a temporary name, loaded from disk, compared with the source
encoder, and only then renamed. If it differs from its source or runs causally, it is
removed and the extraction fails.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Unpack

import torch
import transformers

import qwen3nb
from qwen3nb import paths
from qwen3nb.checkpoints.folder import SINGLE, ModelFolder, TrainerState, open_checkpoint
from qwen3nb.checkpoints.names import EMBEDDINGS, MODEL_TYPES, encoder_tensors
from qwen3nb.checkpoints.provenance import AVERAGING, PROVENANCE, read_provenance, with_checksums
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.checkpoints.writer import Piece, check_output, write_pieces
from qwen3nb.extraction.export import ExportFields, ExportOptions, copy_tokenizer, write_model_files
from qwen3nb.extraction.onnx_graph import require_onnx, write_graph
from qwen3nb.extraction.verify import Verification, verify_export
from qwen3nb.models.gate.bounds import check_bounds
from qwen3nb.models.gate.weights import check_encoder
from qwen3nb.models.kinds.prompts import mistyped_roles
from qwen3nb.models.modeling.configuration import Qwen3EncoderConfig, ignored_settings
from qwen3nb.utils.atomic_files import new_folder, write_json, write_text

# transformers 4 refuses weights with this text; with "pt", it would silently run them.
_FORMAT = "pt for transformers 5.2 or newer, as older releases would run this encoder causally"
_STORED = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}


@dataclass(frozen=True)
class Extraction:
    """An extracted encoder and its verification."""

    folder: Path  # the model directory
    label: str  # the label in results and tables
    parameters: int  # number of parameters, including embeddings
    verification: Verification  # the comparison with the source
    warnings: tuple[str, ...] = ()  # warnings about the source

    @property
    def max_difference(self) -> float:
        """Largest absolute difference between the export and the source encoder."""
        return self.verification.max_difference


def write_encoder(
    checkpoint: Path | str,
    output: Path | str,
    *,
    label: str | None = None,
    onnx: bool = False,
    describe: Callable[[Path], str] | None = None,
    **options: Unpack[ExportFields],
) -> Extraction:
    """Write the encoder of ``checkpoint`` to the directory ``output``.

    Args:
        checkpoint: a folder with ``config.json``, weights and a tokenizer.
        output: the directory to create; an earlier export is replaced after verification.
        label: label in results; by default the label of an export of the same weights in
            ``output``, else the name of that folder.
        onnx: whether to write an ONNX graph too, see `qwen3nb.extraction.onnx_graph`.
        describe: returns the README of the otherwise complete directory; None for no README.
        options: the fields of `qwen3nb.extraction.export.ExportOptions`.

    Raises:
        CheckpointError: the checkpoint is invalid, or the export does not reproduce its
            source. ``output`` is then left unchanged.
        ValueError: an unknown choice.
    """
    export_options = ExportOptions(**options)
    if onnx:
        require_onnx()
    source = open_checkpoint(checkpoint)
    output = Path(output)
    check_output(output, [source], mark=PROVENANCE)
    _check_model_type(source)
    tensors = encoder_tensors(source)
    check_bounds(source.config, source.path / "config.json")
    config = check_encoder(
        source,
        tensors,
        pooling=export_options.pooling,
        normalize=export_options.normalize,
    )
    pieces = _pieces(source, tensors, dtype=_STORED[export_options.dtype])
    label = label or _label_of_previous(output, source) or output.resolve().name
    with new_folder(output) as work:
        tokenizer, tokenizer_warnings = copy_tokenizer(
            source,
            work,
            rows=config.vocab_size,
            options=export_options,
        )
        digest, weight_warnings = write_pieces([source], pieces, work / SINGLE, format=_FORMAT)
        write_model_files(work, config, export_options)
        if onnx:
            write_graph(work)
        embedding = tensors["embed_tokens.weight"]
        extraction = Extraction(
            folder=output,
            label=label,
            parameters=sum(source.weights.tensors[name].count for name in tensors.values()),
            verification=verify_export(
                source,
                embedding,
                work,
                config,
                export_options,
                tokenizer,
            ),
            warnings=(
                *ignored_settings(source.config),
                *tokenizer_warnings,
                *weight_warnings,
                *mistyped_roles(export_options.prompts),
            ),
        )
        provenance = _provenance(extraction, source, config=config, options=export_options)
        sealed = with_checksums(provenance, work, weights=digest)
        write_json(work / PROVENANCE, sealed, indent=2)
        if describe is not None:
            write_text(work / "README.md", describe(work))
        source.check_unchanged()
    return extraction


def _check_model_type(source: ModelFolder) -> None:
    model_type = source.config.get("model_type")
    if model_type not in MODEL_TYPES:
        raise CheckpointError(
            f"{source}: model_type is {model_type!r}; expected one of {', '.join(MODEL_TYPES)}, "
            "because only an encoder-decoder has an encoder to extract"
        )


def _pieces(source: ModelFolder, tensors: Mapping[str, str], *, dtype: str) -> list[Piece]:
    """Return the encoder's tensors to write, and the others to check."""
    pieces = [Piece(new_name, dtype, (name,)) for new_name, name in tensors.items()]
    for name in _other_tensors(source, tensors):
        pieces.append(Piece(None, dtype, (name,)))
    return pieces


def _label_of_previous(output: Path, source: ModelFolder) -> str:
    """Return the label of an export of the same weights in ``output``; else empty."""
    try:
        previous = read_provenance(output) or {}
    except CheckpointError:  # the replaced export may be damaged
        return ""
    if previous.get("source", {}).get("digest") != source.weights.digest:
        return ""
    return str(previous.get("label") or "")


def _other_tensors(source: ModelFolder, encoder: Mapping[str, str]) -> list[str]:
    """Return the names of tensors that are checked, but not written.

    Raises:
        CheckpointError: tensors that belong to neither encoder nor decoder.
    """
    other_names = sorted(source.weights.tensors.keys() - set(encoder.values()))
    # An export needs neither the decoder nor further copies of the embedding.
    names_of_decoder = ("model.decoder.", *EMBEDDINGS)
    unexpected = [name for name in other_names if not name.startswith(names_of_decoder)]
    if unexpected:
        raise CheckpointError(
            f"{source}: the weights do not match config.json: {unexpected[0]}: unexpected "
            f"({len(unexpected)} such tensors)"
        )
    return other_names


def _provenance(
    extraction: Extraction,
    source: ModelFolder,
    *,
    config: Qwen3EncoderConfig,
    options: ExportOptions,
) -> dict[str, object]:
    """Return what an export states about its origin; see `qwen3nb.checkpoints.provenance`."""
    import sentence_transformers

    verification = extraction.verification
    return {
        "schema": "qwen3nb.export/1",
        "qwen3nb": qwen3nb.__version__,
        "label": extraction.label,
        "parameters": extraction.parameters,
        "dimension": config.hidden_size,
        **asdict(options),
        "source": {
            "folder": paths.shown(source.path),
            "digest": source.weights.digest,
            "step": TrainerState.of(source.path).global_step,
            "averaging": source.object(AVERAGING) or None,
        },
        "verification": verification.as_dict(),
        "warnings": list(extraction.warnings),
        "probe": verification.probe,
        "versions": {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "sentence-transformers": sentence_transformers.__version__,
        },
    }
