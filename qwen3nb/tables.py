"""Tables of records, comparisons, trainings and studies, each loaded when first used."""

from qwen3nb.utils.imports import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "qwen3nb.book.status": "failed_runs_table runs_table verification_table",
        "qwen3nb.report.comparison.compare": "baseline_tables compared_tables differences_table "
        "power_table",
        "qwen3nb.report.evaluation.by_hand": "query_table",
        "qwen3nb.report.evaluation.scores": "failures_table scores_table",
        "qwen3nb.report.leaderboard.board": "cost_table headline_table rank_table task_tables",
        "qwen3nb.report.leaderboard.one_model": "checks_table model_and_run_table parts_table "
        "provenance_table suite_table",
        "qwen3nb.report.leaderboard.published": "expected_table reproduction_table "
        "sts_and_msmarco_table",
        "qwen3nb.report.studies.ablation": "ablation_table effects_table",
        "qwen3nb.report.studies.ann": "ann_table compression_table",
        "qwen3nb.report.studies.calibration": "calibration_table family_table",
        "qwen3nb.report.studies.datasets": "pydocs_table tier_table",
        "qwen3nb.report.studies.extraction": "checkpoints_table extraction_table",
        "qwen3nb.report.studies.probes": "probes_table",
        "qwen3nb.report.studies.prompts": "prompt_pairs_table prompt_place_table "
        "prompt_variance_table",
        "qwen3nb.report.studies.reranking": "cases_table rerank_table",
        "qwen3nb.report.studies.speed": "precision_table speed_table",
        "qwen3nb.report.training.interference": "configuration_differences_table "
        "configurations_table interference_table refusals_table",
        "qwen3nb.report.training.trainings": "gains_table",
    },
)
