"""A fault in a definition."""

from __future__ import annotations

from typing import NamedTuple

from nimbus.config.problems import KeyPath
from nimbus.domain.spelling import Suggestion


class Fault(NamedTuple):
    """A fault at a key of a definition."""

    path: KeyPath
    message: str
    suggestion: Suggestion = None
