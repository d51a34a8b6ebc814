"""What is no attribute says what to write instead, and a fault in a property is not hidden."""

import pytest

from qwen3nb.utils.hints import missing_attribute


class Shown:
    @property
    def broken(self):
        return self.nowhere

    def __getattr__(self, name):
        raise missing_attribute(self, name, {"size": "len(shown)"})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("size", "'Shown' object has no attribute 'size'; write len(shown)"),
        ("groupby", "'Shown' object has no attribute 'groupby'; write .to_frame().groupby"),
        ("other", "'Shown' object has no attribute 'other'"),
        ("_repr_svg_", "'Shown' object has no attribute '_repr_svg_'"),
        ("broken", "'Shown' object has no attribute 'nowhere'"),
    ],
)
def test_the_error_says_what_is_missing_and_what_to_write(name, message):
    with pytest.raises(AttributeError) as refused:
        getattr(Shown(), name)
    assert str(refused.value) == message
