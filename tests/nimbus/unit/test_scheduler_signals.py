"""Signals that wake a thread: several count as one, and a request to end is not lost."""

from __future__ import annotations

import threading

from nimbus.scheduler.signals import Signals

LONG_S = 60.0


def test_signals_that_came_together_wake_once() -> None:
    signals = Signals()
    signals.look()
    signals.look()

    assert not signals.asked_to_end(LONG_S)
    assert not signals.asked_to_end(0.001)  # the wait ended by itself, without a signal


def test_a_request_to_end_is_heard_among_other_signals() -> None:
    signals = Signals()
    signals.look()
    signals.end()
    signals.look()

    assert signals.asked_to_end(LONG_S)


def test_a_request_to_end_ends_the_wait_for_more_signals() -> None:
    signals = Signals()
    signals.end()

    assert signals.asked_to_end(LONG_S, gather_s=LONG_S)


def test_a_second_signal_ends_the_wait_for_more() -> None:
    signals = Signals()
    signals.look()
    later = threading.Timer(0.01, signals.end)
    later.start()

    assert signals.asked_to_end(LONG_S, gather_s=LONG_S)
    later.join()
