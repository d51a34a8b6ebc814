"""Write an exported encoder as an ONNX graph, and run it in ONNX Runtime.

The graph is ``onnx/model.onnx``, where sentence-transformers and other programs look for it. From
``input_ids`` and ``attention_mask`` (B, T), for any B and T, it computes ``last_hidden_state``
(B, T, H). The weights are in float32, for any dtype of the export. Pooling and
normalisation are not part of it. It is written operation by operation: the layers of an export are
always the same, see `qwen3nb.models.modeling.configuration.encoder_config`. Its output is then
compared with the source.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
_DATA_FILE = "model.onnx_data"
_PAGE = 4096  # bytes; weights next to the graph start at a page, for memory mapping
_OPSET, _IR = 17, 8  # read by runtimes since 2022
_INPUTS = ("input_ids", "attention_mask")
_OUTPUT = "last_hidden_state"
_FLOAT32 = 1  # the number of the type in ONNX
Attribute = int | list[int]  # of an operation
_LOWEST = float(np.finfo(np.float32).min)


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
    count = sum(entry.count for entry in source.weights.tensors.values())
    is_large = 4 * count > one_file  # a float32 has 4 bytes
    if is_large:
        with new_file(file.with_name(_DATA_FILE)) as data:
            model = _Graph(source, data).model()
    else:
        model = _Graph(source, None).model()
    return write_bytes(file, model.SerializeToString(deterministic=True))


class _Graph:
    """The operations and weights of a graph; methods return the names of their outputs."""

    def __init__(self, source: ModelFolder, data: BinaryIO | None) -> None:
        self._source = source
        self._data = data  # the file next to the graph for its weights, if there is one
        self._config = source.config
        self._nodes: list[Any] = []
        self._weights: list[Any] = []
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def model(self) -> Any:
        """Return the whole model, as protocol buffer."""
        from onnx import TensorProto, helper

        self._add_encoder(*_INPUTS)
        # Named dimensions may have any size.
        shape = ["batch", "sequence"]
        inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name in _INPUTS]
        output_shape = [*shape, self._config["hidden_size"]]
        output = helper.make_tensor_value_info(_OUTPUT, TensorProto.FLOAT, output_shape)
        graph = helper.make_graph(self._nodes, "encoder", inputs, [output], self._weights)
        return helper.make_model(
            graph,
            producer_name="qwen3nb",
            ir_version=_IR,
            opset_imports=[helper.make_opsetid("", _OPSET)],  # ONNX's own operations
        )

    def _add_encoder(self, ids: str, mask: str) -> None:
        """Add all operations, from ids and mask (B, T) to the output (B, T, H)."""
        from onnx import helper

        states = self._op("Gather", self._weight("embed_tokens.weight"), ids)  # a row of each id
        rotation = self._rotation(ids)
        bias = self._bias(mask)
        for index in range(self._config["num_hidden_layers"]):
            layer = f"layers.{index}."
            # Attention and feed-forward are each added to their input (residual connections).
            normed = self._norm(states, f"{layer}input_layernorm")
            attended = self._attention(normed, layer, rotation, bias)
            states = self._op("Add", states, attended)
            normed = self._norm(states, f"{layer}post_attention_layernorm")
            states = self._op("Add", states, self._feed_forward(normed, layer))
        states = self._norm(states, "norm")
        self._nodes.append(helper.make_node("Identity", [states], [_OUTPUT]))  # names the output

    def _rotation(self, ids: str) -> tuple[str, str]:
        """Return cosine and sine (T, D) of the angle of every position and dimension."""
        # Rotary positions (RoPE): a pair of dimensions is turned by position times frequency.
        pairs = self._config["head_dim"] // 2
        theta = self._config["rope_parameters"]["rope_theta"]
        frequencies = 1.0 / (theta ** (torch.arange(pairs).float() / pairs))
        # The length is T, the second size of (B, T).
        length = self._op("Gather", self._op("Shape", ids), self._integers(1))
        positions = self._op("Range", self._integers(0), length, self._integers(1))
        positions = self._op("Cast", positions, to=_FLOAT32)
        column = self._op("Unsqueeze", positions, self._integers([1]))
        # From positions (T, 1) and frequencies (D / 2) to angles (T, D / 2).
        angles = self._op("Mul", column, self._tensor("frequencies", frequencies))
        # Dimensions i and i + D / 2 are a pair, and have the same angle.
        both_halves = self._op("Concat", angles, angles, axis=-1)
        return self._op("Cos", both_halves), self._op("Sin", both_halves)

    def _bias(self, mask: str) -> str:
        """Return the attention bias (B, 1, 1, T): 0 for real tokens, else the lowest number."""
        is_padding = self._op("Sub", self._float(1.0), self._op("Cast", mask, to=_FLOAT32))
        bias = self._op("Mul", is_padding, self._float(_LOWEST))
        return self._op("Unsqueeze", bias, self._integers([1, 2]))

    def _attention(
        self,
        states: str,
        layer: str,
        rotation: tuple[str, str],
        bias: str,
    ) -> str:
        """Return the attention's output (B, T, H)."""
        query_heads = self._config["num_attention_heads"]
        key_heads = self._config["num_key_value_heads"]
        query = self._heads(states, f"{layer}self_attn.q_proj", query_heads)
        key = self._heads(states, f"{layer}self_attn.k_proj", key_heads)
        value = self._heads(states, f"{layer}self_attn.v_proj", key_heads)
        # Qwen3 normalises each head of queries and keys before the rotation.
        query = self._rotated(self._norm(query, f"{layer}self_attn.q_norm"), rotation)
        key = self._rotated(self._norm(key, f"{layer}self_attn.k_norm"), rotation)
        means = self._attended_values(query, key, value, bias)
        return self._linear(means, f"{layer}self_attn.o_proj")

    def _attended_values(self, query: str, key: str, value: str, bias: str) -> str:
        """Return the means of the values, weighted by attention (B, T, heads * D).

        Several query heads share a key head, and are taken together.
        """
        query_heads = self._config["num_attention_heads"]
        key_heads = self._config["num_key_value_heads"]
        size = self._config["head_dim"]
        # From (B, query heads, T, D) to a key head's queries one after the other.
        scaled_query = self._op("Mul", query, self._float(size**-0.5))
        # In a shape of ONNX, 0 keeps the size as it was, and -1 takes what remains.
        grouped_query = self._reshaped(scaled_query, [0, key_heads, -1, size])
        # Keys become (B, heads, D, T), so that the scores are (B, heads, queries, T).
        scores = self._op("MatMul", grouped_query, self._transposed(key, [0, 1, 3, 2]))
        weights = self._op("Softmax", self._op("Add", scores, bias), axis=-1)
        grouped_means = self._op("MatMul", weights, value)
        # Back to (B, query heads, T, D), then to the heads of a token next to each other.
        means = self._reshaped(grouped_means, [0, query_heads, -1, size])
        means_by_token = self._transposed(means, [0, 2, 1, 3])
        return self._reshaped(means_by_token, [0, 0, query_heads * size])

    def _heads(self, states: str, name: str, count: int) -> str:
        """Return a projection by heads (B, heads, T, D)."""
        shape = self._integers([0, 0, count, self._config["head_dim"]])  # 0: as before
        by_token = self._op("Reshape", self._linear(states, name), shape)
        return self._transposed(by_token, [0, 2, 1, 3])

    def _reshaped(self, states: str, shape: list[int]) -> str:
        """Return states in a shape in which 0 is the size as before, and -1 what remains."""
        return self._op("Reshape", states, self._integers(shape))

    def _transposed(self, states: str, axes: list[int]) -> str:
        return self._op("Transpose", states, perm=axes)

    def _rotated(self, states: str, rotation: tuple[str, str]) -> str:
        """Return states (…, D) rotated: of each pair, one dimension is in either half."""
        half = self._config["head_dim"] // 2
        sizes = self._integers([half, half])
        lower, upper = self._ops("Split", 2, states, sizes, axis=-1)
        turned = self._op("Concat", self._op("Neg", upper), lower, axis=-1)
        cosine, sine = rotation
        return self._op("Add", self._op("Mul", states, cosine), self._op("Mul", turned, sine))

    def _feed_forward(self, states: str, layer: str) -> str:
        gate = self._linear(states, f"{layer}mlp.gate_proj")
        activated = self._op("Mul", gate, self._op("Sigmoid", gate))  # SiLU
        inner = self._op("Mul", activated, self._linear(states, f"{layer}mlp.up_proj"))
        return self._linear(inner, f"{layer}mlp.down_proj")

    def _norm(self, states: str, name: str) -> str:
        """Return the RMS norm of states, in operations that runtimes recognise and fuse."""
        square = self._op("Pow", states, self._float(2.0))
        mean = self._op("ReduceMean", square, axes=[-1], keepdims=1)
        epsilon = self._float(self._config["rms_norm_eps"])
        root = self._op("Sqrt", self._op("Add", mean, epsilon))
        return self._op("Mul", self._op("Div", states, root), self._weight(f"{name}.weight"))

    def _linear(self, states: str, name: str) -> str:
        return self._op("MatMul", states, self._weight(f"{name}.weight", transposed=True))

    def _op(self, kind: str, *inputs: str, **attributes: Attribute) -> str:
        """Add an operation and return the name of its output."""
        return self._ops(kind, 1, *inputs, **attributes)[0]

    def _ops(
        self,
        kind: str,
        count: int,
        *inputs: str,
        **attributes: Attribute,
    ) -> Sequence[str]:
        """Add an operation and return the names of its ``count`` outputs."""
        from onnx import helper

        names = [f"{kind}_{len(self._nodes)}_{index}" for index in range(count)]
        self._nodes.append(helper.make_node(kind, inputs, names, names[0], **attributes))
        return names

    def _integers(self, value: int | list[int]) -> str:
        return self._constant(np.asarray(value, np.int64))

    def _float(self, value: float) -> str:
        return self._constant(np.asarray(value, np.float32))

    def _constant(self, value: np.ndarray) -> str:
        """Add a constant, unless there is an equal one, and return its name."""
        from onnx import numpy_helper

        key = (value.dtype.str, value.shape, value.tobytes())
        if key in self._constants:  # equal constants are stored once
            return self._constants[key]
        name = f"constant_{len(self._constants)}"
        self._constants[key] = name
        self._weights.append(numpy_helper.from_array(value, name))
        return name

    def _weight(self, name: str, *, transposed: bool = False) -> str:
        weight = self._source.weights.read(name).float()
        if transposed:
            weight = weight.t()
        return self._tensor(name, weight)

    def _tensor(self, name: str, value: Tensor) -> str:
        """Add a float32 tensor, in the graph or in the file next to it."""
        from onnx import TensorProto

        content = value.contiguous().numpy().tobytes()
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=value.shape)
        if self._data is None:
            tensor.raw_data = content
        else:
            bytes_to_next_page = -self._data.tell() % _PAGE  # a page can be mapped into memory
            self._data.write(bytes(bytes_to_next_page))  # zeros
            tensor.data_location = TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value=_DATA_FILE)
            tensor.external_data.add(key="offset", value=str(self._data.tell()))
            tensor.external_data.add(key="length", value=str(len(content)))
            self._data.write(content)
        self._weights.append(tensor)
        return name


def graph_states(file: Path) -> Callable[[Tensor, Tensor], Tensor]:
    """Return what runs a graph (.onnx, .xml) on the CPU: ids, mask (B, T) to states (B, T, H)."""
    if file.suffix == ".xml":
        graph = _openvino_graph(file)
    else:
        graph = _onnx_graph(file)

    def states(ids: Tensor, mask: Tensor) -> Tensor:
        batch_size, length = ids.shape
        positions = np.tile(np.arange(length), (batch_size, 1))
        # Models differ in their inputs: each graph gets those that it names.
        known_inputs = {
            "input_ids": ids.numpy(),
            "attention_mask": mask.numpy(),
            "token_type_ids": np.zeros_like(positions),
            "position_ids": positions,
        }
        with refusing(file, f"expected a transformer with inputs such as {', '.join(_INPUTS)}"):
            inputs = {name: known_inputs[name] for name in graph.input_names}
            outputs = graph.run(inputs)
            return torch.from_numpy(outputs[0])  # the last hidden state

    return states


@dataclass(frozen=True)
class _LoadedGraph:
    """A graph that a library runs."""

    input_names: set[str]
    run: Callable[[dict[str, np.ndarray]], Any]  # arrays by name of input to outputs


def _openvino_graph(file: Path) -> _LoadedGraph:
    """Load a graph in OpenVINO."""
    import openvino

    with refusing(file, "no graph with weights that OpenVINO can run; export it again"):
        model = openvino.Core().compile_model(str(file), "CPU")
    return _LoadedGraph({model_input.get_any_name() for model_input in model.inputs}, model)


def _onnx_graph(file: Path) -> _LoadedGraph:
    """Load a graph in ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    providers = ["CPUExecutionProvider"]
    with refusing(file, "no graph that ONNX Runtime can run; copy or export it again"):
        session = onnxruntime.InferenceSession(str(file), options, providers=providers)

    def run(inputs: dict[str, np.ndarray]) -> Any:
        all_outputs = None
        return session.run(all_outputs, inputs)

    return _LoadedGraph({model_input.name for model_input in session.get_inputs()}, run)
