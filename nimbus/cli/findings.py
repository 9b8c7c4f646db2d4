"""What a check of the doctor found."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from enum import StrEnum

_DEADLINE_S = 3.0


class Verdict(StrEnum):
    """How a thing is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found."""

    check: str
    verdict: Verdict
    detail: str
    advice: str = ""


def listens(check: str, host: str, port: int, advice: str, then: str = "") -> Finding:
    """Does anybody take connections there? `advice`: if not. `then`: what else to try if so."""
    try:
        socket.create_connection((host, port), _DEADLINE_S).close()
    except OSError as exc:
        return Finding(check, Verdict.FAIL, f"{host}:{port}: {exc.strerror or exc}", advice)
    return Finding(check, Verdict.OK, f"{host}:{port} listens" + (f"; {then}" if then else ""))
