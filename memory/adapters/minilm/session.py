"""The ONNX Runtime session: the graph is built once from the weights, kept in the cache folder, and loaded from there."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from memory.adapters.minilm.files import write_atomically
from memory.adapters.minilm.graph import GRAPH_VERSION, Precision, build_graph, build_saturation_probe
from memory.adapters.minilm.weights import WEIGHTS_SHA256, ModelFiles, verify_weights
from memory.errors import SettingError

if TYPE_CHECKING:
    import onnxruntime

_logger = logging.getLogger(__name__)


def open_session(files: ModelFiles, cache_dir: Path, precision: Precision) -> onnxruntime.InferenceSession:
    """
    Open a session whose runs use one thread each; several threads may run it at once.

    Raises:
        SettingError: the weights are not the published ones, or a library of the extra `local` is missing.
    """
    verify_weights(files, cache_dir)
    try:
        bits = 7 if precision == "int8" and saturates(cache_dir) else 8
        return _open_cached(files, cache_dir, precision, bits)
    except ImportError as error:
        raise missing_library(error) from error


def missing_library(error: ImportError) -> SettingError:
    """Say which library of the extra `local` is missing, and how to have it."""
    return SettingError(
        f"The local embedder needs the library {error.name}: install it with `pip install 'banyan-memory[local]'`, "
        "or set BANYAN_EMBEDDER to another embedder."
    )


def saturates(cache_dir: Path) -> bool:
    """
    Tell whether this processor's 8-bit products saturate.

    x86 processors without VNNI add two products of 8-bit numbers in 16 bits, and the sum is cut off; weights of 7 bits avoid it.
    """
    path = cache_dir / "saturation-probe.onnx"
    if not path.is_file():
        write_atomically(path, build_saturation_probe())
    try:
        session = _session(path if path.is_file() else build_saturation_probe())
    except Exception:  # noqa: BLE001  # a damaged file; the runtime's errors share no other base
        session = _session(build_saturation_probe())
    (product,) = session.run(None, {"a": np.full((1, 64), 255, np.uint8)})
    return bool((product != 255 * 127 * 64).any())


def _open_cached(files: ModelFiles, cache_dir: Path, precision: Precision, bits: int) -> onnxruntime.InferenceSession:
    variant = f"int{bits}" if precision == "int8" else precision
    path = cache_dir / f"minilm-{WEIGHTS_SHA256[:8]}-{variant}-v{GRAPH_VERSION}.onnx"
    if path.is_file():
        try:
            return _session(path)
        except Exception as error:  # noqa: BLE001  # the runtime's errors share no other base
            _logger.warning("the cached graph %s cannot be loaded, building it again: %s", path, str(error)[:200])
    graph = build_graph(files.weights, precision, weight_bits=bits)
    if not write_atomically(path, graph):
        _logger.warning("the graph of the local embedder cannot be kept in %s; every start builds it again", cache_dir)
    return _session(graph)


def _session(model: Path | bytes) -> onnxruntime.InferenceSession:
    import onnxruntime  # noqa: PLC0415  # optional, and slow to import

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    source = model if isinstance(model, bytes) else str(model)
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
