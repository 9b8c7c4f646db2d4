"""Records the steps of a hand-over inside our own library, for its profile. Complements `kazoo_trace`."""

from __future__ import annotations

from typing import Any

from leader.core.participant.core import ParticipantCore
from leader.runtime.callbacks import Callbacks
from tests.benchmark.leader.kazoo_trace import Trace, before, general


def install(trace: Trace) -> None:
    """Wrap the methods through which our threads call each other."""

    def hears(_core: ParticipantCore, path: str, gone: bool) -> None:
        trace.note(f"hears of {general(path)}{' that it is gone' if gone else ''}")

    def handles(_core: ParticipantCore, event: Any) -> None:
        trace.note(f"handles {type(event).__name__}")

    before(ParticipantCore, "watch_fired", hears)
    before(ParticipantCore, "handle", handles)
    before(Callbacks, "ask", lambda *_: trace.note("asks the guard"))
    before(Callbacks, "elected", lambda *_: trace.note("tells elected"))
    before(Callbacks, "revoked", lambda *_: trace.note("tells revoked"))
    before(Callbacks, "_revoked", lambda *_: trace.note("revoked"))
