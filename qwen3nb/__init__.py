"""qwen3nb: from a Qwen3 training checkpoint to a book whose every number can be traced.

From a training to an encoder:

    q.list_checkpoints  q.average_checkpoints  q.extract  q.verify_sentence_transformers_loading

A model is a value, which loads its weights when they are needed:

    q.Model("encoder", pooling="mean")      .encode  .search  .score

Measure it; records are written to ``results/``:

    q.evaluate  q.check_and_evaluate  q.evaluate_domain  q.evaluate_sts  q.rerank
    q.TestCollection  q.TrainingEvaluator  q.datasets

Read what was measured, and ask. Each answer has ``.conclusion``, ``.table()``, ``.figure()`` and
``.to_frame()``, and a notebook shows the first three:

    results = q.load_results()
    results.compare("encoder", "bm25")      results.leaderboard()   results.explore()
    results.candidates(current="bm25")      results.trainings()     results.interference()
    results.prompts()                       results.reranking()     results.query_worth(…)
    results.migration("encoder", "bm25", queries=…, documents=…)
    q.ann  q.ablation  q.contamination  q.data  q.diff  q.forecast  q.parity  q.probe
    q.reproduce  q.sanity_check  q.speed  q.status  q.training_checkpoints  q.training_components

Statistics are in ``q.stats``, folders in ``q.paths``. Everything is loaded on first use.
"""

from typing import Any

from qwen3nb.utils.imports import lazy_names

_get, __dir__, __all__ = lazy_names(__name__, __file__)


def __getattr__(name: str) -> Any:
    """Load a public name on first use; an old name says what to write instead."""
    if name not in __all__ and not name.startswith("__"):
        from qwen3nb.old_names import namespace_of_old_names, refuse_old_name

        refuse_old_name(name)
        namespace = namespace_of_old_names(name)
        if namespace is not None:
            return namespace
    return _get(name)
