"""The end of a runner's loan of a JVM."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from nimbus.worker.host.procfs import ProcessId
from nimbus.worker.jvm import loan
from nimbus.worker.jvm.keeper import CLEAN, OPENED


def test_attempt_does_not_end_before_its_keeper_has_told_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next attempt would start another JVM."""
    monkeypatch.setattr(loan, "_CLOSE_S", 0.01)
    scratch, tmp = tmp_path / "scratch", tmp_path / "work" / "tmp"
    scratch.mkdir()
    tmp.parent.mkdir()
    tmp.symlink_to(scratch)
    runner, keeper = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    held = loan.Loan(ProcessId(os.getpid(), 0), tmp_path, runner)  # no process: its start differs
    monkeypatch.setattr(
        held, "_folder", SimpleNamespace(scratch=scratch, forget_jvm_keeper=lambda: None), raising=False
    )
    with keeper:
        keeper.send(OPENED)
        keeper.send(CLEAN)

        assert held.end(clean=True) == "its keeper did not answer: timed out"
