"""One question to a chat model and one answer: what the adapters share that need nothing more of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory.adapters.openai.model import ChatModel
from memory.adapters.openai.summarizer import ANSWER_CHARACTERS_MAX, UnusableError, usable
from memory.ports.summarizer import estimate_tokens

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletion, ChatCompletionMessageParam


@dataclass(slots=True)
class Spent:
    """What answers have cost so far."""

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0


class Chat(ChatModel):
    """A chat model that is asked one thing at a time."""

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
            BanyanError: the server will never take this request; as `permanent` makes it.
        """
        messages: list[ChatCompletionMessageParam] = [
            {"role": "system", "content": system},
            {"role": "user", "content": prompt},
        ]
        sent = estimate_tokens(system) + estimate_tokens(prompt)
        for last in (False, True):
            answer = await self.repeated(lambda: self._request(messages, spent), tokens=sent + answer_tokens)
            used_in, used_out = (
                (answer.usage.prompt_tokens, answer.usage.completion_tokens) if answer.usage else (sent, answer_tokens)
            )
            spent.tokens_in += used_in
            spent.tokens_out += used_out
            await self.correct(sent + answer_tokens, used_in + used_out)
            try:
                return usable(answer, characters_max=characters_max)
            except UnusableError:
                if last:
                    raise
        raise AssertionError("the last answer is returned or raised")

    async def _request(self, messages: list[ChatCompletionMessageParam], spent: Spent) -> ChatCompletion:
        spent.calls += 1
        return await self.create(messages)
