"""Load test collections from a mirror, a folder or a file; no model is needed.

The names below are available as `q.datasets` and loaded on first use.
"""

from qwen3nb.utils.imports import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "qwen3nb.datasets.collection": ("TestCollection", "find_collections"),
        "qwen3nb.datasets.custom.load": ("load_domain",),
        "qwen3nb.datasets.mirror": ("mirrored_words",),
        "qwen3nb.datasets.pydocs.build": ("load_pydocs",),
        "qwen3nb.datasets.pydocs.mteb_tasks": ("author_sts", "embedded_task", "pydocs_sample"),
        "qwen3nb.datasets.rows": ("load_analogies", "load_word_pairs"),
        "qwen3nb.datasets.trec": ("read_run", "write_run"),
    },
)
