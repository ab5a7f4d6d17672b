"""Logging, to standard error: events with fields, for people or as JSON lines."""

from __future__ import annotations

import logging
import sys

import structlog

from streams import tracing
from streams.setting_tables import LogSettings

_NOISY = ("httpx", "httpx2", "httpcore", "httpcore2", "openai", "huggingface_hub", "urllib3", "filelock", "asyncio")


def configure_logging(settings: LogSettings) -> None:
    """
    Send what Banyan and its libraries log to standard error, in one form.

    May be called again; the last call counts.
    """
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    as_console = settings.format == "console" or (settings.format == "auto" and sys.stderr.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _with_trace,
    ]
    renderer: structlog.typing.Processor
    if as_console:
        renderer = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    else:
        # Without the frames' variables: they hold what users wrote.
        as_dict = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        shared.append(structlog.processors.ExceptionRenderer(as_dict))
        renderer = structlog.processors.JSONRenderer(ensure_ascii=False)
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in _NOISY:
        # Their "info" is one line a request.
        logging.getLogger(name).setLevel(max(level, logging.WARNING))


def _with_trace(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """So that a line leads to its trace."""
    if (found := tracing.trace_id()) is not None:
        event["trace_id"] = found
    return event
