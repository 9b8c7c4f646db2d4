"""`nimbus scheduler` and its crash sentinel: real processes, a real stack."""

from __future__ import annotations

import http.client
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from kazoo.client import KazooClient

from nimbus.localstack.settings import ROOT, StackTuning
from nimbus.localstack.stack import LocalStack

Eventually = Callable[..., None]

SESSION = timedelta(seconds=30)


def sentinels(scheduler: int) -> list[psutil.Process]:
    children = psutil.Process(scheduler).children()
    return [each for each in children if any(word.endswith("leader/sentinel") for word in each.cmdline())]


def queue_of(stack: LocalStack) -> list[str]:
    client = KazooClient(stack.zookeeper.hosts)
    client.start(timeout=20)
    try:
        names: list[str] = client.get_children(f"{ROOT}/leader-lock")
        return names
    finally:
        client.stop()
        client.close()


def leads(stack: LocalStack) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", stack.scheduler(1).port, timeout=5)
    try:
        connection.request("GET", "/metrics")
        return b"nimbus_leader 1.0" in connection.getresponse().read()
    finally:
        connection.close()


def test_killed_schedulers_latch_is_gone_long_before_its_session_would_be(
    tmp_path: Path, eventually: Eventually
) -> None:
    with LocalStack(tmp_path, 1, tuning=StackTuning(session_timeout=SESSION)) as stack:
        stack.wait_ready()
        eventually(lambda: leads(stack), within_s=30)
        (sentinel,) = sentinels(stack.scheduler(1).pid)

        stack.kill_scheduler(1)

        eventually(lambda: queue_of(stack) == [], within_s=SESSION.total_seconds() / 3)
        eventually(lambda: not sentinel.is_running())


def test_scheduler_that_is_stopped_leaves_no_sentinel(tmp_path: Path) -> None:
    with LocalStack(tmp_path, 1) as stack:
        stack.wait_ready()
        (sentinel,) = sentinels(stack.scheduler(1).pid)

        stack.scheduler(1).stop()

        assert not sentinel.is_running()
        log = stack.scheduler(1).log.read_text()
        assert "sentinel_started" in log
        assert "sentinel_ended_session" not in log


def test_scheduler_has_no_sentinel_when_the_configuration_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NIMBUS__LEADERSHIP__SENTINEL", "false")
    with LocalStack(tmp_path, 1) as stack:
        stack.wait_ready()

        assert sentinels(stack.scheduler(1).pid) == []
