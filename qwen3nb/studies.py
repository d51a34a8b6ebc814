"""Studies of the notebooks, beyond an evaluation, each loaded when first used."""

from qwen3nb.utils.imports import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "qwen3nb.analysis.calibration": "read_calibration",
        "qwen3nb.analysis.comparison.ablation_effects": "component_effects effects",
        "qwen3nb.analysis.comparison.prompt_effects": "prompt_pairs",
        "qwen3nb.analysis.training.interference": "Gate",
        "qwen3nb.bench.encode": "bench_encode bench_precision bench_texts",
        "qwen3nb.bench.random_models": "model_folder",
        "qwen3nb.book.build": "page_links",
        "qwen3nb.checkpoints.averaging": "averaged select_checkpoints",
        "qwen3nb.checkpoints.folder": "list_checkpoints",
        "qwen3nb.datasets.custom.documents": "find_layout",
        "qwen3nb.datasets.custom.queries": "read_queries",
        "qwen3nb.demo.pipeline": "lesson_training",
        "qwen3nb.evaluation.embeddings.probes": "analogies clusters linear_probe "
        "probe word_similarity",
        "qwen3nb.evaluation.mteb.select": "choose_tasks split_names",
        "qwen3nb.evaluation.retrieval.ann": "ann_suite",
        "qwen3nb.evaluation.retrieval.custom": "search_domain",
        "qwen3nb.evaluation.retrieval.first_stage": "load_first",
        "qwen3nb.evaluation.studies.ablation": "ablate ablate_trainings by_task find_trainings "
        "variants",
        "qwen3nb.evaluation.studies.prompts": "evaluate_prompts read_prompt_scores",
        "qwen3nb.evaluation.studies.reproduce": "published_scores pydocs_difficulty reproduce",
        "qwen3nb.execution.notebook": "run_key",
        "qwen3nb.models.kinds.resolve": "find_training",
        "qwen3nb.models.search.faiss_index": "build_index measure_speed recall_at_k",
        "qwen3nb.report.comparison.explorer": "explore",
        "qwen3nb.report.headline": "headline_findings headline_lead",
        "qwen3nb.report.leaderboard.board": "headline_task standings",
        "qwen3nb.report.studies.reranking": "reranked",
        "qwen3nb.report.training.interference": "interference_report",
        "qwen3nb.report.training.trainings": "read_trainings",
        "qwen3nb.vectors.cache": "list_caches",
    },
)
