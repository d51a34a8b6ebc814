"""Write a safetensors file one tensor at a time.

The library writes whole dictionaries only. The format allows more: 8 bytes of header
length, a JSON header padded with spaces to a multiple of 8, then the tensors in the
header's order; and the header is known before the first tensor is.
https://huggingface.co/docs/safetensors#format
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["TensorWriter"]

_BYTES = {"F32": 4, "BF16": 2, "F16": 2}


class TensorWriter:
    """Writes the tensors named in ``shapes``, in `order`, to ``file``.

    >>> with TensorWriter(path, {"a": ("F32", (2,))}) as writer:  # doctest: +SKIP
    ...     for name in writer.order:
    ...         writer.write(tensors[name])
    """

    def __init__(self, file: Path, shapes: Mapping[str, tuple[str, tuple[int, ...]]]) -> None:
        # Wider types first, so that every tensor starts at a multiple of its size.
        self.order = sorted(shapes, key=lambda name: (-_BYTES[shapes[name][0]], name))
        self._shapes = shapes
        self._written = 0
        header: dict[str, object] = {"__metadata__": {"format": "pt"}}
        position = 0
        for name in self.order:
            dtype, shape = shapes[name]
            stop = position + math.prod(shape) * _BYTES[dtype]
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [position, stop]}
            position = stop
        raw = json.dumps(header, separators=(",", ":")).encode()
        raw += b" " * (-len(raw) % 8)
        self._file = file.open("wb")
        self._file.write(struct.pack("<Q", len(raw)) + raw)

    def __enter__(self) -> TensorWriter:
        return self

    def write(self, tensor: Tensor) -> None:
        """Append the next tensor of `order`.

        Raises:
            ValueError: its dtype or shape is not what was announced.
        """
        import torch

        name = self.order[self._written]
        dtype, shape = self._shapes[name]
        names = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}
        if (names.get(tensor.dtype), tuple(tensor.shape)) != (dtype, shape):
            raise ValueError(
                f"{name}: expected {dtype} {shape}, got {tensor.dtype} {tuple(tensor.shape)}"
            )
        raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        self._file.write(raw.numpy().data)
        self._written += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
        if kind is None and self._written != len(self.order):
            raise ValueError(f"{len(self.order) - self._written} tensors were never written")
