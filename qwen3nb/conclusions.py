"""Sentences that say what came out, made from results, each loaded when first used."""

from qwen3nb.utils.imports import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "qwen3nb.book.status": "status_conclusion",
        "qwen3nb.report.comparison.candidates": "candidates_conclusion",
        "qwen3nb.report.comparison.compare": "comparison_conclusion leaderboard_conclusion",
        "qwen3nb.report.comparison.explorer": "explorer_conclusion",
        "qwen3nb.report.evaluation.scores": "evaluation_conclusion",
        "qwen3nb.report.leaderboard.one_model": "checks_conclusion",
        "qwen3nb.report.leaderboard.published": "reproduction_conclusion",
        "qwen3nb.report.render.table": "Conclusion",
        "qwen3nb.report.studies.ablation": "ablation_conclusion",
        "qwen3nb.report.studies.ann": "ann_conclusion",
        "qwen3nb.report.studies.calibration": "calibration_conclusion wilcoxon_conclusion",
        "qwen3nb.report.studies.datasets": "data_conclusion",
        "qwen3nb.report.studies.extraction": "extraction_conclusion",
        "qwen3nb.report.studies.probes": "probes_conclusion",
        "qwen3nb.report.studies.prompts": "prompts_conclusion",
        "qwen3nb.report.studies.reranking": "rerank_conclusion",
        "qwen3nb.report.studies.speed": "speed_conclusion",
        "qwen3nb.report.training.interference": "interference_conclusion",
        "qwen3nb.report.training.trainings": "training_conclusion",
    },
)
