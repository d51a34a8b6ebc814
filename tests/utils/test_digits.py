"""Digits: a number that is not 0 is never shown as 0 where its sign matters."""

import pytest

from qwen3nb.report.render.table import effect_text, number
from qwen3nb.utils.format import enough_digits, interval_text, number_text


@pytest.mark.parametrize(
    ("ends", "text"),
    [
        ((0.0004, 0.044), "[>0, +0.044]"),
        ((-0.00004, 0.2), "[<0, +0.200]"),
        ((-0.02, -0.0003), "[-0.020, <0]"),
        ((0.0, 0.25), "[+0.000, +0.250]"),
        ((0.0005, 0.25), "[+0.001, +0.250]"),  # rounds away from 0
        ((1e-17, 0.25), "[+0.000, +0.250]"),  # a rounding error
    ],
)
def test_an_end_of_an_interval_is_on_the_side_of_zero_that_it_is_on(ends, text):
    assert interval_text(ends) == text
    assert number(0.1, "+.3f", interval=ends).detail == text
    assert text in effect_text(0.1, ends)


def test_a_difference_is_zero_only_if_it_is():
    assert number_text(-0.0, sign=True) == "+0.000"
    assert number_text(0.0004, sign=True) == "+0.0004"
    assert number(0.0004, "+.3f").text == "+0.0004"
    assert number(-0.0, "+.3f").text == "+0.000"
    assert number(0.0004).text == "0.000"  # a score, not a difference
    assert enough_digits([0.0, 0.5, -0.00002]) == 5
