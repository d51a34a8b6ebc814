from itertools import pairwise

import pytest
from helpers.records import make

from qwen3nb.report.render.model_styles import model_colors, model_styles

FIXED = ["random", "bm25", "all-MiniLM-L6-v2", "bm25-plus-all-MiniLM-L6-v2"]


def test_a_model_looks_the_same_in_every_figure_of_a_study(home):
    """The study is the models with records."""
    study = [f"model-{index}" for index in range(9)]
    for label in study:
        make(label).save()
    everyone = model_styles(study)
    for pair in pairwise(study):
        assert model_styles(pair) == {label: everyone[label] for label in pair}
    assert model_styles(study[::-1]) == everyone


@pytest.mark.parametrize("count", [2, 6, 10])
def test_models_are_told_apart_without_color(count):
    labels = [*(f"model {i}" for i in range(count)), *FIXED]
    markers = [style.marker for style in model_styles(labels).values()]
    assert len(set(markers)) == len(markers)


def test_every_color_is_used_before_a_shade_of_one():
    labels = [f"model {i}" for i in range(20)]
    assert len(set(model_colors(labels[:8]).values())) == 8
    assert len(set(model_colors(labels).values())) == 20
    assert model_colors(labels) == model_colors(labels[::-1])


def test_baselines_look_the_same_in_every_study(home):
    alone = model_styles(FIXED)
    make("a").save()
    assert alone == {label: model_styles([label, "zebra"])[label] for label in FIXED}
