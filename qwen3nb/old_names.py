"""Names of earlier versions, and what to write instead.

A line per name: the old one without ``q.``, and the code that does the same.
"""

from typing import Any, NoReturn

NEW_OF_OLD = {
    "Figure": "answer.figure()",
    "calibration": "q.stats.calibration()",
    "conclusions.Conclusion": "q.Conclusion(text)",
    "conclusions.ablation_conclusion": "q.ablation(training).conclusion",
    "conclusions.ann_conclusion": "q.ann(model).conclusion",
    "conclusions.calibration_conclusion": "q.stats.calibration().conclusion",
    "conclusions.candidates_conclusion": "results.candidates(current=current).conclusion",
    "conclusions.checks_conclusion": "run.checks().conclusion",
    "conclusions.comparison_conclusion": "comparison.conclusion",
    "conclusions.data_conclusion": "q.data().conclusion",
    "conclusions.evaluation_conclusion": "run.conclusion",
    "conclusions.explorer_conclusion": "explorer.conclusion",
    "conclusions.extraction_conclusion": "q.extract(checkpoint, output).conclusion",
    "conclusions.interference_conclusion": "results.interference().conclusion",
    "conclusions.leaderboard_conclusion": "results.leaderboard().conclusion",
    "conclusions.parity_conclusion": "q.parity(model, where).conclusion",
    "conclusions.probes_conclusion": "q.probe(encoder).conclusion",
    "conclusions.prompts_conclusion": "results.prompts().conclusion",
    "conclusions.reproduction_conclusion": "q.reproduce().conclusion",
    "conclusions.rerank_conclusion": "results.reranking().conclusion",
    "conclusions.speed_conclusion": "q.speed(models).conclusion",
    "conclusions.status_conclusion": "q.status().conclusion",
    "conclusions.training_conclusion": "results.trainings().conclusion",
    "conclusions.wilcoxon_conclusion": "q.stats.calibration().wilcoxon",
    "figures.ann_figure": "q.ann(model).figure()",
    "figures.baseline_figure": "run.figure()",
    "figures.comparison_figure": "results.leaderboard().figure()",
    "figures.conflict_figure": "results.trainings().conflicts()",
    "figures.differences_figure": "comparison.differences_figure()",
    "figures.effects_figure": "q.ablation(training).figure(task)",
    "figures.gain_figure": "results.reranking().figure()",
    "figures.interference_figure": "results.interference().figure()",
    "figures.loss_figure": "results.trainings().figure()",
    "figures.pairs_figure": "comparison.pairs_figure()",
    "figures.per_query_figure": "run.per_query_figure()",
    "figures.prompts_figure": "results.prompts().figure()",
    "figures.speed_figure": "q.speed(models).figure()",
    "precision": "q.speed(models).in_fewer_bits()",
    "score_rankings": "q.stats.score_rankings(rankings, relevant)",
    "studies.Gate": "q.stats.Gate()",
    "studies.ablate": "q.ablation(training)",
    "studies.ablate_trainings": "q.training_components(folder)",
    "studies.analogies": "q.stats.analogies(questions, vectors)",
    "studies.ann_suite": "q.ann(model)",
    "studies.averaged": "q.training_checkpoints(training).average()",
    "studies.bench_encode": "q.speed(models)",
    "studies.bench_precision": "q.speed(models).in_fewer_bits()",
    "studies.bench_texts": "q.speed(models).texts_to_encode",
    "studies.build_index": "q.stats.build_index(vectors, family=family)",
    "studies.by_task": "q.ablation(training).outcomes",
    "studies.choose_tasks": "q.check_and_evaluate(model, tier=tier, languages=languages)",
    "studies.clusters": "q.stats.clusters(vectors, labels)",
    "studies.component_effects": "q.training_components(folder).effects",
    "studies.effects": "q.ablation(training).effects",
    "studies.evaluate_prompts": "q.check_and_evaluate(model, prompts=prompts)",
    "studies.explore": "results.explore(task=task)",
    "studies.find_layout": "q.datasets.find_layout(text=text)",
    "studies.find_training": "q.training_checkpoints(training).folder",
    "studies.find_trainings": "q.training_components(folder)",
    "studies.headline_findings": "results.landing_page(results.leaderboard())",
    "studies.headline_lead": "results.landing_page(results.leaderboard())",
    "studies.headline_task": "results.leaderboard().task",
    "studies.interference_report": "results.interference()",
    "studies.lesson_training": "q.datasets.lesson_training()",
    "studies.linear_probe": "q.stats.linear_probe(vectors, labels, others, their_labels)",
    "studies.list_caches": "q.datasets.list_caches()",
    "studies.list_checkpoints": "q.list_checkpoints(folder)",
    "studies.load_first": "q.rerank(model, data, first=first, first_prompts=prompts)",
    "studies.measure_speed": "q.stats.measure_speed(search, queries)",
    "studies.model_folder": "q.speed(models).encoder(model)",
    "studies.page_links": "results.page_links()",
    "studies.probe": "q.probe(encoder)",
    "studies.prompt_pairs": "results.prompts().pairs",
    "studies.published_scores": "q.reproduce(models=models, tasks=tasks)",
    "studies.pydocs_difficulty": "q.data(tier, models=models)",
    "studies.read_calibration": "q.stats.calibration().shares",
    "studies.read_prompt_scores": "results.prompts().scores",
    "studies.read_queries": "q.datasets.read_queries(file)",
    "studies.read_trainings": "results.trainings()",
    "studies.recall_at_k": "q.stats.recall_at_k(hits, documents, queries)",
    "studies.reproduce": "q.reproduce(models=models, tasks=tasks)",
    "studies.reranked": "results.reranking(data_sets).runs",
    "studies.search_domain": "q.datasets.search_domain(encoder, domain)",
    "studies.select_checkpoints": "q.training_checkpoints(training).selected",
    "studies.split_names": "[name.strip() for name in text.split(',')]",
    "studies.standings": "results.leaderboard().rank_table()",
    "studies.variants": "q.ablation(training)",
    "studies.word_similarity": "q.stats.word_similarity(pairs, vectors)",
    "tables.ablation_table": "q.ablation(training).combinations(task)",
    "tables.ann_table": "q.ann(model).table()",
    "tables.baseline_tables": "comparison.baseline_tables(task=task)",
    "tables.calibration_table": "q.stats.calibration().table(kind)",
    "tables.cases_table": "results.reranking(data_sets).cases()",
    "tables.checkpoints_table": "q.training_checkpoints(training).table()",
    "tables.checks_table": "run.checks().table()",
    "tables.compared_tables": "comparison.differences_table()",
    "tables.compression_table": "q.ann(model).compression()",
    "tables.configuration_differences_table": "results.interference().differences_table()",
    "tables.configurations_table": "results.interference().configurations()",
    "tables.cost_table": "results.leaderboard().cost_table()",
    "tables.differences_table": "comparison.differences_table()",
    "tables.effects_table": "q.ablation(training).table(task)",
    "tables.expected_table": "results.leaderboard().expected_table()",
    "tables.extraction_table": "q.extract(checkpoint, output).table()",
    "tables.failed_runs_table": "q.status().failures_table()",
    "tables.failures_table": "run.failures_table()",
    "tables.family_table": "q.stats.calibration().families()",
    "tables.gains_table": "results.trainings().table()",
    "tables.headline_table": "results.leaderboard().headline_table()",
    "tables.interference_table": "results.interference().table()",
    "tables.model_and_run_table": "results.model_and_run_table()",
    "tables.parity_table": "q.parity(model, where).table()",
    "tables.parts_table": "run.parts_table()",
    "tables.power_table": "comparison.power_table()",
    "tables.precision_table": "q.speed(models).in_fewer_bits().table()",
    "tables.probes_table": "q.probe(encoder).table()",
    "tables.prompt_pairs_table": "results.prompts().pairs_table()",
    "tables.prompt_place_table": "results.prompts().table()",
    "tables.prompt_variance_table": "results.prompts().variance_table()",
    "tables.provenance_table": "results.provenance_table()",
    "tables.pydocs_table": "q.data().pydocs_table()",
    "tables.query_table": "run.query_table()",
    "tables.rank_table": "results.leaderboard().rank_table()",
    "tables.refusals_table": "results.interference().refusals()",
    "tables.reproduction_table": "q.reproduce().table()",
    "tables.rerank_table": "results.reranking().table()",
    "tables.runs_table": "q.status().table()",
    "tables.scores_table": "run.table()",
    "tables.speed_table": "q.speed(models).table()",
    "tables.sts_and_msmarco_table": "results.leaderboard().sts_table()",
    "tables.suite_table": "run.means_table()",
    "tables.task_tables": "results.leaderboard().task_tables()",
    "tables.tier_table": "q.data(tier).table()",
    "tables.verification_table": "q.status().verification_table()",
}


def refuse_old_name(name: str) -> None:
    """Raise an AttributeError that says what to write, if ``name`` is an old one.

    >>> refuse_old_name("tables.power_table")
    Traceback (most recent call last):
    AttributeError: q.tables.power_table is now comparison.power_table()
    """
    if name in NEW_OF_OLD:
        raise AttributeError(f"q.{name} is now {NEW_OF_OLD[name]}")


class OldNamespace:
    """A namespace of earlier versions, such as ``q.tables``; its names say what to write."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> NoReturn:
        refuse_old_name(f"{self._name}.{name}")
        raise AttributeError(f"q.{self._name} is gone, with {name!r}; dir(q) lists what there is")


def namespace_of_old_names(name: str) -> Any:
    """Return the namespace of earlier versions with this name; None if there was none."""
    if any(old.startswith(f"{name}.") for old in NEW_OF_OLD):
        return OldNamespace(name)
    return None
