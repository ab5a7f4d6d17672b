"""What every model behind the OpenAI API shares: a client, bounded retries, and the translation of errors."""

from __future__ import annotations

import asyncio
import email.utils
import math
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

from memory.adapters.openai.throttle import Throttle
from memory.errors import BanyanError, PermanentError, SettingError, TransientError

if TYPE_CHECKING:
    import openai

DEFAULT_BASE_URL: Final = "https://api.openai.com/v1"

EXCERPT_CHARS: Final = 300
"""Of a server's message, in ours."""

_TRANSIENT_STATUS: Final = frozenset({402, 408, 409, 425, 429})
"""And 500 and above. 402: somebody will pay; the work is held back until then."""

_CONFIGURATION_STATUS: Final = {
    401: "the key was refused: check OPENAI_API_KEY",
    403: "the key may not use this model: check OPENAI_API_KEY and the model's name",
    404: "no such model or path: check the model's name and OPENAI_BASE_URL",
}
"""Nothing is wrong with the record: what is configured cannot work, and waiting does not change that."""

_TOO_MANY = 429

_JITTER = 0.25
"""Waits are up to so much longer: those who were refused together do not come back together."""

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a model is reached, and how patiently."""

    base_url: str | None = None
    """None is OpenAI itself."""
    api_key: str | None = field(default=None, repr=False)
    """Needed by OpenAI itself; compatible servers on one's own machine often take none."""
    timeout_s: float = 30.0
    """For one whole attempt, from connecting to the answer's last byte. Lower: slow answers are paid for twice. Higher: a server
    that hangs is noticed late."""
    attempts: int = 3
    """Of one call, the first included, at least 1. What remains after them is the caller's to hold back."""
    wait_max_s: float = 10.0
    """Longest wait between two attempts. A server that asks for more is not waited for here: the error carries its wish."""

    @property
    def shown_url(self) -> str:
        """The address without user, password and query, for messages."""
        parts = urlsplit(self.base_url or DEFAULT_BASE_URL)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}{parts.path}"

    def waited_for(self) -> Endpoint:
        """The same for what somebody waits for: two attempts at the most, and at most 5 s between them."""
        return replace(self, attempts=min(self.attempts, 2), wait_max_s=min(self.wait_max_s, 5.0))


def open_client(endpoint: Endpoint) -> openai.AsyncOpenAI:
    """
    Make a client; nothing is sent. Retries are ours (`call`), so the client's own are off.

    Raises:
        SettingError: the library is missing, the address is none, or OpenAI itself is meant and there is no key.
    """
    try:
        import openai  # noqa: PLC0415  # optional, and slow to import
    except ImportError as error:
        raise SettingError(
            f"Models named openai:… need the library {error.name}: install it with `pip install 'banyan-memory[openai]'`."
        ) from error
    _check(endpoint)
    return openai.AsyncOpenAI(
        api_key=endpoint.api_key or "not-needed",
        base_url=endpoint.base_url or DEFAULT_BASE_URL,
        timeout=endpoint.timeout_s,
        max_retries=0,
    )


async def call(
    attempt: Callable[[], Awaitable[_Answer]],
    *,
    endpoint: Endpoint,
    what: str,
    transient: type[TransientError],
    permanent: Callable[[str], BanyanError],
    unreadable: Callable[[str], BanyanError],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    throttle: Throttle | None = None,
    tokens: int = 0,
) -> _Answer:
    """
    Make a call, again after transient failures, within the endpoint's bounds.

    Args:
        attempt: makes the request; awaited up to `endpoint.attempts` times.
        endpoint: the bounds.
        what: who failed, for the message, e.g. `openai:text-embedding-3-small`.
        transient: raised when the service is away or refuses for now; carries `retry_after` in seconds when the server named it.
        permanent: makes the error for a request that the service will never take (400, 413, 422).
        unreadable: makes the error for an answer that is not the API's JSON.
        sleep: waits between attempts.
        throttle: has each attempt wait for its turn, and everybody else leave the service alone when it asks for that.
        tokens: what an attempt is expected to cost.

    Raises:
        SettingError: the service refused the key, the model's name or the path (401, 403, 404).
    """
    for number in range(1, endpoint.attempts + 1):
        if throttle is not None:
            await throttle.turn(tokens)
        try:
            async with asyncio.timeout(endpoint.timeout_s):
                return await attempt()
        except Exception as error:
            failure = _translate(error, endpoint, what, transient, permanent, unreadable)
            if throttle is not None:
                await _leave_alone(throttle, error, failure, number)
            if failure is None:
                raise
            # A server may repeat the key in its message; the cause would then print it.
            cause = None if endpoint.api_key and endpoint.api_key in _spoken(error) else error
            wait = _wait_s(failure, number) if _worth_repeating(error) else None
            if wait is None or wait > endpoint.wait_max_s or number == endpoint.attempts:
                raise failure from cause
        await sleep(wait * random.uniform(1.0, 1.0 + _JITTER))  # noqa: S311  # no secret
    raise AssertionError("the last attempt returns or raises")


async def _leave_alone(throttle: Throttle, error: Exception, failure: BanyanError | None, number: int) -> None:
    """Hold everybody back where the server named a time, or said that there were too many requests."""
    told = failure or error
    if not isinstance(told, TransientError):
        return
    seconds = told.retry_after
    if seconds is None and getattr(error, "status_code", None) == _TOO_MANY:
        seconds = _wait_s(told, number)
    if seconds:
        await throttle.pause(seconds)


def _check(endpoint: Endpoint) -> None:
    parts = urlsplit(endpoint.base_url or DEFAULT_BASE_URL)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingError("OPENAI_BASE_URL must be an address like https://host/v1 or http://localhost:8000/v1.")
    if not endpoint.api_key and parts.hostname == urlsplit(DEFAULT_BASE_URL).hostname:
        raise SettingError("OpenAI needs a key: set OPENAI_API_KEY, or OPENAI_BASE_URL to a compatible server of your own.")
    if endpoint.timeout_s <= 0 or endpoint.attempts < 1 or endpoint.wait_max_s < 0:
        raise SettingError("The time-out must be positive, attempts at least 1, and the longest wait not negative.")


def _worth_repeating(error: Exception) -> bool:
    status = getattr(error, "status_code", None)
    return status is None or status in _TRANSIENT_STATUS or status >= 500


def _wait_s(failure: BanyanError, number: int) -> float | None:
    if not isinstance(failure, TransientError):
        return None
    return failure.retry_after if failure.retry_after is not None else 0.5 * 2.0 ** (number - 1)


def _translate(
    error: Exception,
    endpoint: Endpoint,
    what: str,
    transient: type[TransientError],
    permanent: Callable[[str], BanyanError],
    unreadable: Callable[[str], BanyanError],
) -> BanyanError | None:
    """The domain's error for a vendor's; None for one that is not the vendor's."""
    import openai  # noqa: PLC0415

    where = f"{what} at {endpoint.shown_url}"
    if isinstance(error, openai.APITimeoutError | TimeoutError):
        return transient(f"{where} gave no answer within {endpoint.timeout_s:g} s.")
    if isinstance(error, openai.APIStatusError):
        return _translate_status(error, endpoint, where, transient, permanent)
    if isinstance(error, openai.APIResponseValidationError | ValueError) and not isinstance(error, PermanentError):
        return unreadable(f"{where} answered with something that is not the API's JSON: {_excerpt(error, endpoint)}")
    if isinstance(error, openai.OpenAIError):
        return transient(f"{where} cannot be reached: {_excerpt(error, endpoint)}")
    return None


def _translate_status(
    error: openai.APIStatusError,
    endpoint: Endpoint,
    where: str,
    transient: type[TransientError],
    permanent: Callable[[str], BanyanError],
) -> BanyanError:
    status, said = error.status_code, _excerpt(error, endpoint)
    if status in _CONFIGURATION_STATUS:
        return SettingError(f"{where} answered {status}, {_CONFIGURATION_STATUS[status]}. It said: {said}")
    if not _worth_repeating(error):
        return permanent(f"{where} refused the request with {status}: {said}")
    return transient(f"{where} answered {status}. It said: {said}", retry_after=_retry_after_s(dict(error.response.headers)))


def _spoken(error: Exception) -> str:
    return f"{error} {getattr(error, 'body', '')} {getattr(error, 'message', '')}"


def _excerpt(error: Exception, endpoint: Endpoint) -> str:
    body = getattr(error, "body", None)
    said = body.get("message") if isinstance(body, dict) else None
    text = " ".join(str(said or error).split())
    if endpoint.api_key:
        text = text.replace(endpoint.api_key, "***")
    return text[:EXCERPT_CHARS]


def _retry_after_s(headers: dict[str, str]) -> float | None:
    """Seconds a server asks to wait: `Retry-After` as seconds or as a date, or OpenAI's `retry-after-ms`."""
    lowered = {name.lower(): value for name, value in headers.items()}
    asked = lowered.get("retry-after")
    try:
        if "retry-after-ms" in lowered:
            seconds = float(lowered["retry-after-ms"]) / 1000
        elif asked is not None:
            seconds = float(asked)
        else:
            return None
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(asked or "").timestamp() - time.time()
        except ValueError:
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
