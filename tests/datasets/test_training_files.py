"""Configurations with more than plain values, and quotes that nothing closes."""

import pytest

from qwen3nb.datasets.custom.queries import read_queries
from qwen3nb.datasets.rows import DataError, read_settings


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 2001-99-99\n", "month must be in"),
        ("a: !!python/object/apply:os.system [ls]\n", "could not determine a constructor"),
        ("a: x\n" * 99_999, "expected at most .*--read-limit"),
    ],
)
def test_a_configuration_that_is_no_plain_value_is_refused(tmp_path, text, message):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(DataError, match=f"config.yaml: .*{message}"):
        read_settings(tmp_path / "config.yaml")


def test_a_configuration_may_refer_to_its_parts(tmp_path):
    (tmp_path / "config.yaml").write_text("a: &a {x: 1}\nb: {<<: *a, y: 2}\n")
    assert read_settings(tmp_path / "config.yaml") == {"a": {"x": 1}, "b": {"x": 1, "y": 2}}


def test_quotes_that_nothing_closes_are_read_once(tmp_path):
    """A search for their end from each quote would take hours for a file of this size."""
    (tmp_path / "q.toml").write_text('a = """' + '\\"""' * 200_000)
    with pytest.raises(DataError, match="q.toml: not TOML"):
        read_queries(tmp_path / "q.toml")
