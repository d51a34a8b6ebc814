"""Paired tests, intervals and corrections on arrays, each loaded when first used."""

from qwen3nb.utils.imports import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
