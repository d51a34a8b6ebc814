import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3nb.datasets.custom.text_template import TextTemplate
from qwen3nb.datasets.rows import DataError


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"a": "1", "b": "2", "c": "3"}, "<1. 2 - 3>"),
        ({"a": "1", "c": "3"}, "<1 - 3>"),
        ({"b": " 2 "}, "<2>"),
        ({"a": " ", "b": ""}, ""),
        ({"a": "{b.__class__}"}, "<{b.__class__}>"),  # data is never a template
    ],
)
def test_an_empty_part_goes_with_what_stands_before_it(values, text):
    assert TextTemplate.parse("<{a}. {b} - {c}>").fill(values) == text


def test_braces_can_be_written_double():
    assert TextTemplate.parse("{{x}} {a}").fill({"a": "1"}) == "{x} 1"


@pytest.mark.parametrize(
    "text",
    ["{a.b}", "{a[0]}", "{a!r}", "{a:>10}", "{a:{b}}", "{}", "{0.x}", "{a", "a}", "", "no field"],
)
def test_a_template_has_names_only(text):
    with pytest.raises(DataError, match="text template"):
        TextTemplate.parse(text)


@given(st.text(max_size=20))
def test_any_template_is_read_or_refused(text):
    try:
        template = TextTemplate.parse(text)
    except DataError:
        return
    assert template.fields
