"""The embedding model on several stacks, from the same weights, for docs/decisions/0006-embedder.md. Needs `onnx`.

    python benchmarks/embedder_stacks.py FOLDER

FOLDER contains model.safetensors and tokenizer.json, like SATCHEL_HOME/models/minilm-l6-v2. The stacks are `fp32`, the
graph in the package; `int8`, weights of 7 bits a channel and activations quantised per tensor (safe on processors
without VNNI); `int8-blocks`, 8 bits in blocks of 128 for both; and the baseline `numpy`, the same forward pass written
by hand. Each runs in its own process, one text at a time.
"""

from __future__ import annotations

import importlib.util
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

ROOT = Path(__file__).parents[1]
STACKS = ("numpy", "fp32", "int8", "int8-blocks")
BLOCK = 128
TEXTS = [
    f"{opening} {middle} {end}."
    for opening in (
        "My sister Mara",
        "The landlord",
        "Our old router",
        "A colleague from Lisbon",
        "The violin teacher",
    )
    for middle in (
        "is allergic to",
        "has written about",
        "was late because of",
        "would never agree to",
        "asked for",
    )
    for end in (
        "shellfish, and so she never eats at the harbour",
        "the network configuration at home",
        "a cheaper plan that was decided on Thursday after the meeting about next year's budget",
        "tea",
    )
]


def tensors(safetensors: Path) -> dict[str, np.ndarray[Any, np.dtype[np.float32]]]:
    """Every float32 tensor of the file."""
    content = safetensors.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    found = {}
    for name, entry in json.loads(content[8:start]).items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            begin, end = (start + offset for offset in entry["data_offsets"])
            found[name] = np.frombuffer(content[begin:end], np.float32).reshape(entry["shape"])
    return found


def build(stack: str, safetensors: Path, target: Path) -> None:
    """Write the graph of a stack; for int8, every dense layer holds its own quantised weights."""
    from onnx import numpy_helper

    spec = importlib.util.spec_from_file_location("graph", ROOT / "scripts/build_minilm_graph.py")
    assert spec is not None
    assert spec.loader is not None
    script: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    weights = tensors(safetensors)

    class Quantised(script.GraphBuilder):  # type: ignore[misc]
        def kept(self, name: str, values: np.ndarray[Any, Any]) -> str:
            self.tensors.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
            return name

        def dense(self, values: str, name: str) -> str:
            weight, bias = weights[f"{name}.weight"], self.weight(f"{name}.bias")
            outputs, inputs = weight.shape
            if stack == "int8":
                scale = np.abs(weight).max(axis=1) / 63
                packed = np.rint(weight / scale[:, None]).astype(np.int8).T
                parts = (self.kept(f"{name}.q", packed), self.kept(f"{name}.s", scale), "", bias)
                return str(self.node("DynamicQuantizeMatMul", values, *parts, domain=script.MICROSOFT))
            blocks = weight.reshape(outputs, inputs // BLOCK, BLOCK)
            scale = np.abs(blocks).max(axis=2) / 127
            packed = (np.rint(blocks / scale[:, :, None]) + 128).astype(np.uint8)
            of_blocks = (self.kept(f"{name}.q", packed), self.kept(f"{name}.s", scale), "", "", bias)
            options = {"K": inputs, "N": outputs, "bits": 8, "block_size": BLOCK, "accuracy_level": 4}
            return str(self.node("MatMulNBits", values, *of_blocks, domain=script.MICROSOFT, **options))

    script.GraphBuilder = script.GraphBuilder if stack == "fp32" else Quantised
    target.write_bytes(script.build(safetensors).SerializeToString())


def numpy_forward(weights: dict[str, np.ndarray[Any, np.dtype[np.float32]]]) -> Callable[[list[int]], Any]:
    """The forward pass in numpy, with the tanh form of gelu because numpy has no erf."""

    def dense(values: Any, name: str) -> Any:
        return values @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(values: Any, name: str) -> Any:
        values = values - values.mean(-1, keepdims=True)
        values /= np.sqrt(np.square(values).mean(-1, keepdims=True) + 1e-12)
        return values * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def forward(ids: list[int]) -> Any:
        states = weights["embeddings.word_embeddings.weight"][ids]
        states = states + weights["embeddings.position_embeddings.weight"][: len(ids)]
        states = norm(states + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        for layer in range(6):
            name = f"encoder.layer.{layer}"
            query, key, value = (
                dense(states, f"{name}.attention.self.{part}").reshape(-1, 12, 32).transpose(1, 0, 2)
                for part in ("query", "key", "value")
            )
            scores = np.exp(query @ key.transpose(0, 2, 1) / np.float32(32**0.5))
            attended = (scores / scores.sum(-1, keepdims=True)) @ value
            attended = dense(attended.transpose(1, 0, 2).reshape(-1, 384), f"{name}.attention.output.dense")
            states = norm(states + attended, f"{name}.attention.output.LayerNorm")
            inner = dense(states, f"{name}.intermediate.dense")
            inner = inner * 0.5 * (1 + np.tanh(0.7978845608 * (inner + 0.044715 * inner * inner * inner)))
            states = norm(states + dense(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm")
        return states

    return forward


def run_stack(stack: str, folder: Path, work: Path) -> None:
    """Run in its own process: load, embed, print the figures, and write the vectors to a file."""
    start = time.process_time()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if stack == "numpy":
        forward = numpy_forward(tensors(folder / "model.safetensors"))
    else:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
        session = onnxruntime.InferenceSession((work / f"{stack}.onnx").read_bytes(), options)

        def forward(ids: list[int]) -> Any:
            inputs = {"input_ids": np.array([ids]), "lengths": np.array([len(ids)], np.int32)}
            return session.run(["hidden"], inputs)[0][0]

    def embed(text: str) -> Any:
        states = forward(tokenizer.encode(text).ids).mean(axis=0)
        return states / np.linalg.norm(states)

    embed("load")
    cold_s = time.process_time() - start
    best = 0.0
    rows: list[Any] = []
    for _ in range(3):
        start = time.process_time()
        rows = [embed(text) for text in TEXTS]
        best = max(best, len(TEXTS) / (time.process_time() - start))
    np.save(work / f"{stack}.npy", np.array(rows))
    peak = next(
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")
    )
    tokens = sum(len(tokenizer.encode(text).ids) for text in TEXTS) / len(TEXTS)
    figures = {
        "load_cpu_s": round(cold_s, 3),
        "texts_per_cpu_second": round(best, 1),
        "tokens_per_text": round(tokens, 1),
    }
    print(json.dumps({**figures, "peak_rss_mb": int(peak.split()[1]) // 1024}))


def main(folder: Path) -> None:
    """Run each stack and compare."""
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        for stack in STACKS:
            if stack != "numpy":
                build(stack, folder / "model.safetensors", work / f"{stack}.onnx")
            # Otherwise numpy uses all processors, while the others run on one thread.
            environ = {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": ":".join(sys.path)}
            command = [sys.executable, __file__, str(folder), stack, name]
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=environ)
            figures[stack] = json.loads(done.stdout)
        reference = np.load(work / "fp32.npy")
        for stack in STACKS:
            cosines = (np.load(work / f"{stack}.npy") * reference).sum(axis=1)
            figures[stack]["cosine_to_fp32"] = {
                "mean": round(float(cosines.mean()), 4),
                "least": round(float(cosines.min()), 4),
            }
            figures[stack]["speed_ratio"] = round(
                figures[stack]["texts_per_cpu_second"] / figures["numpy"]["texts_per_cpu_second"], 2
            )
    versions = {name: version(name) for name in ("numpy", "onnxruntime", "onnx", "tokenizers")}
    print(json.dumps({**figures, "versions": {"python": platform.python_version(), **versions}}, indent=2))


if __name__ == "__main__":
    if len(sys.argv) == 2:
        main(Path(sys.argv[1]))
    elif len(sys.argv) == 4:
        run_stack(sys.argv[2], Path(sys.argv[1]), Path(sys.argv[3]))
    else:
        sys.exit(__doc__)
