"""`nimbus doctor`: finds what would prevent Nimbus from working here. No check raises."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from enum import StrEnum

DEADLINE_S = 3.0
"""Time limit of a connection and of a response."""


class Level(StrEnum):
    """The result of a check in one word."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check, with detail and advice."""

    check: str
    verdict: Level
    detail: str
    advice: str = ""


def ok(check: str, detail: str) -> CheckResult:
    """Nothing to do."""
    return CheckResult(check, Level.OK, detail)


def warn(check: str, detail: str, advice: str) -> CheckResult:
    """Nimbus works, perhaps not as expected."""
    return CheckResult(check, Level.WARN, detail, advice)


def fail(check: str, detail: str, advice: str) -> CheckResult:
    """Nimbus would not work."""
    return CheckResult(check, Level.FAIL, detail, advice)


def listens(check: str, host: str, port: int, advice: str, then: str = "") -> CheckResult:
    """Does a server accept connections there? `advice` is for a failure, `then` a next step after success."""
    try:
        socket.create_connection((host, port), DEADLINE_S).close()
    except OSError as exc:
        return fail(check, f"{host}:{port}: {exc.strerror or exc}", advice)
    return ok(check, f"{host}:{port} listens" + (f"; {then}" if then else ""))
