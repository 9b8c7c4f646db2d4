"""Configures structured logging for a process: one line for each event, on standard error.

Lines of libraries that use the standard library's logging (kazoo, uvicorn, boto3) take the same form. Called
once, from the main thread, before other threads start.
"""

from __future__ import annotations

import logging
import sys
from typing import Literal, TextIO, get_args

_rich = sys.modules.get("rich")
sys.modules["rich"] = None  # type: ignore[assignment] # structlog would import it: 5 MiB in each daemon
import structlog  # noqa: E402

if _rich is None:
    del sys.modules["rich"]
else:
    sys.modules["rich"] = _rich

from nimbus.domain.errors import NimbusError  # noqa: E402

LogFormat = Literal["console", "json"]

_LEVELS = ("debug", "info", "warning", "error")
_NOISY = {"uvicorn.access": logging.WARNING, "botocore": logging.WARNING, "urllib3": logging.WARNING}
"""Noisy loggers of libraries, with the lowest level that is shown."""


def _without_colours(
    _logger: object, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Remove uvicorn's second copy of its message, which has escape sequences."""
    event.pop("color_message", None)
    return event


class LoggingConfigError(NimbusError):
    """A log level or format that does not exist."""

    code = "logging_config"
    exit_code = 2


def configure(level: str = "info", format: str = "console", stream: TextIO | None = None) -> None:  # noqa: A002 - the configuration's word
    """Send every log line of this process to `stream`, in one form.

    Args:
        level: `debug`, `info`, `warning` or `error`; nothing below it is shown.
        format: `console` for people, `json` for machines (one object a line, UTC times).
        stream: Where lines go; None: standard error.

    Raises:
        LoggingConfigError: unknown level or format.
    """
    if level.lower() not in _LEVELS:
        raise LoggingConfigError(f"log level {level!r} is unknown: use one of {', '.join(_LEVELS)}.")
    if format not in get_args(LogFormat):
        raise LoggingConfigError(f"log format {format!r} is unknown: use console or json.")
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        _without_colours,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,  # a second call must change existing loggers, too
    )
    target = stream or sys.stderr
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_renderers(format, target),
            ],
        )
    )
    # No format shows the line of code that logs. See "Optimization" in Python's "Logging HOWTO".
    logging._srcfile = None
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name, least in _NOISY.items():
        logging.getLogger(name).setLevel(max(least, root.level))


def _renderers(format: str, stream: TextIO) -> list[structlog.typing.Processor]:  # noqa: A002 - as above
    if format == "json":
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    # Plain, because a pretty traceback shows local variables, which may be secrets.
    plain = structlog.dev.plain_traceback
    return [structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=plain)]
