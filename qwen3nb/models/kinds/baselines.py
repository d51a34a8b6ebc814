"""Models without a folder: random vectors, BM25, fusions of several, and what is on the hub."""

from __future__ import annotations

import re
from typing import Any

from qwen3nb.models.kinds.source import Kind, Settings, Source, fingerprint, safe_label


class _Random(Kind):
    """Chance level: a random vector per text, ``random`` or ``random:WIDTH``."""

    name = "random"
    library = ""
    weightless = True

    def named(self, spec: str) -> Source | None:
        if not re.fullmatch(r"random(:[1-9]\d{0,4})?", spec):
            return None
        return Source(spec, self, safe_label(spec))

    def load(self, source: Source, settings: Settings) -> Any:
        from qwen3nb.models.encoders.base import RandomEncoder

        return RandomEncoder(source, settings)


class _BM25(Kind):
    """Search by words, without training."""

    name = "bm25"
    searches = True
    weightless = True

    def named(self, spec: str) -> Source | None:
        return Source(spec, self, spec) if spec == self.name else None

    def load(self, source: Source, settings: Settings) -> Any:
        from qwen3nb.models.search.bm25 import BM25

        return BM25(source)


class _Fusion(Kind):
    """Several searches fused by rank, ``a+b``."""

    name = "fusion"
    searches = True

    def fingerprint(self, source: Source) -> dict[str, Any]:
        return {"kind": self.name, "of": [fingerprint(part) for part in source.parts]}


class _OnHub(Kind):
    """A model of the hub whose files show what it is, once they are fetched."""

    name = "hub"
    of_others = True


RANDOM, BM25_KIND, FUSION_KIND, ON_HUB = _Random(), _BM25(), _Fusion(), _OnHub()
