"""`Model`: a value that loads nothing until its weights are needed, and declares its options."""

import json
import pickle
import subprocess
import sys
from dataclasses import fields, replace
from typing import get_type_hints

import numpy as np
import pytest
from helpers import REPOSITORY
from helpers.beir import write_words
from helpers.rerankers import write_reranker

import qwen3nb as q
from qwen3nb.execution.parameters import read_parameters
from qwen3nb.models.load import load_encoder
from qwen3nb.models.model import Model
from qwen3nb.models.options import OPTIONS, ModelOptions, OptionArguments
from qwen3nb.models.types import SpecError

PLAIN = {"pooling": "auto", "max_length": 0, "dimensions": 0, "prompts": "", "base": ""}


def test_a_value_is_made_without_a_file_and_equals_another_with_its_fields(tmp_path):
    model = Model(tmp_path / "nowhere", pooling="mean")
    assert model == Model(str(tmp_path / "nowhere"), pooling="mean")
    assert Model("x", **PLAIN) == Model("x")
    assert hash(Model("x", prompts="query=a: ")) == hash(Model("x", prompts={"query": "a: "}))
    assert Model("x", prompts="query=a: ") == Model("x", prompts={"query": "a: "})
    assert replace(model, pooling="auto") == Model(tmp_path / "nowhere")
    with pytest.raises(SpecError, match="nowhere"):
        assert model.label


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pooling": "men"}, "unknown pooling 'men'; choose one of: mean, cls, last"),
        ({"dtype": "float8"}, "unknown dtype 'float8'"),
        ({"device": "gpu"}, "unknown device 'gpu'"),
        ({"cache_dtype": "int8"}, "unknown cache_dtype"),
        ({"batch_size": 0}, "batch_size is 0; expected at least 1"),
        ({"max_length": -1}, "max_length is -1; expected at least 0"),
        ({"max_length": 10**25}, "max_length is 10+; expected at most 1,000,000,000"),
        ({"prefix": "a\udcff"}, "expected a prefix that is valid Unicode"),
        ({"prompts": "no prompt"}, "expected NAME=TEXT"),
    ],
)
def test_a_wrong_option_is_refused_when_the_value_is_made(options, message):
    with pytest.raises(ValueError, match=message):
        Model("random", **options)


def test_label_and_identity_are_known_without_loading_again(tmp_path, monkeypatch):
    monkeypatch.setenv("QWEN3NB_CACHE", str(tmp_path / "cache"))
    model = Model("random:16", seed=3)
    assert model.label == "random-16"
    assert not model.is_loaded
    identity = model.identity
    assert identity == load_encoder("random:16", seed=3).identity
    monkeypatch.setattr(Model, "_load_checked", None)
    again = Model("random:16", seed=3)
    assert (again.label, again.identity, again.facts.width) == ("random-16", identity, 16)
    assert Model("bm25+random").label == "bm25-plus-random"
    assert Model("random", prompts={"query": "q: "}, dtype="int8").label == "random-prompts-int8"
    assert Model("random", name="mine").label == Model("bm25", name="mine").label == "mine"


def test_weights_are_loaded_once_and_stay_with_the_value():
    model = Model("random", show_progress=False)
    assert model.load() is model.load()
    copied = pickle.loads(pickle.dumps(model))  # noqa: S301 - our own
    assert copied == model
    assert not copied.is_loaded
    assert not replace(model).is_loaded


def test_a_model_encodes_searches_and_scores():
    documents = ["sort a list", "read a file", "sort a list in place"]
    model = Model("random", show_progress=False)
    vectors = model.encode(documents, role="passage")
    assert np.array_equal(vectors, load_encoder("random").encode(documents, role="passage"))
    expected = vectors @ model.encode("read a file", role="query")
    scores = model.score("read a file", documents)
    np.testing.assert_allclose(scores, expected, rtol=1e-6)
    (ranking,) = model.search(["read a file"], documents, k=2)
    order = np.argsort(-expected)[:2].tolist()
    assert [*ranking] == order
    (found,) = Model("bm25").search(["sort list"], documents)
    assert {*found} == {0, 2}
    with pytest.raises(SpecError, match="bm25 has no vectors"):
        Model("bm25").encode(["a"])


def test_a_reranker_scores_pairs(tmp_path):
    folder = write_reranker(tmp_path / "reranker")
    documents = ["sort a list", "read a file"]
    expected = q.load_reranker(folder).score("how to sort", documents).log_odds
    assert Model(folder).score("how to sort", documents) == expected.tolist()


def test_verbs_take_a_model_as_they_take_its_spec(tmp_path):
    data = write_words(tmp_path / "words")
    model = q.Model("random", seed=1, show_progress=False)
    run = q.evaluate(model, data, show_progress=False)
    assert run.results[0].model.identity == model.identity
    assert q.evaluate(model, data, show_progress=False).reused == ("words",)
    pairs = (["a cat", "rain", "sort"], ["a dog", "sun", "list"], [3, 0, 4])
    assert q.evaluate_sts(model, pairs) == q.evaluate_sts(model.load(), pairs)
    assert q.sanity_check(model).sanity.identity == model.identity


def test_importing_it_loads_no_heavy_library():
    code = "import sys, qwen3nb; qwen3nb.Model('runs/x'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "transformers", "mteb", "pandas"} & {*done.stdout.split()}


def test_every_option_is_declared_once():
    names = [field.name for field in fields(ModelOptions)]
    assert list(OPTIONS) == names
    hints = get_type_hints(ModelOptions)
    assert get_type_hints(OptionArguments) == {name: hints[name] for name in names}
    assert all(declaration.help for declaration in OPTIONS.values())


def test_the_cell_of_an_evaluation_has_the_declared_options():
    notebook = REPOSITORY / "notebooks" / "eval.ipynb"
    declared = read_parameters(notebook)
    model = Model("x")
    for name in OPTIONS.keys() & declared.keys():
        parameter = declared[name]
        assert parameter.help == OPTIONS[name].help, name
        assert parameter.default == model.plain(name), name
    cells = json.loads(notebook.read_text())["cells"]
    passed = next(text for cell in cells if "q.Model(" in (text := "".join(cell["source"])))
    for name in OPTIONS.keys() & declared.keys():
        assert f"{name}={name}" in passed
