"""The contract of an answer, checked on one example of each."""

import importlib
import pkgutil
import re
from dataclasses import FrozenInstanceError, fields

import pandas as pd
import pytest
from helpers.answers import EXAMPLES

import qwen3nb.answers
from qwen3nb.answers.answer import Answer
from qwen3nb.report.render.figure import Figure
from qwen3nb.report.render.html import escaped_text
from qwen3nb.report.render.table import Conclusion, Sections, Table, TableChoice


def answers():
    """Every class of an answer in the package."""
    modules = [
        f"qwen3nb.answers.{each.name}" for each in pkgutil.iter_modules(qwen3nb.answers.__path__)
    ]
    for name in modules:
        importlib.import_module(name)
    # Other tests define answers of their own, such as that of the handbook.
    return {kind.__name__: kind for kind in Answer.__subclasses__() if kind.__module__ in modules}


@pytest.fixture(scope="module", params=sorted(EXAMPLES))
def answer(request, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QWEN3NB_HOME", str(tmp_path_factory.mktemp("home")))
        yield EXAMPLES[request.param]()


def test_every_answer_has_an_example():
    assert sorted(answers()) == sorted(EXAMPLES)


def test_an_answer_is_frozen_and_documented(answer):
    assert type(answer).__doc__
    field = fields(answer)[0].name
    with pytest.raises(FrozenInstanceError):
        setattr(answer, field, None)


def test_its_sentence_table_and_figure_have_their_types(answer):
    assert isinstance(answer.conclusion, Conclusion)
    assert answer.conclusion.text.rstrip().endswith((".", "!", "?"))
    assert isinstance(answer.table(), Table | Sections | TableChoice | None)
    assert isinstance(answer.figure(), Figure | None)


def test_its_numbers_are_a_frame_and_the_same_each_time(answer):
    frame = answer.to_frame()
    assert isinstance(frame, pd.DataFrame)
    pd.testing.assert_frame_equal(frame, answer.to_frame())


def test_a_notebook_shows_sentence_table_and_figure(answer):
    page = answer._repr_html_()
    assert page.count("<style") == 1
    assert 'class="q-conclusion"' in page
    without_bold_names = re.sub("</?strong>", "", page)
    assert escaped_text(answer.conclusion.text.split("`")[0]) in without_bold_names
    assert ("<svg" in page) == (answer.figure() is not None)
    assert " object at 0x" not in repr(answer)
