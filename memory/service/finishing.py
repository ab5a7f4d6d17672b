"""Work that a cancelled caller may not leave half done."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def finished(work: Coroutine[Any, Any, T]) -> T:
    """
    What the work answers; a caller that is cancelled meanwhile waits for its end all the same, and is cancelled then.

    Args:
        work: bounded in time; when the caller is cancelled, its own failure is dropped.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError as error:
        if task.done():
            raise  # the work itself was cancelled, or ended at the same moment
        cancelled = error
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if not task.cancelled():
        task.exception()  # else it would be reported as never retrieved
    raise cancelled
