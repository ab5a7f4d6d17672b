from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from memory.adapters.embedded.hashing import HashingEmbedder
from memory.errors import SettingError

PROGRAM = """
import asyncio
from memory.adapters.embedded.hashing import HashingEmbedder
print(asyncio.run(HashingEmbedder(16).embed(["the same in every process"]))[0].tobytes().hex())
"""


def test_processes_agree() -> None:
    answers = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True, text=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(answers) == 1


async def test_texts_that_share_words_are_near() -> None:
    river, rivers, bank = await HashingEmbedder(256).embed(
        ["The river was cold today", "the RIVER is cold, today!", "Interest on savings rose"]
    )
    assert river @ rivers > 0.7
    assert abs(river @ bank) < 0.3


async def test_texts_without_words_still_differ() -> None:
    first, second = await HashingEmbedder().embed(["...", "?!"])
    assert first @ second < 0.9
    assert np.isfinite(first).all()


def test_the_dimension_is_bounded() -> None:
    with pytest.raises(SettingError, match="2 to 8192"):
        HashingEmbedder(1)
