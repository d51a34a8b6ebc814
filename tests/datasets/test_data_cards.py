"""Cards of copied data sets, which other people write."""

import pytest

from qwen3nb.datasets.data_cards import names_outside
from qwen3nb.datasets.rows import shown_value

LEVELS = [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, 10)]
LAUGHS = "\n".join(["a0: &a0 [x, x, x, x, x, x, x, x, x, x]", *LEVELS])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("README.md", "---\nconfigs:\n- data_files: &a [*a]\n---\n", "an alias stands for a part"),
        ("README.md", f"---\n{LAUGHS}\nconfigs:\n- data_files: *a9\n---\n", "aliases stand for"),
        (".huggingface.yaml", "configs: []\nconfigs: []\n", r"'configs' occurs twice.*\(line 2\)"),
        ("README.md", b"---\n\xff: 1\n---\n", "not UTF-8.*; save it as UTF-8, or fetch the data"),
        (".huggingface.yaml", b"\xff\xfe", "not UTF-8.*; save it as UTF-8, or fetch the data"),
    ],
)
def test_a_card_that_cannot_be_read_is_named_with_the_remedy(tmp_path, name, content, message):
    if isinstance(content, str):
        content = content.encode()
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"{name}: .*{message}"):
        names_outside(tmp_path)


def test_a_card_without_yaml_names_no_file(tmp_path):
    (tmp_path / "README.md").write_text("# Data\n--- \n- none\n", encoding="utf-8")
    assert names_outside(tmp_path) == []


def test_a_deep_or_large_value_is_shown_in_short():
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert shown_value(deep) == "[[[[...]]]]"
    assert len(shown_value({"a": ["x" * 10**7] * 1000})) == 60
    assert shown_value("x" * 10**7) == "'" + "x" * 59
