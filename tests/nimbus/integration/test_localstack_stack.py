"""The whole local stack, with a small replacement for the scheduler."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
import yaml

from nimbus.localstack.daemons import StackTuning
from nimbus.localstack.errors import ProcessStartError, StackLockedError
from nimbus.localstack.stack import LocalStack

Eventually = Callable[..., None]

STAND_IN = """\
import http.server, os, subprocess, sys, yaml
from pathlib import Path
settings = yaml.safe_load(Path(sys.argv[1]).read_text())["scheduler"]
state = Path(settings["state_dir"])
state.mkdir(parents=True, exist_ok=True)
# An attempt: it has its own session, ignores SIGTERM, and is not our child after the outer shell has ended.
attempt = "trap '' TERM; echo $$ > {}; while :; do sleep 1; done".format(state / "attempt.pid")
if not (state / "attempt.pid").exists():
    subprocess.run(["sh", "-c", "setsid sh -c \\"$0\\" >/dev/null 2>&1 &", attempt], check=True)

class Api(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/readyz" else 404)
        self.end_headers()

http.server.HTTPServer((settings["host"], settings["port"]), Api).serve_forever()
"""


@pytest.fixture
def command(tmp_path: Path) -> Callable[[Path], list[str]]:
    script = tmp_path / "stand_in.py"
    script.write_text(STAND_IN)
    return lambda config: [sys.executable, str(script), str(config)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "stack"


@pytest.fixture
def stack(folder: Path, command: Callable[[Path], list[str]]) -> Iterator[LocalStack]:
    # The attempts of this replacement ignore SIGTERM, so it is useless to wait for them.
    tuning = StackTuning(attempt_patience=timedelta(seconds=0.3))
    stack = LocalStack(folder, 2, command=command, tuning=tuning)
    try:
        yield stack
    finally:
        stack.stop()


def _attempt(folder: Path, number: int) -> psutil.Process:
    return psutil.Process(int((folder / f"scheduler-{number}" / "attempt.pid").read_text()))


def _has_attempts(folder: Path) -> bool:
    files = [folder / f"scheduler-{number}" / "attempt.pid" for number in (1, 2)]
    return all(file.exists() and file.read_text().strip() for file in files)


def test_attempts_outlive_their_killed_scheduler_and_nothing_outlives_the_stack(
    stack: LocalStack, folder: Path, eventually: Eventually
) -> None:
    stack.start()
    stack.wait_ready()
    for url in stack.addresses.schedulers:
        with urllib.request.urlopen(f"{url}/readyz") as answer:
            assert answer.status == 200
    eventually(lambda: _has_attempts(folder), what="both attempts run")
    attempts, before = [_attempt(folder, number) for number in (1, 2)], stack.addresses
    servers = [psutil.Process(pid) for pid in (stack.zookeeper.pid, stack.s3.pid)]

    # The loops start and end `sleep` children, so the test searches for the shells and does not count.
    assert {attempt.pid for attempt in attempts} <= {left.pid for left in stack.leftovers()}
    assert not {server.pid for server in servers} & {left.pid for left in stack.leftovers()}

    stack.kill_scheduler(1)
    stack.wait_ready()  # not of a scheduler that was killed on purpose

    assert stack.scheduler(2).running
    assert not stack.scheduler(1).running
    assert attempts[0].is_running()

    stack.restart_scheduler(1)
    stack.wait_ready()

    assert stack.addresses == before
    assert _attempt(folder, 1) == attempts[0]

    stack.kill_scheduler(2, signal.SIGSTOP)
    paused = psutil.Process(stack.scheduler(2).pid)
    stack.stop()

    assert stack.leftovers() == []
    ended = [*attempts, *servers, paused]
    assert not [process for process in ended if process.is_running() and not _is_zombie(process)]


def _is_zombie(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_stack_has_the_same_addresses_credentials_and_data_at_its_next_start(
    stack: LocalStack, folder: Path
) -> None:
    said: list[str] = []
    stack._report = said.append
    stack.start()
    before, secret = stack.addresses, stack.s3.secret_key
    stack.s3.create_bucket("made-by-hand")
    stack.stop()
    edited = stack.config_file(1).read_text() + "log: {level: debug}\n"
    stack.config_file(1).write_text(edited)

    stack.start()

    assert [line for line in said if "was edited" in line and "scheduler-1.edited.yaml" in line]
    assert (folder / "scheduler-1.edited.yaml").read_text() == edited
    assert "debug" not in stack.config_file(1).read_text()
    assert not (folder / "scheduler-2.edited.yaml").exists()
    assert (stack.addresses, stack.s3.secret_key) == (before, secret)
    assert (folder / "s3" / "objects" / "made-by-hand").is_dir()
    assert (folder / "s3" / "objects" / "nimbus").is_dir()


def test_stack_says_so_and_takes_another_port_when_one_is_taken(
    folder: Path, command: Callable[[Path], list[str]]
) -> None:
    said: list[str] = []
    stack = LocalStack(folder, 1, command=command, report=said.append)
    with stack:
        before = stack.s3.port
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        thief.bind(("127.0.0.1", before))
        thief.listen()
        with stack:
            after = stack.s3.port

    assert after != before
    assert [line for line in said if f"port {before} of the last start is used" in line]


def test_second_stack_in_a_folder_is_refused_with_the_pid_of_the_first_and_ends_nothing_of_it(
    stack: LocalStack, folder: Path, command: Callable[[Path], list[str]], eventually: Eventually
) -> None:
    stack.start()
    eventually(lambda: _has_attempts(folder), what="both attempts run")
    second = LocalStack(folder, 1, command=command)

    with pytest.raises(StackLockedError, match=rf"already runs in .*\(process {os.getpid()}\)"):
        second.start()
    second.stop()

    assert _attempt(folder, 1).is_running()
    assert stack.zookeeper.running


def test_scheduler_that_ends_at_once_is_reported_with_its_log(folder: Path) -> None:
    stack = LocalStack(folder, 1, command=lambda _config: ["sh", "-c", "echo bad key in file; exit 3"])
    with stack, pytest.raises(ProcessStartError, match="scheduler-1 ended with exit status 3") as caught:
        stack.wait_ready()

    assert "bad key in file" in str(caught.value)
    assert stack.leftovers() == []


def test_stack_that_cannot_start_stops_what_it_had_started(folder: Path) -> None:
    stack = LocalStack(folder, 1)
    (folder / "s3").mkdir(parents=True)
    (folder / "s3" / "s3.log").mkdir()

    with pytest.raises(IsADirectoryError):
        stack.start()

    assert stack.leftovers() == []
    LocalStack(folder, 1)._lock.acquire()


def test_configuration_of_a_scheduler_is_for_its_owner_only_and_holds_what_was_tuned(
    folder: Path, command: Callable[[Path], list[str]]
) -> None:
    tuning = StackTuning(slots=3, session_timeout=timedelta(seconds=2.5))
    with LocalStack(folder, 1, command=command, tuning=tuning) as stack:
        file = stack.config_file(1)
        settings = yaml.safe_load(file.read_text())
        assert settings["storage"]["secret_access_key"] == stack.s3.secret_key
        assert settings["zookeeper"] == {"hosts": stack.zookeeper.hosts, "session_timeout": "2.5s"}

    assert settings["worker"]["slots"] == 3
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_everything_but_attempts_dies_when_the_stacks_process_is_killed(
    folder: Path, command: Callable[[Path], list[str]], eventually: Eventually, tmp_path: Path
) -> None:
    program = (
        "import sys; from pathlib import Path; from nimbus.localstack.stack import LocalStack\n"
        "stack = LocalStack(Path(sys.argv[1]), 2, command=lambda c: [sys.executable, sys.argv[2], str(c)])\n"
        "stack.start(); stack.wait_ready()\n"
        "print('up', flush=True); sys.stdin.read()\n"
    )
    words = [sys.executable, "-c", program, str(folder), str(tmp_path / "stand_in.py")]
    parent = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdin is not None and parent.stdout is not None
    with parent.stdin, parent.stdout:
        assert parent.stdout.readline() == "up\n"
        eventually(lambda: _has_attempts(folder), what="both attempts run")
        parent.send_signal(signal.SIGKILL)
        parent.wait()

    tuning = StackTuning(attempt_patience=timedelta(seconds=0.3))
    after = LocalStack(folder, 2, command=command, tuning=tuning)
    attempts = {_attempt(folder, number).pid for number in (1, 2)}
    eventually(
        lambda: {left.pid for left in after.leftovers() if not left.command.startswith("sleep")} == attempts,
        what="only the attempts are left",
    )
    # The next start uses the same folder, and its stop ends the remaining processes of the killed one.
    with after:
        after.wait_ready()
    assert after.leftovers() == []
