"""Sentences that say what came out, made from results, each loaded when first used."""

from qwen3nb.utils.imports import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
