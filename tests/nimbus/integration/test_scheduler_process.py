"""The life of a daemon process: real signals to real processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import IO

import pytest

DAEMON = """
import sys, threading, os, signal, time
from datetime import timedelta
from nimbus.scheduler.process import run_until_signal
from nimbus.telemetry.logging import configure
configure("info", "json")
released = threading.Event()
def start():
    {start}
    print("started", flush=True)
def stop():
    print("stopping", flush=True)
    {stop}
sys.exit(run_until_signal(start, stop, timedelta(seconds={limit})))
"""
FROM_A_THREAD = "threading.Thread(target=lambda: os.kill(os.getpid(), signal.SIGTERM)).start()"


def daemon(*, start: str = "pass", stop: str = "pass", limit: float = 20) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", DAEMON.format(start=start, stop=stop, limit=limit)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline().strip()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_in_order_and_is_no_failure(number: signal.Signals) -> None:
    process = daemon()
    assert line(process.stdout) == "started"

    process.send_signal(number)
    out, err = process.communicate(timeout=60)

    assert (process.returncode, out) == (0, "stopping\n")
    assert number.name in err
    assert "shutdown_done" in err


def test_a_signal_that_another_thread_takes_is_not_lost() -> None:
    process = daemon(start=FROM_A_THREAD)

    out, _ = process.communicate(timeout=60)

    assert (process.returncode, out) == (0, "started\nstopping\n")


def test_exception_that_ends_a_thread_stops_the_process_in_order_with_70() -> None:
    process = daemon(start="threading.Thread(target=lambda: 1 / 0, name='some-thread').start()")

    out, err = process.communicate(timeout=60)

    assert (process.returncode, out) == (70, "started\nstopping\n")
    (failed,) = (json.loads(said) for said in err.splitlines() if "thread_failed" in said)
    assert failed["thread"] == "some-thread"
    assert "ZeroDivisionError" in failed["exception"]


def test_thread_that_fails_while_the_process_stops_is_logged_alone() -> None:
    process = daemon(stop="late = threading.Thread(target=lambda: 1 / 0); late.start(); late.join()")
    assert line(process.stdout) == "started"

    process.terminate()
    _, err = process.communicate(timeout=60)

    assert process.returncode == 0
    assert "thread_failed" in err


def test_sigterm_while_stopping_changes_nothing() -> None:
    process = daemon(stop="time.sleep(1)", limit=60)
    assert line(process.stdout) == "started"
    process.terminate()
    assert line(process.stdout) == "stopping"

    process.terminate()
    _, err = process.communicate(timeout=60)

    assert process.returncode == 0
    assert "shutdown_done" in err


def test_a_second_interrupt_ends_the_process_at_once() -> None:
    process = daemon(stop="time.sleep(60)", limit=120)
    assert line(process.stdout) == "started"
    process.send_signal(signal.SIGINT)
    assert line(process.stdout) == "stopping"

    process.send_signal(signal.SIGINT)

    process.communicate(timeout=60)
    assert process.returncode == 70


def test_a_stop_that_hangs_is_forced_and_says_where_it_hung() -> None:
    process = daemon(stop="released.wait()", limit=0.5)
    assert line(process.stdout) == "started"

    process.terminate()
    _, err = process.communicate(timeout=60)

    assert process.returncode == 70
    assert "shutdown_forced" in err
    assert "released.wait()" in err or "in wait" in err


def test_what_was_started_is_stopped_when_a_later_part_cannot_start() -> None:
    process = daemon(start="raise RuntimeError('no port')")

    out, err = process.communicate(timeout=60)

    assert process.returncode == 1
    assert out == "stopping\n"
    assert "no port" in err
