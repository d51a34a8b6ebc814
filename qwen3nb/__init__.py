"""qwen3nb: from a Qwen3 training checkpoint to a book whose every number can be traced.

The names below are the public ones. Each is loaded when it is first used, so that
importing the package costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "qwen3nb.analysis.calibration.simulate": (
        "calibrate",
        "calibrate_seeds",
        "read_calibration",
    ),
    "qwen3nb.analysis.comparison.ablation_effects": ("effects",),
    "qwen3nb.analysis.comparison.alignment": (
        "join",
        "pair_results",
    ),
    "qwen3nb.analysis.comparison.compare": (
        "Comparison",
        "compare",
    ),
    "qwen3nb.analysis.comparison.differences": ("PairedDifference",),
    "qwen3nb.analysis.comparison.ranking": ("leaderboard",),
    "qwen3nb.analysis.inventory.collect": ("load_all_results",),
    "qwen3nb.analysis.stats.multiple_testing": (
        "benjamini_hochberg",
        "holm",
    ),
    "qwen3nb.analysis.stats.paired_tests": (
        "effect_size",
        "equivalence",
        "minimum_detectable_effect",
        "paired_bootstrap",
        "permutation_test",
        "t_test",
        "wilcoxon",
    ),
    "qwen3nb.analysis.training.interference": ("interference",),
    "qwen3nb.analysis.training.learning_curve": (
        "best_checkpoint",
        "correlation",
        "curve",
    ),
    "qwen3nb.analysis.training.seed_variance": (
        "seed_curve",
        "variance_split",
    ),
    "qwen3nb.bench.encode": (
        "bench_encode",
        "bench_texts",
    ),
    "qwen3nb.book.build": ("page_links",),
    "qwen3nb.book.status": (
        "data_versions_table",
        "failed_runs_table",
        "machine_table",
        "runs_table",
        "software_table",
        "verification_table",
    ),
    "qwen3nb.checkpoints.averaging": (
        "average_checkpoints",
        "averaged",
        "select_checkpoints",
    ),
    "qwen3nb.checkpoints.checkpoint": (
        "list_checkpoints",
        "open_checkpoint",
    ),
    "qwen3nb.checkpoints.drift": (
        "distance_to",
        "weight_drift",
    ),
    "qwen3nb.checkpoints.types": ("CheckpointError",),
    "qwen3nb.datasets.pydocs.build": ("load_pydocs",),
    "qwen3nb.datasets.pydocs.mteb_tasks": (
        "author_sts",
        "embedded_task",
        "pydocs_sample",
    ),
    "qwen3nb.datasets.words": (
        "load_analogies",
        "load_word_pairs",
        "mirrored_words",
    ),
    "qwen3nb.evaluation.embeddings.probes": (
        "alignment",
        "anisotropy",
        "clusters",
        "probe",
        "transfer",
        "uniformity",
    ),
    "qwen3nb.evaluation.embeddings.sanity_check": (
        "sanity_check",
        "vector_agreement",
    ),
    "qwen3nb.evaluation.embeddings.word_similarity": (
        "analogies",
        "word_similarity",
    ),
    "qwen3nb.evaluation.evaluate": ("evaluate",),
    "qwen3nb.evaluation.mteb.plan": ("plan",),
    "qwen3nb.evaluation.mteb.select": (
        "choose_tasks",
        "select_tasks",
    ),
    "qwen3nb.tiers": ("TIERS",),
    "qwen3nb.evaluation.retrieval.ann": (
        "ann_suite",
        "truncated",
    ),
    "qwen3nb.evaluation.retrieval.first_stage": ("load_first",),
    "qwen3nb.evaluation.retrieval.pydocs_difficulty": ("pydocs_difficulty",),
    "qwen3nb.evaluation.retrieval.rerank": ("rerank",),
    "qwen3nb.evaluation.studies.ablation": (
        "ablate",
        "by_task",
        "variants",
    ),
    "qwen3nb.evaluation.studies.lora_runs": (
        "evaluate_trained",
        "find_trained",
    ),
    "qwen3nb.evaluation.studies.reproduce": (
        "published_scores",
        "reproduce",
    ),
    "qwen3nb.execution.notebook": ("run_notebook",),
    "qwen3nb.extraction.extract": ("extract",),
    "qwen3nb.metrics.retrieval": (
        "METRICS",
        "score_run",
    ),
    "qwen3nb.models.load": (
        "load_encoder",
        "load_model",
    ),
    "qwen3nb.models.modeling.configuration": ("Qwen3EncoderConfig",),
    "qwen3nb.models.modeling.pooling": (
        "POOLINGS",
        "pool",
    ),
    "qwen3nb.models.modeling.qwen3_encoder": ("Qwen3EncoderModel",),
    "qwen3nb.models.modeling.qwen3_seq2seq": (
        "Qwen3ForSeq2SeqLM",
        "Qwen3Seq2SeqConfig",
    ),
    "qwen3nb.models.rerankers.load": ("load_reranker",),
    "qwen3nb.models.rerankers.yes_no": (
        "RerankScores",
        "Reranker",
    ),
    "qwen3nb.models.search.faiss_index": (
        "build_index",
        "measure_speed",
        "recall_at_k",
    ),
    "qwen3nb.models.sources.resolve": (
        "find_source",
        "find_training",
        "registry",
    ),
    "qwen3nb.models.types": ("SpecError",),
    "qwen3nb.records.record": (
        "Result",
        "verify",
    ),
    "qwen3nb.records.store": (
        "load_failures",
        "load_results",
    ),
    "qwen3nb.report.card.card": ("card_text",),
    "qwen3nb.report.comparison.candidates": ("compare_candidates",),
    "qwen3nb.report.comparison.explorer": (
        "explore",
        "query_texts",
    ),
    "qwen3nb.report.comparison.figures": (
        "differences_figure",
        "pairs_figure",
    ),
    "qwen3nb.report.comparison.tables": (
        "breakdown_table",
        "changes_table",
        "correlations_table",
        "differences_table",
        "power_table",
    ),
    "qwen3nb.report.comparison.task_figures": (
        "task_differences_figure",
        "wins_figure",
    ),
    "qwen3nb.report.headline": ("headline_findings",),
    "qwen3nb.report.leaderboard.figures": (
        "bars_figure",
        "comparison_figure",
        "per_query_figure",
        "similarity_figure",
    ),
    "qwen3nb.report.leaderboard.findings": (
        "findings",
        "findings_html",
    ),
    "qwen3nb.report.leaderboard.ranking": (
        "categories_table",
        "rank_figure",
        "rank_table",
        "standings",
    ),
    "qwen3nb.report.leaderboard.score_table": ("comparison_table",),
    "qwen3nb.report.leaderboard.suite": (
        "plan_table",
        "reproduction_table",
        "suite_table",
        "summarise",
    ),
    "qwen3nb.report.leaderboard.tables": (
        "checks_table",
        "cost_table",
        "failures_table",
        "headline_table",
        "provenance_table",
        "results_table",
    ),
    "qwen3nb.report.paper": (
        "paper_figures",
        "paper_tables",
    ),
    "qwen3nb.report.render.figure": (
        "Figure",
        "model_colors",
    ),
    "qwen3nb.report.render.forest_plot": (
        "Band",
        "ForestRow",
        "forest_figure",
    ),
    "qwen3nb.report.studies.ann": (
        "ann_figure",
        "ann_table",
        "compression_figure",
        "compression_table",
    ),
    "qwen3nb.report.studies.calibration": ("calibration_table",),
    "qwen3nb.report.studies.datasets": (
        "difficulty_table",
        "examples_table",
        "pairs_table",
        "prediction_table",
        "pydocs_table",
        "tier_table",
    ),
    "qwen3nb.report.studies.extraction": (
        "ablation_table",
        "averaging_table",
        "checkpoints_table",
        "drift_figure",
        "effects_figure",
        "effects_table",
        "extraction_table",
    ),
    "qwen3nb.report.studies.geometry": (
        "cosine_figure",
        "spectrum_figure",
    ),
    "qwen3nb.report.studies.probes": ("probes_table",),
    "qwen3nb.report.studies.reranking": (
        "cases_table",
        "order_table",
        "rerank_table",
        "reranked",
        "reranker_table",
    ),
    "qwen3nb.report.studies.reranking_figures": (
        "calibration_figure",
        "gain_figure",
    ),
    "qwen3nb.report.studies.speed": ("speed_table",),
    "qwen3nb.report.training.configurations": ("configurations_table",),
    "qwen3nb.report.training.figures": (
        "conflict_figure",
        "loss_figure",
        "trajectory_figure",
    ),
    "qwen3nb.report.training.interference": (
        "interference_figure",
        "interference_report",
        "interference_seeds_table",
        "interference_table",
        "refusals_table",
    ),
    "qwen3nb.report.training.tables": (
        "best_table",
        "logs_table",
        "loss_correlation_table",
        "read_trainings",
        "variance_table",
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
