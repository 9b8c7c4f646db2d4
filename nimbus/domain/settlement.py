"""The end of a task without an attempt: no worker runs such a task, or it could not begin."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """Who ended the task, when and why. The task's state has the result."""

    at: datetime
    by: str = ""
    """The person who approved or rejected it; empty: no person did, see `reason`."""
    reason: str
    timed_out: bool = False
    """True for a wait or an approval that has failed because its timeout passed."""
