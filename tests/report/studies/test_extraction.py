"""What an extraction verified, in words that follow from its numbers."""

from pathlib import Path

from qwen3nb.extraction.extract import Extraction
from qwen3nb.extraction.verify import Verification
from qwen3nb.report.studies.extraction import (
    averaging_table,
    extraction_conclusion,
    extraction_table,
)


def extraction(*, difference=0.0, rounding=0.0, leak=1.788, warnings=()):
    check = Verification(difference, 6e-8, rounding, leak, (3, 12, 181), {})
    return Extraction(Path("runs/encoder"), "demo", 926_464, check, tuple(warnings))


def sentence(**options):
    return str(extraction_conclusion(extraction(**options)))


def test_an_equal_export():
    assert sentence() == (
        "The export computes the same as its source: its states are at most 0.0 apart on 3 inputs, "
        "and it runs bidirectionally: the last token moves the first state by 1.8."
    )
    assert "at most 2.0e-07 apart" in sentence(difference=2e-7)


def test_a_different_or_causal_export_is_not_called_equal():
    text = sentence(difference=0.02, leak=0.0)
    assert "does not compute the same as its source: its states are at most 2.0e-02 apart" in text
    assert "1e-05 is allowed" in text
    assert "it runs causally: the last token does not move the first state" in text


def test_rounding_and_warnings_are_named():
    text = sentence(rounding=0.031, warnings=("one",))
    assert text.endswith(
        "Storing it in 16 bits moves states by at most 3.1e-02. 1 warning: see the table."
    )
    assert sentence(warnings=("one", "two")).endswith(" 2 warnings: see the table.")


def test_tables_carry_their_numbers():
    assert extraction_table(extraction(warnings=("look",))).rows[-1][3].text == "look"
    table = averaging_table({"a": 0.25}, {"a": (0.9, 0.5)})
    assert table.to_frame().iloc[0, 1:].tolist() == [0.25, 0.9]
