"""What joint training costs: the words follow from estimate, intervals and seeds."""

from dataclasses import replace

import numpy as np
import pytest

from qwen3nb.analysis.training.interference import REQUIRED, Group, Interference
from qwen3nb.analysis.training.tir_estimate import (
    DataSetScores,
    Gate,
    estimate,
    seeds_needed,
)
from qwen3nb.report.training.interference import InterferenceReport, interference_conclusion


def measured(*tirs, spread=0.002):
    """An estimate of these TIRs, one per seed, which 100 queries move by ``spread``."""
    values = np.array([np.full(len(tirs), 0.5), 0.5 * (1 - np.array(tirs))])
    queries = np.repeat(values[None], 100, axis=0)
    queries[:, 1] += 0.5 * spread * np.tile([-10.0, 10.0], 50)[:, None]
    seeds, names = tuple(range(len(tirs))), tuple(map(str, range(100)))
    return estimate(
        "overall", seeds, [DataSetScores(values, (names, queries))], gate=Gate()
    ).estimate


def report(*overalls, runs=6, refused=(), notes=()):
    groups = tuple(
        Group(
            f"joint_r{8 * (i + 1)}",
            "joint",
            8,
            "b",
            replace(each, notes=notes),
            (),
            (),
            refused,
            (),
        )
        for i, each in enumerate(overalls)
    )
    return InterferenceReport(Interference(groups, Gate(), REQUIRED, 0.95, ()), ("runs",), runs, ())


def sentence(*overalls, **options):
    return str(interference_conclusion(report(*overalls, **options)))


FEW = (-0.04, 0.012)  # two seeds that vary
CLEAR = (0.0, 0.001, -0.001, 0.0005, -0.0005)
COST = (0.08, 0.081, 0.079, 0.08, 0.0805)
LITTLE = (0.015, 0.0151, 0.0149, 0.015, 0.0152)


def test_good_news_reads_as_good_news_beside_the_word_of_the_gate():
    text = sentence(measured(*FEW))
    assert text.startswith("Joint training is not shown to cost anything: TIR -1.4 % [")
    assert "over 2 seeds. The kill gate says INCONCLUSIVE by evidence: the seeds differ" in text
    assert text.count("[") == 1  # no second interval beside the one that is shown
    assert "at this spread about 12 seeds would be needed. By point, " in text
    assert "it says FAIL (a loss below 1 %, so there is no " in text


def test_enough_seeds_settle_it():
    text = sentence(measured(*CLEAR))
    assert text.startswith("Joint training costs nothing measurable: TIR 0.0 % [")
    assert "FAIL, by evidence and by point: a loss below 1 %, so there is no" in text
    assert "needed" not in text


def test_a_cost_is_called_one():
    text = sentence(measured(*COST))
    assert text.startswith("Joint training costs 8.0 % of the specialist's score: TIR 8.0 % [")
    assert "PASS, by evidence and by point: a loss of 2 % or more, enough interference" in text


def test_a_little_cost_and_a_gain():
    text = sentence(measured(*LITTLE))
    assert text.startswith("Joint training costs a little: TIR 1.5 % [")
    assert "MARGINAL, by evidence and by point: a loss between 1 % and 2 %" in text
    gain = sentence(measured(*(-each for each in COST)))
    assert gain.startswith("Joint training costs nothing, it helps: TIR -8.0 % [")


def test_a_cost_that_is_not_shown_is_no_cost():
    text = sentence(measured(0.1, -0.02))
    assert text.startswith("Joint training is not shown to cost anything:")
    assert "it says PASS (a loss of 2 % or more, enough interference to go on" in text
    assert "INCONCLUSIVE by evidence" in text


def test_one_seed_and_few_queries_say_what_is_missing():
    assert "one seed cannot show how much trainings vary; two or more are needed" in sentence(
        measured(0.08)
    )
    assert sentence(measured(0.08)).startswith("Joint training is not shown to cost anything")
    wide = measured(*CLEAR, spread=0.03)
    assert "the interval over seeds and queries needs more queries" in sentence(wide)


def test_the_worst_of_several_configurations_speaks():
    text = sentence(measured(*CLEAR), measured(*COST))
    assert text.startswith("Joint training (the worst of 2 configurations, joint_r16) costs 8.0 %")


def test_tasks_left_out_are_named():
    partial = replace(measured(*CLEAR), by_evidence="INCONCLUSIVE")
    text = sentence(partial, notes=("without embedding, which has no pair", "2 seeds: a caveat"))
    assert "INCONCLUSIVE by evidence: not every task could be compared." in text
    assert text.endswith("This is without embedding, which has no pair.")


def test_nothing_to_compare_says_why():
    assert sentence(runs=0).startswith("No trained adapters have been evaluated")
    assert sentence(runs=3) == (
        "None of the 3 adapters was trained jointly, so the cost of joint training is unknown."
    )
    none = replace(measured(0.1), tir=None, by_point="NO RESULT", by_evidence="NO RESULT")
    text = sentence(none, refused=("a with b: optimiser steps 40 against 80",))
    assert text.startswith("No joint adapter can be compared with its specialist: 1 pair was")
    assert "train both for the same number" in text


@pytest.mark.parametrize(
    ("tirs", "seeds"), [(FEW, 12), (CLEAR, 2), ((0.0,), None), ((-0.9, 0.899), None)]
)
def test_the_number_of_seeds_needed(tirs, seeds):
    """Student's quantile at 11 degrees of freedom, 2.201, times 3.68 / sqrt(12), is below 2.4."""
    assert seeds_needed(measured(*tirs), Gate()) == seeds
