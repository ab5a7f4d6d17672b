"""A chat model that is asked for JSON of a given form, and a server that may not know how."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from memory.adapters.openai.client import Endpoint
from memory.adapters.openai.model import ChatAdapter, ChatModel
from memory.errors import TransientError

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletion, ChatCompletionMessageParam


class StructuredChat(ChatModel):
    """
    Asks for structured output (JSON schema, strict); a server that refuses that is asked without, from then on.

    Somebody waits for what it answers: it is asked twice at most, and waited for 5 s at most between the two, however patient the
    endpoint is. Whatever fails, but for what is configured, fails with one error.

    Args:
        model: the model's name at the server.
        endpoint: where it is.
        variable: the setting that names the model, for messages.
        error: raised when the model is away, refuses the request, now or for ever, or answers with what is no answer.
        form: name of what is answered, as the API wants one.
        schema: of the answer.
        sleep: waits between tries.

    Raises:
        SettingError: no model's name, the library openai is missing, there is no key, or the address is none.
    """

    def __init__(
        self,
        *,
        model: str,
        endpoint: Endpoint,
        variable: str,
        error: type[TransientError],
        form: str,
        schema: Mapping[str, Any],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__(
            model=model, endpoint=endpoint.waited_for(), variable=variable, transient=error, permanent=error, sleep=sleep
        )
        self._format = {"type": "json_schema", "json_schema": {"name": form, "schema": dict(schema), "strict": True}}
        self._structured = True
        """Until the server refuses it."""

    async def ask(self, system: str, prompt: str) -> str:
        """
        The text of one answer, which may be empty and of any form.

        Raises:
            TransientError: of the type given.
            SettingError: the key or the model was refused (401, 403, 404); says what to check.
        """
        messages: list[ChatCompletionMessageParam] = [
            {"role": "system", "content": system},
            {"role": "user", "content": prompt},
        ]
        answer = await self.repeated(lambda: self._request(messages))
        return answer.choices[0].message.content or ""

    async def _request(self, messages: list[ChatCompletionMessageParam]) -> ChatCompletion:
        import openai  # noqa: PLC0415  # optional, and slow to import

        options: dict[str, Any] = {"response_format": self._format} if self._structured else {}
        try:
            answer = await self.create(messages, **options)
        except openai.BadRequestError as error:
            if not self._structured or "response_format" not in str(error):
                raise
            self._structured = False
            answer = await self.create(messages)
        if not answer.choices:
            raise ValueError("an answer without choices")
        return answer


class StructuredAdapter(ChatAdapter[StructuredChat]):
    """
    What asks for structured answers behind a port; a subclass says which.

    Args:
        model: the model's name at the server.
        endpoint: where it is; asked as patiently as `StructuredChat` does.
        sleep: waits between tries.

    Raises:
        SettingError: no model's name, the library openai is missing, there is no key, or the address is none.
    """

    VARIABLE: ClassVar[str]
    ERROR: ClassVar[type[TransientError]]
    FORM: ClassVar[str]
    SCHEMA: ClassVar[Mapping[str, Any]]
    """These four as for `StructuredChat`."""

    def __init__(self, *, model: str, endpoint: Endpoint, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        chat = StructuredChat(
            model=model,
            endpoint=endpoint,
            variable=self.VARIABLE,
            error=self.ERROR,
            form=self.FORM,
            schema=self.SCHEMA,
            sleep=sleep,
        )
        super().__init__(chat)
