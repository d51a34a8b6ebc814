"""Convert a file of ``torch.save`` to safetensors, next to it.

    python -m qwen3nb.checkpoints.to_safetensors FOLDER/pytorch_model.bin

For files that are not read as they are: of PyTorch before 1.6, or with tensors in other memory
orders. PyTorch unpickles tensors only (``weights_only``); anything else is refused.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from qwen3nb.checkpoints.folder import SINGLE, check_inside
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.utils.atomic_files import new_file


def to_safetensors(file: Path) -> Path:
    """Write the tensors of a state dict as ``model.safetensors`` in its folder; return its path.

    Raises:
        CheckpointError: content other than tensors, not a flat state dict, or a damaged file; or
            there is such a file already.
    """
    import torch
    from safetensors.torch import save

    output = file.with_name(SINGLE)
    if output.exists():
        raise CheckpointError(f"{output}: exists already; remove it to write it from {file.name}")
    check_inside(file)
    try:
        state = torch.load(file, weights_only=True, map_location="cpu")
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
        reason = str(error).split("\n")[0]
        raise CheckpointError(
            f"{file}: not a state dict of tensors alone ({reason:.160})"
        ) from None
    if not isinstance(state, dict):
        raise CheckpointError(f"{file}: expected a flat state dict, a tensor for each name")
    tensors: dict[str, torch.Tensor] = {}
    for name, tensor in state.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise CheckpointError(f"{file}: expected a flat state dict, a tensor for each name")
        # Tensors that share memory are stored each for itself.
        tensors[name] = tensor.detach().clone().contiguous()
    with new_file(output, replace=False) as handle:
        handle.write(save(tensors, metadata={"format": "pt"}))
    return output


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        try:
            print(to_safetensors(Path(argument)))
        except CheckpointError as error:
            sys.exit(f"Error: {error}")
