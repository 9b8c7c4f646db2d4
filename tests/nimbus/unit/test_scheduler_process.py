"""The time limit of a shutdown holds from the signal until the end of the process. Real processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

DAEMON = """
import sys, threading
from datetime import timedelta
from nimbus.scheduler.process import run_until_signal
from nimbus.telemetry.logging import configure
configure("info", "json")
never = threading.Event()
def start():
    print("starting", flush=True)
    {start}
sys.exit(run_until_signal(start, lambda: print("stopping", flush=True), timedelta(seconds={limit})))
"""


def told_to_end(
    start: str, limit: float, daemon: str = DAEMON, after: str = ""
) -> subprocess.CompletedProcess[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", daemon.format(start=start, limit=limit)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "starting\n"
        if after:
            assert process.stdout.readline() == after
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def test_a_start_that_hangs_is_forced_to_end() -> None:
    done = told_to_end("never.wait()", limit=1)

    assert done.returncode == 70
    assert "never.wait()" in done.stderr or "in wait" in done.stderr


def test_a_thread_that_outlives_the_stop_does_not_keep_the_process() -> None:
    done = told_to_end("threading.Thread(target=never.wait).start()", limit=2)

    assert done.stdout == "stopping\n"
    assert done.returncode == 70


def test_an_orderly_end_is_not_forced() -> None:
    done = told_to_end("pass", limit=60)

    assert (done.returncode, done.stdout) == (0, "stopping\n")


def test_a_warm_up_follows_the_start_and_is_left_out_when_the_end_comes_first() -> None:
    warming = DAEMON.replace("timedelta(seconds={limit})", "timedelta(seconds={limit}), warm_up=warm_up")
    warming = warming.replace("def start", "def warm_up():\n    print('warm', flush=True)\ndef start", 1)

    at_once = told_to_end("pass", limit=60, daemon=warming)
    later = told_to_end("pass", limit=60, daemon=warming, after="warm\n")

    assert at_once.stdout == "stopping\n"
    assert later.stdout == "stopping\n"


@pytest.mark.parametrize("kind", ["file", "abstract"])
def test_systemd_is_told_of_start_life_and_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    address = str(tmp_path / "notify") if kind == "file" else f"@nimbus-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(address.replace("@", "\0"))
        systemd.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        monkeypatch.setenv("WATCHDOG_USEC", "200000")
        daemon = DAEMON.replace("    {start}", '    print(os.environ.get("NOTIFY_SOCKET"), flush=True)')
        done = told_to_end("", limit=60, daemon=f"import os{daemon}", after="None\n")
        told = [systemd.recv(100).decode()]
        while told[-1] != "STOPPING=1":
            told.append(systemd.recv(100).decode())

    assert done.returncode == 0
    assert told[0] == "READY=1"


def test_systemd_gets_a_sign_of_life_at_half_of_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "200000")
        daemon = DAEMON.format(start="pass", limit=60)
        with subprocess.Popen([sys.executable, "-c", daemon], stdout=subprocess.DEVNULL) as process:
            told = [systemd.recv(100).decode() for _ in range(4)]
            process.send_signal(signal.SIGTERM)

    assert told == ["READY=1", "WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1"]
    assert process.returncode == 0
