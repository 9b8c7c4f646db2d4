"""The thread that keeps an attempt within its limits."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from nimbus.domain.pipeline import Limits
from nimbus.worker.limit_thread import LimitThread
from nimbus.worker.limited_log import LimitedLog
from nimbus.worker.limits import LimitWatch
from tests.nimbus.worker_bench import eventually


class _Watch(LimitWatch):
    """Returns answers from a list, and raises those that are errors."""

    def __init__(self, *answers: str | Exception | None) -> None:
        super().__init__(Limits(), processes=list, folders=())
        self.answers = list(answers)

    def check(self, now_s: float) -> str | None:
        del now_s
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer


class _Log(LimitedLog):
    """With `trouble`, on a file system that cannot free the middle of a file."""

    def __init__(self, trouble: OSError | None = None) -> None:
        super().__init__(Path("/none"), 64 << 10)
        self.freed, self.trouble = 0, trouble

    def free_middle(self) -> None:
        self.freed += 1
        if self.trouble is not None:
            raise self.trouble


@pytest.fixture
def rung() -> threading.Event:
    return threading.Event()


def test_thread_rings_when_a_limit_is_exceeded_and_keeps_the_first_reason(rung: threading.Event) -> None:
    watch, log = _Watch(None, "too much", "another reason"), _Log()
    thread = LimitThread(watch, log, rung.set)
    thread.start()

    assert rung.wait(30)

    freed = log.freed
    eventually(lambda: log.freed > freed + 1, "the log is limited all the same")
    thread.close()
    assert (thread.exceeded, watch.answers) == ("too much", ["another reason"])


def test_defect_of_the_watch_costs_neither_the_log_its_limit_nor_a_later_look(rung: threading.Event) -> None:
    log = _Log()
    thread = LimitThread(_Watch(KeyError("Pss"), "too much"), log, rung.set)
    with capture_logs() as said:
        thread.start()
        assert rung.wait(30)
    thread.close()

    assert [entry["event"] for entry in said] == ["limits_not_checked"]
    assert log.freed > 1


def test_log_that_cannot_be_limited_is_told_once(rung: threading.Event) -> None:
    log = _Log(OSError("cannot free"))
    thread = LimitThread(_Watch(None, None, "too much"), log, rung.set)
    with capture_logs() as said:
        thread.start()
        assert rung.wait(30)
        thread.close()

    assert [(entry["event"], entry["error"]) for entry in said] == [("log_not_limited", "cannot free")]
    assert log.freed == 1


def test_log_is_limited_once_more_when_the_attempt_has_ended(rung: threading.Event) -> None:
    log = _Log()
    thread = LimitThread(_Watch(), log, rung.set)
    thread.start()
    eventually(lambda: log.freed, "the first time")
    thread._leaving.set()
    thread._thread.join(30)
    before = log.freed

    thread.close()

    assert log.freed == before + 1
