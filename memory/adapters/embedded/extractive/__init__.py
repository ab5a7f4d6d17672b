"""Summaries and keywords without a model: the texts' own sentences, chosen and headed, and their own phrases."""

from memory.adapters.embedded.extractive.apart import ApartSummarizer
from memory.adapters.embedded.extractive.keywords import ExtractiveKeywords
from memory.adapters.embedded.extractive.statements import ExtractiveStatements
from memory.adapters.embedded.extractive.summarizer import ExtractiveSummarizer

__all__ = ["ApartSummarizer", "ExtractiveKeywords", "ExtractiveStatements", "ExtractiveSummarizer"]
