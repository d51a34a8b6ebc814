"""A loaded model computes what its folder stands for: the same vectors, prompts and scores.

The oracle is sentence-transformers on the same folder, and `mteb.evaluate` with it.
"""

import json
import shutil
import time
import warnings
from functools import partial

import mteb
import numpy as np
import pytest
from datasets import Dataset
from helpers import TEXTS
from helpers.archetypes import words, write_sentence_bert
from helpers.checkpoints import without_checksums
from helpers.file_touches import TOUCHES, overwrite_with_its_times
from helpers.mteb_tasks import WORDS, loaded
from helpers.rerankers import write_reranker
from helpers.tolerances import TINY, assert_close, tolerance
from mteb.mocks.mock_run import ALL_MOCK_TASK_TEST_GRID
from mteb.types import PromptType
from safetensors.torch import load_file, save_file

from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.kinds.source import registry
from qwen3nb.models.load import load_encoder
from qwen3nb.models.rerankers import load_reranker
from qwen3nb.models.types import SpecError
from qwen3nb.report.card import extract

PROMPTS = {"query": "query: ", "document": "passage: "}
INSTRUCTION = {"query": "Instruct: Given a {instruction}, retrieve passages\nQuery:"}
NARROW = {
    **PROMPTS,
    "Classification": "classify: ",
    "Clustering": "",
    "STS": "similar: ",
    "STS12": "twelve: ",
    "Retrieval-query": "find: ",
    "SciFact-document": "claim in: ",
    "Reranking": "both: ",
}


def assert_equal_vectors(encoder, model):
    """Per role, as `SentenceTransformer` has them."""
    texts = [*TEXTS, *WORDS, "A longer text. " * 40]
    for role, theirs in (
        ("query", model.encode_query),
        ("passage", model.encode_document),
        (None, model.encode),
    ):
        assert_close(encoder.encode(texts, role=role), theirs(texts))


def stored(folder, **fields):
    """Change fields of ``config_sentence_transformers.json``."""
    file = folder / "config_sentence_transformers.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))
    if (folder / "qwen3nb.json").is_file():
        without_checksums(folder)


@pytest.fixture(scope="module")
def exported(checkpoint, tmp_path_factory):
    """The encoder of the tiny checkpoint, extracted with prompts."""
    return extract(checkpoint, tmp_path_factory.mktemp("with") / "prompts", prompts=PROMPTS).folder


@pytest.fixture(scope="module")
def bert(tokenizer_folder, tmp_path_factory):
    """A folder of sentence-transformers, with narrow prompts."""
    folder = tmp_path_factory.mktemp("st") / "bert"
    write_sentence_bert(folder, tokenizer_folder, prompts=NARROW)
    return folder


def registered_tasks():
    """Tasks that MTEB knows, of which a prompt may be the name, on made-up data."""
    texts = [f"{first} and {second}" for first in WORDS[:6] for second in WORDS[6:]]
    halves = {"sentence1": texts[:18], "sentence2": texts[18:], "score": [i % 6 for i in range(18)]}
    labelled = {"text": texts, "label": [i // 6 % 2 for i in range(36)]}
    search = {
        "corpus": Dataset.from_dict(
            {"id": [f"d{i}" for i in range(36)], "title": [""] * 36, "text": texts}
        ),
        "queries": Dataset.from_dict({"id": [f"q{i}" for i in range(12)], "text": list(WORDS)}),
        "relevant_docs": {f"q{i}": {f"d{i * 3}": 1, f"d{i}": 1} for i in range(12)},
        "top_ranked": None,
    }
    classes = {part: Dataset.from_dict(labelled) for part in ("train", "test")}
    return [
        loaded("STS12", {"test": Dataset.from_dict(halves)}),
        loaded("SciFact", {"default": {"test": search}}),
        loaded("Banking77Classification.v2", classes),
    ]


def mteb_scores(model, tasks):
    """The main score of each task, from ``mteb.evaluate`` alone."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = mteb.evaluate(model, tasks, cache=None, show_progress_bar=False, co2_tracker=False)
    return {each.task_name: each.get_score() for each in done.task_results}


def text_mock_tasks(*types):
    """One of MTEB's own made-up tasks about text for each of their types, or of those ``types``.

    Without the one of a few points that k-means splits anew whenever a vector moves by 1e-7.
    """
    text = {
        task.metadata.type: task
        for task in ALL_MOCK_TASK_TEST_GRID
        if task.metadata.modalities == ["text"]
        and "ClusteringFast" not in task.metadata.name
        and (not types or task.metadata.type in types)
    }
    return list(text.values())


def sentence_transformer(folder):
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu")


@pytest.mark.integration
@pytest.mark.parametrize(
    ("prompts", "default"),
    [
        (PROMPTS, None),
        (PROMPTS, "query"),
        ({"passage": "default: "}, "passage"),
        ({**INSTRUCTION, "document": ""}, None),
        ({"query": "", "symmetric": "a name like any other: ", "STS12-passage": "p"}, None),
        ({}, None),
    ],
)
@pytest.mark.parametrize("kind", ["export", "sentence-transformers"])
def test_stored_prompts_mean_what_they_mean_to_sentence_transformers(
    encoder_folder, bert, tmp_path, kind, prompts, default
):
    folder = shutil.copytree(encoder_folder if kind == "export" else bert, tmp_path / "model")
    stored(folder, prompts=prompts, default_prompt_name=default)
    assert_equal_vectors(load_encoder(folder, cache=False), sentence_transformer(folder))


def test_given_prompts_replace_stored_ones(exported):
    stored_ones = load_encoder(exported, cache=False)
    assert stored_ones.settings["prompts"] == {"query": "query: ", "passage": "passage: "}
    encoder = load_encoder(exported, prompts={"document": "text: "}, cache=False)
    assert encoder.prompts == {"passage": "text: "}
    plain = load_encoder(exported, prompts={}, cache=False)
    assert plain.prompts == {}
    given = [("role", "query", "x"), ("role", "passage", "text: x"), ("role", None, "x")]
    given += [("prompt_type", PromptType.document, "text: x")]  # MTEB's name of a role
    for name, role, text in given:
        vectors = encoder.encode(["x"], **{name: role})
        np.testing.assert_array_equal(vectors, plain.encode([text]))
    assert len({encoder.identity, plain.identity, stored_ones.identity}) == 3
    with pytest.raises(SpecError, match="two prompts for 'passage'"):
        load_encoder(exported, prompts={"document": "a", "passage": "b"})


@pytest.mark.integration
def test_scores_with_prompts_equal_those_of_sentence_transformers(exported, bert, tmp_path):
    registered = registered_tasks()
    known = {task.metadata.type for task in registered}
    mocks = [task for task in text_mock_tasks() if task.metadata.type not in known]
    assert len(mocks) >= 9
    for folder, tasks in ((bert, [*registered, *mocks]), (exported, registered)):
        theirs = mteb_scores(sentence_transformer(folder), tasks)
        encoder = load_encoder(folder, cache=False)
        assert mteb_scores(encoder, tasks) == pytest.approx(theirs, abs=tolerance(**TINY))
    # Records have the same scores, of which MTEB rounds those of retrieval to five digits.
    done = evaluate(encoder, tasks=registered, output=tmp_path)
    scores = {each.task.name: each.main.value for each in done.results}
    assert scores == pytest.approx({name: theirs[name] for name in scores}, abs=5.1e-6)
    for record in done.results:
        assert record.model.settings["prompts"] == {"query": "query: ", "passage": "passage: "}


@pytest.mark.integration
@pytest.mark.parametrize(("kind", "similarity"), [("export", "cosine"), ("bert", "dot")])
def test_scores_without_normalisation_equal_those_of_sentence_transformers(
    checkpoint, tokenizer_folder, tmp_path, kind, similarity
):
    folder = tmp_path / "long"
    if kind == "export":
        extract(checkpoint, folder, normalize=False, prompts=PROMPTS)
        fields = json.loads((folder / "config_sentence_transformers.json").read_text())
        assert fields["similarity_fn_name"] == "dot"
        stored(folder, similarity_fn_name=similarity)
    else:
        write_sentence_bert(folder, tokenizer_folder, normalize=False, similarity_fn_name="dot")
    encoder, model = load_encoder(folder, cache=False), sentence_transformer(folder)
    assert (encoder.normalize, encoder.similarity_name) == (False, similarity)
    assert encoder.mteb_model_meta.similarity_fn_name.value == similarity
    assert_equal_vectors(encoder, model)
    tasks = text_mock_tasks("PairClassification", "Reranking", "STS", "Summarization")
    assert len(tasks) == 4
    theirs = mteb_scores(model, tasks)
    assert mteb_scores(encoder, tasks) == pytest.approx(theirs, abs=tolerance(**TINY))
    unit = load_encoder(folder, normalize=True, cache=False)
    np.testing.assert_allclose(np.linalg.norm(unit.encode(list(TEXTS)), axis=1), 1, atol=1e-6)
    assert unit.identity != encoder.identity


def test_a_model_keeps_its_normalisation(bert):
    with pytest.raises(SpecError, match="normalises its vectors"):
        load_encoder(bert, normalize=False)


E5 = {"query": "query: ", "passage": "passage: ", "symmetric": "query: "}


@pytest.fixture
def mirror(tokenizer_folder, tmp_path, monkeypatch):
    """A mirror with a random model under the name of a model of the registry."""
    folder = tmp_path / "mirror" / "intfloat" / "e5-base-v2"
    write_sentence_bert(folder, tokenizer_folder, prompts={"query": "of the folder: "})
    stored(folder, prompts={"query": "of the folder: "})
    monkeypatch.setenv("QWEN3NB_MIRROR", str(tmp_path / "mirror"))
    return tmp_path / "mirror"


def test_a_registered_model_is_the_same_however_it_is_named(mirror, tmp_path):
    folder = mirror / "intfloat" / "e5-base-v2"
    revision = registry()["e5-base-v2"]["revision"]
    cached = tmp_path / "hub" / "models--intfloat--e5-base-v2" / "snapshots" / revision
    shutil.copytree(folder, cached)
    specs = ["e5-base-v2", "intfloat/e5-base-v2", "intfloat/E5-base-v2", str(folder), str(cached)]
    encoders = [
        load_encoder(spec, cache=False, max_length=32) for spec in specs
    ]  # the registry's 512 are more than the toy has
    for encoder, spec in zip(encoders, specs, strict=True):
        assert encoder.prompts == E5, spec
        assert encoder.label == "e5-base-v2"
        assert encoder.source.revision == revision
        assert encoder.source.max_length == 512
        assert encoder.identity == encoders[0].identity
        np.testing.assert_array_equal(encoder.encode("x"), encoders[0].encode("x"))
    copy = shutil.copytree(folder, tmp_path / "e5-base-v2")  # which its path does not name
    assert find_source(str(copy)).prompts == {"query": "of the folder: "}


def replaced(folder, other):
    """Rename ``other`` into the place of ``folder``, as a training does that saves again."""
    folder.rename(folder.with_name("before"))
    shutil.copytree(other, folder)


def write_kind(kind, folder, exported, tokenizer_folder, *, other=False):
    """Write a model of a kind, or ``other`` weights of the same shape."""
    if kind == "reranker":
        return write_reranker(folder, seed=int(other))
    if kind == "words":
        return words(folder, tokenizer_folder)
    if kind == "encoder":
        without_checksums(shutil.copytree(exported, folder))
    else:
        write_sentence_bert(folder, tokenizer_folder)
    if other:
        tensors = load_file(folder / "model.safetensors")
        tensors = {name: tensor * 1.5 for name, tensor in tensors.items()}
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.integration
@pytest.mark.parametrize("when", ["before it is loaded", "after it was loaded"])
@pytest.mark.parametrize("kind", ["encoder", "sentence-transformers", "reranker"])
def test_weights_replaced_while_they_load_give_no_vectors(
    kind, when, exported, tokenizer_folder, tmp_path, monkeypatch
):
    from qwen3nb.models import model, rerankers
    from qwen3nb.models.encoders.base import Encoder

    folder, other = tmp_path / "model", tmp_path / "other"
    write_kind(kind, folder, exported, tokenizer_folder)
    write_kind(kind, other, exported, tokenizer_folder, other=True)
    # Where the fingerprint is taken, and where what was loaded is wrapped.
    ranks = kind == "reranker"
    home, run = (rerankers, load_reranker) if ranks else (model, load_encoder)
    module, name = (rerankers, "Reranker") if ranks else (Encoder, "__init__")
    wrapped, taken = getattr(module, name), model.fingerprint

    def wrap(*values, **options):
        replaced(folder, other)
        return wrapped(*values, **options)

    def take(source):
        content = taken(source)
        replaced(folder, other)
        return content

    with monkeypatch.context() as patched:
        late = when == "after it was loaded"
        patched.setattr(*((module, name, wrap) if late else (home, "fingerprint", take)))
        with pytest.raises(SpecError, match="its files changed while the model was loaded"):
            run(folder)
    # Neither is in the cache or remembered under the identity of the other.
    new, same, old = run(folder), run(other), run(folder.with_name("before"))
    assert new.identity == same.identity != old.identity
    if not ranks:
        vectors = [each.encode(list(TEXTS)) for each in (new, same, old)]
        np.testing.assert_array_equal(vectors[0], vectors[1])
        assert not np.allclose(vectors[0], vectors[2])


@pytest.mark.integration
@pytest.mark.parametrize("touch", TOUCHES, ids=lambda touch: touch.__name__)
@pytest.mark.parametrize("kind", ["encoder", "sentence-transformers", "reranker"])
def test_a_backup_while_a_model_loads_changes_nothing(
    kind, touch, exported, tokenizer_folder, tmp_path, monkeypatch
):
    from qwen3nb.models import model, rerankers

    folder = tmp_path / "model"
    write_kind(kind, folder, exported, tokenizer_folder)
    ranks = kind == "reranker"
    home, run = (rerankers, load_reranker) if ranks else (model, load_encoder)
    taken, identity = model.fingerprint, run(folder).identity
    change = [touch]

    def take(source):
        content = taken(source)
        if source.content is None:  # before it is loaded
            time.sleep(0.02)  # more than a tick of the file system's clock
            change[0](folder / "model.safetensors")
        return content

    monkeypatch.setattr(home, "fingerprint", take)
    assert run(folder).identity == identity
    change[0] = overwrite_with_its_times
    with pytest.raises(SpecError, match="its files changed while the model was loaded"):
        run(folder)


@pytest.mark.parametrize("kind", ["encoder", "sentence-transformers", "words", "reranker"])
def test_weights_overwritten_after_they_were_loaded_change_nothing(
    kind, exported, tokenizer_folder, tmp_path
):
    folder = tmp_path / "model"
    write_kind(kind, folder, exported, tokenizer_folder)
    load = load_reranker if kind == "reranker" else partial(load_encoder, cache=False)
    model = load(folder, device="cpu")

    def use():
        if kind == "reranker":
            return model.score("a query", TEXTS).log_odds
        return model.encode(list(TEXTS))

    before = use()
    size = (folder / "model.safetensors").stat().st_size
    with (folder / "model.safetensors").open("r+b") as file:  # in its place, not renamed into it
        file.seek(size // 3)
        file.write(bytes(size // 2))
    np.testing.assert_array_equal(use(), before)
