"""Why what a command or a schedule needs cannot be had."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a release could not be prepared, a run not built, a purge not stored."""

    code: str
    message: str
