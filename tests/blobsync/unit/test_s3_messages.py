"""Answers of S3 over HTTP: they are parsed, and used only if they fit the request."""

from __future__ import annotations

import pytest

from blobsync.errors import BucketUnavailableError
from blobsync.s3.config import S3Config
from blobsync.s3.errors import answered
from blobsync.s3.messages import (
    BodySlice,
    ByteRange,
    HttpError,
    body_slice,
    code_and_message,
    parsed,
    unchunked,
)


@pytest.mark.parametrize(
    ("told", "body", "start", "size_bytes", "use"),
    [
        # The requested range, also at the end of the object, and also without a total size.
        ("bytes 5-14/100", 10, 5, 10, BodySlice(0, 10)),
        ("bytes 95-99/100", 5, 95, 10, BodySlice(0, 5)),
        ("bytes 95-99/*", 5, 95, 10, BodySlice(0, 5)),
        ("bytes 5-99/100", 95, 5, None, BodySlice(0, 95)),
        # A longer range than requested: the rest is not used.
        ("bytes 5-99/100", 95, 5, 10, BodySlice(0, 10)),
        # The server ignored the range.
        (None, 100, 5, 10, BodySlice(5, 10)),
        (None, 100, 95, 10, BodySlice(95, 5)),
        (None, 100, 5, None, BodySlice(5, 95)),
        (None, 100, 200, 10, BodySlice(100, 0)),
        (None, 100, 0, None, BodySlice(0, 100)),
        # Another range, or a header that does not fit the body.
        ("bytes 6-15/100", 10, 5, 10, None),
        ("bytes 5-14/100", 9, 5, 10, None),
        ("bytes 5-9/100", 5, 5, 10, None),
        ("bytes 5-9/100", 5, 5, None, None),
        ("bytes 0-9/100", 10, 0, None, None),
        ("pages 5-14/100", 10, 5, 10, None),
        ("bytes 5-14", 10, 5, 10, None),
        ("bytes 14-5/100", 10, 14, 10, None),
        ("bytes \u0665-14/100", 10, 5, 10, None),
    ],
)
def test_answer_is_used_as_far_as_it_fits_the_question(
    told: str | None, body: int, start: int, size_bytes: int | None, use: BodySlice | None
) -> None:
    assert body_slice(told, body, ByteRange("k", start, size_bytes)) == use


@pytest.mark.parametrize("length", ["-5", "+5", "5x", "0x5", "", "9" * 30, "\u0665"])
def test_length_that_is_no_number_is_no_length(length: str) -> None:
    head = parsed(f"HTTP/1.1 200 OK\r\nContent-Length: {length}".encode("latin-1", "replace"))

    assert head.size_bytes is None


@pytest.mark.parametrize("head", [b"HTTP/1.0 200 OK", b"HTTP/1.1 200 OK\r\nConnection: close"])
def test_server_that_will_hang_up_is_believed(head: bytes) -> None:
    assert not parsed(head).keeps_open
    assert parsed(b"HTTP/1.1 200 OK").keeps_open


@pytest.mark.parametrize(
    ("raw", "whole"),
    [
        (b"0\r\n\r\n", b""),
        (b"5\r\nhello\r\n0\r\n\r\n", b"hello"),
        (b"5;name=value\r\nhello\r\n00A\r\n, the world\r\n0\r\n\r\n"[:-21], None),
        (b"3\r\nhel\r\n2 \r\nlo\r\n0\r\nTrailer: x\r\n\r\n", b"hello"),
        (b"5\r\nhel", None),
        (b"5", None),
        (b"", None),
    ],
    ids=range(7),
)
def test_chunks_are_taken_together_when_their_end_has_come(raw: bytes, whole: bytes | None) -> None:
    assert unchunked(raw) == whole


@pytest.mark.parametrize("raw", [b"\r\n", b"-5\r\nhello", b"0x5\r\nhello", b"fffffffff\r\n", b"<Error>\r\n"])
def test_what_is_no_chunk_is_refused(raw: bytes) -> None:
    with pytest.raises(HttpError, match="chunk"):
        unchunked(raw)


def test_error_that_says_nothing_has_no_code() -> None:
    assert code_and_message(b"<Error><Code>SlowDown</Code><Message>Wait.</Message></Error>") == (
        "SlowDown",
        "Wait.",
    )
    assert code_and_message(b"<html>Bad gateway</html>") == ("", "")


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_status_that_says_try_again_is_no_refusal(status: int) -> None:
    assert isinstance(
        answered(status, "", "", S3Config(bucket="bucket", endpoint_url="http://127.0.0.1:1"), "k"),
        BucketUnavailableError,
    )
