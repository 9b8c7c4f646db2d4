"""The result of one of the doctor's checks."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from enum import StrEnum

_DEADLINE_S = 3.0


class Level(StrEnum):
    """The result in one word."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check, with detail and advice."""

    check: str
    verdict: Level
    detail: str
    advice: str = ""


def listens(check: str, host: str, port: int, advice: str, then: str = "") -> Finding:
    """Does a server accept connections there? `advice` is for a failure, `then` a next step after success."""
    try:
        socket.create_connection((host, port), _DEADLINE_S).close()
    except OSError as exc:
        return Finding(check, Level.FAIL, f"{host}:{port}: {exc.strerror or exc}", advice)
    return Finding(check, Level.OK, f"{host}:{port} listens" + (f"; {then}" if then else ""))
