"""`nimbus scheduler` and its crash sentinel: real processes, a real stack."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import psutil
import pytest
from kazoo.client import KazooClient

from leader import ZooKeeperConfig, ZooKeeperSession
from nimbus.bootstrap.processes import _crash_sentinel
from nimbus.localstack.daemons import ROOT, StackTuning
from nimbus.localstack.stack import LocalStack
from tests.thorough import thorough

Eventually = Callable[..., None]

SESSION = timedelta(seconds=30)


def sentinels(scheduler: int) -> list[psutil.Process]:
    children = psutil.Process(scheduler).children()
    return [each for each in children if any(word.endswith("leader/sentinel") for word in each.cmdline())]


def queue_of(stack: LocalStack) -> list[str]:
    client = KazooClient(stack.zookeeper.hosts)
    client.start(timeout=60)
    try:
        names: list[str] = client.get_children(f"{ROOT}/leader-lock")
        return names
    finally:
        client.stop()
        client.close()


def asked(stack: LocalStack, number: int, path: str) -> Any:
    return httpx.get(f"http://127.0.0.1:{stack.scheduler(number).port}/api/v1{path}", timeout=60).json()


def terms_of(stack: LocalStack, number: int) -> list[Any]:
    """The terms from scheduler `number`, oldest first, once its own is the newest and all are read."""
    terms: list[Any] = asked(stack, number, "/cluster/history")["terms"][::-1]
    name = asked(stack, number, "/status")["answered_by"]
    there = terms and terms[-1]["scheduler"] == name and terms[-1]["adopted"] is not None
    return terms if there else []


def noticed_s(stack: LocalStack, number: int) -> float | None:
    """When the leader's death would be noticed, as scheduler `number` estimates it."""
    gap = asked(stack, number, "/cluster/succession")["gap"]
    return None if gap is None else float(gap["noticed_s"])


def watched() -> AbstractContextManager[Callable[[], bool]]:
    """The crash sentinel of a scheduler whose session is not started; yields whether it runs."""
    session = ZooKeeperSession(ZooKeeperConfig(hosts="127.0.0.1:1"))
    settings = SimpleNamespace(leadership=SimpleNamespace(sentinel=True))
    resources: Any = SimpleNamespace(settings=settings, session=session)
    return _crash_sentinel(resources)


def test_sentinel_counts_only_while_it_runs(eventually: Eventually) -> None:
    with watched() as runs:
        assert runs()
        (sentinel,) = sentinels(os.getpid())

        sentinel.kill()

        eventually(lambda: not runs(), within_s=60)
        eventually(runs, what="another one is started")
    eventually(lambda: not sentinels(os.getpid()), within_s=60)


def test_sentinel_that_cannot_start_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object) -> int:
        raise OSError("no pidfd on this system")

    monkeypatch.setattr(os, "pidfd_open", refuses)

    with watched() as runs:
        assert not runs()


@thorough
def test_killed_leaders_latch_is_gone_long_before_its_session_and_history_says_why_each_term_ended(
    tmp_path: Path, eventually: Eventually
) -> None:
    with LocalStack(tmp_path, 2, tuning=StackTuning(session_timeout=SESSION)) as stack:
        stack.wait_ready()
        eventually(lambda: any(terms_of(stack, number) for number in (1, 2)))
        first = 1 if terms_of(stack, 1) else 2
        second = 3 - first
        names = {number: asked(stack, number, "/status")["answered_by"] for number in (1, 2)}
        eventually(lambda: len(queue_of(stack)) == 2)
        told = asked(stack, second, "/cluster/succession")
        assert (told["leader"], told["successor"]["id"]) == (names[first], names[second])
        eventually(lambda: noticed_s(stack, second) == 0.0)
        (sentinel,) = sentinels(stack.scheduler(first).pid)

        stack.kill_scheduler(first)

        eventually(lambda: len(queue_of(stack)) == 1, within_s=SESSION.total_seconds() * 2 / 3)
        eventually(lambda: not sentinel.is_running())
        eventually(lambda: terms_of(stack, second))

        stack.restart_scheduler(first)
        stack.wait_ready()
        wish = {"reason": "the larger host", "to": names[first]}
        url = f"http://127.0.0.1:{stack.scheduler(first).port}/api/v1/cluster/abdicate"

        def accepted() -> bool:  # once the leader has read its registration
            return bool(
                httpx.post(f"{url}?wait=10", json=wish, timeout=30).json().get("status") == "accepted"
            )

        eventually(accepted, within_s=60)
        eventually(lambda: terms_of(stack, first))
        stack.scheduler(first).stop()
        eventually(lambda: terms_of(stack, second))

        terms = terms_of(stack, second)
        assert [term["scheduler"] for term in terms] == [names[first], names[second]] * 2
        assert [term["cause"] for term in terms] == ["died", "handed_over", "stopped", None]
        assert [term["is_exact"] for term in terms] == [False, True, True, False]
        assert (terms[1]["reason"], terms[0]["reason"]) == ("the larger host", "")
        assert [term["before"] for term in terms[1:]] == [term["epoch"] for term in terms[:-1]]
        assert all(term["gap_s"] >= 0 and term["takeover_s"] > 0 for term in terms[1:])


def test_stopped_scheduler_leaves_no_sentinel_and_has_none_if_the_configuration_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LocalStack(tmp_path, 1) as stack:
        stack.wait_ready()
        (sentinel,) = sentinels(stack.scheduler(1).pid)

        stack.scheduler(1).stop()

        assert not sentinel.is_running()
        log = stack.scheduler(1).log.read_text()
        assert "sentinel_started" in log
        assert "sentinel_ended_session" not in log

        monkeypatch.setenv("NIMBUS__LEADERSHIP__SENTINEL", "false")
        stack.scheduler(1).start()

        assert sentinels(stack.scheduler(1).pid) == []
