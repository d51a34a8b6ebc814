"""Other runtimes of the same model, all behind the interface of sentence-transformers.

Besides PyTorch, sentence-transformers runs a model as a graph in OpenVINO or ONNX Runtime, and for
CPUs recommends 8 bits: static quantisation in OpenVINO (by NNCF, calibrated on texts), dynamic
quantisation in ONNX Runtime. Graphs are made here with the settings of its export functions. A
graph computes the states of tokens; sentence-transformers tokenises, sorts, batches and pools.

All run with PyTorch's number of threads; each library would choose another one. OpenVINO's float32
is real float32, which it is not by default where the processor multiplies bfloat16; what its graph
of 8 bits does not quantise runs as OpenVINO chooses.
"""

from __future__ import annotations

import hashlib
import logging
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from qwen3nb import paths
from qwen3nb.bench.random_models import load_peer
from qwen3nb.utils.atomic_files import new_folder
from qwen3nb.utils.choices import check_choice

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

CALIBRATION = 200  # texts that static quantisation sees
PEERS = ("openvino", "openvino-int8", "onnx", "onnx-int8")
_STATES = "last_hidden_state"
Inputs = Mapping[str, NDArray[np.int64]]
States = Callable[[Inputs], NDArray[np.float32]]


def load_graph(name: str, folder: Path, *, texts: Sequence[str]) -> SentenceTransformer:
    """Load a model in sentence-transformers and put a graph on the CPU in place of its layers.

    Args:
        name: one of `PEERS`.
        folder: of a sentence-transformers model.
        texts: examples; static quantisation is calibrated on `CALIBRATION` of them, evenly spread.
            Its graph is kept in the folder ``peers`` of the cache, as that takes a minute.

    Raises:
        ValueError: an unknown name; lists the choices.
        ImportError: a library that is not installed.
    """
    check_choice("peer", name, PEERS)
    peer = load_peer(folder, device="cpu", dtype="float32")
    step = max(1, len(texts) // CALIBRATION)  # evenly spread over the texts
    model = _Traced(peer, texts[::step][:CALIBRATION])
    runtime = name.partition("-")[0]  # of ``openvino-int8``: openvino
    make_graph = _openvino if runtime == "openvino" else _onnx
    try:
        with _quiet():
            states = make_graph(model, int8=name.endswith("-int8"))
    except ImportError as error:
        reason = f"peer {name} needs {error.name}, which is not installed"
        raise ImportError(f"{reason}: pip install 'qwen3nb[peers]'") from None
    # Pooling and tokenizer stay those of sentence-transformers; only the layers are replaced.
    transformer = peer[0]
    transformer.model = _Graph(transformer.model, states)
    return peer


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide warnings of traces and of quantisation, and let progress bars go to standard error."""
    with warnings.catch_warnings(), redirect_stdout(sys.stderr):
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


class _Traced(nn.Module):
    """The model as a function from its inputs (B, T), in order, to the states (B, T, H)."""

    def __init__(self, peer: SentenceTransformer, texts: Sequence[str]) -> None:
        super().__init__()
        self.model = peer[0].model
        self.examples = [_tensors(peer.preprocess([text])) for text in texts]
        # Two lengths, so that a trace sees padding.
        two_lengths = [min(texts, key=len), max(texts, key=len)]
        self.example = _tensors(peer.preprocess(two_lengths))

    def forward(self, *inputs: Tensor) -> Tensor:
        named_inputs = dict(zip(self.example, inputs, strict=True))
        states: Tensor = self.model(**named_inputs, return_dict=True).last_hidden_state
        return states

    def digest(self, *more: str) -> str:
        """Return the SHA-256 of weights and examples, and of ``more``."""
        digest = hashlib.sha256(repr(more).encode())
        for weight in self.state_dict().values():
            digest.update(weight.contiguous().numpy().tobytes())
        for example in self.examples:
            digest.update(example["input_ids"].contiguous().numpy().tobytes())
        return digest.hexdigest()


def _tensors(features: Mapping[str, object]) -> dict[str, Tensor]:
    return {name: value for name, value in features.items() if isinstance(value, Tensor)}


class _Graph(nn.Module):
    """A graph in the place of a transformers model."""

    def __init__(self, model: Any, states: States) -> None:
        super().__init__()
        self.config, self._states = model.config, states

    def forward(self, **inputs: object) -> SimpleNamespace:
        arrays = {name: tensor.numpy() for name, tensor in _tensors(inputs).items()}
        states = torch.from_numpy(self._states(arrays))
        return SimpleNamespace(last_hidden_state=states)


def _openvino(model: _Traced, *, int8: bool) -> States:
    import openvino

    names = list(model.example)
    config = {"INFERENCE_NUM_THREADS": torch.get_num_threads(), "PERFORMANCE_HINT": "LATENCY"}
    if int8:
        graph = _quantised_openvino(model)
    else:
        graph = _openvino_graph(model)
        config["INFERENCE_PRECISION_HINT"] = "f32"  # else it may compute in bfloat16
    compiled_model = openvino.Core().compile_model(graph, "CPU", config)

    def states(inputs: Inputs) -> NDArray[np.float32]:
        outputs = compiled_model({name: inputs[name] for name in names})
        return np.asarray(outputs[0])

    return states


def _openvino_graph(model: _Traced) -> Any:
    """Return the graph of a model, whose inputs have their names."""
    import openvino

    graph = openvino.convert_model(model, example_input=tuple(model.example.values()))
    for name, tensor in zip(model.example, graph.inputs, strict=True):
        tensor.set_names({name})
    return graph


def _quantised_openvino(model: _Traced) -> Path:
    """Return the file of a graph of 8 bits, calibrated on the examples; it stays in the cache."""
    import nncf
    import openvino

    # Another version may quantise otherwise.
    key = model.digest(openvino.__version__, nncf.__version__)
    folder = paths.cache() / "peers" / key
    file = folder / "model.xml"
    if file.is_file():
        return file
    examples = []
    for example in model.examples:
        examples.append({name: tensor.numpy() for name, tensor in example.items()})
    quantised_graph = nncf.quantize(
        _openvino_graph(model),
        nncf.Dataset(examples),
        model_type=nncf.ModelType.TRANSFORMER,
        subset_size=len(examples),  # all of them
    )
    with new_folder(folder) as new:
        openvino.save_model(quantised_graph, new / file.name, compress_to_fp16=False)
    return file


def _onnx(model: _Traced, *, int8: bool) -> States:
    import onnxruntime

    names = list(model.example)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    options.intra_op_num_threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        torch.onnx.export(
            model,
            tuple(model.example.values()),
            file,
            dynamo=False,  # by tracing
            input_names=names,
            output_names=[_STATES],
            # A graph for any number of texts and tokens, not only those of the example.
            dynamic_axes={name: {0: "texts", 1: "tokens"} for name in (*names, _STATES)},
        )
        if int8:
            file = _quantised_onnx(file)
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])

    def states(inputs: Inputs) -> NDArray[np.float32]:
        (output,) = session.run([_STATES], {name: inputs[name] for name in names})
        return np.asarray(output)

    return states


def _quantised_onnx(file: Path) -> Path:
    """Write a graph with weights of 8 bits next to a graph, and return its file."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantised_file = file.with_name("int8.onnx")
    quantize_dynamic(file, quantised_file, weight_type=QuantType.QInt8)  # as for avx512_vnni
    return quantised_file
