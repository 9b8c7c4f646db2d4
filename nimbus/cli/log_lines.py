"""Log lines of the libraries, kept out of a command's data."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def logs_on_stderr() -> Iterator[None]:
    """Send log lines to standard error inside the block: structlog's default would mix them with data."""
    import structlog  # takes long; few commands need it

    before = structlog.get_config()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(file=sys.stderr))
    try:
        yield
    finally:
        structlog.configure(**before)
