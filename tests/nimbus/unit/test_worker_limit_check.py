"""What keeps an attempt within its limits."""

from __future__ import annotations

from pathlib import Path

from structlog.testing import capture_logs

from nimbus.domain.pipelines.pipeline import Limits
from nimbus.worker.attempt.held_attempt import LimitCheck
from nimbus.worker.attempt.limits import LimitWatch
from nimbus.worker.attempt.log import LimitedLog


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


def test_check_says_which_limit_is_exceeded_and_limits_the_log() -> None:
    log = _Log()
    limits = LimitCheck(_Watch(None, "too much"), log)

    assert (limits.check(), limits.check()) == (None, "too much")
    assert log.freed == 2


def test_defect_of_the_watch_costs_neither_the_log_its_limit_nor_a_later_look() -> None:
    log = _Log()
    limits = LimitCheck(_Watch(KeyError("Pss"), "too much"), log)
    with capture_logs() as said:
        assert (limits.check(), limits.check()) == (None, "too much")

    assert [entry["event"] for entry in said] == ["limits_not_checked"]
    assert log.freed == 2


def test_log_that_cannot_be_limited_is_told_once() -> None:
    log = _Log(OSError("cannot free"))
    limits = LimitCheck(_Watch(None, "too much"), log)
    with capture_logs() as said:
        assert (limits.check(), limits.check()) == (None, "too much")

    assert [(entry["event"], entry["error"]) for entry in said] == [("log_not_limited", "cannot free")]
    assert log.freed == 1
