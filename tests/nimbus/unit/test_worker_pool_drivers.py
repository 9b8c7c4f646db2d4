"""The start of a zygote that imports modules for its drivers: one that hangs or dies over a module."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from nimbus.worker.attempt.folder import AttemptFolder
from nimbus.worker.driver.main import EXIT_NOT_STARTED, DriverPlan
from nimbus.worker.host.clock import boottime_s
from nimbus.worker.host.loop import Loop
from nimbus.worker.host.remains import ATTEMPT_VARIABLE
from nimbus.worker.pool import drivers as module
from nimbus.worker.pool.drivers import DriverEnd, Drivers
from nimbus.worker.pool.zygote import LARGEST_ORDER

ZYGOTE = """
import marshal, socket, sys, time
executor = socket.socket(fileno=0)
for name in filter(None, sys.argv[-2].split(",")):
    executor.send(marshal.dumps({"importing": name}))
    if name == "hangs":
        time.sleep(600)
    if name == "dies":
        sys.exit(1)
executor.send(marshal.dumps({"imported": [], "environment": {}}))
executor.recv(1)
"""


class _Owner:
    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.reasons: Mapping[str, str] = {}
        self.ends = 0
        self.end = DriverEnd("", 0, "")

    def drivers_are_ready(self) -> None:
        self._loop.stop()

    def not_preloaded(self, reasons: Mapping[str, str]) -> None:
        self.reasons = dict(reasons)

    def driver_ended(self, end: DriverEnd) -> None:
        self.end = end
        self._loop.stop()

    def zygote_ended(self) -> None:
        self.ends += 1


@pytest.mark.parametrize(
    ("preload", "reasons"),
    [
        ((), {}),
        (("good", "better"), {}),
        (("good", "hangs", "better"), {"hangs": "takes more than 1 s"}),
        (("dies", "hangs"), {"dies": "ended the process that imports it", "hangs": "takes more than 1 s"}),
    ],
)
def test_drivers_become_ready_without_a_module_that_ends_or_holds_up_their_zygote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, preload: tuple[str, ...], reasons: dict[str, str]
) -> None:
    program = tmp_path / "python"
    (tmp_path / "zygote.py").write_text(ZYGOTE)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {tmp_path}/zygote.py "$@"\n')
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(module, "PRELOAD_WITHIN_S", 1.0)
    monkeypatch.setattr(module, "_TOO_SOON_S", 0.0)
    loop = Loop()
    owner = _Owner(loop)
    drivers = Drivers(loop, owner, preload=preload)
    watchdog = threading.Timer(30, loop.stop)
    watchdog.start()

    loop.run()

    watchdog.cancel()
    drivers.kill_zygote()
    drivers._zygote.wait()
    assert drivers.are_ready
    assert (owner.reasons, owner.ends) == (reasons, len(reasons))


def test_driver_with_a_larger_order_than_a_message_ends_without_its_zygote(tmp_path: Path) -> None:
    loop = Loop()
    owner = _Owner(loop)
    drivers = Drivers(loop, owner)
    plan = DriverPlan("python", "x.py", "", ["x" * LARGEST_ORDER], "/", (), (), "", {}, {}, {})
    folder = AttemptFolder(tmp_path / "run1.task.1")

    drivers.start(folder, {ATTEMPT_VARIABLE: "t"}, None, plan=plan, execute=False, until_s=boottime_s() + 60)
    loop.run()

    drivers.kill_zygote()
    drivers._zygote.wait()
    assert (owner.end.attempt, owner.end.status) == ("run1.task.1", EXIT_NOT_STARTED)
    assert f"{LARGEST_ORDER} is the most" in owner.end.fault
