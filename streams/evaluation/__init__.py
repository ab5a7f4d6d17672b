"""Retrieval measured on data sets with known answers: formats, metrics, runs, judged answers."""
