"""A chat model that is asked for JSON of a given form, and a server that may not know how."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import openai


class StructuredChat:
    """
    Asks for structured output (JSON schema, strict); a server that refuses that is asked without, from then on.

    Args:
        client: of the server.
        model: the model's name there.
        name: of what is answered, as the API wants one.
        schema: of the answer.
    """

    def __init__(self, client: openai.AsyncOpenAI, *, model: str, name: str, schema: Mapping[str, Any]) -> None:
        self._client = client
        self._model = model
        self._format = {"type": "json_schema", "json_schema": {"name": name, "schema": dict(schema), "strict": True}}
        self._structured = True
        """Until the server refuses it."""

    async def ask(self, system: str, prompt: str) -> str:
        """
        The text of one answer, which may be empty.

        Raises:
            ValueError: an answer without choices.
            openai.OpenAIError: whatever the library raises.
        """
        import openai  # noqa: PLC0415  # optional, and slow to import

        messages: Any = [{"role": "system", "content": system}, {"role": "user", "content": prompt}]
        extra: dict[str, Any] = {"response_format": self._format} if self._structured else {}
        try:
            answer = await self._client.chat.completions.create(model=self._model, messages=messages, **extra)
        except openai.BadRequestError as error:
            if not self._structured or "response_format" not in str(error):
                raise
            self._structured = False
            answer = await self._client.chat.completions.create(model=self._model, messages=messages)
        choices = getattr(answer, "choices", None)
        if not choices:
            raise ValueError("an answer without choices")
        return choices[0].message.content or ""
