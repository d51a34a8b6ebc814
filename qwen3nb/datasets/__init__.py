"""Load test collections from a mirror, a folder or a file; no model is needed.

The names below are available as `q.datasets` and loaded on first use.
"""

from qwen3nb.utils.imports import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
