"""Random vectors: the chance-level baseline."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.kinds.source import Settings, Source
from qwen3nb.models.types import Vectors
from qwen3nb.vectors.cache import text_key


class RandomEncoder(Encoder):
    """A random unit vector per text: chance level for every score.

    A text's vector comes from a generator seeded with ``seed`` and the text, so it does not
    depend on what else is encoded.
    """

    def __init__(self, source: Source, given: Settings) -> None:
        self._seed, self.width = given.seed, int(source.spec.partition(":")[2] or 128)
        settings = {"seed": self._seed, "dimension": self.width}
        super().__init__(source, given, settings=settings)

    def _embed(self, texts: Sequence[str]) -> Vectors:
        rows = []
        for text in texts:
            entropy = int.from_bytes(text_key(text)[:16], "little")
            rows.append(np.random.default_rng([self._seed, entropy]).normal(size=self.width))
        vectors = np.asarray(rows, dtype=np.float32).reshape(len(rows), self.width)
        unit: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return unit
