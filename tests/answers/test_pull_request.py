"""Whether a pull request may be merged, in ten lines."""

import pytest
from helpers.html import HOSTILE
from helpers.records import own, state

from qwen3nb.answers.pull_request import pull_request


def records(before, after, *, texts="find it"):
    pair = [own("before", before, identity="1" * 64), own("new", after, seed=1, identity="2" * 64)]
    for record in pair:
        state(record, queries=dict.fromkeys(record.per_query["MRR@10"], texts))
    return pair


def test_a_worse_model_fails_and_a_better_or_equal_one_passes():
    worse = pull_request(*records(0.8, 0.4), name_before="old")
    assert worse.title == "Failed: new is worse than old, which was in use"
    assert not worse.passes
    better = pull_request(*records(0.4, 0.8), name_before="old", data_changes="2 new")
    assert better.title == "Passed: new may take the place of old"
    assert "A loss of more than 0.05 is not shown." in better.text
    assert "\n\nQueries: 2 new.\nChanged most: `find it` 0." in better.text
    before, _ = records(0.4, 0.8)
    same = pull_request(before, before, name_before="old")
    assert same.passes
    assert same.text.startswith("**Passed: the model in use is before, as before.**\n\n| model in")
    assert same.text.endswith("\n\nQueries: as before.\n")
    # Worse, but by less than is allowed.
    assert pull_request(*records(0.8, 0.4), margin=0.9).passes


@pytest.mark.parametrize("text", [*HOSTILE, "@ada #1 fixes #2", "a\n\n# b", "`x` | y", "z" * 300])
def test_texts_of_the_data_are_code_on_one_line(text):
    outcome = pull_request(*records(0.8, 0.4, texts=text), name_before="old", data_changes="1 new")
    lines = outcome.text.splitlines()
    assert len(lines) == 9  # and a link, which the workflow adds
    (changed,) = [line for line in lines if line.startswith("Changed most: ")]
    first = changed.removeprefix("Changed most: ").split(" 0.")[0]
    fence = first[: len(first) - len(first.lstrip("`"))]
    assert fence
    assert first.endswith(fence)
    assert fence not in first.removeprefix(fence).removesuffix(fence)
    assert len(first) < 80
    assert all(character.isprintable() for character in first)
