"""Result files of every kind in one table, with their anomalies; logs of trainings."""

import json

import numpy as np
import pytest
from helpers.records import amend, make, state

from qwen3nb.analysis.inventory.collect import load_all_results
from qwen3nb.analysis.inventory.training_logs import read_conflicts, read_log, read_trainer_state
from qwen3nb.analysis.training.checkpoint_scores import training_step, trajectories
from qwen3nb.answers.trainings import trainings

QUERIES = {str(i): 0.1 * (i % 7) for i in range(20)}


def write(file, value):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(value if isinstance(value, str) else json.dumps(value))
    return file


def reranking(folder, per_query, *, mean=None, dataset="SciFact", system="rank_only_r4", seed=42):
    value = sum(per_query.values()) / len(per_query) if mean is None else mean
    content = {"dataset": dataset, "per_query": per_query, "aggregate": {"ndcg@10": value}}
    return write(
        folder / system / f"seed_{seed}" / "results" / "reranking_results.json",
        {"per_dataset": {dataset: content}, "average": {"ndcg@10": value}},
    )


def mteb(folder, score, *, model="org__model", revision="abc", task="STS", data="r1", subset=None):
    write(folder / model / revision / "model_meta.json", {"name": None, "revision": revision})
    entries = [{"main_score": score, "hf_subset": "default"}]
    if subset is not None:
        entries.append({"main_score": subset, "hf_subset": "other"})
    text = json.dumps({"task_name": task, "dataset_revision": data, "scores": {"test": entries}})
    # MTEB writes bare NaN beside its scores.
    text = text.replace('"hf_subset"', '"nauc": NaN, "hf_subset"')
    return write(folder / model / revision / f"{task}.json", text)


def kinds(collection):
    return [flag.kind for flag in collection.flags]


def test_three_kinds_of_files_make_one_table(tmp_path):
    make("mine", {"q1": 0.2, "q2": 0.4}, task="T").save(tmp_path)
    mteb(tmp_path / "mteb" / "results", 0.5, subset=0.7)
    reranking(tmp_path / "outputs", QUERIES)
    write(
        tmp_path / "outputs" / "emb_only_r4" / "seed_1" / "results" / "mteb_results.json",
        {"per_task": {"SciFact": {"main_score": 0.27}}, "eval_tier": "fast"},
    )
    write(tmp_path / "outputs" / "config.json", {"hidden_size": 8})
    collection = load_all_results(tmp_path)
    assert collection.flags == ()
    assert len({score.source for score in collection.scores}) == 4
    values = {(each.run, each.task, each.metric): each.value for each in collection.scores}
    assert values == pytest.approx(
        {
            ("mine (seed 0)", "T", "nDCG@10"): 0.3,
            ("org/model", "STS", "main_score"): 0.6,
            ("emb_only_r4 (seed 1)", "SciFact", "nDCG@10"): 0.27,
            ("rank_only_r4 (seed 42)", "SciFact", "nDCG@10"): sum(QUERIES.values()) / 20,
        }
    )


def test_scores_carry_the_facts_of_their_training(tmp_path):
    file = reranking(tmp_path, QUERIES)
    folder = file.parent.parent
    write(
        folder / "config.yaml",
        "model: {base_model_name: tiny}\nlora: {rank: 4}\ntraining: {mode: rank_only}\nseed: 42\n",
    )
    write(
        folder / "train_log.jsonl",
        '{"step": 20}\n\n{"type": "epoch_summary", "global_step": 40, "epoch_rerank_steps": 40}\n',
    )
    facts = load_all_results(tmp_path).scores[0].facts
    assert facts == {
        "mode": "rank_only",
        "rank": 4,
        "base": "tiny",
        "data_seed": 42,
        "steps": 40,
        "steps_reranking": 40,
    }


def test_adapters_of_one_configuration_are_one_system(tmp_path):
    """Records of `evaluation.studies.lora_runs`: one label per adapter, configuration inside."""
    settings = {"model": {"base_model_name": "tiny"}, "lora": {"rank": 4}, "seed": 7}
    for seed in (1, 2):
        result = make(f"joint_r4-{seed}", {"q1": 0.2, "q2": 0.4}, seed=seed)
        state(
            result,
            training={
                "configuration": "joint_r4",
                "seed": seed,
                "mode": "joint",
                "kind": "embedding",
                "steps": 60,
                "settings": settings,
            },
        )
        result.save(tmp_path)
    scores = load_all_results(tmp_path).scores
    assert {(score.system, score.seed) for score in scores} == {("joint_r4", 1), ("joint_r4", 2)}
    facts = {"mode": "joint", "rank": 4, "base": "tiny", "data_seed": 7, "steps": 60}
    assert scores[0].facts.items() >= facts.items()
    assert {score.kind for score in scores} == {"embedding"}


def test_a_file_per_data_set_is_read(tmp_path):
    folder = tmp_path / "joint_r4" / "seed_3" / "results"
    value = {"dataset": "SciFact", "aggregate": {"ndcg@10": 0.3}, "per_query": {"a": 0.2, "b": 0.4}}
    write(folder / "SciFact.bm25-100.json", json.dumps(value))
    value = {"dataset": "STS", "aggregate": {"spearman": 0.5}, "per_query": {}}
    write(folder / "STS.json", json.dumps(value))
    sts, reranked = load_all_results(tmp_path).scores
    assert (reranked.system, reranked.seed, reranked.kind) == ("joint_r4", 3, "reranking")
    assert (reranked.metric, reranked.value) == ("nDCG@10", pytest.approx(0.3))
    assert (sts.task, sts.kind, sts.metric, sts.value) == ("STS", "embedding", "spearman", 0.5)


def test_the_same_scores_for_different_weights_are_flagged(tmp_path):
    reranking(tmp_path, QUERIES, seed=1)
    reranking(tmp_path, QUERIES, seed=2)
    reranking(tmp_path, {q: v / 2 for q, v in QUERIES.items()}, seed=3)
    (flag,) = load_all_results(tmp_path).flags
    assert flag.kind == "same scores"
    assert "rank_only_r4 (seed 1), rank_only_r4 (seed 2): identical scores on SciFact" in flag.text
    assert "seed 3" not in flag.text


@pytest.mark.parametrize(("value", "flagged"), [(0.5, []), (0.7, ["same scores"])])
def test_equal_means_of_one_task_or_of_zeros_are_not_flagged(tmp_path, value, flagged):
    for revision in ("one", "two"):
        mteb(tmp_path, 0.5, revision=revision)
        mteb(tmp_path, 0.0 if value == 0.5 else value, revision=revision, task="Another")
    for seed in (1, 2):
        reranking(tmp_path, dict.fromkeys(QUERIES, 1.0), seed=seed)
    assert kinds(load_all_results(tmp_path)) == flagged


def test_different_revisions_of_the_data_are_flagged(tmp_path):
    mteb(tmp_path, 0.5, model="org__a", data="r1")
    mteb(tmp_path, 0.6, model="org__b", data="r2")
    (flag,) = load_all_results(tmp_path).flags
    assert flag.kind == "inconsistent"
    assert "r1: org/a; r2: org/b" in flag.text


def test_contradicting_files_are_flagged(tmp_path):
    reranking(tmp_path / "a", QUERIES, mean=0.9)
    first = load_all_results(tmp_path / "a")
    assert kinds(first) == ["inconsistent"]
    assert "SciFact has mean 0.900000, its queries give 0.285000" in first.flags[0].text
    reranking(tmp_path / "a", QUERIES)
    reranking(tmp_path / "b", QUERIES)
    assert load_all_results(tmp_path).flags == ()
    reranking(tmp_path / "b", {**QUERIES, "1": 0.9})
    collection = load_all_results([tmp_path / "a", tmp_path / "b"])
    assert kinds(collection) == ["inconsistent"]
    assert "2 files give 0.285000, 0.325000" in collection.flags[0].text


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        ("{", "not readable as JSON"),
        ('{"per_dataset": {"A": {"aggregate": {}}}}', "per_dataset.A.aggregate: "),
        (
            '{"per_task": {"A": {"main_score": NaN}}}',
            "per_task.A.main_score: expected a finite number",
        ),
        ('{"schema": "qwen3nb.result/1"}', "schema is 'qwen3nb.result/1'"),
        (
            '{"per_task": {"A": {"main_score": "0.5"}}}',
            "per_task.A.main_score: expected a finite number",
        ),
        ('{"per_task": {}, "per_task": {}}', "occurs twice"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_broken_files_are_flagged_and_the_rest_is_read(tmp_path, content, cause):
    reranking(tmp_path, QUERIES)
    (tmp_path / "x.json").write_text(content)
    collection = load_all_results(tmp_path)
    assert kinds(collection) == ["unreadable"]
    assert cause in collection.flags[0].text
    assert len(collection.scores) == 1


def test_bad_logs_are_named_by_line(tmp_path):
    file = reranking(tmp_path, QUERIES)
    log = file.parent.parent / "train_log.jsonl"
    write(log, '{"step": 1}\n{"ste\n')
    (flag,) = load_all_results(tmp_path).flags
    assert "train_log.jsonl:2: not JSON" in flag.text
    write(log, '{"step": 1}\n{"ste')  # killed while writing: what was written counts
    collection = load_all_results(tmp_path)
    assert (collection.flags, collection.scores[0].facts["steps"]) == ((), 1)
    write(log, "[1]\n")
    (flag,) = load_all_results(tmp_path).flags
    assert "train_log.jsonl:1: expected an object; got list" in flag.text
    with pytest.raises(FileNotFoundError, match="no such folder"):
        load_all_results(tmp_path / "nowhere")


PARAMETER = "base_model.model.model.layers.{}.self_attn.{}.lora_{}.default.weight"
TASK = "PyDocsSampleRetrieval"


def lines(*entries, end="\n"):
    return "\n".join(json.dumps(entry) for entry in entries) + end


@pytest.fixture
def outputs(tmp_path):
    """A joint training that was killed, and a specialist."""
    base = tmp_path / "deep" / "outputs"
    joint, alone = base / "joint_r4" / "seed_7", base / "rank_only_r4" / "seed_7"
    for folder in (joint, alone):
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text("training: {mode: joint}\n")
        log = [{"step": s, "loss": 2.0 / s, "lr": 0.1, "loss_emb": 1.0 / s} for s in (1, 2)]
        (folder / "train_log.jsonl").write_text(lines(*log))
    with (joint / "train_log.jsonl").open("a") as file:
        file.write('{"step": 3, "lo')
    measured = [
        {
            "step": 10,
            "per_layer": {
                PARAMETER.format(0, "q_proj", "A"): 0.2,
                PARAMETER.format(0, "q_proj", "B"): 0.4,
                PARAMETER.format(10, "v_proj", "A"): -0.5,
            },
        },
        {"step": 20, "per_layer": {PARAMETER.format(0, "q_proj", "A"): -0.1, "odd.name.w": 0.5}},
    ]
    (joint / "gradient_conflicts.jsonl").write_text(lines(*measured, end=""))
    return base


def test_a_truncated_line_is_left_out_and_reported(outputs):
    log = read_log(outputs / "joint_r4" / "seed_7" / "train_log.jsonl")
    assert log.name == "joint_r4 (seed 7)"
    assert log.series["loss"] == ((1, 2.0), (2, 1.0))
    assert log.notes == ("train_log.jsonl:3: truncated, left out",)


def test_conflicts_by_layer_module_and_step_with_gaps(outputs):
    conflicts = read_conflicts(outputs / "joint_r4" / "seed_7" / "gradient_conflicts.jsonl")
    assert conflicts.steps == (10, 20)
    assert conflicts.layers == ("0", "10", "other")
    assert conflicts.cosines["0", "q_proj"] == (pytest.approx(0.3), pytest.approx(-0.1))
    np.testing.assert_allclose(
        conflicts.by_step(), [[0.3, -0.1], [-0.5, np.nan], [np.nan, 0.5]], equal_nan=True
    )


def test_a_trainers_log_without_its_non_numeric_values():
    state = {
        "log_history": [
            {"step": 5, "learning_rate": 0.1, "loss": 1.0},
            {"step": 10, "eval_loss": 0.8, "loss": float("nan"), "task": "x", "done": True},
            {"loss": 3.0},
            7,
        ]
    }
    log = read_trainer_state(state, name="ul2")
    assert log.series == {"lr": ((5, 0.1),), "loss": ((5, 1.0),), "eval_loss": ((10, 0.8),)}


@pytest.mark.parametrize(
    ("label", "step"),
    [
        ("demo-checkpoint-400", ("demo", 0, 400)),
        ("demo-init", ("demo", 0, 0)),
        ("ul2-seed_7-checkpoint-20", ("ul2", 7, 20)),
        ("demo-average", None),
        ("demo-checkpoint-best", None),
    ],
)
def test_the_step_is_that_of_the_label_or_of_the_records_training(label, step):
    result = make(label)
    assert training_step(result) == step
    state(result, training={"configuration": "joint_r4", "seed": 3, "steps": 60})
    assert training_step(result) == ("joint_r4", 3, 60)


def steps_of(training, *means, seed="", spread=0.2):
    """Records of a training with these means, checkpoint by checkpoint."""
    noise = np.random.default_rng(0).normal(0, spread, 60)
    return [
        make(f"{training}{seed}-checkpoint-{100 * (i + 1)}", scores=mean + noise - noise.mean())
        for i, mean in enumerate(means)
    ]


def test_records_of_one_training_are_a_trajectory():
    results = [
        *steps_of("a", 0.1, 0.5),
        *steps_of("b", 0.2, seed="-seed-1"),
        *steps_of("b", 0.3, seed="-seed-2"),
        make("other"),
    ]
    first, second = trajectories(results, tasks=[TASK])
    assert (first.training, {seed: [*own] for seed, own in first.records.items()}) == (
        "a",
        {0: [100, 200]},
    )
    assert (second.training, sorted(second.records)) == ("b", [1, 2])
    amend(results[0], "task", revision="another")
    (only, _) = trajectories(results, tasks=[TASK])
    assert [*only.records[0]] == [200]


@pytest.mark.integration
def test_figures_and_words_of_trainings(outputs):
    results = [*steps_of("a", 0.1, 0.5), *steps_of("b", 0.4, 0.4)]
    course = trainings(results, tier="smoke", outputs=outputs)
    assert [row[-1].text for row in course.table().rows] == ["200", "100"]
    text = course.conclusion.text
    assert "Training a raised nDCG@10 on Retrieval: 0.100 at step 100, 0.500 at step 200." in text
    assert "Training b is not shown to change nDCG@10 on Retrieval" in text
    assert text.endswith("truncated, left out.")
    titles = [axis.get_title() for axis in course.figure().axes]
    assert titles == ["training loss", "loss, embedding", "learning rate"]
    assert [axis.get_xscale() for axis in course.figure().axes] == ["linear"] * 3
    heat, _ = course.conflicts().axes
    assert [tick.get_text() for tick in heat.get_yticklabels()] == ["0", "10", "other"]
    assert heat.collections[0].get_array().mask.sum() == 2
    assert heat.patch.get_hatch()
