"""What joint training costs: the words follow from estimate, intervals and seeds."""

from dataclasses import replace

import numpy as np
import pytest

from qwen3nb.analysis.training.interference import (
    REQUIRED,
    DataSetScores,
    Gate,
    Group,
    Interference,
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
    groups = []
    for i, each in enumerate(overalls):
        name, shown = f"joint_r{8 * (i + 1)}", replace(each, notes=notes)
        groups.append(Group(name, "joint", 8, "b", shown, (), (), refused, ()))
    return InterferenceReport(
        Interference(tuple(groups), Gate(), REQUIRED, 0.95, ()), ("runs",), runs, ()
    )


def sentence(*overalls, **options):
    return str(interference_conclusion(report(*overalls, **options)))


FEW = (-0.04, 0.012)  # two seeds that vary
CLEAR = (0.0, 0.001, -0.001, 0.0005, -0.0005)
COST = (0.08, 0.081, 0.079, 0.08, 0.0805)
LITTLE = (0.015, 0.0151, 0.0149, 0.015, 0.0152)
GAIN = tuple(-each for each in COST)
UNSHOWN = (0.1, -0.02)


@pytest.mark.parametrize(
    ("tirs", "start", "words"),
    [
        (FEW, "is not shown to cost anything: TIR -1.4 % [", "over 2 seeds. The kill gate says "),
        (FEW, "", "says INCONCLUSIVE by evidence: the seeds differ"),
        (FEW, "", "at this spread about 12 seeds would be needed. By point, "),
        (FEW, "", "it says FAIL (a loss below 1 %, so there is no "),
        (CLEAR, "costs nothing measurable: TIR 0.0 % [", "FAIL, by evidence and by point: a loss"),
        (COST, "costs 8.0 % of the specialist's score: TIR 8.0 % [", "PASS, by evidence and by "),
        (COST, "", "a loss of 2 % or more, enough interference"),
        (LITTLE, "costs a little: TIR 1.5 % [", "MARGINAL, by evidence and by point: a loss betw"),
        (GAIN, "costs nothing, it helps: TIR -8.0 % [", ""),
        (UNSHOWN, "is not shown to cost anything:", "it says PASS (a loss of 2 % or more, enough "),
        (UNSHOWN, "", "INCONCLUSIVE by evidence"),
        ((0.08,), "is not shown to cost anything", "one seed cannot show how much trainings vary"),
    ],
)
def test_the_words_follow_from_estimate_and_interval(tirs, start, words):
    text = sentence(measured(*tirs))
    assert text.startswith(f"Joint training {start}")
    assert words in text
    assert text.count("[") == 1  # no second interval beside the one that is shown
    assert ("needed" in text) == (len(tirs) < 3)


def test_few_queries_say_what_is_missing():
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
    assert sentence(runs=3).startswith("None of the 3 adapters was trained jointly, so the cost")
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
