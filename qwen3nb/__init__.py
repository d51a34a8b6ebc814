"""qwen3nb: from a Qwen3 training checkpoint to a book whose every number can be traced.

The names below are public. Namespaces: `tables`, `figures` and `conclusions` present results and
the output of `studies`; `stats`; `datasets`; `paths` of everything on disk. Each is loaded on first
use, which keeps `import qwen3nb` fast.
"""

from qwen3nb.utils.imports import lazy_names

_HOMES = {
    "qwen3nb.analysis.comparison.changes": ("diff",),
    "qwen3nb.analysis.comparison.compare": ("compare",),
    "qwen3nb.checkpoints.averaging": ("average_checkpoints",),
    "qwen3nb.datasets.collection": ("TestCollection",),
    "qwen3nb.evaluation.embeddings.sanity_check": ("sanity_check",),
    "qwen3nb.evaluation.embeddings.sts": ("evaluate_sts",),
    "qwen3nb.evaluation.evaluate": ("evaluate",),
    "qwen3nb.evaluation.retrieval.custom": ("evaluate_domain",),
    "qwen3nb.evaluation.retrieval.rerank": ("rerank",),
    "qwen3nb.evaluation.training.evaluator": ("TrainingEvaluator",),
    "qwen3nb.metrics.retrieval": ("score_rankings",),
    "qwen3nb.models.encoders.base": ("Encoder",),
    "qwen3nb.models.load": ("load_encoder",),
    "qwen3nb.models.modeling.configuration": ("Qwen3EncoderConfig",),
    "qwen3nb.models.modeling.qwen3_encoder": ("Qwen3EncoderModel", "Qwen3EncoderPooler"),
    "qwen3nb.models.rerankers.yes_no": ("Reranker", "load_reranker"),
    "qwen3nb.records.record": ("Result",),
    "qwen3nb.records.results": ("Results",),
    "qwen3nb.records.store": ("load_results", "verify"),
    "qwen3nb.report.card.card": ("extract",),
    "qwen3nb.report.evaluation.checked_run": ("check_and_evaluate",),
    "qwen3nb.report.leaderboard.board": ("leaderboard",),
    "qwen3nb.report.render.figure": ("Figure",),
    "qwen3nb.report.render.table": ("Table",),
    "qwen3nb.utils.code_version": ("__version__",),
    "qwen3nb.": ("conclusions", "datasets", "figures", "paths", "stats", "studies", "tables"),
}

__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
