"""A follower: signals count as one, a request to end is not lost, and a poll that failed is repeated."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from nimbus.ports import StoreUnavailableError
from nimbus.scheduler.followers import Follower

Eventually = Callable[..., None]
LONG = timedelta(seconds=60)


class Counting(Follower):
    """Each poll waits for the gate."""

    def __init__(self, gather_s: float = 0.0) -> None:
        super().__init__("follower", LONG.total_seconds(), gather_s)
        self.gate = threading.Event()
        self.polls, self.cleaned_up = 0, 0
        self.trouble: Exception | None = None

    def _poll(self) -> None:
        self.polls += 1
        self.gate.wait(60)
        if self.trouble is not None:
            raise self.trouble

    def _clean_up(self) -> None:
        self.cleaned_up += 1

    def ended(self) -> bool:
        """Whether it ends soon, although each of its pauses is long."""
        self._thread.join(LONG.total_seconds() / 2)
        return not self._thread.is_alive()


@pytest.fixture
def follower() -> Iterator[Counting]:
    follower = Counting()
    yield follower
    follower.gate.set()
    follower.stop(LONG)


def test_signals_that_came_together_cost_one_poll(follower: Counting, eventually: Eventually) -> None:
    follower.start()
    eventually(lambda: follower.polls == 1)
    follower.wake()
    follower.wake()
    follower.gate.set()
    eventually(lambda: follower.polls == 2)

    follower.stop_soon()

    assert follower.ended()
    assert (follower.polls, follower.cleaned_up) == (2, 1)


def test_request_to_end_is_heard_among_other_signals(follower: Counting, eventually: Eventually) -> None:
    follower.start()
    eventually(lambda: follower.polls == 1)
    for signal in (follower.wake, follower.stop_soon, follower.wake):
        signal()

    follower.gate.set()

    assert follower.ended()
    assert follower.polls == 1


@pytest.mark.parametrize("before", [0, 1])
def test_request_to_end_ends_the_wait_for_more_signals(before: int, eventually: Eventually) -> None:
    follower = Counting(gather_s=LONG.total_seconds())
    follower.gate.set()
    follower.start()
    eventually(lambda: follower.polls == 1)
    for _ in range(before):
        follower.wake()

    follower.stop_soon()

    assert follower.ended()
    assert follower.polls == 1


@pytest.mark.parametrize(
    ("trouble", "event"),
    [(StoreUnavailableError("away"), "follower_delayed"), (RuntimeError("bug"), "follower_failed")],
)
def test_poll_that_fails_is_logged_and_the_next_one_follows(
    follower: Counting, eventually: Eventually, trouble: Exception, event: str
) -> None:
    follower.trouble = trouble
    follower.gate.set()
    with capture_logs() as logs:
        follower.start()
        eventually(lambda: logs)
        follower.wake()
        eventually(lambda: follower.polls == 2)

    assert (logs[0]["event"], logs[0]["thread"]) == (event, "follower")
