"""Summaries without a model: the texts' own sentences, chosen and headed."""

from memory.adapters.embedded.extractive.summarizer import ExtractiveSummarizer

__all__ = ["ExtractiveSummarizer"]
