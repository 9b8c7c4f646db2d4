"""The reason why an effect for a command or a schedule failed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a release was not prepared, a run was not built, or a purge was not stored."""

    code: str
    message: str
