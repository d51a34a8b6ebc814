"""What an ablation shows, in words that follow from differences and corrected p-values."""

from qwen3nb.analysis.comparison.ablation_effects import Effect
from qwen3nb.analysis.stats.paired_tests import MeanDifference
from qwen3nb.report.studies.ablation import ablation_conclusion, effects_figure, effects_table

TASK = "PyDocsSampleRetrieval"


def effect(level, difference, p_value, *, factor="pooling", reference="mean"):
    ends = (difference - 0.01, difference + 0.01)
    return Effect(factor, level, reference, MeanDifference(difference, ends, 0.95, 200), p_value, 8)


NOISE, SMALLER = effect("cls", -0.004, 0.3), effect("last", 0.002, 0.9)
CLEAR = effect("[R] … EOS", 0.05, 1e-4, factor="around", reference="plain")


def test_an_effect_is_named_and_the_others_are_not_claimed():
    text = str(ablation_conclusion({TASK: [NOISE, CLEAR, SMALLER]}))
    assert text == (
        "On Retrieval (200 queries, Holm over 3), 1 of 3 settings have an effect: [R] … EOS "
        "instead of plain (around), +0.050 [+0.040, +0.060], p < 0.001; the other 2 show none."
    )
    assert str(ablation_conclusion({TASK: [CLEAR, NOISE]})).endswith("the other one shows none.")
    assert str(ablation_conclusion({TASK: [CLEAR]})).endswith("p < 0.001.")


def test_without_an_effect_the_largest_difference_is_named():
    text = str(ablation_conclusion({TASK: [SMALLER, NOISE]}))
    assert text == (
        "On Retrieval (200 queries, Holm over 2), no setting has an effect that is more than "
        "noise; the largest difference: cls instead of mean (pooling), -0.004 [-0.014, +0.006], "
        "p = 0.3000."
    )


def test_every_task_has_its_sentence_and_nothing_is_said_of_nothing():
    text = str(ablation_conclusion({TASK: [CLEAR], "SciFact": [NOISE]}))
    assert "On Retrieval (200" in text
    assert "On SciFact (200" in text
    assert str(ablation_conclusion({TASK: []})) == "No two settings were compared."


def test_names_differ_between_tasks_and_kinds():
    names = {
        effects_figure([CLEAR], task=TASK).name,
        effects_figure([CLEAR], task="SciFact").name,
        effects_figure([CLEAR], task=TASK, kind="components").name,
        effects_table([CLEAR], task=TASK).name,
        effects_table([CLEAR], task=TASK, kind="components").name,
    }
    assert len(names) == 5
    assert effects_table([CLEAR], task=TASK).caption.endswith("on Retrieval.")
