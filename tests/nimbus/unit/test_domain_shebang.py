"""Files that Linux does not start as programs, however they are named."""

from __future__ import annotations

import pytest

from nimbus.domain.attempts.shebang import fault_of, interpreter_of


@pytest.mark.parametrize(
    ("head", "why"),
    [
        (b"", "does not name an interpreter"),
        (b"echo hello\n", "does not name an interpreter"),
        (b"#!/bin/sh\r\nls\r\n", "CRLF"),
        (b"#!/usr/bin/env python3\r\n", "CRLF"),
        (b"\xef\xbb\xbf#!/bin/sh\n", "byte order mark"),
        (b"#!python3\n", "not 'python3'"),
        (b"#!\n", "not ''"),
        (b"#! /bin/sh -e\n", None),
        (b"#!/usr/bin/env python3", None),
        (b"\x7fELF\x02\x01\x01\0\0", None),
        (b"PK\x03\x04\0\0", None),
    ],
)
def test_first_line_shows_why_a_file_cannot_be_started(head: bytes, why: str | None) -> None:
    fault = fault_of(head)

    assert fault is None if why is None else why in (fault or "")


def test_interpreter_is_the_first_word() -> None:
    assert (interpreter_of(b"#! /bin/sh -e\n"), interpreter_of(b"ls\n")) == ("/bin/sh", "")
