"""qwen3nb: from a Qwen3 training checkpoint to a book whose every number can be traced.

The names below are the public ones. Each is loaded when it is first used, so that
importing the package costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "qwen3nb.analysis.collect": ("load_all_results",),
    "qwen3nb.analysis.comparison": ("compare_models",),
    "qwen3nb.analysis.corrections": ("benjamini_hochberg", "holm"),
    "qwen3nb.analysis.effects": ("effects",),
    "qwen3nb.analysis.interference": ("interference",),
    "qwen3nb.analysis.leaderboard": ("leaderboard",),
    "qwen3nb.analysis.pairs": ("join", "pair_results"),
    "qwen3nb.analysis.pairwise": ("compare_pairs",),
    "qwen3nb.analysis.seeds": ("seed_curve", "variance_split"),
    "qwen3nb.analysis.statistics": (
        "effect_size",
        "equivalence",
        "minimum_detectable_effect",
        "paired_bootstrap",
        "permutation_test",
        "t_test",
        "wilcoxon",
    ),
    "qwen3nb.analysis.trajectory": ("best_checkpoint", "correlation", "curve"),
    "qwen3nb.bench.calibration": ("calibrate", "calibrate_seeds", "read_calibration"),
    "qwen3nb.bench.encode": ("bench_encode", "bench_texts"),
    "qwen3nb.extraction.averaging": ("average_checkpoints", "averaged", "select_checkpoints"),
    "qwen3nb.extraction.checkpoint": ("CheckpointError", "list_checkpoints", "open_checkpoint"),
    "qwen3nb.extraction.drift": ("distance_to", "weight_drift"),
    "qwen3nb.extraction.extract": ("extract",),
    "qwen3nb.metrics": ("METRICS", "score_run"),
    "qwen3nb.models.config": ("Qwen3EncoderConfig",),
    "qwen3nb.models.encoder": ("Qwen3EncoderModel",),
    "qwen3nb.models.encoders": ("load_encoder", "load_model"),
    "qwen3nb.models.pooling": ("POOLINGS", "pool"),
    "qwen3nb.models.reranker": ("Scores", "YesNoReranker"),
    "qwen3nb.models.seq2seq": ("Qwen3ForSeq2SeqLM", "Qwen3Seq2SeqConfig"),
    "qwen3nb.models.source": ("SpecError", "find_source", "find_training", "registry"),
    "qwen3nb.models.yes_no": ("load_reranker",),
    "qwen3nb.report.ann": ("ann_figure", "ann_table", "compression_figure", "compression_table"),
    "qwen3nb.report.book": ("page_links",),
    "qwen3nb.report.calibration": ("calibration_table",),
    "qwen3nb.report.candidates": ("compare_candidates",),
    "qwen3nb.report.card": ("card_text",),
    "qwen3nb.report.comparison": (
        "breakdown_table",
        "changes_table",
        "compare_results",
        "correlations_table",
        "differences_table",
        "power_table",
    ),
    "qwen3nb.report.comparison_figures": ("differences_figure", "pairs_figure"),
    "qwen3nb.report.configurations": ("configurations_table",),
    "qwen3nb.report.data": (
        "difficulty_table",
        "examples_table",
        "pairs_table",
        "prediction_table",
        "pydocs_table",
        "tier_table",
    ),
    "qwen3nb.report.explorer": ("explore", "query_texts"),
    "qwen3nb.report.extraction": (
        "ablation_table",
        "averaging_table",
        "checkpoints_table",
        "drift_figure",
        "effects_figure",
        "effects_table",
        "extraction_table",
    ),
    "qwen3nb.report.figures": (
        "bars_figure",
        "comparison_figure",
        "per_query_figure",
        "similarity_figure",
    ),
    "qwen3nb.report.findings": ("findings", "findings_html"),
    "qwen3nb.report.forest": ("Band", "ForestRow", "forest_figure"),
    "qwen3nb.report.geometry": ("cosine_figure", "spectrum_figure"),
    "qwen3nb.report.headline": ("headline_findings",),
    "qwen3nb.report.interference": (
        "interference_figure",
        "interference_report",
        "interference_seeds_table",
        "interference_table",
        "refusals_table",
    ),
    "qwen3nb.report.look": ("Picture", "model_colors"),
    "qwen3nb.report.paired": ("task_differences_figure", "wins_figure"),
    "qwen3nb.report.paper": ("paper_figures", "paper_tables"),
    "qwen3nb.report.probes": ("probes_table",),
    "qwen3nb.report.ranking": ("categories_table", "rank_figure", "rank_table", "standings"),
    "qwen3nb.report.reranking": (
        "cases_table",
        "order_table",
        "rerank_table",
        "reranked",
        "reranker_table",
    ),
    "qwen3nb.report.reranking_figures": ("calibration_figure", "gain_figure"),
    "qwen3nb.report.scoreboard": ("comparison_table",),
    "qwen3nb.report.speed": ("speed_table",),
    "qwen3nb.report.status": (
        "data_versions_table",
        "failed_runs_table",
        "machine_table",
        "runs_table",
        "software_table",
        "verification_table",
    ),
    "qwen3nb.report.suite": ("plan_table", "reproduction_table", "suite_table", "summarise"),
    "qwen3nb.report.training": (
        "best_table",
        "logs_table",
        "loss_correlation_table",
        "read_trainings",
        "variance_table",
    ),
    "qwen3nb.report.training_figures": ("conflict_figure", "loss_figure", "trajectory_figure"),
    "qwen3nb.report.views": (
        "checks_table",
        "cost_table",
        "failures_table",
        "headline_table",
        "provenance_table",
        "results_table",
        "task_differences_table",
    ),
    "qwen3nb.results": ("Result", "load_failures", "load_results", "verify"),
    "qwen3nb.run.notebook": ("run_notebook",),
    "qwen3nb.tasks.ablation": ("ablate", "by_task", "variants"),
    "qwen3nb.tasks.ann": ("build_index", "exact_search", "measure_speed", "recall_at_k"),
    "qwen3nb.tasks.ann_suite": ("ann_suite", "truncated"),
    "qwen3nb.tasks.embedded": ("author_sts", "embedded_task", "pydocs_sample"),
    "qwen3nb.tasks.first_stage": ("load_first",),
    "qwen3nb.tasks.intrinsic": ("quick_look", "vector_agreement"),
    "qwen3nb.tasks.mteb_suite": ("evaluate",),
    "qwen3nb.tasks.plan": ("plan",),
    "qwen3nb.tasks.probes": (
        "alignment",
        "anisotropy",
        "clusters",
        "probe",
        "transfer",
        "uniformity",
    ),
    "qwen3nb.tasks.pydocs": ("load_pydocs",),
    "qwen3nb.tasks.reproduce": ("published_scores", "reproduce"),
    "qwen3nb.tasks.rerank_suite": ("rerank_suite",),
    "qwen3nb.tasks.selection": ("choose_tasks", "select_tasks"),
    "qwen3nb.tasks.tiers": ("TIERS",),
    "qwen3nb.tasks.trained": ("evaluate_trained", "find_trained"),
    "qwen3nb.tasks.words": (
        "analogies",
        "load_analogies",
        "load_word_pairs",
        "mirrored_words",
        "word_similarity",
    ),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'qwen3nb' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
