"""Builds benchmarks/data/minilm.onnx, the baseline of benchmarks/embedding.py: the model as a graph without weights.

It needs the package `onnx`, which nothing else uses:

    python scripts/build_minilm_graph.py SATCHEL_HOME/models/minilm-l6-v2/model.safetensors

Each weight is an "external" tensor that names its place in model.safetensors; nothing is repacked. Attention and Gelu
are onnxruntime's own fused operators (domain com.microsoft), so that its optimiser has nothing to do when the graph is
loaded.
"""

from __future__ import annotations

import argparse
import json
import struct
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LAYERS, HEADS, WIDTH = 6, 12, 384
EPSILON = 1e-12  # of the layer norms; the model's config.json
MICROSOFT = "com.microsoft"
GRAPH = Path(__file__).parents[1] / "benchmarks/data/minilm.onnx"


class GraphBuilder:
    """Collects nodes and tensors. Each method returns the name of the node or tensor that it added."""

    def __init__(self, safetensors: Path) -> None:
        """Read the table of contents: 8 bytes of length, little-endian, then JSON; offsets count from its
        end.
        """
        with safetensors.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            self._table = json.loads(stream.read(length))
        self._start = 8 + length
        self._file = safetensors.name
        self._counts: dict[str, int] = {}
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[onnx.TensorProto] = []

    def weight(self, name: str, *, first_row: bool = False) -> str:
        """A tensor of the file, or its first row alone."""
        entry = self._table[name]
        assert entry["dtype"] == "F32", entry
        begin, end = entry["data_offsets"]
        shape = entry["shape"]
        if first_row:
            shape, end = shape[1:], begin + (end - begin) // shape[0]
        tensor = TensorProto(
            name=name, data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL
        )
        for key, value in (
            ("location", self._file),
            ("offset", self._start + begin),
            ("length", end - begin),
        ):
            tensor.external_data.add(key=key, value=str(value))
        self.tensors.append(tensor)
        return name

    def constant(self, name: str, values: list[int]) -> str:
        """A small tensor of whole numbers, kept in the graph."""
        self.tensors.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def node(self, operator: str, *inputs: str, domain: str = "", **attributes: float | int) -> str:
        """An operator with one output; an input of "" is left out."""
        self._counts[operator] = self._counts.get(operator, 0) + 1
        name = f"{operator}_{self._counts[operator]}"
        self.nodes.append(helper.make_node(operator, inputs, [name], name=name, domain=domain, **attributes))
        return name

    def dense(self, values: str, name: str) -> str:
        """A linear layer on (tokens, width); the file holds (out, in), hence transB."""
        return self.node("Gemm", values, self.weight(f"{name}.weight"), self.weight(f"{name}.bias"), transB=1)

    def norm(self, name: str, *terms: str) -> str:
        """Layer norm of the sum of all terms."""
        total = terms[0]
        for term in terms[1:]:
            total = self.node("Add", total, term)
        scale, shift = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        # Not the fused SkipLayerNormalization: on a CPU it was measured to take four times as long as the
        # two.
        return self.node("LayerNormalization", total, scale, shift, axis=-1, epsilon=EPSILON)


def build(safetensors: Path) -> onnx.ModelProto:
    """The model: token ids (texts, tokens) and lengths (texts) to last hidden states (texts, tokens, 384)."""
    graph = GraphBuilder(safetensors)
    zero, one, two = (graph.constant(name, [value]) for name, value in (("zero", 0), ("one", 1), ("two", 2)))
    flat = graph.constant("flat", [-1, WIDTH])

    words = graph.node("Gather", graph.weight("embeddings.word_embeddings.weight"), "input_ids")
    token_count = graph.node("Slice", graph.node("Shape", "input_ids"), one, two)
    positions = graph.node("Slice", graph.weight("embeddings.position_embeddings.weight"), zero, token_count)
    # There is one segment only, so its embedding is a bias.
    segment = graph.weight("embeddings.token_type_embeddings.weight", first_row=True)
    states = graph.norm("embeddings.LayerNorm", words, positions, segment)
    shape = graph.node("Shape", states)

    for layer in range(LAYERS):
        name = f"encoder.layer.{layer}"
        tokens = graph.node("Reshape", states, flat)
        query, key, value = (
            graph.node("Reshape", graph.dense(tokens, f"{name}.attention.self.{part}"), shape)
            for part in ("query", "key", "value")
        )
        attended = graph.node(
            "MultiHeadAttention", query, key, value, "", "lengths", domain=MICROSOFT, num_heads=HEADS
        )
        attended = graph.dense(graph.node("Reshape", attended, flat), f"{name}.attention.output.dense")
        attended = graph.node("Reshape", attended, shape)
        states = graph.norm(f"{name}.attention.output.LayerNorm", states, attended)
        tokens = graph.node("Reshape", states, flat)
        inner = graph.node("Gelu", graph.dense(tokens, f"{name}.intermediate.dense"), domain=MICROSOFT)
        inner = graph.node("Reshape", graph.dense(inner, f"{name}.output.dense"), shape)
        states = graph.norm(f"{name}.output.LayerNorm", states, inner)
    graph.nodes[-1].output[0] = "hidden"

    return helper.make_model(
        helper.make_graph(
            graph.nodes,
            "all-MiniLM-L6-v2",
            [
                helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["texts", "tokens"]),
                helper.make_tensor_value_info("lengths", TensorProto.INT32, ["texts"]),
            ],
            [helper.make_tensor_value_info("hidden", TensorProto.FLOAT, ["texts", "tokens", WIDTH])],
            graph.tensors,
        ),
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)],
        ir_version=8,  # that of opset 17: old onnxruntimes read it
        producer_name="satchel",
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("safetensors", type=Path)
    GRAPH.write_bytes(build(parser.parse_args().safetensors).SerializeToString(deterministic=True))
    print(GRAPH, GRAPH.stat().st_size, "bytes")
