"""What evaluations return."""

import pytest
from helpers.records import make

from qwen3nb.evaluation.run import EvaluationError, EvaluationRun, Tally
from qwen3nb.records.results import Results


def filled():
    tally = Tally()
    tally.add(make("one", task="T", scores=(0.5, 0.7)), name="T", reused=True)
    tally.skip("U", "one has no vectors")
    with tally.attempt("V"):
        raise RuntimeError("no such data")
    return tally


def test_a_tally_keeps_records_skips_and_failures_and_goes_on():
    run = filled().run()
    assert isinstance(run.results, Results)
    assert [result.task.name for result in run] == ["T"]
    assert len(run) == 1
    assert run.reused == ("T",)
    assert run.skipped == {"U": "one has no vectors"}
    assert run.failures["V"].endswith("RuntimeError: no such data\n")
    assert filled().failure("V").startswith("Traceback")
    assert filled().failure("T") is None


def test_the_repr_shows_scores_and_reasons():
    text = repr(filled().run())
    assert text.startswith("<EvaluationRun: 1 record, 1 reused, 1 skipped, 1 failed>")
    assert "one on T: nDCG@10 0.600" in text
    assert "U: skipped, one has no vectors" in text
    assert "V: RuntimeError: no such data" in text
    assert repr(EvaluationRun()) == "<EvaluationRun: 0 records>"


def test_failures_are_raised_once_everything_else_is_done():
    with pytest.raises(EvaluationError, match=r"1 of 3 tasks failed(.|\n)*V: RuntimeError"):
        filled().run_or_raise("one", kind="tasks", saved="results")
    tally = Tally()
    tally.add(make("one", task="T"), name="T")
    assert len(tally.run_or_raise("one", kind="tasks", saved="results")) == 1


@pytest.mark.parametrize(
    ("saved", "words"),
    [(0, "1 of 1 tasks failed; nothing is saved"), (1, "failed; the other is saved in results"),
     (2, "1 of 3 tasks failed; the other 2 are saved in results")],
)  # fmt: skip
def test_a_failure_says_what_is_saved_and_drops_the_module_of_its_error(saved, words):
    tally = Tally()
    for number in range(saved):
        tally.add(make("one", task=f"T{number}"), name=f"T{number}")
    with tally.attempt("V"):
        raise EvaluationError("no such data")
    with pytest.raises(EvaluationError) as error:
        tally.run_or_raise("one", kind="tasks", saved="results")
    assert words in str(error.value)
    assert str(error.value).endswith("\n  V: EvaluationError: no such data")


def test_an_interrupt_is_no_failure():
    with pytest.raises(KeyboardInterrupt), Tally().attempt("T"):
        raise KeyboardInterrupt
