"""Chooses the scheduler that a cluster downloads a driver's program from. Thread of the cluster."""

from __future__ import annotations

import urllib.request
from collections.abc import Sequence
from http.client import HTTPException

BOOTSTRAP = "/attempt/v1/bootstrap.py"
"""Path of the program on each scheduler."""
_ANSWER_S = 2.0


def living_first(endpoints: Sequence[str]) -> list[str]:
    """The base URLs, with one first that serves the program; unchanged if none serves it to this host."""
    living = next(filter(_lives, endpoints), None)
    return list(dict.fromkeys(((living,) if living else ()) + tuple(endpoints)))


def _lives(endpoint: str) -> bool:
    try:
        url = f"{endpoint}{BOOTSTRAP}"
        with urllib.request.urlopen(url, timeout=_ANSWER_S) as answer:  # noqa: S310 - a scheduler's
            return bool(answer.status == 200)
    except (OSError, HTTPException, ValueError):
        return False
