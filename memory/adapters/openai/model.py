"""A chat model at its server: what all that ask one share, and what is the same of the adapters that do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from memory.adapters.openai.client import Endpoint, call, open_client
from memory.adapters.openai.throttle import Throttle
from memory.errors import BanyanError, PermanentError, SettingError, TransientError
from memory.ports.budget import CallBudget

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletion, ChatCompletionMessageParam

_Answer = TypeVar("_Answer")


class ChatModel:
    """
    A chat model, and how calls to it are repeated and fail.

    Args:
        model: the model's name at the server.
        endpoint: where it is, and how patiently it is asked.
        variable: the setting that names the model, for messages.
        transient: raised when it is away, refuses for now, or the server answers with what is no answer.
        permanent: made for a request that the server will never take.
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
        permanent: Callable[[str], BanyanError] = PermanentError,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        budget: CallBudget | None = None,
    ) -> None:
        if not model:
            raise SettingError(f"A model's name is needed: set {variable} to openai:<model>.")
        self.name = f"openai:{model}"
        self._model = model
        self._endpoint = endpoint
        self._transient = transient
        self._permanent = permanent
        self._sleep = sleep
        self._client = open_client(endpoint)
        self._throttle: Throttle | None = None
        if budget is not None:
            self._throttle = Throttle(budget, what=self.name, transient=transient, wait_max=endpoint.wait_max_s, sleep=sleep)

    @property
    def where(self) -> str:
        """The model and the server's address, for messages."""
        return f"{self.name} at {self._endpoint.shown_url}"

    async def create(self, messages: Sequence[ChatCompletionMessageParam], **options: Any) -> ChatCompletion:
        """
        One request, which `repeated` repeats.

        Args:
            messages: of the conversation.
            options: of the API, e.g. `response_format`.

        Raises:
            ValueError: what came is no answer of the API.
            openai.OpenAIError: whatever the library raises.
        """
        from openai.types.chat import ChatCompletion  # noqa: PLC0415  # optional, and slow to import

        answer: object = await self._client.chat.completions.create(model=self._model, messages=messages, **options)
        # The library hands out a page of text as a string, and any JSON object as an answer.
        if not isinstance(answer, ChatCompletion):
            raise ValueError(f"{type(answer).__name__} instead of an answer")  # noqa: TRY004  # `call` takes it for unreadable
        return answer

    async def repeated(self, attempt: Callable[[], Awaitable[_Answer]], *, tokens: int = 0) -> _Answer:
        """
        What an attempt gives, made again after transient failures, as the endpoint says.

        Args:
            attempt: makes requests with `create`.
            tokens: what it is expected to cost, for the budget.

        Raises:
            TransientError: of the type given, the model is away or refuses for now.
            SettingError: the key or the model was refused (401, 403, 404); says what to check.
            BanyanError: as `permanent` makes it.
        """
        return await call(
            attempt,
            endpoint=self._endpoint,
            what=self.name,
            transient=self._transient,
            permanent=self._permanent,
            unreadable=self._transient,
            sleep=self._sleep,
            throttle=self._throttle,
            tokens=tokens,
        )

    async def correct(self, expected: int, used: int) -> None:
        """Tell the budget what a call has cost instead of what was expected, in tokens."""
        if self._throttle is not None:
            await self._throttle.correct(expected, used)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


AnyChat = TypeVar("AnyChat", bound=ChatModel)


class ChatAdapter(Generic[AnyChat]):
    """What is the same of every port that a chat model stands behind: its name, how it is shown, how it is closed."""

    def __init__(self, chat: AnyChat) -> None:
        self._chat = chat

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._chat.where})"

    @property
    def name(self) -> str:
        """`openai:` and the model."""
        return self._chat.name

    async def close(self) -> None:
        """Close the connections."""
        await self._chat.close()
