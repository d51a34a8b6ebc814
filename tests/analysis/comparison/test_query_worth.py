"""What generated queries are worth: the order of models, and decisions between them."""

import numpy as np
import pytest
from scipy import stats

from qwen3nb.analysis.comparison.differences import paired_differences
from qwen3nb.analysis.comparison.query_worth import (
    decision_agreement,
    kendall_tau_b,
    lexical_shift,
    order_agreement,
    resample,
)
from qwen3nb.analysis.stats.score_matrix import join
from qwen3nb.answers.query_worth import query_worth
from qwen3nb.datasets.generated.queries import generate_queries
from qwen3nb.datasets.generated.query_file import write_query_file
from qwen3nb.datasets.rows import DataError


def matrix(*columns, clusters=None):
    rows = {}
    for position, scores in enumerate(columns):
        rows[f"m{position}"] = {f"q{row:03}": float(score) for row, score in enumerate(scores)}
    return join(rows, task="t", metric="nDCG@10", clusters=clusters)


def differences(scores):
    return paired_differences(scores, draws=2000, seed=0)


@pytest.mark.parametrize("seed", range(20))
def test_tau_b_equals_scipys_also_with_ties(seed):
    first, second = np.random.default_rng(seed).integers(0, 4, (2, 7)).astype(float)
    expected = stats.kendalltau(first, second, variant="b").statistic
    assert kendall_tau_b(first, second) == pytest.approx(expected, nan_ok=True)
    several = kendall_tau_b(np.stack([first, second]), np.stack([second, second]))
    assert several == pytest.approx([expected, 1.0], nan_ok=True)


def test_the_same_order_is_1_and_the_reverse_minus_1():
    levels = np.linspace(0.1, 0.9, 4)
    noise = np.random.default_rng(0).normal(0, 0.02, (4, 60))
    real = resample(matrix(*(levels[:, None] + noise)), seed=0)
    reverse = resample(matrix(*(1 - levels[:, None] + noise)), seed=1)
    same = order_agreement(real, real)
    assert (same.value, same.interval) == (1.0, (1.0, 1.0))
    assert order_agreement(real, reverse).value == -1.0


def test_without_an_order_there_is_no_tau():
    flat = resample(matrix(*np.full((3, 8), 0.5)), seed=0)
    assert order_agreement(flat, flat) == order_agreement(flat, flat).__class__(None, None)


def test_the_interval_is_wide_where_models_are_close():
    draws = np.random.default_rng(1)
    close = matrix(*draws.uniform(0, 1, (5, 40)))
    estimate = order_agreement(resample(close, seed=0), resample(close, seed=1))
    low, high = estimate.interval
    assert estimate.value == 1.0
    assert high - low > 0.4


def test_queries_of_a_document_are_drawn_together():
    scores = np.repeat(np.random.default_rng(2).uniform(0, 1, (3, 10)), 4, axis=1)
    clusters = {f"q{row:03}": f"d{row // 4}" for row in range(40)}
    alone = resample(matrix(*scores), seed=0).resamples.std(axis=0)
    together = resample(matrix(*scores, clusters=clusters), seed=0).resamples.std(axis=0)
    assert (together > 1.6 * alone).all()  # by 2: a quarter of independent units


def test_decisions_are_counted_by_what_real_queries_decide():
    rows = np.random.default_rng(3).normal(0, 0.05, (4, 50))
    real = differences(matrix(*(rows + np.array([[0.9], [0.6], [0.3], [0.3]]))))
    # m0 and m1 change places, m2 and m3 differ now, and m1 - m2 is not decided any more.
    generated = differences(matrix(*(rows + np.array([[0.3], [0.6], [0.595], [0.9]]))))
    counts = decision_agreement(real, generated, alpha=0.05)
    assert (counts.pairs, counts.decided) == (6, 5)  # all but m2 - m3
    # m0 was above all others: now it is below. m1 - m2 is undecided, and m1 - m3 reversed.
    assert (counts.same, counts.opposite, counts.undecided) == (0, 4, 1)
    assert counts.only_generated == 1
    # The order of the generated pairs does not matter.
    turned = [difference.reversed() for difference in reversed(generated)]
    assert decision_agreement(real, turned, alpha=0.05) == counts


def test_a_lead_of_lexical_search_on_generated_queries_alone_is_their_favour():
    noise = np.random.default_rng(4).normal(0, 0.01, (3, 80))
    real = resample(matrix(*(noise + np.array([[0.5], [0.6], [0.4]]))), seed=0)
    generated = resample(matrix(*(noise + np.array([[0.9], [0.6], [0.4]]))), seed=1)
    shift = lexical_shift(real, generated, lexical=[0], others=[1, 2])
    assert shift.value == pytest.approx(0.4, abs=1e-3)
    assert shift.interval[0] > 0.39
    assert lexical_shift(real, generated, lexical=[], others=[1]).value is None


WORDS = [f"{first}{second}{end}" for first in "bdfg" for second in "aeiou" for end in "lmnprst"]


def collection(seed=0, documents=40):
    draws = np.random.default_rng(seed)
    texts = {}
    for number in range(documents):
        picked = draws.choice(WORDS, 12, replace=True)
        texts[f"d{number}"] = f"The {' '.join(picked[:6])} is in the {' '.join(picked[6:])} again."
    queries = [
        {"id": f"q{number}", "query": " ".join(text.split()[1:4]), "expected": [name]}
        for number, (name, text) in enumerate(list(texts.items())[:12])
    ]
    rows = [{"id": name, "text": text} for name, text in texts.items()]
    return queries, rows, texts


MODELS = ("bm25", "random", "bm25+random")


def test_the_answer_measures_own_queries_and_is_the_same_again(tmp_path):
    queries, rows, _ = collection()
    options = {"documents": rows, "number": 8, "output": tmp_path / "worth"}
    worth = query_worth(MODELS, queries, **options)
    assert worth.models == ("bm25", "random", "bm25-plus-random")
    assert [kind.kind for kind in worth.kinds][-1] == "all kinds"
    assert "on generated queries" in worth.table().to_markdown()
    assert worth.to_frame()["tau_b"].between(-1, 1).all()
    assert worth.conclusion.text == query_worth(MODELS, queries, **options).conclusion.text
    assert worth.figure().alt


def test_generated_queries_do_not_count_as_real_ones(tmp_path):
    queries, rows, texts = collection()
    file = write_query_file(tmp_path / "made.toml", generate_queries(texts, show_progress=False))
    with pytest.raises(DataError, match=r"expected real queries with grades, at least 2; \d+ of"):
        query_worth(MODELS, file, documents=rows, output=tmp_path)
    with pytest.raises(DataError, match="expected 3 models or more, as orders are compared; got 2"):
        query_worth(MODELS[:2], queries, documents=rows, output=tmp_path)


def test_the_command_prints_what_the_answer_says(cli, tmp_path, monkeypatch):
    import json

    monkeypatch.chdir(tmp_path)
    queries, rows, _ = collection()
    (tmp_path / "docs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "real.json").write_text(json.dumps(queries))
    files = ("--documents", "docs.jsonl", "--worth", "real.json", "--number", "8")
    done = cli("queries", *files, "--model", ",".join(MODELS))
    assert done.exit_code == 0, done.output
    worth = query_worth(MODELS, "real.json", documents="docs.jsonl", number=8)
    assert " ".join(worth.conclusion.text.split()) in " ".join(done.output.split())
    for arguments, message in (
        (("queries",), "give --documents FILE"),
        (("queries", "--worth", "real.json", "--model", "bm25"), "give their --documents, too"),
        (("queries", *files, "--model", "bm25", "--dimensions", "x"), "such as 128,32"),
        (("queries", "--documents", "docs.jsonl", "--model", "bm25"), "give --worth, too"),
        (("queries", "--documents", "docs.jsonl", "--kind", "written"), "--writer MODEL"),
    ):
        failed = cli(*arguments)
        assert failed.exit_code != 0
        assert message in failed.output
