"""What is wrong with a definition."""

from __future__ import annotations

from typing import NamedTuple

from nimbus.config.problems import KeyPath


class Fault(NamedTuple):
    """Something that is wrong at a key."""

    path: KeyPath
    message: str
    suggestion: str | None = None
