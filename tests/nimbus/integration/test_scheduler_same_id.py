"""Two live schedulers with one id: real processes, a real ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from nimbus.localstack.daemons import scheduler_command
from nimbus.localstack.stack import LocalStack
from tests.nimbus.integration.test_scheduler_sentinel import asked, queue_of

Eventually = Callable[..., None]


def _named_as_the_first(config: Path) -> list[str]:
    config.write_text(config.read_text().replace("id: scheduler-2", "id: scheduler-1"))
    return scheduler_command(config)


def _registration(stack: LocalStack, number: int) -> Any:
    """The check of this name, from `/readyz`."""
    checks = httpx.get(f"{stack.scheduler(number).url}/readyz", timeout=60).json()["checks"]
    return next(check for check in checks if check["name"] == "registration")


def _leader_of(stack: LocalStack, number: int) -> str | None:
    leader = asked(stack, number, "/status")["leader"]
    return leader and str(leader["address"])


def test_second_live_scheduler_with_an_id_leaves_the_queue_until_the_first_has_ended(
    tmp_path: Path, eventually: Eventually
) -> None:
    with LocalStack(tmp_path, 2, command=_named_as_the_first) as stack:
        stack.wait_ready()

        def second() -> list[int]:
            return [number for number in (1, 2) if not _registration(stack, number)["ok"]]

        eventually(second, what="one of the two is refused")
        (late,) = second()
        first = 3 - late
        eventually(lambda: len(queue_of(stack)) == 1, what="only the first is in the queue")
        eventually(lambda: _leader_of(stack, late) == stack.scheduler(first).url)
        assert "is in use by a live scheduler on" in _registration(stack, late)["detail"]
        assert "is in use by a live scheduler on" in asked(stack, late, "/status")["answered_by_lacks"]

        stack.kill_scheduler(first)

        eventually(lambda: _leader_of(stack, late) == stack.scheduler(late).url)
        assert _registration(stack, late)["ok"]
