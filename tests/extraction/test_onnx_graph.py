"""The ONNX graph of an export: what it computes, where it lies, and what refuses a wrong one."""

import json
import shutil
import sys

import numpy as np
import pytest
import torch
from helpers.checkpoints import fill_card
from helpers.flips import flipped
from transformers import AutoModel

from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.extraction import onnx_graph
from qwen3nb.extraction.onnx_graph import GRAPH, graph_states, write_graph
from qwen3nb.extraction.push_to_hub import plan_push
from qwen3nb.extraction.verify import MAX_RELATIVE_DIFFERENCE, Reference, verify_graph
from qwen3nb.models.load import load_encoder
from qwen3nb.models.modeling.qwen3_encoder import pad_rows
from qwen3nb.report.card import extract

LENGTHS = (1, 2, 9, 70, 512)
VOCABULARY = 100


@pytest.fixture(scope="module")
def export(checkpoint, tmp_path_factory):
    """An export with a graph, not to be changed."""
    return extract(checkpoint, tmp_path_factory.mktemp("onnx") / "encoder", label="tiny", onnx=True)


@pytest.fixture(scope="module")
def rows():
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(0, VOCABULARY, (n,), generator=generator).tolist() for n in LENGTHS]


@pytest.fixture(scope="module")
def states(export, rows):
    """States of every row per padding side, by the stock class."""
    model = AutoModel.from_pretrained(export.folder).eval()
    by_side = {}
    for side in ("right", "left"):
        ids, mask = pad_rows(rows, side=side)
        with torch.inference_mode():
            out = model(input_ids=ids, attention_mask=mask).last_hidden_state
        by_side[side] = [state[real] for state, real in zip(out, mask.bool(), strict=True)]
    return by_side


def copy_of(folder, target):
    return shutil.copytree(folder, target, ignore=shutil.ignore_patterns("onnx"))


def test_it_is_verified_with_the_export_and_its_verification_is_kept(export):
    graph = export.verification.graph
    assert 0 <= graph["max_difference"] < MAX_RELATIVE_DIFFERENCE
    assert graph["leak"] > 1e-4
    assert {size for size, _ in graph["batches"]} >= {1, 3, 11}
    assert {length for size, length in graph["batches"] if size == 1} >= {1, 2, 120}
    written = json.loads((export.folder / "qwen3nb.json").read_text())["verification"]["onnx"]
    assert written == json.loads(json.dumps({**graph, "bound": MAX_RELATIVE_DIFFERENCE}))


def test_a_causal_graph_is_refused_and_nothing_is_written(checkpoint, tmp_path, monkeypatch):
    padding = onnx_graph._Graph._bias

    def causal(self, mask):
        """Two queries share a head, and are taken together: the keys until theirs, twice."""
        length = self._op("Gather", self._op("Shape", mask), self._integers(1))
        keys = self._op("Range", self._integers(0), length, self._integers(1))
        queries = self._op("Unsqueeze", self._op("Concat", keys, keys, axis=0), self._integers([1]))
        later = self._op("Cast", self._op("Less", queries, keys), to=1)
        return self._op("Add", padding(self, mask), self._op("Mul", later, self._float(-1e30)))

    monkeypatch.setattr(onnx_graph._Graph, "_bias", causal)
    with pytest.raises(CheckpointError, match="the ONNX graph runs causally"):
        extract(checkpoint, tmp_path / "encoder", onnx=True)
    assert not any("encoder" in each.name for each in tmp_path.iterdir())


@pytest.mark.parametrize("wrong", [0.01, float("nan")])
def test_a_graph_that_computes_something_else_is_refused(export, rows, states, wrong):
    other = {side: [*each[:-1], each[-1] + wrong] for side, each in states.items()}
    with pytest.raises(CheckpointError, match=r"source: the ONNX graph differs"):
        verify_graph(export.folder / GRAPH, Reference("source", VOCABULARY, rows, other))


def test_large_weights_lie_beside_the_graph(export, tmp_path, rows):
    """As for more than 1.5 GB; under the name that optimum downloads from the hub."""
    file = write_graph(copy_of(export.folder, tmp_path / "large"), one_file=0)
    assert sorted(each.name for each in file.parent.iterdir()) == ["model.onnx", "model.onnx_data"]
    assert file.stat().st_size < (file.parent / "model.onnx_data").stat().st_size
    batch = pad_rows(rows)
    whole = graph_states(export.folder / GRAPH)
    np.testing.assert_array_equal(graph_states(file)(*batch), whole(*batch))


def test_it_is_uploaded_and_a_flipped_byte_is_noticed(export):
    fill_card(export.folder)
    assert GRAPH in plan_push(export.folder)
    size = (export.folder / GRAPH).stat().st_size
    for position in (0, size // 2, size - 1):
        with flipped(export.folder / GRAPH, position, 1):
            with pytest.raises(CheckpointError, match=r"model\.onnx: changed since"):
                load_encoder(export.folder, cache=False)
            with pytest.raises(CheckpointError, match=r"model\.onnx: changed since"):
                plan_push(export.folder)
    load_encoder(export.folder, cache=False)


def test_without_the_packages_the_error_says_how_to_get_them(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(
        CheckpointError, match=r"needs onnxruntime, .*: pip install 'qwen3nb\[onnx\]'"
    ):
        extract(checkpoint, tmp_path / "encoder", onnx=True)
    assert not any("encoder" in each.name for each in tmp_path.iterdir())
