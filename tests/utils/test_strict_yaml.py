"""YAML of other programs: aliases that grow, doubled keys, and numbers that nobody can write."""

import pytest

from qwen3nb.utils.strict_yaml import parse_yaml

# Each level has ten aliases of the one before: a billion parts in 500 bytes.
LEVELS = [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, 10)]
LAUGHS = "\n".join(["a0: &a0 [x, x, x, x, x, x, x, x, x, x]", *LEVELS])
KEYS = ", ".join(f"k{number}: 1" for number in range(100))
MERGES = "\n".join(f"m{number}: {{<<: [{', '.join(['*a'] * 20)}]}}" for number in range(10))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LAUGHS, r"aliases stand for more than 10,000 parts.*\(line 1\)"),
        (f"a: &a {{{KEYS}}}\n{MERGES}", "aliases stand for more than 10,000 parts"),
        ("data_files: &a [*a]", r"an alias stands for a part that it is in itself \(line 1\)"),
        ("a: &a {<<: *a}", "an alias stands for a part that it is in itself"),
        ("x: 0\na: {b: 1, c: 2, b: 3}", r"the key 'b' occurs twice in an object \(line 2\)"),
        ("1: a\n0x1: b", r"the key 1 occurs twice in an object \(line 2\)"),
        ("x: 0\na: 0x" + "f" * 5000, r"a number of too many digits \(line 2\)"),
        ("a: " + "9" * 5000, r"Exceeds the limit \(4300 digits\).*\(line 1\)"),
        ("a: 1" + ":59" * 3000, "a number of too many digits"),
        ("a: [.nan]", r"nan is no number \(line 1\)"),
        ("[" * 500, "nested too deeply"),
        ("a: 1\n---\na: 2", "expected a single document"),
        ("a: 2001-99-99", r"month must be in 1\.\.12.*\(line 1\)"),
        ("a: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
    ],
)
def test_what_is_ambiguous_or_grows_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        parse_yaml(text)


def test_a_document_may_refer_to_its_parts():
    text = "a: &a {x: 1, y: 1}\nb: {<<: *a, y: 2}\nc: [*a, *a]"
    shared = {"x": 1, "y": 1}
    assert parse_yaml(text) == {"a": shared, "b": {"x": 1, "y": 2}, "c": [shared, shared]}


def test_plain_values_are_read():
    assert parse_yaml("") is None
    value = parse_yaml("{a: [1, 2.5, yes, ~, 't'], 1: x}")
    assert value == {"a": [1, 2.5, True, None, "t"], 1: "x"}
    assert parse_yaml("[.inf]", nan=True) == [float("inf")]
