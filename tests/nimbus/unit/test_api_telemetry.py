"""Log lines have one form, and metrics count correctly."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from nimbus.telemetry.logging import LoggingConfigError, configure


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    standing = structlog.get_config()
    noisy = {name: logging.getLogger(name).level for name in ("uvicorn.access", "botocore", "urllib3")}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, old in noisy.items():
        logging.getLogger(name).setLevel(old)
    structlog.configure(**standing)


def _lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_lines_of_the_http_server_have_no_copy_with_colours() -> None:
    stream = io.StringIO()
    configure("info", "json", stream)

    logging.getLogger("uvicorn.error").warning("Started", extra={"color_message": "\x1b[36mStarted"})

    (line,) = _lines(stream)
    assert line["event"] == "Started"
    assert "color_message" not in line


def test_json_lines_carry_event_level_time_and_fields() -> None:
    stream = io.StringIO()
    configure("info", "json", stream)

    structlog.get_logger("nimbus.x").info("run_finished", run_id="r1", took_s=1.5)

    (line,) = _lines(stream)
    assert (line["event"], line["level"], line["logger"]) == ("run_finished", "info", "nimbus.x")
    assert (line["run_id"], line["took_s"]) == ("r1", 1.5)
    assert str(line["timestamp"]).endswith("Z")


def test_lines_of_libraries_take_the_same_form() -> None:
    stream = io.StringIO()
    configure("info", "json", stream)

    logging.getLogger("kazoo.client").warning("lost %s", "it")
    logging.getLogger("botocore.x").info("chatter")

    (line,) = _lines(stream)
    assert (line["event"], line["logger"], line["level"]) == ("lost it", "kazoo.client", "warning")


def test_the_level_holds_for_loggers_that_exist_already() -> None:
    logger = structlog.get_logger("nimbus.early")
    stream = io.StringIO()
    configure("warning", "json", stream)

    logger.info("small")
    logger.warning("large")

    assert [line["event"] for line in _lines(stream)] == ["large"]


def test_an_exception_is_in_the_line() -> None:
    stream = io.StringIO()
    configure("info", "json", stream)

    try:
        {}["x"]
    except KeyError:
        structlog.get_logger("nimbus.x").exception("failed")

    (line,) = _lines(stream)
    assert "KeyError" in str(line["exception"])


@pytest.mark.parametrize(("level", "form"), [("loud", "json"), ("info", "xml")])
def test_an_unknown_level_or_format_is_refused(level: str, form: str) -> None:
    with pytest.raises(LoggingConfigError) as refused:
        configure(level, form)

    assert refused.value.exit_code == 2


def _fail_with_a_secret_at_hand() -> None:
    secret = "".join(("s3cr3t", "-in-a-local"))
    raise KeyError(len(secret))


@pytest.mark.parametrize("form", ["console", "json"])
def test_a_traceback_shows_no_local_variable(form: str) -> None:
    stream = io.StringIO()
    configure("info", form, stream)

    try:
        _fail_with_a_secret_at_hand()
    except KeyError:
        structlog.get_logger("nimbus.x").exception("it_failed")

    assert "KeyError" in stream.getvalue()
    assert "s3cr3t-in-a-local" not in stream.getvalue()
