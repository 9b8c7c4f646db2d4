"""Runs the failing tasks of `cases.py` like a worker's driver, and stores their ends in `recorded/`.

`python -m tests.nimbus.failures.record [name...]`: the named cases, or those that have no record yet. It
needs Java and root. The first line of a record is the exit status (negative: the signal); the rest is the end
of the log, with neutral names of folders and host.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from nimbus.domain.pipelines.pipeline import TaskKind
from nimbus.worker.attempt.verdict import TAIL_BYTES
from nimbus.worker.driver.environment import driver_environment
from tests.nimbus.failures.cases import CASES, Case

RECORDED = Path(__file__).parent / "recorded"
_ROOT = Path(__file__).parents[3]
_DEADLINE_S = 300


def record(case: Case) -> None:
    """Run one task, and store how it ended."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "attempt"
        status = _run(case, folder)
        log = (folder / "log").read_bytes()[-TAIL_BYTES:].decode(errors="replace")
    for found, shown in (
        (place, "/var/lib/nimbus"),
        (str(_ROOT), "/opt/nimbus"),
        (sys.base_prefix, "/usr"),
    ):
        log = log.replace(found, shown)
    log = re.sub(rf"\b{re.escape(socket.gethostname())}\b", "worker-1", log)
    (RECORDED / f"{case.name}.txt").write_text(f"{status}\n{log}", encoding="utf-8")
    sys.stdout.write(f"{case.name}: {status}, {len(log)} characters\n")
    sys.stdout.flush()


def _run(case: Case, folder: Path) -> int:
    release, output = folder / "release", folder / "output"
    for made in (release, output, folder / "tmp", folder / "spark-local"):
        made.mkdir(parents=True)
    script = "task.sql" if case.kind is TaskKind.SQL else "task.py"
    (release / script).write_text(case.source, encoding="utf-8")
    plan = {
        "kind": case.kind.value,
        "script": script,
        "args": [],
        "release_root": str(release),
        "python_path": [],
        "wheels": [],
        "master": case.master,
        "worker_conf": {},
        "task_conf": dict(case.conf),
    }
    context = {
        "schema": 1,
        "pipeline": "flights",
        "release": "0" * 64,
        "run_id": "flights-1",
        "task": "load",
        "attempt": 1,
        "logical_date": "2026-03-01T00:00:00+00:00",
        "parameters": {},
        "inputs": {},
        "output": str(output),
        "release_root": str(release),
    }
    (folder / "driver.json").write_text(json.dumps(plan), encoding="utf-8")
    (folder / "context.json").write_text(json.dumps(context), encoding="utf-8")
    environment = driver_environment(os.environ, java_home=None, extra={}) | {
        "NIMBUS_CONTEXT": str(folder / "context.json"),
        "TMPDIR": str(folder / "tmp"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "spark-local"),
        **case.environment,
    }
    waits_on, go = os.pipe()
    os.write(go, b"g")
    command = [sys.executable, "-I", "-u", "-m", "nimbus.worker.driver", str(folder), str(waits_on)]
    with (folder / "log").open("wb") as log:
        try:
            return subprocess.run(
                command,
                env=environment,
                cwd=folder / "tmp",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(waits_on,),
                start_new_session=True,
                timeout=_DEADLINE_S,
                check=False,
            ).returncode
        finally:
            os.close(waits_on)
            os.close(go)


def main(names: list[str]) -> None:
    """Record the named cases, or all that have no record."""
    RECORDED.mkdir(exist_ok=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs ignore SIGINT
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    for case in CASES:
        if case.name in names or not (names or (RECORDED / f"{case.name}.txt").exists()):
            record(case)


if __name__ == "__main__":
    main(sys.argv[1:])
