"""qwen3nb: from a Qwen3 training checkpoint to a book whose every number can be traced.

The names below are public. Namespaces: `tables`, `figures` and `conclusions` present results and
the output of `studies`; `stats`; `datasets`; `paths` of everything on disk. Each is loaded on first
use, which keeps `import qwen3nb` fast.
"""

from qwen3nb.utils.imports import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
