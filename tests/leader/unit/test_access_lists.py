"""The thread of a participant that corrects access lists: what it does when ZooKeeper does not answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from leader import AclDifference, ZooKeeperUnavailableError
from leader.errors import AclError
from leader.queue import _enforcer

WITHIN_S = 10.0
CONFIG = SimpleNamespace(auth=("digest", "user:password"), readable_by_all=False)


class Bench:
    """Runs the thread. `answers` are what its attempts find: access lists, or an error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers: list[list[AclDifference] | Exception] = []
        self.tries = 0
        self.closing = threading.Event()
        monkeypatch.setattr("leader.queue._RETRY_FIRST", timedelta(milliseconds=1))
        monkeypatch.setattr("leader.zookeeper.acl.AclEnforcement.fix", lambda _self: self._answer())
        session: Any = SimpleNamespace(config=CONFIG)
        self.thread = _enforcer(session, "/e", self.closing)

    def _answer(self) -> list[AclDifference]:
        self.tries += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def run(self) -> list[str]:
        """Run the thread to its end. Returns the log events."""
        with structlog.testing.capture_logs() as logs:
            self.thread.start()
            self.thread.join(WITHIN_S)
        assert not self.thread.is_alive()
        return [line["event"] for line in logs]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made = Bench(monkeypatch)
    yield made
    made.closing.set()


def test_access_lists_are_corrected_when_zookeeper_answers_again(bench: Bench) -> None:
    bench.answers = [ZooKeeperUnavailableError("no answer")] * 3 + [[AclDifference("/e", (), ())]]

    assert bench.run() == ["access_lists_not_enforced"] * 3 + ["access_lists_mended"]


@pytest.mark.parametrize("error", [AclError("too many nodes"), LookupError("not foreseen")])
def test_an_error_that_does_not_heal_ends_the_attempts_and_is_logged(bench: Bench, error: Exception) -> None:
    bench.answers = [error]

    assert bench.run() == ["access_lists_not_enforced"]


def test_closing_ends_the_attempts(bench: Bench, eventually: Callable[..., None]) -> None:
    bench.answers = [ZooKeeperUnavailableError("no answer")]
    bench.thread.start()
    eventually(lambda: bench.tries > 2)

    bench.closing.set()

    bench.thread.join(WITHIN_S)
    assert not bench.thread.is_alive()
