"""Other runtimes of the same model, all behind the interface of sentence-transformers.

Besides PyTorch, sentence-transformers runs a model as a graph in OpenVINO or ONNX Runtime, and for
CPUs recommends 8 bits: static quantisation in OpenVINO (by NNCF, calibrated on texts), dynamic
quantisation in ONNX Runtime. Graphs are made here with the settings of its export functions. A
graph computes the states of tokens; sentence-transformers tokenises, sorts, batches and pools.

All run with PyTorch's number of threads; each library would choose another one. OpenVINO's float32
is real float32, which it is not by default where the processor multiplies bfloat16; what its graph
of 8 bits does not quantise runs as OpenVINO chooses.
"""

import hashlib
import logging
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from qwen3nb import paths
from qwen3nb.bench.random_models import load_peer
from qwen3nb.utils.atomic_files import new_folder
from qwen3nb.utils.choices import check_choice

CALIBRATION = 200  # texts that static quantisation sees
PEERS = ("openvino", "openvino-int8", "onnx", "onnx-int8")
_STATES = "last_hidden_state"
Inputs = Mapping[str, NDArray[np.int64]]
States = Callable[[Inputs], NDArray[np.float32]]


def load_graph(name: str, folder: Path, *, texts: Sequence[str]) -> Any:
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
    runtime, _, int8 = check_choice("peer", name, PEERS).partition("-")
    peer = load_peer(folder, device="cpu", dtype="float32")
    model = _Traced(peer, texts[:: max(1, len(texts) // CALIBRATION)][:CALIBRATION])
    try:
        with _quiet():
            states = (_openvino if runtime == "openvino" else _onnx)(model, int8=bool(int8))
    except ImportError as error:
        what = f"peer {name} needs {error.name}, which is not installed"
        raise ImportError(f"{what}: pip install 'qwen3nb[peers]'") from None
    peer[0].model = _Graph(peer[0].model, states)
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

    def __init__(self, peer: Any, texts: Sequence[str]) -> None:
        super().__init__()
        self.model = peer[0].model
        self.examples = [_tensors(peer.preprocess([text])) for text in texts]
        # Two lengths, so that a trace sees padding.
        two = [min(texts, key=len), max(texts, key=len)]
        self.example = _tensors(peer.preprocess(two))

    def forward(self, *inputs: Tensor) -> Tensor:
        named = dict(zip(self.example, inputs, strict=True))
        states: Tensor = self.model(**named, return_dict=True).last_hidden_state
        return states

    def digest(self, *more: str) -> str:
        """Return the SHA-256 of weights and examples, and of ``more``."""
        content = hashlib.sha256(repr(more).encode())
        for each in (*self.state_dict().values(), *(e["input_ids"] for e in self.examples)):
            content.update(each.contiguous().numpy().tobytes())
        return content.hexdigest()


def _tensors(features: Mapping[str, Any]) -> dict[str, Tensor]:
    return {name: each for name, each in features.items() if isinstance(each, Tensor)}


class _Graph(nn.Module):
    """A graph in the place of a transformers model."""

    def __init__(self, model: Any, states: States) -> None:
        super().__init__()
        self.config, self._states = model.config, states

    def forward(self, **inputs: Any) -> Any:
        given = {name: each.numpy() for name, each in _tensors(inputs).items()}
        return SimpleNamespace(last_hidden_state=torch.from_numpy(self._states(given)))


def _openvino(model: _Traced, *, int8: bool) -> States:
    import openvino

    names = list(model.example)
    config = {"INFERENCE_NUM_THREADS": torch.get_num_threads(), "PERFORMANCE_HINT": "LATENCY"}

    def converted() -> Any:
        graph = openvino.convert_model(model, example_input=tuple(model.example.values()))
        for name, tensor in zip(names, graph.inputs, strict=True):
            tensor.set_names({name})
        return graph

    if int8:
        import nncf

        key = model.digest(openvino.__version__, nncf.__version__)
        folder = paths.cache() / "peers" / key
        graph = folder / "model.xml"
        if not graph.is_file():
            data = nncf.Dataset([{k: v.numpy() for k, v in e.items()} for e in model.examples])
            kind = nncf.ModelType.TRANSFORMER
            quantised = nncf.quantize(
                converted(), data, model_type=kind, subset_size=len(model.examples)
            )
            with new_folder(folder) as work:
                openvino.save_model(quantised, work / graph.name, compress_to_fp16=False)
    else:
        graph, config["INFERENCE_PRECISION_HINT"] = converted(), "f32"
    compiled = openvino.Core().compile_model(graph, "CPU", config)
    return lambda inputs: np.asarray(compiled({name: inputs[name] for name in names})[0])


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
            dynamo=False,
            input_names=names,
            output_names=[_STATES],
            dynamic_axes={name: {0: "texts", 1: "tokens"} for name in (*names, _STATES)},
        )
        if int8:
            from onnxruntime.quantization import QuantType, quantize_dynamic

            whole, file = file, file.with_name("int8.onnx")
            quantize_dynamic(whole, file, weight_type=QuantType.QInt8)  # as for avx512_vnni
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run([_STATES], {name: inputs[name] for name in names})[0]
