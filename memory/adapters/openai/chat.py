"""One question to a chat model and one answer: what the adapters share that need nothing more of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory.adapters.openai.client import Endpoint, call, open_client
from memory.adapters.openai.summarizer import ANSWER_CHARACTERS_MAX, UnusableError, usable
from memory.adapters.openai.throttle import Throttle
from memory.errors import PermanentError, SettingError, TransientError
from memory.ports.budget import CallBudget
from memory.ports.summarizer import estimate_tokens

if TYPE_CHECKING:
    import openai
    from openai.types.chat import ChatCompletion, ChatCompletionMessageParam


@dataclass(slots=True)
class Spent:
    """What answers have cost so far."""

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0


class Chat:
    """
    A chat model that is asked one thing at a time.

    Args:
        model: the model's name at the server.
        endpoint: where it is, and how patiently it is asked.
        variable: the setting that names the model, for messages.
        transient: raised when it is away or refuses for now.
        sleep: waits between tries.
        budget: of the provider, which each call waits for; None for no limits but the server's own.

    Raises:
        SettingError: no model's name, the library openai is missing, there is no key, or the address is none.
    """

    def __init__(
        self,
        *,
        model: str,
        endpoint: Endpoint,
        variable: str,
        transient: type[TransientError],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        budget: CallBudget | None = None,
    ) -> None:
        if not model:
            raise SettingError(f"A model's name is needed: set {variable} to openai:<model>.")
        self.name = f"openai:{model}"
        self._model = model
        self._endpoint = endpoint
        self._transient = transient
        self._sleep = sleep
        self._client: openai.AsyncOpenAI = open_client(endpoint)
        self._throttle: Throttle | None = None
        if budget is not None:
            self._throttle = Throttle(budget, what=self.name, transient=transient, wait_max=endpoint.wait_max_s, sleep=sleep)

    @property
    def shown_url(self) -> str:
        """The server's address, for messages."""
        return self._endpoint.shown_url

    async def ask(
        self, system: str, prompt: str, spent: Spent, *, answer_tokens: int, characters_max: int = ANSWER_CHARACTERS_MAX
    ) -> str:
        """
        The model's answer, an unusable one asked for once more.

        Args:
            system: what holds whatever the texts say.
            prompt: with the texts.
            spent: gets what it cost, also when it fails.
            answer_tokens: expected of the answer.
            characters_max: a longer answer is unusable.

        Raises:
            TransientError: of the type given, the model is away or refused for now.
            UnusableError: two answers in a row were empty, refused, filtered, cut off or far too long.
            SettingError: the key or the model was refused.
            PermanentError: the server will never take this request.
        """
        messages: list[ChatCompletionMessageParam] = [
            {"role": "system", "content": system},
            {"role": "user", "content": prompt},
        ]
        sent = estimate_tokens(system) + estimate_tokens(prompt)
        for last in (False, True):
            answer = await call(
                lambda: self._request(messages, spent),
                endpoint=self._endpoint,
                what=self.name,
                transient=self._transient,
                permanent=PermanentError,
                unreadable=self._transient,
                sleep=self._sleep,
                throttle=self._throttle,
                tokens=sent + answer_tokens,
            )
            used_in, used_out = (
                (answer.usage.prompt_tokens, answer.usage.completion_tokens) if answer.usage else (sent, answer_tokens)
            )
            spent.tokens_in += used_in
            spent.tokens_out += used_out
            if self._throttle is not None:
                await self._throttle.correct(sent + answer_tokens, used_in + used_out)
            try:
                return usable(answer, characters_max=characters_max)
            except UnusableError:
                if last:
                    raise
        raise AssertionError("the last answer is returned or raised")

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _request(self, messages: list[ChatCompletionMessageParam], spent: Spent) -> ChatCompletion:
        from openai.types.chat import ChatCompletion  # noqa: PLC0415  # optional, and slow to import

        spent.calls += 1
        answer: object = await self._client.chat.completions.create(model=self._model, messages=messages)
        # The library hands out a page of text as a string, and any JSON object as an answer.
        if not isinstance(answer, ChatCompletion):
            raise ValueError(f"{type(answer).__name__} instead of an answer")  # noqa: TRY004  # `call` takes it for unreadable
        return answer
