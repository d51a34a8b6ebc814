"""How fast encoding is, in words that follow from the medians."""

from dataclasses import replace

import pytest

from qwen3nb.bench.encode import EncodeBench, EncodeTiming
from qwen3nb.bench.machine_limits import MatrixWork
from qwen3nb.bench.precision import PrecisionBench, PrecisionTiming
from qwen3nb.report.studies.speed import (
    precision_table,
    speed_conclusion,
    speed_figure,
    speed_table,
    time_shares_table,
)

SHARES = {"tokenising": 0.1, "linear layers": 0.7, "Python": 0.2}


def bench(ratio, *, texts="short sentences", difference=2e-7, cosine=1.0):
    timings = (
        EncodeTiming("sentence-transformers, batch 16", 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.4),
        EncodeTiming(
            "load_encoder(...).encode", 1 / ratio, 1.0, ratio, 1.0, cosine, difference, 0.4 * ratio
        ),
    )
    return EncodeBench("m", texts, 64, 1000, 3, 16, True, timings, MatrixWork(75, 5), 200.0, SHARES)


def sentence(*benches):
    return str(speed_conclusion(benches))


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (3.39, "load_encoder is 3.39 times as fast for m on short sentences. "),
        (0.5, "load_encoder is 0.50 times as fast, so slower, for m on short sentences. "),
        (1.05, "load_encoder is as fast for m on short sentences (1.05 times). "),
        (0.95, "load_encoder is as fast for m on short sentences (0.95 times). "),
    ],
)
def test_the_ratio_has_its_word(ratio, words):
    assert words in sentence(bench(ratio))


def test_vectors_that_differ_are_said_to():
    assert "The vectors are the same: at most 2e-07 apart." in sentence(bench(2))
    text = sentence(bench(2), bench(3, texts="mixed lengths", difference=1e-3, cosine=0.99))
    assert "The vectors differ: at most 1e-03 apart." in text
    assert "short sentences; 3.00 times as fast for m on mixed lengths" in text
    assert "medians of 3 rounds on one machine, without intervals" in text


def test_without_timings():
    assert sentence() == "No model was timed."
    assert speed_figure([]) is None


@pytest.mark.parametrize("width", [3.35, 6.9])
def test_the_figure_has_a_bar_per_method_and_set(width):
    figure = speed_figure([bench(2), bench(3, texts="mixed lengths")])
    first, second = figure.draw(width).axes
    assert [bar.get_width() for bar in first.patches] == [2, 1]  # from below
    assert [bar.get_width() for bar in second.patches] == [3, 1]
    assert "mixed lengths, load_encoder(...).encode: 3.00 times" in figure.alt
    assert speed_table([bench(2)]).rows[1][3].value == 2


def test_the_tables_show_the_machine_limit():
    table = speed_table([bench(2)])
    assert [row[5].text for row in table.rows] == ["40 %", "80 %"]
    assert "80 GFLOP, matrix peak 200 GFLOP/s" in table.note
    shares = time_shares_table([bench(2), bench(3, texts="mixed lengths")])
    assert shares.columns == ("model", "tokenising", "linear layers", "Python")
    assert [cell.value for cell in shares.rows[1][1:]] == list(SHARES.values())


def test_the_precision_table_has_speed_and_scores_beside_float32():
    timings = (
        PrecisionTiming("float32", 60, 1.0, 2.4, 32, 200, 0.75, 1, 1, 0.512, 0, None, False),
        PrecisionTiming(
            "bfloat16", 90, 1.5, 1.4, 32, 440, 0.5, 0.99991, 0.9999, 0.511, -0.001,
            (-0.004, 0.002), True,
        ),
    )  # fmt: skip
    bench = PrecisionBench("m", ("avx512_bf16",), 64, 1000, 3, 400, 200, 0.005, timings)
    table = precision_table([bench, replace(bench, cpu_features=())])
    exact, rounded = table.rows[:2]
    assert [cell.text for cell in rounded] == [
        "m", "1.50 ×", "1.40 ×", "50 %", "0.999910", "0.511", "yes",
    ]  # fmt: skip
    assert rounded[5].detail == "-0.0010 [-0.0040, +0.0020]"
    assert (exact[5].detail, exact[6].text) == ("", "is the reference")
    assert "within 0.005 of nDCG@10" in table.note
    assert "200 queries of PyDocs" in table.note
    assert "none, so 16 bits are slow" in table.note
    unsure = replace(timings[1], equivalent=False, queries_needed=1234)
    cell = precision_table([replace(bench, timings=(unsure,))]).rows[0][6]
    assert (cell.text, cell.detail) == ("not shown", "1,234 queries would")


def test_the_share_of_the_peak_has_its_words():
    assert "It reaches 80 % of what this machine's matrix products reach alone." in sentence(
        bench(2)
    )
    assert "It reaches 40 to 80 % of what" in sentence(bench(2), bench(1, texts="mixed lengths"))
