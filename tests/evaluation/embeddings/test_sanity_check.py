import json

import numpy as np
import pytest

from qwen3nb.answers.checks import Checks
from qwen3nb.datasets.pydocs.build import load_pydocs
from qwen3nb.datasets.pydocs.mteb_tasks import author_sts
from qwen3nb.evaluation.embeddings import sanity_check as intrinsic
from qwen3nb.evaluation.embeddings.probes import Geometry, vector_geometry
from qwen3nb.evaluation.embeddings.sanity_check import FOX, PARAPHRASE, sanity_check, verdict_of
from qwen3nb.evaluation.embeddings.sts import local_sts_benchmark
from qwen3nb.metrics.aggregate import Aggregate
from qwen3nb.models.load import load_encoder, load_model

PROMPT = "which function: "
STS, MRR = "AuthorSTS, Spearman", "a description finds its function, MRR@10"


@pytest.mark.parametrize(
    ("values", "rank"),
    # Shares 1/2, 1/4, 1/4: entropy 1.5 log 2, so 2 ** 1.5.
    [([1] * 7, 7), ([5, 0, 0], 1), ([2, 1, 1], 2**1.5), ([200, 100, 100], 2**1.5)],
)
def test_effective_rank_by_hand(values, rank):
    none = np.empty(0)
    assert Geometry(none, none, none, np.array(values)).effective_rank == pytest.approx(rank)


def test_geometry_of_an_identity_and_of_one_direction():
    geometry = vector_geometry(3 * np.eye(4))
    assert geometry.effective_rank == pytest.approx(4)
    assert geometry.mean_cosine == 0
    assert len(geometry.cosines) == 6
    assert geometry.lengths.tolist() == [3.0] * 4
    assert geometry.variances == pytest.approx([3 / 16] * 4)  # 1 once, 0 three times
    line = vector_geometry(np.outer([1.0, 2.0, 7.0], [0.6, 0.8]))
    assert line.effective_rank == pytest.approx(1)
    assert line.mean_cosine == pytest.approx(1)
    assert line.collapsed == line.dimension == 2
    vectors = np.random.default_rng(0).normal(size=(500, 10))
    vectors[:, 3], vectors[:, 4] = 0, 1e-5 * vectors[:, 5]
    assert vector_geometry(1000 * vectors).collapsed == 2  # lengths do not matter
    with pytest.raises(ValueError, match="have no direction"):
        vector_geometry([[1.0, 0], [0, 0]])


@pytest.mark.parametrize(
    ("value", "low", "stand_in", "verdict"),
    [
        (0.7501, 0.6, False, "PASSED"),
        (0.75, 0.6, False, "WARNING"),
        (0.7001, 0.6, False, "WARNING"),
        (0.70, 0.6, False, "FAILED"),
        (0.70, 0.6, True, "WARNING"),
        (0.20, 0.01, True, "WARNING"),
        (0.20, 0.0, True, "FAILED"),
        (0.80, -0.1, False, "FAILED"),
        (-0.5, None, True, "FAILED"),
        (None, None, True, "FAILED"),
    ],
)
def test_verdicts_at_their_thresholds(value, low, stand_in, verdict):
    score = Aggregate(value, low, 1.0, 9, "spearman", ("a", "b"))
    assert verdict_of(score, chance=0, needed=0.7, target=0.75, stand_in=stand_in) == verdict


def by_name(look):
    return {check.name: check for check in look}


def oracle(texts):
    """Vectors of a perfect model: pairs by gold score, functions by name."""
    positions = {}
    for number, (first, second, gold) in enumerate(author_sts()):
        angle = np.arccos(gold / 5)
        positions[first], positions[second] = (2 * number, 0.0), (2 * number, angle)
    sample = load_pydocs().sample(**intrinsic.QUICK)
    for number, (name, text) in enumerate(sample.corpus.items(), start=150):
        positions[text] = (2 * number, 0.0)
        if name in sample.queries:
            positions[PROMPT + sample.queries[name]] = (2 * number, 0.0)
    positions[FOX] = positions[PARAPHRASE] = (1000, 0.0)
    vectors = np.zeros((len(texts), 1002), dtype=np.float32)
    for row, text in zip(vectors, texts, strict=True):
        start, angle = positions.get(text, (998, 0.0))
        row[start], row[start + 1] = np.cos(angle), np.sin(angle)
    return vectors


def test_a_model_that_knows_every_answer_passes():
    encoder = load_encoder("random:1002", cache=False).prompted({"query": PROMPT})
    encoder._embed = oracle
    checks = by_name(sanity_check(encoder))
    assert checks[STS].value > 0.95
    assert checks[MRR].value > 0.95
    words = "a paraphrase is closer than unrelated sentences"
    assert [checks[name].verdict for name in (STS, MRR, words)] == ["PASSED"] * 3
    # Some dimensions are unused: the pools do not fill the space.
    assert checks["collapsed dimensions"].verdict == "WARNING"


def test_one_direction_for_all_texts_is_warned_of_and_undefined_correlation_fails():
    encoder = load_encoder("random", cache=False)
    encoder._embed = lambda texts: np.ones((len(texts), 128), dtype=np.float32)
    checks = by_name(sanity_check(encoder))
    assert checks["different texts point in different directions"].verdict == "WARNING"
    assert checks[STS].verdict == "FAILED"
    assert "undefined: one of the columns is constant" in checks[STS].observed
    assert checks["directions in use (effective rank)"].value == pytest.approx(1, abs=1e-3)
    assert checks["vectors have length 1"].verdict == "WARNING"
    encoder.normalize = False
    assert by_name(sanity_check(encoder))["vectors have length 1"].verdict == "INFO"


def test_bm25_has_no_vectors_but_a_ranking():
    look = sanity_check(load_model("bm25"))
    assert [check.verdict for check in look] == ["NOT APPLICABLE", "PASSED"]
    assert look.verdict == "PASSED"
    assert look.geometry is None
    assert look.as_dict()["geometry"] is None
    assert len(Checks(look).table().rows) == 2


@pytest.mark.integration
def test_sts_b_from_the_mirror_is_judged_only_if_it_is_the_real_one(tmp_path, monkeypatch):
    assert local_sts_benchmark() is None
    monkeypatch.setenv("QWEN3NB_MIRROR", str(tmp_path))
    folder = tmp_path / "mteb" / "stsbenchmark-sts"
    folder.mkdir(parents=True)
    for count, stand_in in ((24, True), (1379, False)):
        rows = (
            {"sentence1": f"text {i}", "sentence2": f"other {i}", "score": float(i % 6)}
            for i in range(count)
        )
        (folder / "test.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
        assert local_sts_benchmark().stand_in is stand_in
        check = by_name(sanity_check(load_encoder("random", cache=False)))["STS-B, Spearman"]
        assert (check.n, "stand in" in check.remark) == (f"{count} pairs", stand_in)


def test_quick_prints_json_in_which_random_vectors_fail_and_fill_their_space(cli):
    done = cli("check", "random", "--json")
    assert done.exit_code == 1
    look = json.loads(done.stdout)
    assert (look["model"], look["verdict"]) == ("random", "FAILED")
    checks = {check["name"]: check for check in look["checks"]}
    assert (checks[STS]["verdict"], checks[MRR]["verdict"]) == ("FAILED", "FAILED")
    assert checks[MRR]["n"] == "100 queries, 300 documents"
    assert checks[MRR]["low"] <= checks[MRR]["value"] <= checks[MRR]["high"]
    geometry = look["geometry"]
    assert geometry["dimension"] == len(geometry["singular_values"]) == 128
    assert geometry["effective_rank"] > 0.9 * 128
    assert abs(geometry["mean_cosine"]) < 0.01
    assert cli("check", "bm25").output.splitlines()[-1] == "bm25: PASSED"


def test_a_scrambled_model_fails_the_paraphrase_check():
    encoder = load_encoder("random", cache=False)
    axes = {FOX: 0, PARAPHRASE: 1, **dict.fromkeys(intrinsic.UNRELATED, 0)}
    encoder._embed = lambda texts: np.eye(128, dtype=np.float32)[[axes.get(t, 2) for t in texts]]
    checks = by_name(sanity_check(encoder))
    assert checks["a paraphrase is closer than unrelated sentences"].verdict == "FAILED"
