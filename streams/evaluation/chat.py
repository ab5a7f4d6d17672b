"""A chat model whose replies are kept on disk."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from memory.adapters.openai.client import Endpoint
from memory.adapters.openai.model import ChatModel
from memory.errors import PermanentError, TransientError
from memory.ports.summarizer import estimate_tokens

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletion

REPLY_CHARACTERS_MAX = 20_000
"""Longer ones are cut: no short answer is that long."""


class ChatError(TransientError):
    """The chat model could not be reached or refused for now."""


class RefusedPromptError(PermanentError):
    """The chat model will never take this prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the model said."""

    text: str
    """Without white space around it; empty when it refused or said nothing."""
    tokens_in: int
    tokens_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a chat has cost so far."""

    calls: int = 0
    """Replies that were asked for, repetitions not counted."""
    known: int = 0
    """Replies that were on disk."""
    tokens_in: int = 0
    tokens_out: int = 0


class Replies:
    """
    Replies on disk, one file each, named by the hash of model and prompt.

    Args:
        folder: made when the first is kept.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, model: str, prompt: str) -> Reply | None:
        """The reply to that prompt; None when it is not there or cannot be read."""
        try:
            return msgspec.json.decode(self._file(model, prompt).read_bytes(), type=Reply)
        except (OSError, msgspec.DecodeError):
            return None

    def put(self, model: str, prompt: str, reply: Reply) -> None:
        """Keep it; a crash leaves it whole or not there."""
        file = self._file(model, prompt)
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(f".{os.getpid()}")
        part.write_bytes(msgspec.json.encode(reply))
        part.replace(file)

    def _file(self, model: str, prompt: str) -> Path:
        digest = hashlib.sha256(f"{model}\x00{prompt}".encode("utf-8", "surrogatepass")).hexdigest()
        return self._folder / digest[:2] / f"{digest}.json"


class Chat:
    """
    Asks one model, behind any OpenAI-compatible API. Safe for concurrent calls.

    Args:
        model: its name at the server.
        endpoint: where it is, and how patiently it is asked.
        replies: what it said before.
        sleep: waits between attempts.

    Raises:
        SettingError: the library openai is missing, there is no key, or the address is none.
    """

    def __init__(
        self,
        *,
        model: str,
        endpoint: Endpoint,
        replies: Replies,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._model = model
        self._replies = replies
        self._chat = ChatModel(
            model=model,
            endpoint=endpoint,
            variable="--judge",
            transient=ChatError,
            permanent=RefusedPromptError,
            sleep=sleep,
        )
        self._spent = Spent()

    def known(self, prompt: str) -> Reply | None:
        """The reply, if it is on disk."""
        return self._replies.get(self._model, prompt)

    def spent(self) -> Spent:
        """What was asked so far."""
        return self._spent

    async def ask(self, prompt: str) -> Reply:
        """
        The model's reply, from disk if it is there. An empty one is not kept.

        Raises:
            ChatError: the model is away or refuses for now, after all attempts.
            RefusedPromptError: it will never take this prompt.
        """
        kept = self.known(prompt)
        if kept is not None:
            self._spent = replace(self._spent, known=self._spent.known + 1)
            return kept
        answer = await self._chat.repeated(lambda: self._chat.create([{"role": "user", "content": prompt}]))
        reply = _reply(answer, prompt)
        self._spent = replace(
            self._spent,
            calls=self._spent.calls + 1,
            tokens_in=self._spent.tokens_in + reply.tokens_in,
            tokens_out=self._spent.tokens_out + reply.tokens_out,
        )
        if reply.text:
            self._replies.put(self._model, prompt, reply)
        return reply

    async def close(self) -> None:
        """Close the connections."""
        await self._chat.close()


def _reply(answer: ChatCompletion, prompt: str) -> Reply:
    choice = answer.choices[0] if answer.choices else None
    content = choice.message.content if choice is not None and choice.message is not None else None
    text = content.strip()[:REPLY_CHARACTERS_MAX] if isinstance(content, str) else ""
    usage = answer.usage
    return Reply(
        text=text,
        tokens_in=usage.prompt_tokens if usage else estimate_tokens(prompt),
        tokens_out=usage.completion_tokens if usage else estimate_tokens(text),
    )
