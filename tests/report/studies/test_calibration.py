"""Stored simulations as tables."""

from dataclasses import replace

from qwen3nb.analysis.calibration.simulate import read_calibration
from qwen3nb.report.studies.calibration import calibration_conclusion, calibration_table


def test_stored_simulations_as_tables():
    shares = read_calibration()
    table = calibration_table(shares, kind="coverage")
    heads = [head for head in table.columns if head.startswith("n = ")]
    assert heads == ["n = 10", "n = 20", "n = 50", "n = 200", "n = 1000"]
    # The page says that the interval shown holds its level, and the bootstrap's does not.
    for row in table.rows:
        few, many = ({cell.detail for cell in cells} for cells in (row[1:3], row[5:]))
        if row[0].text == "widened Student's":
            assert not any(cell.strong for cell in row[1:])
            assert many <= {"holds", "cautious"}
        elif row[0].text == "Student's":
            assert ("too bold" in few) == (row[0].detail not in ("search", "normal"))
        else:
            assert "too bold" in few
    scores = calibration_table(shares, kind="score coverage")
    shown = [row for row in scores.rows if row[0].text == "widened Student's"]
    assert len(shown) == 9
    assert not any(cell.strong for row in shown for cell in row)
    for row in calibration_table(shares, kind="false positives").rows:
        skewed = row[0].detail in ("large wins", "noisy wins")
        assert any(cell.strong for cell in row) == skewed
    called = calibration_table(shares, kind="false equivalence")
    assert called.columns[1:] == ("n = 3", "n = 5", "n = 10", "n = 20", "n = 50", "n = 200")
    assert {row[0].text for row in called.rows if any(cell.strong for cell in row)} == {
        "two one-sided t-tests"
    }
    seeds = calibration_table(shares, kind="coverage", over="seeds")
    assert seeds.columns[1].startswith("1 x 300")
    assert calibration_table([], kind="power").note == "Not simulated."


def test_the_conclusion_counts_the_settings_in_which_a_method_is_too_bold():
    shares = list(read_calibration())
    text = calibration_conclusion(shares).text
    every = [s for s in shares if s.method == "permutation test"]
    test = [s for s in every if s.world not in ("large wins", "noisy wins")]
    worst = max(test, key=lambda each: each.share)
    assert (
        f"there is none in at most {100 * worst.share:.1f} % of samples ({worst.world}, n = "
        f"{worst.n}): too bold in none of {len(test)} settings" in text
    )
    skewed = max(set(every) - set(test), key=lambda each: each.share)
    assert f"up to {100 * skewed.share:.1f} % ({skewed.world}, n = {skewed.n})" in text
    assert "called equivalent in at most 2.6 % of samples" in text
    assert "percentile bootstrap in " in text
    assert "permutation test in" not in text
    bold = [replace(s, share=0.2) if s is worst else s for s in shares]
    bolder = calibration_conclusion(bold).text
    assert f"at most 20.0 % of samples ({worst.world}, n = {worst.n}): too bold in 1 of" in bolder
    assert "Nothing was simulated" in calibration_conclusion([]).text
