"""The pages of studies: what they say, pinned to the numbers of made results; safe tables."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.html import HOSTILE, Tags

from qwen3nb.analysis.calibration import read_calibration
from qwen3nb.analysis.comparison.ablation_effects import Effect
from qwen3nb.analysis.comparison.differences import PairedDifference
from qwen3nb.analysis.stats.paired_tests import mean_difference
from qwen3nb.bench.encode import EncodeBench, PrecisionBench
from qwen3nb.evaluation.embeddings.probes import Clusters, Geometry, LinearProbe, Probes
from qwen3nb.evaluation.retrieval.ann import AnnPoint, AnnSuite, Compressed
from qwen3nb.extraction.extract import Extraction
from qwen3nb.extraction.verify import Verification
from qwen3nb.metrics.aggregate import Aggregate, aggregate
from qwen3nb.report.render.table import TABLE_FORMATS
from qwen3nb.report.studies.ablation import ablation_conclusion, effects_table
from qwen3nb.report.studies.ann import ann_conclusion, ann_table, compression_table
from qwen3nb.report.studies.calibration import calibration_conclusion, calibration_table
from qwen3nb.report.studies.datasets import data_conclusion
from qwen3nb.report.studies.extraction import extraction_conclusion, extraction_table
from qwen3nb.report.studies.probes import probes_conclusion, probes_table
from qwen3nb.report.studies.speed import (
    precision_table,
    speed_conclusion,
    speed_figure,
    speed_table,
)

TASK = "PyDocsSampleRetrieval"
QUERIES = [f"q{i}" for i in range(40)]


def effect(level, difference, p_value, *, factor="pooling", reference="mean"):
    ends = (difference - 0.01, difference + 0.01)
    estimate = PairedDifference(
        task=TASK,
        metric="nDCG@10",
        first=level,
        second=reference,
        n=200,
        unpaired=0,
        means=(0.4 + difference, 0.4),
        difference=difference,
        interval=ends,
        p_value=p_value / 3,
        corrected=p_value,
        family=3,
        d_z=None,
        won=100,
        tied=0,
        lost=100,
        correction="holm",
    )
    return Effect(factor, level, reference, estimate, 8)


NOISE, SMALLER = effect("cls", -0.004, 0.3), effect("last", 0.002, 0.9)
CLEAR = effect("[R] … EOS", 0.05, 1e-4, factor="around", reference="plain")


def scores(value):
    return dict.fromkeys(QUERIES, value)


def point(family, *, recall, qps, ndcg=0.5):
    speed = SimpleNamespace(threads=1, qps=qps, p50=1.0, p95=2.0, singles=9)
    return AnnPoint(
        family, family, "", None, 0.1, 100, "cpu", scores(recall), scores(ndcg), (speed,)
    )


def suite(points, smaller=(), label="m"):
    full = Compressed("float32", 8, 32, scores(0.5))
    exact, every = scores(0.5), (full, *smaller)
    return AnnSuite(label, "SciFact", 1000, 40, 8, 10, "cosine", exact, tuple(points), every)


FLAT, POOR = point("flat", recall=1.0, qps=100), point("ivf", recall=0.5, qps=900)
SHAKY = {q: 0.5 + (0.1 if i % 2 else -0.1) for i, q in enumerate(QUERIES)}
LOST = {q: 0.1 + 0.01 * (i % 2) for i, q in enumerate(QUERIES)}


def probes(label="m"):
    columns = {"x": {str(i): float(i < 30) for i in range(40)}}
    value = aggregate(columns, how="mean", columns=("x",))
    clusters = Clusters({"V-measure": value}, 200, 20, (1,))
    geometry = Geometry(np.ones(40), np.ones(8), np.full(780, 0.125), np.ones(8))
    return Probes(label, {}, {}, clusters, LinearProbe(value, value, 40, 100), geometry)


def score(value, low, high):
    return Aggregate(value, low, high, 500, "mean", columns=("nDCG@10",), interval="wilson")


BM25, RANDOM = score(0.529, 0.491, 0.567), score(0.0, 0.0, 0.008)
UNDEFINED = Aggregate(None, None, None, 0, "mean", columns=("nDCG@10",), undefined="none")


def extraction(*, difference=0.0, rounding=0.0, leak=1.788, warnings=(), label="demo"):
    check = Verification(difference, 6e-8, rounding, leak, (3, 12, 181), {})
    return Extraction(Path("runs/encoder"), label, 926_464, check, tuple(warnings))


def bench(ratio, *, texts="short sentences", difference=2e-7, equal=True, label="m"):
    peer = {"name": "sentence-transformers, batch 16", "seconds": 1.0, "ratio": 1.0}
    peer |= {"cpu_ratio": 1.0, "difference": 0.0, "equal": True, "peak_share": 0.4}
    ours = {"name": "load_encoder(...).encode", "seconds": 1 / ratio, "ratio": ratio}
    ours |= {"difference": difference, "equal": equal, "peak_share": 0.4 * ratio}
    timings = (peer, {**peer, **ours})
    return EncodeBench(label, texts, 64, 1000, {}, 3, 16, timings, 80.0, 200.0)


EXACT = {"dtype": "float32", "float32_ratio": 1.0, "peer_ratio": 2.4, "peak_share": 0.75}
EXACT |= {"cosine_min": 1.0, "ndcg": 0.512, "ndcg_difference": 0.0, "interval": None}
ROUNDED = {"dtype": "bfloat16", "float32_ratio": 1.5, "peer_ratio": 1.4, "peak_share": 0.5}
ROUNDED |= {"cosine_min": 0.99991, "ndcg": 0.511, "ndcg_difference": -0.001}
ROUNDED |= {"interval": (-0.004, 0.002), "equivalent": True, "queries_needed": None}


def precision(*timings, label="m"):
    return PrecisionBench(label, 200, 0.005, timings)


def ablated(*effects, task=TASK, **others):
    return ablation_conclusion({task: effects, **{name: [each] for name, each in others.items()}})


def searched(*points, smaller=()):
    return ann_conclusion(suite([FLAT, *points], smaller))


FAST = point("hnsw", recall=0.97, qps=250)
INT8, BINARY = Compressed("int8", 8, 8, SHAKY), Compressed("binary", 8, 1, LOST)
OTHER = bench(1, texts="mixed lengths", difference=1e-3, equal=False)


@pytest.mark.parametrize(
    ("conclusion", "words"),
    [
        (ablated(NOISE, CLEAR, SMALLER), "On Retrieval (200 queries, Holm over 3), 1 of 3 settin"),
        (ablated(NOISE, CLEAR, SMALLER), "plain (around), +0.050 [+0.040, +0.060], p < 0.001."),
        (ablated(SMALLER, NOISE), "0 of 2 settings have a significant effect; the largest: cls"),
        (ablated(), "No two settings were compared."),
        (searched(FAST, POOR), "is hnsw: it answers 250 queries/s, exact search 100, with nDCG@"),
        (searched(POOR), "no approximate index reaches a recall@10 of 0.95. "),
        (searched(smaller=[INT8, BINARY]), "take 8 bytes per document (int8 of 8 dimensions: +0"),
        (searched(smaller=[INT8, BINARY]), "shown to lose less than 0.05 in nDCG@10 take 8 byte"),
        (searched(smaller=[BINARY]), "No smaller vectors are shown to lose less than 0.05 in nD"),
        (searched(), "No smaller vectors are shown to lose less than 0.05 in nDCG@10 (n = 40); "),
        (probes_conclusion(probes()), "names the right one of 20 sub-packages for 75.0% ["),
        (
            data_conclusion({"random": RANDOM, "bm25": BM25}),
            "separates good models from bad ones, ",
        ),
        (data_conclusion({"r": RANDOM, "best": score(0.96, 0.94, 0.98)}), "leaves little room a"),
        (
            data_conclusion({"a": BM25, "b": score(0.5, 0.46, 0.54)}),
            "is not shown to separate model",
        ),
        (data_conclusion({"bm25": BM25, "none": UNDEFINED}), "Without scores of two models"),
        (extraction_conclusion(extraction()), "and it runs bidirectionally"),
        (extraction_conclusion(extraction(difference=0.02)), "does not compute the same as its"),
        (extraction_conclusion(extraction(leak=0.0)), "and it runs causally: the last token doe"),
        (extraction_conclusion(extraction(rounding=0.031)), "moves states by at most 3.1e-02"),
        (extraction_conclusion(extraction(warnings=("1", "2"))), " Warnings: 2, see the table."),
        (speed_conclusion([]), "No model was timed."),
        (speed_conclusion([bench(2)]), "The vectors are the same, at most 2e-07 apart."),
        (speed_conclusion([bench(2), OTHER]), "The vectors are not the same, at most 1e-03 apart"),
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
        shown = "take 8 bytes per document" in str(ann_conclusion(few))
        assert shown == (low > -0.05)
        smallest.append(shown)
    assert smallest == sorted(smallest, reverse=True)
    assert {True, False} <= {*smallest}


# Tables of labels; of none of them, those that a page may show empty.
TABLES = {
    "effects": lambda *labels: effects_table([effect(each, 0.1, 0.2) for each in labels]),
    "ann": lambda label: ann_table(suite([replace(FLAT, family=label)], label=label)),
    "compression": lambda label: compression_table(suite([FLAT], label=label)),
    "probes": lambda *labels: probes_table([probes(each) for each in labels]),
    "extraction": lambda label: extraction_table(extraction(label=label, warnings=(label,))),
    "speed": lambda *labels: speed_table([bench(2, label=each, texts=each) for each in labels]),
    "precision": lambda *labels: precision_table([precision(EXACT, label=each) for each in labels]),
    "power": lambda *labels: calibration_table(
        [replace(read_calibration()[0], kind="power", process=each, n="9") for each in labels],
        kind="power",
    ),
}


@pytest.mark.parametrize("text", ["m", *HOSTILE])
@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_named_and_keeps_labels_as_text(name, text):
    table = TABLES[name](text)
    assert table.rows
    assert table.caption
    assert name in table.name
    assert not {"script", "img", "a", "svg", "b", "details"} & set(Tags(table.to_html()).tags)
    assert all(table.to_text(format) for format in TABLE_FORMATS)
    assert "None" not in table.to_html()


def test_the_table_and_the_figure_of_speed_have_a_row_per_method_and_set():
    benches = [bench(2), bench(3, texts="mixed lengths")]
    table = speed_table(benches)
    assert [row[3].value for row in table.rows] == [1, 2, 1, 3]
    assert [row[5].text for row in table.rows[:2]] == ["40 %", "80 %"]
    assert "80 GFLOP, matrix peak 200 GFLOP/s" in table.note
    bars = [[bar.get_width() for bar in axis.patches] for axis in speed_figure(benches).axes]
    assert bars == [[2, 1], [3, 1]]  # from below
    assert speed_figure([]) is None


def test_the_precision_table_has_speed_and_scores_beside_float32():
    table = precision_table([precision(EXACT, ROUNDED)])
    exact, rounded = table.rows
    shown = [cell.text for cell in rounded]
    assert shown == ["m", "1.50 ×", "1.40 ×", "50 %", "0.999910", "0.511", "yes"]
    assert rounded[5].detail == "-0.0010 [-0.0040, +0.0020]"
    assert (exact[5].detail, exact[6].text) == ("", "is the reference")
    assert table.columns[5:] == ("nDCG@10\nPyDocs, 200 queries", "equivalent\nwithin 0.005")
    unsure = {**ROUNDED, "equivalent": False, "queries_needed": 1234}
    cell = precision_table([precision(unsure)]).rows[0][6]
    assert (cell.text, cell.detail) == ("not shown", "1,234 queries would")


def test_stored_simulations_as_tables():
    shares = read_calibration()
    table = calibration_table(shares, kind="coverage")
    assert table.columns == ("method", *(f"n = {n}" for n in (10, 20, 50, 200, 1000)))
    # The page says that the interval shown holds its level, and the bootstrap's does not.
    bold = {row[0].text for row in table.rows if any(cell.strong for cell in row)}
    assert "percentile bootstrap" in bold
    assert "widened Student's" not in bold
    seeds = calibration_table(shares, kind="coverage", over="seeds")
    assert seeds.columns[1].startswith("1 x 300")
    assert calibration_table([], kind="power").note == "Not simulated."


def test_the_conclusion_counts_the_settings_in_which_a_method_is_anti_conservative():
    shares = list(read_calibration())
    every = [s for s in shares if (s.kind, s.method) == ("false positives", "permutation test")]
    test = [s for s in every if s.process not in ("large wins", "noisy wins")]
    worst = max(test, key=lambda each: each.share)
    skewed = max(set(every) - set(test), key=lambda each: each.share)
    words = f"samples ({worst.process}, n = {worst.n}): anti-conservative in"
    text = calibration_conclusion(shares).text
    assert f"at most {100 * worst.share:.1f} % of {words} 0 of {len(test)} settings" in text
    assert f"up to {100 * skewed.share:.1f} % of samples ({skewed.process}, n = {skewed.n})" in text
    assert "called equivalent in at most 2.6 % of samples" in text
    worse = [replace(s, share=0.2) if s is worst else s for s in shares]
    assert f"at most 20.0 % of {words} 1 of" in calibration_conclusion(worse).text
    assert "Nothing was simulated" in calibration_conclusion([]).text
