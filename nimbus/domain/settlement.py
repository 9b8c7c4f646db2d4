"""How a task ended without an attempt: no worker runs it, or it could not begin."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """Who or what ended such a task, when, and why. Whether it succeeded is the task's state."""

    at: datetime
    by: str = ""
    """Who approved or rejected it; empty: nobody did, it is what `reason` says."""
    reason: str
