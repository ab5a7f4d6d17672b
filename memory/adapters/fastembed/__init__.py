"""The `fastembed:<model>` embedders: the models of the library of that name."""

from memory.adapters.fastembed.embedder import FastembedEmbedder

__all__ = ["FastembedEmbedder"]
