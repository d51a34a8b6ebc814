"""Write an exported encoder as an ONNX graph, and run it in ONNX Runtime.

The graph is ``onnx/model.onnx``, where sentence-transformers and other programs look for it. From
``input_ids`` and ``attention_mask`` (B, T), for any B and T, it computes ``last_hidden_state``
(B, T, H). The weights are in float32, for any dtype of the export. Pooling and
normalisation are not part of it. It is written operation by operation: the layers of an export are
always the same, see `qwen3nb.models.modeling.configuration.encoder_config`. Its output is then
compared with the source.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from qwen3nb.checkpoints.folder import ModelFolder, open_checkpoint
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.models.types import refusing
from qwen3nb.utils.atomic_files import new_file, write_bytes

GRAPH = "onnx/model.onnx"
# Bytes of weights in the graph's own file, which cannot exceed 2 GiB. Larger weights are next to
# it, under the name that other programs download from the hub.
ONE_FILE = 1_000_000_000
_BESIDE = "model.onnx_data"
_PAGE = 4096  # bytes; alignment of weights next to the graph, for memory mapping
_OPSET, _IR = 17, 8  # read by runtimes since 2022
_INPUTS, _OUTPUT = ("input_ids", "attention_mask"), "last_hidden_state"
Attribute = int | list[int]  # of an operation
_LEAST = float(np.finfo(np.float32).min)


def require_onnx() -> None:
    """Check that the optional packages are installed.

    Raises:
        CheckpointError: one of them is not installed.
    """
    for name in ("onnx", "onnxruntime"):
        if not find_spec(name):
            raise CheckpointError(
                f"writing an ONNX graph needs {name}, which is not installed: "
                "pip install 'qwen3nb[onnx]'"
            )


def write_graph(folder: Path, *, one_file: int = ONE_FILE) -> Path:
    """Write the encoder of an export to `GRAPH` in its folder, and return that file.

    More bytes of float32 weights than ``one_file`` are written to a separate file.

    Raises:
        CheckpointError: the folder cannot be read.
    """
    source = open_checkpoint(folder)
    file = folder / GRAPH
    size = 4 * sum(entry.count for entry in source.weights.tensors.values())
    data_file = new_file(file.with_name(_BESIDE)) if size > one_file else nullcontext()
    with data_file as data:
        model = _Graph(source, data).model()
    return write_bytes(file, model.SerializeToString(deterministic=True))


class _Graph:
    """The operations and weights of a graph; methods return the names of their outputs."""

    def __init__(self, source: ModelFolder, data: BinaryIO | None) -> None:
        self._source, self._data = source, data
        self._config = source.config
        self._nodes: list[Any] = []
        self._weights: list[Any] = []
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def model(self) -> Any:
        """Return the whole model, as protocol buffer."""
        from onnx import TensorProto, helper

        ids, mask = _INPUTS
        states = self._op("Gather", self._weight("embed_tokens.weight"), ids)
        rotary = self._rotary(ids)
        bias = self._bias(mask)
        for index in range(self._config["num_hidden_layers"]):
            layer = f"layers.{index}."
            normed = self._norm(states, f"{layer}input_layernorm")
            states = self._op("Add", states, self._attention(normed, layer, rotary, bias))
            normed = self._norm(states, f"{layer}post_attention_layernorm")
            states = self._op("Add", states, self._feed_forward(normed, layer))
        states = self._norm(states, "norm")
        self._nodes.append(helper.make_node("Identity", [states], [_OUTPUT]))
        sizes = ["batch", "sequence"]
        inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, sizes) for name in _INPUTS]
        output_sizes = [*sizes, self._config["hidden_size"]]
        output = helper.make_tensor_value_info(_OUTPUT, TensorProto.FLOAT, output_sizes)
        graph = helper.make_graph(self._nodes, "encoder", inputs, [output], self._weights)
        return helper.make_model(
            graph,
            producer_name="qwen3nb",
            ir_version=_IR,
            opset_imports=[helper.make_opsetid("", _OPSET)],
        )

    def _rotary(self, ids: str) -> tuple[str, str]:
        """Return cosine and sine (T, D) of the angle of every position and dimension."""
        half = self._config["head_dim"] // 2
        theta = self._config["rope_parameters"]["rope_theta"]
        frequencies = 1.0 / (theta ** (torch.arange(half).float() / half))
        length = self._op("Gather", self._op("Shape", ids), self._whole(1))
        positions = self._op("Range", self._whole(0), length, self._whole(1))
        column = self._op("Unsqueeze", self._op("Cast", positions, to=1), self._whole([1]))
        angles = self._op("Mul", column, self._tensor("frequencies", frequencies))
        both_halves = self._op("Concat", angles, angles, axis=-1)
        return self._op("Cos", both_halves), self._op("Sin", both_halves)

    def _bias(self, mask: str) -> str:
        """Return the attention bias (B, 1, 1, T): 0 for real tokens, else the lowest number."""
        padding = self._op("Sub", self._number(1.0), self._op("Cast", mask, to=1))
        bias = self._op("Mul", padding, self._number(_LEAST))
        return self._op("Unsqueeze", bias, self._whole([1, 2]))

    def _attention(
        self,
        states: str,
        layer: str,
        rotary: tuple[str, str],
        bias: str,
    ) -> str:
        """Return the attention's output (B, T, H); queries of a shared head are grouped."""
        heads = self._config["num_attention_heads"]
        shared = self._config["num_key_value_heads"]
        size = self._config["head_dim"]
        query = self._heads(states, f"{layer}self_attn.q_proj", heads)
        key = self._heads(states, f"{layer}self_attn.k_proj", shared)
        value = self._heads(states, f"{layer}self_attn.v_proj", shared)
        query = self._rotated(self._norm(query, f"{layer}self_attn.q_norm"), rotary)
        key = self._rotated(self._norm(key, f"{layer}self_attn.k_norm"), rotary)
        query = self._op("Mul", query, self._number(size**-0.5))
        query = self._op("Reshape", query, self._whole([0, shared, -1, size]))
        scores = self._op("MatMul", query, self._op("Transpose", key, perm=[0, 1, 3, 2]))
        weights = self._op("Softmax", self._op("Add", scores, bias), axis=-1)
        mixed = self._op("MatMul", weights, value)
        mixed = self._op("Reshape", mixed, self._whole([0, heads, -1, size]))
        mixed = self._op("Transpose", mixed, perm=[0, 2, 1, 3])
        mixed = self._op("Reshape", mixed, self._whole([0, 0, heads * size]))
        return self._linear(mixed, f"{layer}self_attn.o_proj")

    def _heads(self, states: str, name: str, count: int) -> str:
        """Return a projection by heads (B, heads, T, D)."""
        shape = self._whole([0, 0, count, self._config["head_dim"]])
        split = self._op("Reshape", self._linear(states, name), shape)
        return self._op("Transpose", split, perm=[0, 2, 1, 3])

    def _rotated(self, states: str, rotary: tuple[str, str]) -> str:
        half = self._config["head_dim"] // 2
        lower, upper = self._ops("Split", 2, states, self._whole([half, half]), axis=-1)
        turned = self._op("Concat", self._op("Neg", upper), lower, axis=-1)
        cosine, sine = rotary
        return self._op("Add", self._op("Mul", states, cosine), self._op("Mul", turned, sine))

    def _feed_forward(self, states: str, layer: str) -> str:
        gate = self._linear(states, f"{layer}mlp.gate_proj")
        gate = self._op("Mul", gate, self._op("Sigmoid", gate))
        inner = self._op("Mul", gate, self._linear(states, f"{layer}mlp.up_proj"))
        return self._linear(inner, f"{layer}mlp.down_proj")

    def _norm(self, states: str, name: str) -> str:
        """Return the RMS norm of states, in operations that runtimes recognise and fuse."""
        square = self._op("Pow", states, self._number(2.0))
        mean = self._op("ReduceMean", square, axes=[-1], keepdims=1)
        root = self._op("Sqrt", self._op("Add", mean, self._number(self._config["rms_norm_eps"])))
        return self._op("Mul", self._op("Div", states, root), self._weight(f"{name}.weight"))

    def _linear(self, states: str, name: str) -> str:
        return self._op("MatMul", states, self._weight(f"{name}.weight", transposed=True))

    def _op(self, kind: str, *inputs: str, **attributes: Attribute) -> str:
        return self._ops(kind, 1, *inputs, **attributes)[0]

    def _ops(
        self,
        kind: str,
        count: int,
        *inputs: str,
        **attributes: Attribute,
    ) -> Sequence[str]:
        from onnx import helper

        names = [f"{kind}_{len(self._nodes)}_{index}" for index in range(count)]
        self._nodes.append(helper.make_node(kind, inputs, names, names[0], **attributes))
        return names

    def _whole(self, value: int | list[int]) -> str:
        return self._constant(np.asarray(value, np.int64))

    def _number(self, value: float) -> str:
        return self._constant(np.asarray(value, np.float32))

    def _constant(self, value: np.ndarray) -> str:
        from onnx import numpy_helper

        key = (value.dtype.str, value.shape, value.tobytes())
        if key not in self._constants:
            name = f"constant_{len(self._constants)}"
            self._constants[key] = name
            self._weights.append(numpy_helper.from_array(value, name))
        return self._constants[key]

    def _weight(self, name: str, *, transposed: bool = False) -> str:
        weight = self._source.weights.read(name).float()
        if transposed:
            weight = weight.t()
        return self._tensor(name, weight)

    def _tensor(self, name: str, value: Tensor) -> str:
        """Add a float32 tensor, in the graph or in the file next to it."""
        from onnx import TensorProto

        raw = value.contiguous().numpy().tobytes()
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=value.shape)
        if self._data is None:
            tensor.raw_data = raw
        else:
            self._data.write(bytes(-self._data.tell() % _PAGE))
            tensor.data_location = TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value=_BESIDE)
            tensor.external_data.add(key="offset", value=str(self._data.tell()))
            tensor.external_data.add(key="length", value=str(len(raw)))
            self._data.write(raw)
        self._weights.append(tensor)
        return name


def graph_states(file: Path) -> Callable[[Tensor, Tensor], Tensor]:
    """Return what runs a graph (.onnx, .xml) on the CPU: ids, mask (B, T) to states (B, T, H)."""
    if file.suffix == ".xml":
        names, run = _openvino_graph(file)
    else:
        names, run = _onnx_graph(file)

    def states(ids: Tensor, mask: Tensor) -> Tensor:
        positions = np.arange(ids.shape[1])[None].repeat(len(ids), axis=0)
        feeds = {
            "input_ids": ids.numpy(),
            "attention_mask": mask.numpy(),
            "token_type_ids": np.zeros_like(positions),
            "position_ids": positions,
        }
        with refusing(file, f"expected a transformer with inputs such as {', '.join(_INPUTS)}"):
            outputs = run({name: feeds[name] for name in names})
            return torch.from_numpy(outputs[0])

    return states


Feeds = dict[str, np.ndarray]


def _openvino_graph(file: Path) -> tuple[set[str], Callable[[Feeds], Any]]:
    """Return the names of a graph's inputs, and what runs it in OpenVINO."""
    import openvino

    with refusing(file, "no graph with weights that OpenVINO can run; export it again"):
        model = openvino.Core().compile_model(str(file), "CPU")
    return {port.get_any_name() for port in model.inputs}, model


def _onnx_graph(file: Path) -> tuple[set[str], Callable[[Feeds], Any]]:
    """Return the names of a graph's inputs, and what runs it in ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    providers = ["CPUExecutionProvider"]
    with refusing(file, "no graph that ONNX Runtime can run; copy or export it again"):
        session = onnxruntime.InferenceSession(str(file), options, providers=providers)
    return {port.name for port in session.get_inputs()}, partial(session.run, None)
