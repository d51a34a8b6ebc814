"""Figures of records, comparisons, trainings and studies, each loaded when first used."""

from qwen3nb.utils.imports import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "qwen3nb.report.comparison.compare": "differences_figure pairs_figure",
        "qwen3nb.report.evaluation.scores": "baseline_figure",
        "qwen3nb.report.leaderboard.board": "comparison_figure",
        "qwen3nb.report.leaderboard.one_model": "per_query_figure",
        "qwen3nb.report.studies.ablation": "effects_figure",
        "qwen3nb.report.studies.ann": "ann_figure",
        "qwen3nb.report.studies.prompts": "prompts_figure",
        "qwen3nb.report.studies.reranking": "gain_figure",
        "qwen3nb.report.studies.speed": "speed_figure",
        "qwen3nb.report.training.interference": "interference_figure",
        "qwen3nb.report.training.trainings": "conflict_figure loss_figure",
    },
)
