"""Vectors that may enter a tree or be compared with it: an embedder's promises are checked once, here, and its time is bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from memory.errors import EmbedderAnswerError, EmbedderError, TreeMismatchError
from memory.model import TreeInfo, Vector
from memory.ports.embedder import Embedder, Purpose
from memory.tree.similarity import quantize

TIME_LIMIT = 60.0  # seconds
TIME_LIMIT_PER_TEXT = 0.5  # seconds
"""A call may take `TIME_LIMIT` and this for each text: ten times what the local model takes for full chunks on one core."""


async def embed(embedder: Embedder, texts: Sequence[str], *, purpose: Purpose = "document") -> list[Vector]:
    """
    Embed, and make sure of the answer: a tree cannot be mended afterwards.

    Returns:
        A quantized vector for each text.

    Raises:
        EmbedderError: the model is away, or did not answer in time.
        EmbedderAnswerError: too few vectors, another dimension, not finite, or zero.
    """
    model = embedder.model
    limit = TIME_LIMIT + TIME_LIMIT_PER_TEXT * len(texts)
    try:
        async with asyncio.timeout(limit):
            vectors = await embedder.embed(texts, purpose=purpose)
    except TimeoutError as error:
        raise EmbedderError(f"{model.name} did not answer within {limit:g} s") from error
    expected = (len(texts), model.dimension)
    if vectors.shape != expected:
        raise EmbedderAnswerError(f"{model.name} gave vectors of shape {vectors.shape}, expected {expected}")
    try:
        return [quantize(vector) for vector in vectors]
    except ValueError as error:
        raise EmbedderAnswerError(f"{model.name} gave a vector that is not finite, or zero") from error


def check_model(info: TreeInfo, embedder: Embedder) -> None:
    """
    Refuse a tree whose vectors are of another space than the embedder's.

    Raises:
        TreeMismatchError: says which and what to do.
    """
    wanted, got = info.model, embedder.model
    if (wanted.name, wanted.dimension) != (got.name, got.dimension):
        raise TreeMismatchError(
            f"tree {info.id!r} was made with the embedding model {wanted.name} ({wanted.dimension} dimensions), "
            f"{got.name} ({got.dimension}) is configured; set BANYAN_EMBEDDER to the tree's model, or put the records "
            "into a tree of another name"
        )
