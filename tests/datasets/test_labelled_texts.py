"""Labelled texts of PyDocs: what each label is, and draws that share no text."""

import pytest

from qwen3nb.datasets.pydocs.build import Entry, PyDocs, load_pydocs
from qwen3nb.datasets.pydocs.labelled import (
    LIBRARIES,
    LONGEST,
    WORD_LABELS,
    LabelledTexts,
    draw,
    library_texts,
    marked_code,
    words_with_labels,
)


@pytest.mark.parametrize(
    ("text", "words", "code"),
    [
        ("Sum along `axis`.", "Sum along axis.", ["axis."]),
        ("See ``a + b`` or c", "See a + b or c", ["a", "+", "b"]),
        ("By :func:`~numpy.sum`, too", "By ~numpy.sum, too", ["~numpy.sum,"]),
        ("As :py:meth:`x`s do", "As xs do", ["xs"]),
        ("No code at all", "No code at all", []),
        ("An open ` is none", "An open ` is none", []),
    ],
)
def test_words_between_backticks_are_code(text, words, code):
    found, labels = words_with_labels(text)
    assert " ".join(found) == words
    assert [word for word, label in zip(found, labels, strict=True) if label == "code"] == code


def entry(name, label, summary, text):
    return Entry(name, label.split(".")[0], label, summary, text, ())


def test_labels_by_hand():
    entries = (
        entry("a", "numpy", "does a", "Sorts `x` in place."),
        entry("b", "scipy.stats", "does b", "Nothing is marked here."),
        entry("c", "pandas", "does c", "The root :math:`x` of `f`."),
        entry("d", "numpy", "does b", "Sorts `x` in place."),
        entry("e", "python", "does e", "Only " + "word " * LONGEST + "then `code`."),
    )
    pydocs = PyDocs(entries, ("a", "b", "c", "e"), {})
    texts = library_texts(pydocs)
    assert dict(zip(texts.texts, texts.labels, strict=True)) == {
        "does a": "numpy",
        "does b": "scipy.stats",
        "does e": "python",
    }
    assert texts.names == ("numpy", "python", "scipy.stats")
    marked = marked_code(pydocs)
    assert marked.texts == ("Sorts x in place.",)
    assert marked.labels == (("other", "code", "other", "other"),)
    assert set(marked.names) == set(WORD_LABELS)


def test_no_text_is_in_two_draws_and_a_seed_draws_the_same():
    texts = LabelledTexts(tuple(f"t{i}" for i in range(50)), tuple("ab" * 25))
    draws = draw(texts, draws=3, size=10, test=20)
    parts = [*draws.training, draws.test]
    assert [len(part) for part in parts] == [10, 10, 10, 20]
    assert sorted(text for part in parts for text in part.texts) == sorted(texts.texts)
    known = dict(zip(texts.texts, texts.labels, strict=True))
    for part in parts:
        assert all(
            known[text] == label for text, label in zip(part.texts, part.labels, strict=True)
        )
    assert draw(texts, draws=3, size=10, test=20) == draws
    assert draw(texts, draws=3, size=10, test=20, seed=1) != draws
    assert draws.training[0].first(4).texts == draws.training[0].texts[:4]


def test_what_cannot_be_drawn_or_labelled_is_refused():
    texts = LabelledTexts(("one", "two"), ("a", "b"))
    with pytest.raises(ValueError, match=r"2 draws of 1 texts and 1 test texts take 3 .* got 2"):
        draw(texts, draws=2, size=1, test=1)
    with pytest.raises(ValueError, match="at least one draw of one text"):
        draw(texts, draws=0, size=1, test=1)
    with pytest.raises(ValueError, match="got 1 texts and 2 labels"):
        LabelledTexts(("one",), ("a", "b"))
    with pytest.raises(ValueError, match="got 1 for the 2 words of 'one text'"):
        LabelledTexts(("one text",), (("a",),))


@pytest.mark.integration
def test_the_installed_libraries_have_enough_for_the_lesson():
    pydocs = load_pydocs()
    texts, marked = library_texts(pydocs), marked_code(pydocs)
    assert set(texts.names) == set(LIBRARIES)
    draw(texts)
    draw(marked, size=100, test=200)
    for labelled in (texts, marked):
        assert len(set(labelled.texts)) == len(labelled.texts)
    assert not any("`" in text for text in marked.texts[:200])
