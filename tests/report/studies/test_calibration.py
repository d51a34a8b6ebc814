"""Stored simulations as tables."""

from qwen3nb.analysis.calibration.simulate import read_calibration
from qwen3nb.report.studies.calibration import calibration_table


def test_stored_simulations_as_tables():
    shares = read_calibration()
    table = calibration_table(shares, kind="coverage")
    heads = [head for head in table.columns if head.startswith("n = ")]
    assert heads == ["n = 10", "n = 20", "n = 50", "n = 200", "n = 1000"]
    # The page says that the interval shown holds its level, and the bootstrap's does not.
    for row in table.rows:
        few, many = ({cell.detail for cell in cells} for cells in (row[1:3], row[5:]))
        if row[0].text == "tie-adjusted Student's":
            assert not any(cell.strong for cell in row[1:])
            assert many == {"holds"}
        elif row[0].text == "Student's":
            assert ("too bold" in few) == (row[0].detail in ("rare wins", "accuracy"))
        else:
            assert few == {"too bold"}
    scores = calibration_table(shares, kind="score coverage")
    assert not any(cell.strong for row in scores.rows if row[0].text == "Wilson's" for cell in row)
    false = calibration_table(shares, kind="false positives")
    assert not any(cell.strong for row in false.rows for cell in row)
    seeds = calibration_table(shares, kind="coverage", over="seeds")
    assert seeds.columns[1].startswith("1 x 300")
    assert calibration_table([], kind="power").note == "Not simulated."
