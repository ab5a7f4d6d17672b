"""The `local` embedder: all-MiniLM-L6-v2 on ONNX Runtime, on CPU, without torch."""

from memory.adapters.minilm.embedder import MiniLmEmbedder

__all__ = ["MiniLmEmbedder"]
