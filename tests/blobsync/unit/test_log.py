"""Loggers import structlog when they write their first line."""

from __future__ import annotations

import structlog

from blobsync.log import LazyLog, log_errors_alone


def test_lines_go_to_structlog() -> None:
    with structlog.testing.capture_logs() as lines:
        LazyLog("a.module").warning("something_happened", count=1)

    assert lines == [{"event": "something_happened", "count": 1, "log_level": "warning"}]


def test_errors_alone_are_logged_where_that_is_wanted_and_what_prepares_for_them_is_called_once() -> None:
    told: list[str] = []
    log_errors_alone(lambda: told.append("configured"))
    log = LazyLog("a.module")

    with structlog.testing.capture_logs() as lines:
        log.info("dropped", count=1)
        log.warning("dropped")
        assert told == []
        log.error("kept")
        log.error("kept")

    assert told == ["configured"]
    assert [line["event"] for line in lines] == ["kept", "kept"]
