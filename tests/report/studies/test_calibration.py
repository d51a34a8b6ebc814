"""Stored simulations as tables."""

from qwen3nb.analysis.calibration.simulate import read_calibration
from qwen3nb.report.studies.calibration import calibration_table


def test_stored_simulations_as_tables():
    shares = read_calibration()
    table = calibration_table(shares, kind="coverage")
    heads = [head for head in table.columns if head.startswith("n = ")]
    assert heads == ["n = 10", "n = 30", "n = 100", "n = 300", "n = 1000"]
    # The page says that 30 queries or fewer are too few for an interval, and 300 are not.
    assert {cell.detail for row in table.rows for cell in row[1:3]} == {"too bold"}
    assert {cell.detail for row in table.rows for cell in row[4:]} == {"holds"}
    false = calibration_table(shares, kind="false positives")
    assert not any(cell.strong for row in false.rows for cell in row)
    seeds = calibration_table(shares, kind="coverage", over="seeds")
    assert seeds.columns[1].startswith("1 x 300")
    assert calibration_table([], kind="power").note == "Not simulated."
