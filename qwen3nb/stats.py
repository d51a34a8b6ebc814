"""Paired tests, intervals and corrections on arrays, each loaded when first used."""

from qwen3nb.utils.imports import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "qwen3nb.analysis.comparison.differences": "significant",
        "qwen3nb.analysis.stats.multiple_testing": "benjamini_hochberg holm",
        "qwen3nb.analysis.stats.paired_tests": "effect_size equivalence "
        "mean_difference minimum_detectable_effect permutation_test power queries_to_show t_test "
        "unseen_outlier_could_turn",
        "qwen3nb.analysis.stats.resampling": "percentile_interval",
        "qwen3nb.metrics.intervals": "difference_interval student_interval",
    },
)
