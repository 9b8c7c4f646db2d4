"""Forked runners and drivers: they behave like started ones, and do not inherit state."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nimbus.domain.runs.task_run import Outcome
from nimbus.worker.attempt.folder import AttemptFolder
from nimbus.worker.host import procfs
from nimbus.worker.launcher import ForkLauncher
from tests.nimbus.worker_bench import Bench, eventually

WAITS = """
import sys, time
from pathlib import Path
Path(sys.argv[1]).touch()
while not Path(sys.argv[2]).exists():
    time.sleep(0.02)
"""
TELLS = """
import atexit, json, os, random, signal, structlog, subprocess, sys, tempfile, threading, time
def is_open(fd):
    return os.path.islink(f"/proc/self/fd/{fd}")
state = {
    "argv": sys.argv,
    "name": __name__,
    "file": __file__,
    "main is here": sys.modules["__main__"].__dict__ is globals(),
    "environment": {name: value for name, value in os.environ.items()},
    "of the C library": subprocess.check_output(["env"], text=True),
    "cwd": os.getcwd(),
    "path": [place for place in sys.path if not place.endswith("/no-wheel")],
    "flags": str(sys.flags),
    "files": sorted(
        f"{fd} {os.readlink(f'/proc/self/fd/{fd}').partition(':[')[0]}" for fd in range(99) if is_open(fd)
    ),
    "standard input": sys.stdin.read(),
    "streams": [(s.encoding, s.errors, s.line_buffering, s.write_through) for s in (sys.stdout, sys.stderr)],
    "handlers": [str(signal.getsignal(n)) for n in signal.valid_signals() if n != signal.SIGINT],
    "interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    "threads": [thread.name for thread in threading.enumerate()],
    "temporary": tempfile.gettempdir(),
    "zone": time.tzname,
    "umask": os.umask(0o022),
    "leads its group": os.getpgrp() == os.getpid(),
    "in the runner's session": os.getsid(0) == os.getppid(),
    "log is configured": structlog.is_configured(),
}
facts = {"state": state, "forked": "nimbus.worker.runner" in sys.modules, "drawn": random.random()}
with open(os.path.join(os.path.dirname(sys.argv[1]), sys.argv[2]), "w") as file:
    json.dump(facts, file)
"""
SEARCHES = """
import re, sys
def found(pattern):
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", buffering=0) as memory:
        for line in maps:
            if " rw" in line:
                start, end = (int(edge, 16) for edge in line.split()[0].split("-"))
                memory.seek(start)
                try:
                    if pattern.search(memory.read(end - start)):
                        return True
                except OSError:
                    pass
    return False
print("found:", found(re.compile(sys.argv[1].encode())))
"""
SECRET = "hush-hush-of-the-connection"
PATTERN = "hush-hush-[o]f-the-connection"
"""Finds the secret, but not itself."""
LEAVES_OPEN = """
import holder
holder.file.write("kept")
"""


@pytest.fixture
def own_forks() -> Iterator[ForkLauncher]:
    """A fork server that the test may kill."""
    launcher = ForkLauncher()
    launcher.start()
    yield launcher
    launcher.close()


@pytest.fixture
def bench(tmp_path: Path, forks: ForkLauncher) -> Iterator[Bench]:
    made = Bench(tmp_path, forks)
    yield made
    made.close()


def _launch(
    bench: Bench, text: str, *args: str, attempt: str = "run1.task.1", order: Any = None, **plan: Any
) -> AttemptFolder:
    folder = bench.folder(attempt)
    script = bench.script(f"{attempt}/main.py", text)
    folder.create(bench.order(script, attempt=attempt, args=args, **(order or {})))
    bench.launch(folder, bench.startup(**plan))
    return folder


def _succeeded(bench: Bench, folder: AttemptFolder) -> None:
    end = bench.await_end(str(folder.attempt))
    assert end.outcome is Outcome.SUCCEEDED, end.reason
    eventually(lambda: folder.is_delivered, "delivery")


def _own_interpreter(folder: AttemptFolder) -> bool:
    return "driver_gets_own_interpreter" in folder.runner_log.read_text()


# The fork server.


def test_runner_outlives_its_fork_server_and_the_next_launch_starts_another(
    bench: Bench, own_forks: ForkLauncher, tmp_path: Path
) -> None:
    forks = bench.launch = own_forks
    first = _launch(bench, WAITS, str(tmp_path / "ran"), str(tmp_path / "gate"))
    eventually((tmp_path / "ran").exists, "the task runs")
    server = forks.pid
    assert server is not None

    os.kill(server, signal.SIGKILL)
    second = _launch(bench, "print(1)\n", attempt="run1.second.1")
    _succeeded(bench, second)

    assert forks.pid not in (None, server)
    (tmp_path / "gate").touch()
    _succeeded(bench, first)
    third = _launch(bench, WAITS, str(tmp_path / "third"), str(tmp_path / "end"), attempt="run1.third.1")
    eventually((tmp_path / "third").exists, "the task runs")
    runner = bench.runner("run1.third.1")
    assert runner is not None
    stat = procfs.read_stat(runner.pid)
    assert stat is not None
    assert stat.parent == forks.pid
    (tmp_path / "end").touch()
    _succeeded(bench, third)


def test_fork_server_ends_when_its_worker_is_killed() -> None:
    text = (
        "import time\nfrom nimbus.worker.launcher import ForkLauncher\n"
        "launcher = ForkLauncher()\nlauncher.start()\nprint(launcher.pid, flush=True)\ntime.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        server = int(worker.stdout.readline())
        ticks = procfs.start_ticks(server)
        assert ticks is not None

        worker.kill()

        eventually(lambda: not procfs.is_alive(procfs.ProcessId(server, ticks)), "the fork server's end")


def test_fork_server_leaves_no_zombie_of_a_runner(bench: Bench, forks: ForkLauncher) -> None:
    folder = bench.folder()
    folder.create(bench.order(bench.script("task.py", "print(1)\n")))
    runner = bench.launch(folder, bench.startup())
    _succeeded(bench, folder)
    assert runner is not None

    eventually(lambda: procfs.read_stat(runner.pid) is None, "the runner is gone, not a zombie")
    assert forks.pid is not None


def test_secrets_are_in_no_memory_of_a_forked_driver_and_of_its_fork_server(
    bench: Bench, forks: ForkLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-hush-5")
    folder = bench.folder()
    order = bench.order(bench.script("task.py", SEARCHES), args=(PATTERN,))
    folder.create(order)
    startup = bench.startup()
    logs = {"kind": "nowhere", "secret": SECRET}
    bench.launch(folder, replace(startup, connections=replace(startup.connections, logs=logs)))

    assert bench.await_end().outcome is Outcome.SUCCEEDED

    assert folder.log.read_text() == "found: False\n"
    assert not _own_interpreter(folder)
    assert forks.pid is not None
    assert "hush" not in (procfs.environment_of(forks.pid) or b"").decode()
    told = SEARCHES.replace("/proc/self", f"/proc/{forks.pid}")
    searched = subprocess.run(
        [sys.executable, "-c", told, PATTERN], capture_output=True, text=True, timeout=60, check=False
    )
    assert searched.stdout == "found: False\n", searched.stderr


# The driver.


def test_forked_driver_is_as_one_that_was_started(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "no-wheel").mkdir()
    order = {"python_path": ("",)}
    extra = {"OF_CONFIGURATION": "yes", "TZ": "Asia/Kathmandu", "PYTHONPATH": str(tmp_path / "absent")}
    told = []
    for number, wheels in enumerate([(), (tmp_path / "no-wheel",)], 1):
        attempt = f"run1.task.{number}"
        args = (str(tmp_path / "told"), f"facts-{number}")
        folder = bench.folder(attempt)
        folder.create(bench.order(bench.script("task.py", TELLS), attempt=attempt, args=args, **order))
        bench.launch(folder, bench.startup(wheels=wheels, extra=extra))
        _succeeded(bench, folder)
        facts = (tmp_path / f"facts-{number}").read_text()
        facts = re.sub(r"/tmp/nimbus-[0-9a-f]{8}", "/tmp/nimbus", facts)  # the short path of its TMPDIR
        told.append(json.loads(facts.replace(attempt, "run1.task.1")))

    forked, started = told
    assert (forked["forked"], started["forked"]) == (True, False)
    assert forked["state"]["leads its group"]
    assert forked["state"]["in the runner's session"]
    for facts in told:  # what must differ
        facts["state"]["argv"].pop()
        pythonpath = facts["state"]["environment"]["PYTHONPATH"].split(":")
        facts["state"]["environment"]["PYTHONPATH"] = [
            place for place in pythonpath if "no-wheel" not in place
        ]
        facts["state"]["of the C library"] = sorted(
            line for line in facts["state"]["of the C library"].splitlines() if "PYTHONPATH" not in line
        )
    assert forked["state"] == started["state"]


@pytest.mark.parametrize(
    "text",
    [
        "import sys\nsys.exit('no flights')\n",
        "import sys\nsys.exit(300)\n",
        "def f():\n    raise ValueError('month 13')\nf()\n",
        "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.3), print('late'))).start()\n",
        "import atexit, logging\natexit.register(print, 'first')\natexit.register(print, 'second')\n",
        "import sys\nsys.excepthook = lambda kind, error, trace: print('hook', kind)\n1 / 0\n",
        "import sys\nsys.stdout.close()\n",
        "import os\nos.close(1)\n",
        "raise KeyboardInterrupt\n",
        "import ctypes\nctypes.CDLL(None).puts(b'of the C library')\n",
        "class A:\n    def __del__(self):\n        print('dropped')\na = A()\na.itself = a\n",
    ],
)
def test_forked_driver_ends_as_one_that_was_started(bench: Bench, tmp_path: Path, text: str) -> None:
    (tmp_path / "no-wheel").mkdir()
    ends = []
    for number, wheels in enumerate([(), (tmp_path / "no-wheel",)], 1):
        folder = bench.folder(f"run1.task.{number}")
        folder.create(bench.order(bench.script("task.py", text), attempt=str(folder.attempt)))
        bench.launch(folder, bench.startup(wheels=wheels))
        end = bench.await_end(str(folder.attempt))
        log = re.sub(r"(?<= at )0x[0-9a-f]+", "ADDRESS", folder.log.read_text())
        told = [line for line in log.splitlines() if not line.startswith(("  ", "\t"))]
        ends.append((end.outcome, end.exit_code, told))
        assert _own_interpreter(folder) == bool(wheels)

    assert ends[0] == ends[1]


def test_forked_drivers_draw_different_random_numbers(bench: Bench, tmp_path: Path) -> None:
    for number in (1, 2):
        folder = _launch(bench, TELLS, str(tmp_path / "x"), f"facts-{number}", attempt=f"run1.task.{number}")
        _succeeded(bench, folder)

    first, second = (json.loads((tmp_path / f"facts-{number}").read_text()) for number in (1, 2))
    assert first["forked"]
    assert second["forked"]
    assert first["drawn"] != second["drawn"]


def test_file_that_a_task_leaves_open_is_flushed_at_the_end_of_a_forked_driver(
    bench: Bench, tmp_path: Path
) -> None:
    bench.script("lib/holder.py", f"file = open({str(tmp_path / 'left')!r}, 'w')\n")

    folder = _launch(bench, LEAVES_OPEN, order={"python_path": ("lib",)})

    _succeeded(bench, folder)
    assert not _own_interpreter(folder)
    assert (tmp_path / "left").read_text() == "kept"


def test_process_that_a_forked_driver_forks_bears_the_tag_and_is_ended_with_it(
    bench: Bench, tmp_path: Path
) -> None:
    text = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(600)\n" + WAITS
    folder = _launch(bench, text, str(tmp_path / "ran"), str(tmp_path / "gate"))
    eventually(lambda: len(bench.driver_tree()) == 2, "driver and child bear the tag")
    eventually((tmp_path / "ran").exists, "the task runs")
    assert not _own_interpreter(folder)

    (tmp_path / "gate").touch()

    _succeeded(bench, folder)
    assert bench.processes() == []


def test_processes_of_an_attempt_say_what_they_are(bench: Bench, tmp_path: Path) -> None:
    folder = _launch(bench, WAITS, str(tmp_path / "ran"), str(tmp_path / "gate"))
    eventually((tmp_path / "ran").exists, "the task runs")
    runner, driver = bench.runner(), bench.driver_tree()[0]
    assert runner is not None

    for process, name in ((runner, "runner"), (driver, "driver")):
        proc = Path(f"/proc/{process.pid}")
        words = (proc / "cmdline").read_bytes().split(b"\0")
        assert (proc / "comm").read_text() == f"nimbus-{name}\n"
        assert words[:2] == [f"nimbus.worker.{name}".encode(), b"run1.task.1"]
    (tmp_path / "gate").touch()
    _succeeded(bench, folder)


@pytest.mark.parametrize("place", ["run1.task.1/structlog.py", "lib/structlog/__init__.py"])
def test_module_of_a_release_beats_one_that_the_runner_has_imported(bench: Bench, place: str) -> None:
    bench.script(place, "WORD = 'of the release'\n")

    folder = _launch(bench, "import structlog\nprint(structlog.WORD)\n", order={"python_path": ("lib",)})

    _succeeded(bench, folder)
    assert _own_interpreter(folder)
    assert folder.log.read_text() == "of the release\n"


def test_module_of_a_wheel_beats_one_that_the_runner_has_imported(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "wheel").mkdir()
    (tmp_path / "wheel" / "structlog.py").write_text("WORD = 'of the wheel'\n")

    folder = _launch(bench, "import structlog\nprint(structlog.WORD)\n", wheels=(tmp_path / "wheel",))

    _succeeded(bench, folder)
    assert folder.log.read_text() == "of the wheel\n"
