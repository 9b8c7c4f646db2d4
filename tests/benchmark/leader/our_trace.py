"""Notes where a hand-over is inside our own library, for its profile. Complements `kazoo_trace`."""

from __future__ import annotations

from typing import Any

from leader.guard import GuardAsker
from leader.notifier import Notifier
from leader.office.core import OfficeCore
from tests.benchmark.leader.kazoo_trace import Trace, before, general


def install(trace: Trace) -> None:
    """Stand in for the doors between our threads."""

    def hears(_core: OfficeCore, path: str, gone: bool) -> None:
        trace.note(f"hears of {general(path)}{' that it is gone' if gone else ''}")

    def handles(_core: OfficeCore, event: Any) -> None:
        trace.note(f"handles {type(event).__name__}")

    before(OfficeCore, "heard", hears)
    before(OfficeCore, "handle", handles)
    before(GuardAsker, "ask", lambda *_: trace.note("asks the guard"))
    before(Notifier, "elected", lambda *_: trace.note("tells elected"))
    before(Notifier, "revoked", lambda *_: trace.note("tells revoked"))
    before(Notifier, "_revoked", lambda *_: trace.note("revoked"))
