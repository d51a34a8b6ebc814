"""Scores joined by task and query; the comparison core: baseline, families, differences."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from helpers.matrices import table
from helpers.records import RERANKING, RETRIEVAL, amend, make, noisy

from qwen3nb.analysis.comparison.alignment import model_names, newest_records, pair_results
from qwen3nb.analysis.comparison.differences import best_first, corrected, paired_differences
from qwen3nb.analysis.stats.multiple_testing import holm
from qwen3nb.analysis.stats.paired_tests import effect_size, mean_difference, permutation_test
from qwen3nb.analysis.stats.resampling import draw_seed
from qwen3nb.answers.comparison import compare
from qwen3nb.metrics.aggregate import aggregate
from qwen3nb.records.record import Part
from qwen3nb.records.results import Results
from qwen3nb.utils.format import json_text

BOTH = (RETRIEVAL, RERANKING)
OWN = [make("toy", task=task, scores=noisy(0.9)) for task in BOTH]


@pytest.mark.parametrize(
    ("models", "options", "baselines"),
    [
        # The reference model with most tasks, if tied bm25; never what was trained here.
        ({"e5-base-v2": BOTH, "bm25": BOTH}, {}, ("bm25", "bm25")),
        ({"e5-base-v2": BOTH, "bm25": BOTH[:1]}, {}, ("e5-base-v2", "e5-base-v2")),
        ({"e5-base-v2": BOTH, "all-MiniLM-L6-v2": BOTH}, {}, ("all-MiniLM-L6-v2",) * 2),
        # A task that it lacks takes the next, and random only if there is none.
        ({"bm25": BOTH[:1], "e5-base-v2": BOTH[1:], "random": BOTH}, {}, ("bm25", "e5-base-v2")),
        ({"bm25": BOTH[:1], "random": BOTH}, {}, ("bm25", "random")),
        ({"bm25": BOTH[:1], "random": BOTH}, {"baseline": "toy"}, ("toy", "toy")),
        ({"a": BOTH[:1], "random": BOTH}, {"baseline": "a"}, ("a", "random")),
        # Without any of them, the first by name of those with most tasks.
        ({"a": BOTH[:1], "b": BOTH}, {}, ("b", "b")),
    ],
)
def test_the_baseline_rule(models, options, baselines):
    others = [
        make(m, task=task, scores=noisy(0.5)) for m, tasks in models.items() for task in tasks
    ]
    compared = compare([*OWN, *others], tier="smoke", draws=50, **options)
    assert tuple(each.baseline for each in compared.tasks) == baselines
    assert compared.baseline == baselines[0]
    assert [each.second for each in compared.differences_on(RERANKING)][:1] == [baselines[1]]


def test_the_book_names_a_baseline_that_a_parameter_replaces(home):
    (home / "_config.yml").write_text("qwen3nb:\n  baseline: toy\n")
    records = [*OWN, *(make("bm25", task=task) for task in BOTH)]
    assert compare(records).baseline == "toy"
    assert compare(records, baseline="bm25").baseline == "bm25"
    assert compare(records[2:]).baseline == "bm25"  # without records, it is not there
    with pytest.raises(ValueError, match="'nope' on these tasks; available: bm25, toy$"):
        compare(records, baseline="nope")
    with pytest.raises(ValueError, match="available: no results; it has records in tier smoke$"):
        compare(records, baseline="toy", tier="pydocs")


def test_a_task_with_several_subsets_is_compared_within_each():
    def multilingual(label, shift):
        values = {
            f"test/{s}/{i}": shift + 0.1 * (i % 3) + 0.2 * (s == "de")
            for s in ("de", "en")
            for i in range(9)
        }
        result = make(label, values, task="T")
        mean = partial(aggregate, result.per_query, how="mean", columns=("nDCG@10",))
        parts = tuple(
            Part("test", subset, (f"{subset}-Latn",), mean(parts=(f"test/{subset}/",)), 0.5)
            for subset in ("de", "en")
        )
        return replace(result, parts=parts)

    german = make("c", {str(i): 0.1 for i in range(9)}, task="T")
    amend(german, "task", selection="de")
    results = [multilingual("a", 0.4), multilingual("b", 0.1), german]
    comparison = compare(results, tasks=["T", "T-de"], baseline="a")
    assert [each.task for each in comparison.tasks] == ["T-de", "T-en"]
    both = comparison.on("T-de")
    assert {each.first: each.n for each in both.with_baseline} == {"b": 9, "c": 9}
    assert both.columns["a"].queries == tuple(map(str, range(9)))
    assert [each.first for each in comparison.on("T-en").with_baseline] == ["b"]
    assert comparison.records["T-de", "a"].task.languages == ("de-Latn",)


def test_systems_with_most_tasks_come_first_then_the_best():
    means = {"low": 0.4, "few": 0.9, "high": 0.7, "base": 0.5}
    results = [
        make(name, task=task, scores=noisy(mean))
        for name, mean in means.items()
        for task in (RETRIEVAL, RERANKING)
        if (name, task) != ("few", RERANKING)
    ]
    comparison = compare(results, baseline="base", draws=50)
    assert best_first(comparison.differences) == ["high", "low", "few"]


def test_unlike_metrics_are_ranked_and_not_averaged_to_find_the_best():
    """ "wide" is far above on the scale of one metric, and last by the two others."""
    means = {"wide": (0.9, 0.3, 0.3), "even": (0.5, 0.4, 0.4), "base": (0.2, 0.2, 0.2)}
    metrics = ("nDCG@10", "MAP@10", "accuracy")
    results = [
        make(name, task=f"T{i}", metric=metric, scores=noisy(mean))
        for name, of_model in means.items()
        for i, (metric, mean) in enumerate(zip(metrics, of_model, strict=True))
    ]
    tasks = ["T0", "T1", "T2"]
    comparison = compare(results, tasks=tasks, baseline="base", draws=50)
    assert best_first(comparison.differences) == ["even", "wide"]


TASK = "PyDocsSampleRetrieval"


def test_records_are_paired_and_the_rest_is_reported():
    scores = {"q1": 0.1, "q2": 0.5}
    record = partial(make, task="T", revision="r1")
    (matrix,), left_out = pair_results(
        [
            record("a", scores),
            record("b", {**scores, "q3": 1.0}),
            record("b", scores, finished="0"),
            record("c", scores, revision="r2"),
            record("d", scores, metric="Spearman"),
            record("a", scores, task="U"),
        ],
        metric="nDCG@10",
        tasks=["T", "U", "V"],
    )
    assert (matrix.task, matrix.systems) == ("T", ("a", "b"))
    text = "\n".join([*left_out, *matrix.notes])
    assert "earlier record of b (seed 0)" in text
    assert "T: c was run on revision r2 of the data, the others on r1" in text
    assert "T: d has no nDCG@10 per query" in text
    assert "U: a has no other system to pair with" in text
    assert "V: no record of any system" in text
    assert "T: 1 queries of b do not pair (q3)" in text


def test_names_distinguish_systems():
    scores = {"q1": 0.1, "q2": 0.5}
    (matrix,), _ = pair_results(
        [
            make("a", scores, identity="1" * 16),
            make("a", scores, identity="2" * 16),
            make("b", scores, seed=1),
            make("b", scores, seed=2),
        ]
    )
    assert set(matrix.systems) == {"a (11111111)", "a (22222222)", "b (seed 1)", "b (seed 2)"}
    twins = [{"pooling": "mean", "dtype": dtype} for dtype in ("float32", "bfloat16")]
    records = [make("a", settings=each) for each in twins]
    records.append(make("b", settings={"dtype": "float32"}))
    assert set(model_names(records).values()) == {"a (float32)", "a (bfloat16)", "b"}


def test_a_model_with_several_labels_is_one_with_aliases():
    shared = {"identity": "1" * 64}
    records = [make("new", finished="2026-02-01", **shared), make("old", **shared), make("b")]
    assert set(model_names(records).values()) == {"new (= old)", "b"}
    newest, notes = newest_records(records)
    assert (len(newest), notes) == (2, [])
    _, notes = newest_records([make("a"), make("a", finished="2026-03-01")])
    assert [str(note) for note in notes] == [
        f"{TASK}: an earlier record of a (seed 0), finished 2026-01-01"
    ]


RNG = np.random.default_rng(5)


def test_a_family_has_the_values_of_each_pair_alone():
    base = RNG.random(50)
    matrix = table(*(base + RNG.normal(0, 0.1, 50) for _ in range(4)))
    family = corrected(paired_differences(matrix, draws=2000, seed=3))
    assert len(family) == 6
    drawn = draw_seed(3, matrix.queries)
    for each in family:
        a, b = matrix.column(each.first), matrix.column(each.second)
        alone = mean_difference(a, b)
        assert each.interval == pytest.approx(alone.interval, abs=1e-9)
        assert each.p_value == permutation_test(a, b, n_resamples=2000, seed=drawn).p_value
        assert each.d_z == effect_size(a, b).d_z
        assert each.corrected >= each.p_value
        assert each.family == 6


def test_other_systems_do_not_change_a_bit():
    base = RNG.random(60)
    rows = [base, (base + RNG.random(60)) / 2, RNG.random(60) * 0.01, np.ones(60)]
    (alone,) = paired_differences(table(*rows[:2]), draws=500, seed=1)
    among = paired_differences(table(*rows), draws=500, seed=1)
    assert among[0] == alone


def test_one_query_and_equal_systems():
    (one,) = paired_differences(table([0.5], [0.7]), draws=50, seed=0)
    (equal,) = paired_differences(table([1, 0], [1, 0]), draws=50, seed=0)
    assert (one.interval, one.p_value, one.d_z) == (None, 1, None)
    assert (equal.interval, equal.p_value, equal.d_z) == ((-1, 1), 1, 0)
    json.loads(json_text([one, equal]))
    assert "single query" in str(one)


def test_pairs_of_other_queries_are_corrected_by_holm():
    scores = np.random.default_rng(8).random((3, 30))
    records = [make(name, row) for name, row in zip("abc", scores, strict=True)]
    (task,) = compare(records).tasks
    assert task.correction == "max-t"
    p_values = [each.p_value for each in (*task.with_baseline, task.difference("b", "c"))]
    corrected = [each.corrected for each in (*task.with_baseline, task.difference("b", "c"))]
    assert all(p <= q <= 3 * p for p, q in zip(p_values, corrected, strict=True))
    some = make("c", {f"q{i}": value for i, value in enumerate(scores[2][:20])})
    comparison = compare([*records[:2], some])
    assert comparison.tasks[0].correction == "holm"
    assert "Holm, where models answered different queries" in comparison.family()


def test_skewed_differences_of_few_queries_are_corrected_by_holm():
    generator = np.random.default_rng(1)
    difficulty = generator.uniform(0.2, 0.4, 60)
    alike = {name: difficulty + generator.normal(0, 0.05, 60) for name in "abcd"}
    rare = {**alike, "d": difficulty + np.where(np.arange(60) % 15 == 0, 0.6, -0.04)}
    for columns, method in (
        (alike, "step-down MaxT"),
        (rare, "step-down MaxT (Holm, where differences on fewer than 200 queries are skewed)"),
    ):
        comparison = compare([make(name, row, task="T") for name, row in columns.items()])
        assert comparison.method == method
        (task,) = comparison.tasks
        by_holm = holm(task._tests.p_values)
        assert (task.p_values == by_holm) == (columns is rare)
    many = [make(name, np.tile(row, 4), task="T") for name, row in rare.items()]
    assert compare(many).method == "step-down MaxT"  # of 240 queries, it holds


THREE = Results(make(name, noisy(0.5, seed=n)) for n, name in enumerate("abc"))


@pytest.mark.parametrize(
    "call",
    [
        lambda: THREE.compare("a", "c"),
        lambda: THREE.compare(["a", "c"]),
        lambda: THREE.compare(models=["a", "c"]),
        lambda: THREE.compare(models="a, c"),
        lambda: THREE.compare("a", models=["c"]),
        lambda: compare(THREE, "a", "c"),
        lambda: compare(THREE, ("a", "c")),
        lambda: compare(list(THREE), models=("a", "c"), baseline="a"),
        lambda: compare(THREE, THREE[0].model.spec, THREE[2].model.identity[:8]),
    ],
)
def test_models_are_named_one_by_one_in_a_list_or_by_keyword(call):
    comparison = call()
    assert {name for _, name in comparison.records} == {"a", "c"}
    (difference,) = comparison["c"]
    assert (difference.first, difference.second) == ("c", "a")
    assert comparison[RETRIEVAL] == comparison["c"]
    assert comparison.summary().text == comparison.conclusion.text
    with pytest.raises(KeyError, match="'b' was not compared; models: a, c"):
        comparison["b"]


def test_an_unknown_model_lists_the_models():
    for wrong in (["nope", "a"], ["a", "nope"]):
        with pytest.raises(ValueError, match="unknown model 'nope'; choose one of: a, b, c"):
            THREE.compare(models=wrong)


def test_a_frame_has_every_pair_once_if_wanted():
    comparison = THREE.compare(baseline="a")
    shown = comparison.to_frame()
    assert {*zip(shown["first"], shown["second"], strict=True)} == {("b", "a"), ("c", "a")}
    frame = comparison.to_frame(all_pairs=True)
    pairs = [frozenset(pair) for pair in zip(frame["first"], frame["second"], strict=True)]
    assert len(pairs) == 3
    assert {*pairs} == {frozenset("ab"), frozenset("ac"), frozenset("bc")}


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("p_value", r"write .to_frame\(\)\[\"corrected\"\]"),
        ("filter", r"write results.to_frame\(per_query=True\)"),
        ("sort_values", r"write .to_frame\(\).sort_values"),
        ("nothing", "no attribute 'nothing'$"),
    ],
)
def test_what_a_comparison_lacks_says_what_to_write(name, written):
    with pytest.raises(AttributeError, match=written):
        getattr(THREE.compare(), name)
