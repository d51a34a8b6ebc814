"""From an encoder-decoder checkpoint to a stock model directory, verified.

The directory is written beside its final name, loaded again from the disk by the
stock class, compared with the source encoder, and only then renamed. An export that
differs from its source, or that runs causally, is removed and the extraction fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import qwen3nb
from qwen3nb import paths
from qwen3nb.choices import one_of
from qwen3nb.extraction.checkpoint import SINGLE, Checkpoint, CheckpointError, open_checkpoint
from qwen3nb.extraction.export import PROVENANCE, copy_tokenizer, write_model_files, write_readme
from qwen3nb.extraction.tensorfile import TensorWriter
from qwen3nb.files import new_folder, read_json, write_json
from qwen3nb.models.encoder import Qwen3EncoderConfig, Qwen3EncoderModel, causal_leak
from qwen3nb.models.encoder import encoder_config as build_config
from qwen3nb.models.pooling import POOLINGS
from qwen3nb.models.precision import DTYPES, torch_dtype
from qwen3nb.models.seq2seq import Qwen3ForSeq2SeqLM, Qwen3Seq2SeqConfig, encoder_name

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["MAX_DIFFERENCE", "Extraction", "extract", "is_seq2seq"]

_STORED = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}
MODEL_TYPES = ("qwen3_encdec", "qwen3_encoder_decoder")
MAX_DIFFERENCE = 1e-5
_PROBE_LENGTHS = (2, 7, 33, 120)


@dataclass(frozen=True)
class Extraction:
    """What was written and how it was verified.

    Attributes:
        folder: the model directory.
        label: its name in results and tables.
        parameters: number of parameters, embeddings included.
        max_difference: greatest absolute difference between the export, loaded by the
            stock class, and the source encoder, over real tokens.
        leak: how far the first state moves when only the last token changes; 0 would
            mean that the model runs causally.
    """

    folder: Path
    label: str
    parameters: int
    max_difference: float
    leak: float


def is_seq2seq(config: dict[str, Any]) -> bool:
    """Whether a ``config.json`` is that of a Qwen3 encoder-decoder."""
    return config.get("model_type") in MODEL_TYPES


def extract(
    checkpoint: Path | str,
    output: Path | str,
    *,
    pooling: str = "mean",
    normalize: bool = True,
    max_length: int = 512,
    dtype: str = "float32",
    label: str | None = None,
) -> Extraction:
    """Write the encoder of ``checkpoint`` to the directory ``output``.

    Args:
        checkpoint: a folder with ``config.json``, safetensors and a tokenizer.
        output: the directory to make; an earlier one is replaced when all is verified.
        pooling: one of `qwen3nb.POOLINGS`, stored in the export.
        normalize: whether vectors get length 1, stored in the export.
        max_length: tokens after which a text is cut, stored in the export.
        dtype: ``float32``, ``bfloat16`` or ``float16``.
        label: name in results; by default the last two parts of the checkpoint's path.

    Raises:
        CheckpointError: the checkpoint is not what it should be, or the export does not
            compute what its source does. Nothing is left at ``output`` then.
        ValueError: unknown ``pooling`` or ``dtype``.
    """
    one_of("pooling", pooling, POOLINGS)
    one_of("dtype", dtype, DTYPES)
    source = open_checkpoint(checkpoint)
    if not is_seq2seq(source.config):
        raise CheckpointError(
            f"{source.folder}: model_type is {source.config.get('model_type')!r}, expected "
            f"one of {', '.join(MODEL_TYPES)}; only an encoder-decoder has an encoder to extract"
        )
    try:
        config = build_config(source.config, pooling=pooling, normalize=normalize)
    except ValueError as error:
        raise CheckpointError(f"{source.folder}: {error}") from None
    names = _encoder_tensors(source, config)
    output = Path(output)
    with new_folder(output) as work:
        _write_weights(source, names, work / SINGLE, dtype=dtype)
        copy_tokenizer(source.folder, work, rows=config.vocab_size)
        write_model_files(work, config, max_length=max_length, dtype=dtype)
        difference, leak = verify(source, work)
        extraction = Extraction(
            folder=output,
            label=label or _default_label(source.folder),
            parameters=sum(_count(source.tensors[stored].shape) for stored in names.values()),
            max_difference=difference,
            leak=leak,
        )
        provenance = _provenance(
            extraction, source, config=config, max_length=max_length, dtype=dtype
        )
        write_json(work / PROVENANCE, provenance, indent=2)
        write_readme(work, provenance)
    return extraction


def _default_label(folder: Path) -> str:
    folder = folder.resolve()
    return f"{folder.parent.name}-{folder.name}" if folder.parent.name else folder.name


def _count(shape: tuple[int, ...]) -> int:
    return int(torch.Size(shape).numel())


def _encoder_tensors(source: Checkpoint, config: Qwen3EncoderConfig) -> dict[str, str]:
    """Stored name per encoder tensor, after checking names and shapes both ways.

    Raises:
        CheckpointError: tensors that are missing, unexpected, or of another shape.
    """
    with torch.device("meta"):
        expected = {
            name: tuple(tensor.shape)
            for name, tensor in Qwen3EncoderModel(config).state_dict().items()
        }
    found = {new: name for name in source.tensors if (new := encoder_name(name)) is not None}
    problems = [f"{name}: missing" for name in expected.keys() - found.keys()]
    problems += [f"{found[name]}: unexpected" for name in found.keys() - expected.keys()]
    problems += [
        f"{found[name]}: shape {source.tensors[found[name]].shape}, config says {expected[name]}"
        for name in expected.keys() & found.keys()
        if source.tensors[found[name]].shape != expected[name]
    ]
    if problems:
        shown = "\n  ".join(sorted(problems)[:8])
        more = f"\n  and {len(problems) - 8} more" if len(problems) > 8 else ""
        raise CheckpointError(
            f"{source.folder}: the weights do not fit config.json\n  {shown}{more}"
        )
    return found


def _write_weights(source: Checkpoint, names: dict[str, str], file: Path, *, dtype: str) -> None:
    shapes = {
        name: (_STORED[dtype], source.tensors[stored].shape) for name, stored in names.items()
    }
    with TensorWriter(file, shapes) as writer:
        for name in writer.order:
            writer.write(source.read(names[name]).to(torch_dtype(dtype)))


def verify(source: Checkpoint, export: Path) -> tuple[float, float]:
    """Compare an export with its source; the greatest difference, and the leak.

    The export is loaded from the disk by the stock class, the source by the
    encoder-decoder's own class under its own names, so that a mistake in re-keying
    shows. Both see four texts of 2 to 120 random tokens, padded left and right.

    Raises:
        CheckpointError: they differ by more than `MAX_DIFFERENCE` in float32 (for a
            16-bit export: by more than the rounding of the weights explains, 5 %
            of the largest state), or the export runs causally.
    """
    from transformers import AutoModel

    export_model = AutoModel.from_pretrained(export, dtype=torch.float32).eval()
    source_model = _source_encoder(source)
    rows = export_model.config.vocab_size
    difference, largest = 0.0, 0.0
    for side in ("right", "left"):
        ids, mask = _probe(rows, side=side)
        real = mask.bool()
        with torch.inference_mode():
            ours = export_model(input_ids=ids, attention_mask=mask).last_hidden_state[real]
            theirs = source_model.encode(ids, mask)[real]
        difference = max(difference, float((ours - theirs).abs().max()))
        largest = max(largest, float(theirs.abs().max()))
    full = read_json(export / "config.json")["dtype"] == "float32"
    bound = MAX_DIFFERENCE if full else 0.05 * largest
    if not difference <= bound:
        raise CheckpointError(
            f"{source.folder}: the export differs from its source by {difference:.2e}, "
            f"more than {bound:.0e}; nothing was written"
        )
    leak = causal_leak(export_model, vocab_size=rows)
    if not leak > 0:
        raise CheckpointError(
            f"{source.folder}: the export runs causally under this transformers release; "
            "5.2 or newer is needed. Nothing was written"
        )
    return difference, leak


def _source_encoder(source: Checkpoint) -> Qwen3ForSeq2SeqLM:
    config = build_config(source.config)
    fields = {
        key: getattr(config, key)
        for key in (
            "vocab_size",
            "hidden_size",
            "intermediate_size",
            "num_hidden_layers",
            "num_attention_heads",
            "num_key_value_heads",
            "max_position_embeddings",
            "rms_norm_eps",
        )
    }
    model = Qwen3ForSeq2SeqLM(
        Qwen3Seq2SeqConfig(
            **fields,
            _head_dim=config.head_dim,
            rope_theta=config.rope_parameters["rope_theta"],
        )
    )
    prefixes = ("model.shared.", "model.encoder.")
    state = {
        name: source.read(name).float() for name in source.tensors if name.startswith(prefixes)
    }
    state["model.encoder.embed_tokens.weight"] = state["model.shared.weight"]
    missing, unexpected = model.load_state_dict(state, strict=False)
    if odd := [name for name in missing if name.startswith(prefixes)] + list(unexpected):
        raise CheckpointError(f"{source.folder}: {odd[0]} does not fit the encoder-decoder")
    return model.eval()


def _probe(rows: int, *, side: str) -> tuple[Tensor, Tensor]:
    """Ids and mask (4, 120) of random texts, padded on ``side``."""
    generator = torch.Generator().manual_seed(0)
    width = max(_PROBE_LENGTHS)
    ids = torch.randint(0, rows, (len(_PROBE_LENGTHS), width), generator=generator)
    mask = torch.zeros_like(ids)
    for row, length in enumerate(_PROBE_LENGTHS):
        mask[row, slice(0, length) if side == "right" else slice(width - length, width)] = 1
    return ids, mask


def _provenance(
    extraction: Extraction,
    source: Checkpoint,
    *,
    config: Qwen3EncoderConfig,
    max_length: int,
    dtype: str,
) -> dict[str, Any]:
    import transformers

    state = source.folder / "trainer_state.json"
    averaging = source.folder / "averaging_metadata.json"
    return {
        "schema": "qwen3nb.export/1",
        "qwen3nb": qwen3nb.__version__,
        "label": extraction.label,
        "parameters": extraction.parameters,
        "dimension": config.hidden_size,
        "pooling": config.pooling_mode,
        "normalize": config.normalize,
        "max_length": max_length,
        "dtype": dtype,
        "source": {
            "folder": paths.shown(source.folder),
            "digest": source.digest(),
            "step": read_json(state).get("global_step") if state.is_file() else None,
            "averaging": read_json(averaging) if averaging.is_file() else None,
        },
        "verification": {
            "max_difference": extraction.max_difference,
            "texts": len(_PROBE_LENGTHS),
            "tokens": list(_PROBE_LENGTHS),
            "padding": ["right", "left"],
            "causal_leak": extraction.leak,
        },
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    }
