"""The threads of a loop, without a loop."""

from __future__ import annotations

import threading

from leader.crew import Crew

WITHIN_S = 10.0


def test_who_comes_too_late_to_be_dismissed_does_not_stand_by() -> None:
    """All calls may have been heard by others."""
    returned = threading.Event()

    def work() -> None:
        crew.stand_by()
        returned.set()

    crew = Crew("crew-of-a-test", work, lambda: False)
    crew.dismiss()
    crew.add()
    try:
        assert returned.wait(WITHIN_S)
    finally:
        crew.call()
