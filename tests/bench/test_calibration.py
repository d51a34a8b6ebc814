"""Simulated errors of tests and intervals, at small sizes."""

import json

import numpy as np
import pytest

from qwen3nb.analysis.calibration import read_calibration
from qwen3nb.bench import calibration
from qwen3nb.bench.calibration import FAMILIES, PAIRS, calibrate, fitted

MATRIX = np.array(json.loads(calibration.FITTED.read_text())["scores"])


def test_a_population_fitted_to_records_is_symmetric_under_the_null_hypothesis():
    a, b, truth = fitted(MATRIX, np.random.default_rng(0), (20, 5000), False)
    assert truth == 0
    assert abs((a - b).mean()) < 0.004
    assert abs(((a - b) > 0).mean() - ((a - b) < 0).mean()) < 0.01
    a, b, truth = fitted(MATRIX, np.random.default_rng(0), (20, 5000), True)
    assert {*np.unique(a), *np.unique(b)} == {*np.unique(MATRIX)}
    assert np.abs((a - b).mean() - truth.mean()) < 0.004
    means = sorted(MATRIX.mean(axis=1))
    assert set(np.round(truth, 9)) == {
        round(high - low, 9) for i, low in enumerate(means) for high in means[i + 1 :]
    }


@pytest.mark.integration
def test_max_t_errs_as_often_as_it_says_and_finds_more_than_holm_among_twins(monkeypatch):
    for name, populations in (("FAMILIES", {"twins": FAMILIES["twins"]}), ("PAIRS", {})):
        monkeypatch.setattr(calibration, name, populations)
    monkeypatch.setattr(calibration, "SCORES", {})
    # Each population has draws of its own, so what is left out changes nothing for the twins.
    monkeypatch.setattr(calibration, "_score_matrices", lambda records: {})
    monkeypatch.setattr(calibration, "SEEDS", ())
    monkeypatch.setattr(calibration, "conditions", lambda simulations, seed: ())
    shares = calibrate(sizes=(50,), simulations=700, seed=1)
    twins = [share for share in shares if share.process.startswith("twins")]
    of = {(s.kind, s.process.split()[-1], s.method): s.share for s in twins}
    assert of["family-wise error", "complete", "MaxT"] <= 0.09
    assert of["family power", "partial", "MaxT"] > of["family power", "partial", "Holm"] + 0.05
    found = of["false discoveries", "partial", "Wilcoxon, BH"]
    assert 0 < found < of["family-wise error", "partial", "Wilcoxon, BH"]


@pytest.mark.integration
def test_the_command_makes_all_that_the_page_shows_and_a_seed_gives_the_same(
    cli, tmp_path, monkeypatch
):
    monkeypatch.setattr(calibration, "_BATCH", 10)  # what is shown does not depend on it
    files = [tmp_path / "first.json", tmp_path / "second.json"]
    for file in files:
        done = cli(
            *("bench", "calibration", "--simulations", 10, "--size", 10, "--seed", 3),
            *("--out", file),
        )
        assert done.exit_code == 0, done.output
    assert files[0].read_text() == files[1].read_text()
    assert "MaxT" in done.output
    made, stored = read_calibration(files[0]), read_calibration()
    # A stated true difference does not depend on the number of simulations.
    assert {(s.kind, s.method, s.process) for s in made} == {
        (s.kind, s.method, s.process) for s in stored
    }


FUNCTIONS = """
import numpy as np

def two_sd(a, b):
    half = 2 * (a - b).std(ddof=1) / len(a) ** 0.5
    return (a - b).mean() - half, (a - b).mean() + half

def always(a, b):
    assert a.shape == b.shape == (12,)
    return 0.01

def both(a, b):
    return a

def statistic(a, b):
    return 2.5

def nothing(a, b):
    pass

def either(a, b):
    return 0.1 if a[0] > b[0] else (0, 1)

def broken(a, b):
    return a.missing
"""


def test_a_function_of_ones_own(cli, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(FUNCTIONS)
    monkeypatch.chdir(tmp_path)

    def made(name):
        return cli("bench", "calibration", name, "--simulations", 1, "--size", 12, "--json")

    shares = json.loads(made("mine.py:always").stdout)["shares"]
    assert {(s["kind"], s["share"]) for s in shares} == {("false positives", 1), ("power", 1)}
    assert {s["process"] for s in shares if s["kind"] != "power"} == {*PAIRS, "PyDocs"}
    covered = {
        s["process"]: s["share"] for s in json.loads(made("mine.py:two_sd").stdout)["shares"]
    }
    assert covered["normal"] > 0.8 > covered["rare wins"]
    known = json.loads(made("scipy.stats:ttest_rel").stdout)["shares"]
    assert {s["kind"] for s in known} == {"false positives", "power"}
    (tmp_path / "wrong.py").write_text("def f(:")
    for name, message in (
        ("mine.py:both", "two ends, of mine.py:both; got array("),
        ("mine.py:statistic", "expected a p-value from 0 to 1"),
        ("mine.py:nothing", "got None"),
        ("mine.py:either", "now a p-value, now two ends"),
        ("mine.py:broken", "failed on 12 queries: AttributeError"),
        ("mine.py:gone", "no function 'mine.py:gone'"),
        ("gone:mine", "No module named 'gone'"),
        ("wrong.py:f", "invalid syntax"),
    ):
        done = made(name)
        assert done.exit_code == 1
        assert message in done.output
        assert "Traceback" not in done.output
