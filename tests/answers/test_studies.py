"""The pages of studies: what they say, pinned to the numbers of made results; safe tables."""

import re
from dataclasses import replace

import numpy as np
import pytest
from helpers.html import HOSTILE, Tags
from helpers.studies import (
    BM25,
    CLEAR,
    EXACT,
    FLAT,
    LOST,
    NOISE,
    POOR,
    RANDOM,
    ROUNDED,
    SHAKY,
    SMALLER,
    TASK,
    UNDEFINED,
    bench,
    effect,
    extraction,
    point,
    precision,
    probes,
    score,
    suite,
)

from qwen3nb.analysis.stats.paired_tests import mean_difference
from qwen3nb.answers.ablation import Ablation
from qwen3nb.answers.ann import ApproximateSearch
from qwen3nb.answers.calibration import Calibration, calibration
from qwen3nb.answers.data import Data
from qwen3nb.answers.speed import Precision, Speed
from qwen3nb.evaluation.retrieval.ann import Compressed
from qwen3nb.report.render.table import TABLE_FORMATS


def ablated(*effects, task=TASK, **others):
    every = {task: effects, **{name: [each] for name, each in others.items()}}
    return Ablation(every, {}).conclusion


def searched(*points, smaller=()):
    return ApproximateSearch(suite([FLAT, *points], smaller)).conclusion


FAST = point("hnsw", recall=0.97, qps=250)
INT8, BINARY = Compressed("int8", 8, 8, SHAKY), Compressed("binary", 8, 1, LOST)


def difficulty(scores):
    """What is said of PyDocs with these scores."""
    return Data("smoke", {}, scores).conclusion


OTHER = bench(1, texts="mixed lengths", difference=1e-3, equal=False)


@pytest.mark.parametrize(
    ("conclusion", "words"),
    [
        (ablated(NOISE, CLEAR, SMALLER), "On Retrieval, 1 of 3 settings has a significant effect"),
        (ablated(NOISE, CLEAR, SMALLER), "plain (around), +0.050."),
        (ablated(SMALLER, NOISE), "none of 2 settings has a significant effect. The largest: cls"),
        (ablated(), "No two settings were compared."),
        (
            searched(FAST, POOR),
            "It answers 250 queries per second, exact search 100; nDCG@10 changes by ",
        ),
        (searched(POOR), "no approximate index reaches a recall@10 of 0.95. "),
        (searched(smaller=[INT8, BINARY]), "take 8 bytes per document (int8, 8 dimensions); whole"),
        (searched(smaller=[INT8, BINARY]), "vectors shown to lose less than 0.05 take 8 byte"),
        (searched(smaller=[BINARY]), "No smaller vectors are shown to lose less than 0.05 in nD"),
        (searched(), "No smaller vectors are shown to lose less than 0.05 in nDCG@10; "),
        (probes().conclusion, "names the right one of 20 sub-packages for 75.0% of texts"),
        (
            difficulty({"random": RANDOM, "bm25": BM25}),
            "separates good models from bad ones, ",
        ),
        (difficulty({"r": RANDOM, "best": score(0.96, 0.94, 0.98)}), "leaves little room a"),
        (
            difficulty({"a": BM25, "b": score(0.5, 0.46, 0.54)}),
            "is not shown to separate model",
        ),
        (difficulty({"bm25": BM25, "none": UNDEFINED}), "Without scores of two models"),
        (extraction().conclusion, "as its source, and runs in both directions."),
        (extraction(difference=0.02).conclusion, "does not compute the same as its"),
        (extraction(leak=0.0).conclusion, "and runs causally: the last token doe"),
        (extraction(rounding=0.031).conclusion, "moves states by at most 3.1e-02"),
        (extraction(warnings=("1", "2")).conclusion, " Warnings: 2, see the table."),
        (Speed(()).conclusion, "No model was timed."),
        (Speed((bench(2),)).conclusion, "The vectors are the same, at most 2e-07 apart."),
        (
            Speed((bench(2), OTHER)).conclusion,
            "The vectors are not the same, at most 1e-03 apart",
        ),
    ],
)
def test_a_conclusion_follows_from_its_numbers(conclusion, words):
    assert words in str(conclusion)


def test_fewer_queries_never_show_a_smaller_loss():
    losses = np.tile([0.0, -0.04, 0.03, -0.05], 200)
    smallest = []
    for count in (800, 400, 200, 40, 8):
        queries = [f"q{i}" for i in range(count)]
        full = Compressed("float32", 8, 32, dict.fromkeys(queries, 0.5))
        half = Compressed("int8", 8, 8, {q: 0.5 + losses[i] for i, q in enumerate(queries)})
        few = replace(
            suite([FLAT]), queries=count, compressed=(full, half), exact=full.ndcg, points=()
        )
        low, _ = mean_difference([*half.ndcg.values()], [*full.ndcg.values()]).interval
        shown = "take 8 bytes per document" in str(ApproximateSearch(few).conclusion)
        assert shown == (low > -0.05)
        smallest.append(shown)
    assert smallest == sorted(smallest, reverse=True)
    assert {True, False} <= {*smallest}


# Tables of labels; of none of them, those that a page may show empty.
TABLES = {
    "effects": lambda *labels: Ablation(
        {TASK: [effect(each, 0.1, 0.2) for each in labels]}, {}
    ).table(),
    "ann": lambda label: ApproximateSearch(
        suite([replace(FLAT, family=label)], label=label)
    ).table(),
    "compression": lambda label: ApproximateSearch(suite([FLAT], label=label)).compression(),
    "probes": lambda label: probes(label).table(),
    "extraction": lambda label: extraction(label=label, warnings=(label,)).table(),
    "speed": lambda *labels: Speed(
        tuple(bench(2, label=each, texts=each) for each in labels)
    ).table(),
    "precision": lambda *labels: Precision(
        tuple(precision(EXACT, label=each) for each in labels)
    ).table(),
    "power": lambda *labels: Calibration(
        tuple(
            replace(calibration().shares[0], kind="power", process=each, n="9") for each in labels
        )
    ).table("power"),
}


@pytest.mark.parametrize("text", ["m", *HOSTILE])
@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_named_and_keeps_labels_as_text(name, text):
    table = TABLES[name](text)
    assert table.rows
    assert table.caption
    assert name in table.name
    tags = Tags(table.to_html()).tags
    assert not {"script", "img", "a", "svg", "b"} & set(tags)
    assert tags.count("details") == bool(table.method)
    assert all(table.to_text(format) for format in TABLE_FORMATS)
    assert "None" not in table.to_html()


def test_the_table_and_the_figure_of_speed_have_a_row_per_method_and_set():
    measured = Speed((bench(2), bench(3, texts="mixed lengths")))
    table = measured.table()
    assert [row[3].value for row in table.rows] == [1, 2, 1, 3]
    assert [row[5].text for row in table.rows[:2]] == ["40 %", "80 %"]
    assert "80 GFLOP, matrix peak in GFLOP/s: float32 200" in table.method
    bars = [[bar.get_width() for bar in axis.patches] for axis in measured.figure().axes]
    assert bars == [[2, 1], [3, 1]]  # from below
    assert Speed(()).figure() is None


def test_the_precision_table_has_speed_and_scores_beside_float32():
    table = Precision((precision(EXACT, ROUNDED),)).table()
    exact, rounded = table.rows
    shown = [cell.text for cell in rounded]
    assert shown == ["m", "1.50 ×", "1.40 ×", "50 %", "0.999910", "0.511", "yes"]
    assert rounded[5].detail == "-0.0010 [-0.0040, +0.0020]"
    assert (exact[5].detail, exact[6].text) == ("", "is the reference")
    assert table.columns[5:] == ("nDCG@10\nPyDocs, 200 queries", "equivalent\nwithin 0.005")
    unsure = {**ROUNDED, "equivalent": False, "queries_needed": 1234}
    cell = Precision((precision(unsure),)).table().rows[0][6]
    assert (cell.text, cell.detail) == ("not shown", "1,234 queries would")


def test_stored_simulations_as_tables():
    table = calibration().table("coverage")
    assert table.columns == ("method", *(f"n = {n}" for n in (10, 20, 50, 200, 1000)))
    # The page says that the interval shown holds its level, and the bootstrap's does not.
    bold = {row[0].text for row in table.rows if any(cell.strong for cell in row)}
    assert "percentile bootstrap" in bold
    assert "widened Student's" not in bold
    seeds = calibration().table("coverage", over="seeds")
    assert seeds.columns[1].startswith("1 x 300")
    assert Calibration(()).table("power").note == "Not simulated."


def test_the_conclusion_counts_the_settings_in_which_methods_hold_their_level():
    shares = list(calibration().shares)
    every = [s for s in shares if (s.kind, s.method) == ("false positives", "permutation test")]
    test = [s for s in every if s.process not in ("large wins", "noisy wins")]
    worst = max(test, key=lambda each: each.share)
    skewed = max(set(every) - set(test), key=lambda each: each.share)
    words = f"samples ({worst.process}, n = {worst.n})."
    text = Calibration(tuple(shares)).conclusion.text
    counts = re.search(r"in (\d+) of (\d+) simulated settings", text)
    assert counts[1] == counts[2]
    assert int(counts[2]) > len(test)  # also those of intervals
    assert f"at most {100 * worst.share:.1f} % of {words}" in text
    assert f"up to {100 * skewed.share:.1f} % of samples ({skewed.process}, n = {skewed.n})" in text
    worse = [replace(s, share=0.2) if s is worst else s for s in shares]
    text = Calibration(tuple(worse)).conclusion.text
    assert f"at most 20.0 % of {words}" in text
    assert f"in {int(counts[1]) - 1} of {counts[2]} simulated settings" in text
    assert "Nothing was simulated" in Calibration(()).conclusion.text
