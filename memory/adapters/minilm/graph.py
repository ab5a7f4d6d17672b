"""
The ONNX graph of all-MiniLM-L6-v2, built from its weights: ids and mask in, unit vectors out.

BERT with 6 layers, hidden size 384, 12 heads, intermediate size 1536, exact GELU (Devlin et al. 2019, section 3), then the mean
over the tokens and unit length, as sentence-transformers does. Fused operators of ONNX Runtime are written directly, so that
loading needs no graph optimisation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

Precision = Literal["int8", "fp32"]

GRAPH_VERSION: Final = 1
"""Part of the cached file's name; raise it whenever a change here changes what is built."""

DIMENSION: Final = 384
_LAYERS: Final = 6
_HEADS: Final = 12
_LAYER_NORM_EPSILON: Final = 1e-12
_OPSET: Final = 18
_IR_VERSION: Final = 9
_FUSED: Final = "com.microsoft"

_OUTLIERS_ATTENTION: Final = {99: 8.0, 223: 4.0, 63: 3.0, 127: 3.0, 157: 2.0, 319: 2.0}
_OUTLIERS_OUTPUT: Final = {99: 4.0, 157: 2.5, 63: 2.0, 223: 2.0, 338: 2.0}
"""
Dimensions of the residual stream, after the attention's and the output's LayerNorm, that reach that many times the range of the
others in every layer of these weights (measured on dialogue). They are scaled down before the activation is rounded and the
weights' rows up by as much (SmoothQuant, Xiao et al. 2023, section 4, for these dimensions only): on 250 turns the mean cosine to
fp32 rises from 0.9967 to 0.9989, the smallest from 0.984 to 0.996.
"""

_GELU_MAX_FLOOR: Final = 2.0
"""A row of GELU outputs lies in [-0.17, max]; with max at least this, zero point 20 of 255 holds the negative part."""


@dataclass(slots=True)
class _Graph:
    """Nodes and initializers as they are added; names are unique by construction."""

    precision: Precision
    weight_limit: int
    nodes: list[Any] = field(default_factory=list)
    initializers: list[Any] = field(default_factory=list)

    def constant(self, name: str, value: NDArray[Any]) -> str:
        from onnx import numpy_helper  # noqa: PLC0415  # needed only when a graph is built

        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(self, op: str, inputs: list[str], output: str | list[str], *, domain: str = "", **attributes: object) -> str:
        from onnx import helper  # noqa: PLC0415

        outputs = [output] if isinstance(output, str) else output
        self.nodes.append(helper.make_node(op, inputs, outputs, domain=domain, **attributes))
        return outputs[0]


def build_graph(weights: Path, precision: Precision, *, weight_bits: int = 8) -> bytes:
    """
    Build the graph.

    Args:
        weights: the published `model.safetensors`.
        precision: `fp32`, or `int8` for the layers' matrix products: weights rounded per output column, activations per token, so
            that a text's vector does not depend on the texts in its batch.
        weight_bits: 8, or 7 for processors whose 8-bit products saturate (see `saturates`); counts for `int8` only.

    Returns:
        A serialized model. Inputs `input_ids` and `attention_mask`, (b, s) int64, with b ≥ 1 and 2 ≤ s ≤ 512; output `vector`,
        (b, 384) float32, rows of unit length.
    """
    from onnx import TensorProto, helper  # noqa: PLC0415
    from safetensors.numpy import load_file  # noqa: PLC0415

    tensors = load_file(weights)
    graph = _Graph(precision=precision, weight_limit=2 ** (weight_bits - 1) - 1)
    hidden = _embeddings(graph, tensors)
    graph.node("Cast", ["attention_mask"], "mask_int32", to=TensorProto.INT32)
    for layer in range(_LAYERS):
        hidden = _layer(graph, tensors, layer, hidden)
    _mean_of_tokens(graph, hidden)
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["b", "s"]) for name in ("input_ids", "attention_mask")]
    outputs = [helper.make_tensor_value_info("vector", TensorProto.FLOAT, ["b", DIMENSION])]
    model = helper.make_model(
        helper.make_graph(graph.nodes, "all-MiniLM-L6-v2", inputs, outputs, graph.initializers),
        opset_imports=[helper.make_opsetid("", _OPSET), helper.make_opsetid(_FUSED, 1)],
        ir_version=_IR_VERSION,
    )
    serialized: bytes = model.SerializeToString()
    return serialized


def build_saturation_probe() -> bytes:
    """Build the graph that `saturates` runs: `a` (1, 64) uint8 times 64 columns of 127, as int32."""
    from onnx import TensorProto, helper, numpy_helper  # noqa: PLC0415

    column = numpy_helper.from_array(np.full((64, 64), 127, np.int8), "b")
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["a", "b"], ["y"])],
        "saturation",
        [helper.make_tensor_value_info("a", TensorProto.UINT8, [1, 64])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [1, 64])],
        [column],
    )
    serialized: bytes = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION
    ).SerializeToString()
    return serialized


def _embeddings(graph: _Graph, tensors: dict[str, NDArray[Any]]) -> str:
    from onnx import TensorProto  # noqa: PLC0415

    prefix = "embeddings."
    words = tensors[prefix + "word_embeddings.weight"]
    if graph.precision == "int8":
        # Half precision halves the file and the memory; rows are widened after they are looked up.
        graph.node("Gather", [graph.constant("words", words.astype(np.float16)), "input_ids"], "words_half")
        graph.node("Cast", ["words_half"], "words_of_ids", to=TensorProto.FLOAT)
    else:
        graph.node("Gather", [graph.constant("words", words), "input_ids"], "words_of_ids")
    # All tokens are of type 0, so that type's vector is part of the positions'.
    positions = tensors[prefix + "position_embeddings.weight"] + tensors[prefix + "token_type_embeddings.weight"][0]
    graph.node("Shape", ["input_ids"], "length", start=1, end=2)
    zero = graph.constant("zero", np.array([0], np.int64))
    graph.node("Slice", [graph.constant("positions", positions), zero, "length", zero], "positions_of_ids")
    graph.node("Add", ["words_of_ids", "positions_of_ids"], "embedded")
    gain = graph.constant("embedded.gain", tensors[prefix + "LayerNorm.weight"])
    shift = graph.constant("embedded.shift", tensors[prefix + "LayerNorm.bias"])
    return graph.node("LayerNormalization", ["embedded", gain, shift], "hidden", epsilon=_LAYER_NORM_EPSILON)


def _layer(graph: _Graph, tensors: dict[str, NDArray[Any]], layer: int, hidden: str) -> str:
    prefix, name = f"encoder.layer.{layer}.", f"layer{layer}"
    heads = [f"{prefix}attention.self.{part}" for part in ("query", "key", "value")]
    weight = np.concatenate([tensors[f"{head}.weight"] for head in heads])
    bias = graph.constant(f"{name}.qkv.bias", np.concatenate([tensors[f"{head}.bias"] for head in heads]))
    projected = _product(graph, hidden, weight, f"{name}.qkv", outliers=_OUTLIERS_OUTPUT)
    parts = [f"{name}.{part}" for part in "qkv"]
    graph.node("Split", [projected], parts, axis=2, num_outputs=3)
    context = graph.node("MultiHeadAttention", [*parts, bias, "mask_int32"], f"{name}.context", domain=_FUSED, num_heads=_HEADS)

    attended = _product(graph, context, tensors[prefix + "attention.output.dense.weight"], f"{name}.attention")
    hidden = _add_and_normalize(graph, tensors, attended, hidden, prefix + "attention.output.", f"{name}.attended")

    weight = tensors[prefix + "intermediate.dense.weight"]
    wide = _product(graph, hidden, weight, f"{name}.intermediate", outliers=_OUTLIERS_ATTENTION)
    bias = graph.constant(f"{name}.intermediate.bias", tensors[prefix + "intermediate.dense.bias"])
    wide = graph.node("BiasGelu", [wide, bias], f"{name}.gelu", domain=_FUSED)
    narrow = _product(graph, wide, tensors[prefix + "output.dense.weight"], f"{name}.output", after_gelu=True)
    return _add_and_normalize(graph, tensors, narrow, hidden, prefix + "output.", f"{name}.hidden")


def _add_and_normalize(graph: _Graph, tensors: dict[str, NDArray[Any]], x: str, skip: str, prefix: str, name: str) -> str:
    constants = {"gain": "LayerNorm.weight", "shift": "LayerNorm.bias", "bias": "dense.bias"}
    inputs = [graph.constant(f"{name}.{ours}", tensors[prefix + theirs]) for ours, theirs in constants.items()]
    return graph.node("SkipLayerNormalization", [x, skip, *inputs], name, domain=_FUSED, epsilon=_LAYER_NORM_EPSILON)


def _product(
    graph: _Graph,
    x: str,
    weight: NDArray[Any],
    name: str,
    *,
    outliers: dict[int, float] | None = None,
    after_gelu: bool = False,
) -> str:
    """Add x · weightᵀ, without bias, in the graph's precision; `weight` is (out, in) float32."""
    columns = np.asarray(weight.T, np.float32)
    if graph.precision == "fp32":
        return graph.node("MatMul", [x, graph.constant(f"{name}.weight", columns)], f"{name}.product")
    if outliers:
        factors = np.ones(len(columns), np.float32)
        factors[list(outliers)] = list(outliers.values())
        x = graph.node("Mul", [x, graph.constant(f"{name}.factors", 1 / factors)], f"{name}.scaled")
        columns = columns * factors[:, None]
    steps, zero_point = (235, 20) if after_gelu else (127, 128)
    if after_gelu:
        graph.node("ReduceMax", [x, graph.constant(f"{name}.axis", np.array([-1], np.int64))], f"{name}.top")
        top = graph.node(
            "Max", [f"{name}.top", graph.constant(f"{name}.floor", np.array([_GELU_MAX_FLOOR], np.float32))], f"{name}.range"
        )
    else:
        graph.node("Abs", [x], f"{name}.absolute")
        axis = graph.constant(f"{name}.axis", np.array([-1], np.int64))
        top = graph.node("ReduceMax", [f"{name}.absolute", axis], f"{name}.range")
    graph.node("Div", [x, top], f"{name}.relative")
    step = graph.constant(f"{name}.step", np.array(1 / steps, np.float32))
    zero = graph.constant(f"{name}.zero", np.array(zero_point, np.uint8))
    graph.node("QuantizeLinear", [f"{name}.relative", step, zero], f"{name}.rounded")

    column_steps = np.maximum(np.abs(columns).max(axis=0) / graph.weight_limit, np.finfo(np.float32).tiny).astype(np.float32)
    rounded = np.rint(columns / column_steps).astype(np.int8)
    inputs = [
        f"{name}.rounded",
        graph.constant(f"{name}.weight", rounded),
        step,
        graph.constant(f"{name}.column_steps", column_steps),
        zero,
    ]
    graph.node("MatMulIntegerToFloat", inputs, f"{name}.product_relative", domain=_FUSED)
    return graph.node("Mul", [f"{name}.product_relative", top], f"{name}.product")


def _mean_of_tokens(graph: _Graph, hidden: str) -> None:
    from onnx import TensorProto  # noqa: PLC0415

    graph.node("Cast", ["attention_mask"], "mask_float", to=TensorProto.FLOAT)
    axis = graph.constant("pooled_axis", np.array([1], np.int64))
    graph.node("Unsqueeze", ["mask_float", axis], "mask_row")
    graph.node("MatMul", ["mask_row", hidden], "sum_row")
    graph.node("Squeeze", ["sum_row", axis], "sum")
    # The sum has the mean's direction; unit length makes them the same.
    graph.node("LpNormalization", ["sum"], "vector", axis=1, p=2)
