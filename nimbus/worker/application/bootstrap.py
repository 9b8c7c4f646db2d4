"""Runs one attempt inside a Spark cluster: claims it, runs the task as its child, and reports the end.

It is a zip archive of our modules, named `bootstrap.py` (`bundle.build_bundle`), from which the task's
process imports, too. Standard library only: Python 3.8 or newer, 3.10 for the task. With a token for this
attempt it reaches only that attempt, through any scheduler's gateway. It has no credentials of ZooKeeper or
storage.

Guarantees:
  * User code starts only after CLAIM names this driver. A second driver of the attempt ends with 75.
  * It retries END until a scheduler has accepted it, for at most six hours, and ends the task if another
    process wrote END. It sends heartbeats from CLAIM until END is accepted.
  * The task dies with this process, and this process with its JVM (PDEATHSIG). Processes that the task has
    started are killed at its end, but not if this process is killed.

Threads: main; `bootstrap-heartbeats`; `bootstrap-log`, which sends the log; `runner-mask` of a task with
secrets; `runner-flush_<n>` while an output in a folder is flushed. Exit codes: those of the task; 75 if
another driver has the claim and user code did not run.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from nimbus.attempt import model as m
from nimbus.attempt.life import Life
from nimbus.checkpoint import FILE as CHECKPOINT
from nimbus.worker.application.gateway import Gateway, GatewayRefusedError, GatewayUnreachableError
from nimbus.worker.application.reports import (
    END_PATIENCE_S,
    HeartbeatThread,
    LogThread,
    deliver,
    progress_in,
    say,
    send_event_log,
    tail_of,
    text_in,
)
from nimbus.worker.application.unpacking import ARCHIVE, BUNDLE, FOLDERS_ABOVE, make_folder
from nimbus.worker.attempt.secret_mask import MaskedLog
from nimbus.worker.host import procfs, usage
from nimbus.worker.host.clock import boottime_s
from nimbus.worker.host.files import drop_short_path, flush_above, flush_tree, short_path_of
from nimbus.worker.host.forked import adopt_orphans, die_with

VARIABLE = "NIMBUS_APPLICATION"
"""Environment variable with the startup document, see `nimbus.worker.application.startup`."""
PACKED = "token:"
"""Prefix of a compressed document in base64. Spark masks values with this word on its pages."""
EXIT_NOT_STARTED = 75
_ACCESS = "NIMBUS_DATA_ACCESS"
"""`nimbus.task.ACCESS_VARIABLE`. That module needs a later Python than this one."""
_CLAIM_PATIENCE_S = 600.0
_SECRETS_PATIENCE_S = 60.0
_SAFE = ("https://", "http://127.0.0.1:", "http://localhost:", "http://[::1]:")
_TICK_S = 0.2
_TEXT = 500
"""Most characters of a reason."""
SCHEDULERS = "nimbus/schedulers.json"
"""File with the last known base URLs of the schedulers, for the task's process."""
WORK = "nimbus/work"
"""The task's folder, below the driver's working folder; Spark writes its event log there."""
_COMMIT = """
import sys
sys.path.insert(0, sys.argv[1])
from nimbus.worker.data.signed import commit_output
commit_output()
"""
_START = """
import os, sys
bundle, archives, folder = sys.argv[1:]
sys.path += filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
sys.path.insert(0, bundle)
if archives and "PYSPARK_GATEWAY_PORT" in os.environ:
    from nimbus.worker.application.late_conf import set_late
    from pathlib import Path
    set_late(Path(folder), archives)
from nimbus.worker.driver.main import main
main([folder])
"""
"""The task's process. When the task creates a Spark context, that sends the archives to executors.

The cluster may have PySpark in PYTHONPATH, which `-I` ignores; packages of the interpreter take precedence.
"""


class TaskProcess:
    """The task's process and its descendants."""

    def __init__(
        self,
        folder: Path,
        startup: Mapping[str, Any],
        access: Mapping[str, Any] | None,
        secret: Mapping[str, str],
    ) -> None:
        """`secret`: variables whose values its log does not show."""
        self._work = folder / "work"
        self._short = _short_path(self._work)
        bundle = folder / "bundle.zip"
        uses_spark = startup["driver"]["kind"] in ("pyspark", "sql")
        archives = f"{folder / 'release.tar'}#{ARCHIVE},{bundle}#{BUNDLE}" if uses_spark else ""
        environment = {
            **{name: value for name, value in os.environ.items() if name != VARIABLE},
            **startup.get("environment", {}),
            **secret,
            "NIMBUS_CONTEXT": str(folder / "context.json"),
            **({} if access is None else {_ACCESS: json.dumps({"gateway": access})}),
            "TMPDIR": str(self._short / "tmp"),
            "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
        }
        self._masked: MaskedLog | None = None
        with ExitStack() as stack:
            log: Any = stack.enter_context((folder / "log").open("ab"))
            if secret:
                source, log = os.pipe()
                stack.callback(os.close, log)
                self._masked = MaskedLog(source, folder / "log", secret.values())
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-u", "-c", _START, str(bundle), archives, str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder / "work" / "tmp",
                env=environment,
                preexec_fn=partial(_lead_group, os.getpid()),  # noqa: PLW1509 - only makes system calls
            )

    def poll(self) -> int | None:
        """As of `Popen`."""
        return self._process.poll()

    def forget(self) -> None:
        """Remove its short path, and complete its log, after its end and that of its descendants."""
        if self._masked is not None:
            self._masked.finish(procfs.KILL_DEADLINE_S)
        drop_short_path(self._work)

    def signal(self, number: int) -> None:
        """Send a signal to it and its process group, before `poll` has returned its status."""
        procfs.signal_child(self._process.pid, number)


def _short_path(folder: Path) -> Path:
    link = short_path_of(folder)
    try:
        link.symlink_to(folder)
    except OSError:
        return folder
    return link


def _die_with(parent: int) -> None:
    with suppress(OSError):  # a sandbox may forbid it
        if not die_with(parent):
            os._exit(EXIT_NOT_STARTED)


def _lead_group(parent: int) -> None:
    os.setpgid(0, 0)
    _die_with(parent)


def _kill_descendants() -> None:
    procfs.kill_all(partial(procfs.identities, os.getpid()))
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _cost(work: Path) -> dict[str, Any]:
    used = usage.of_children()
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        used = used.plus(usage.of_living([os.getppid()]))
    return {**progress_in(work / "cost.json"), **used._asdict()}


def run() -> NoReturn:
    """Run the archive as a program."""
    threading.excepthook = _end_process
    sys.exit(main(Path(sys.argv[0])))


def main(bundle: Path) -> int:
    """Run the attempt that the environment names. `bundle`: the archive of our modules."""
    _die_with(os.getppid())
    with suppress(OSError):  # as in `_die_with`
        adopt_orphans()
    startup = json.loads(unpacked(os.environ.pop(VARIABLE)))
    gateway, nonce = Gateway(startup), secrets.token_hex(8)
    claim = {
        "nonce": nonce,
        "driver": driver_id(startup["driver_id"]),
        **{name: startup[name] for name in ("target", "worker", "host")},
    }
    try:
        granted = gateway.post("claim", claim, _CLAIM_PATIENCE_S)["granted"]
    except (GatewayRefusedError, GatewayUnreachableError, KeyError) as exc:
        say(f"nimbus: the attempt cannot be claimed: {exc}")
        return EXIT_NOT_STARTED
    if not granted:
        say("nimbus: the attempt is not ours to run: the task's code was not started")
        return EXIT_NOT_STARTED
    heartbeats = HeartbeatThread(gateway, nonce, Path.cwd() / WORK, Path.cwd() / SCHEDULERS)
    try:
        return run_claimed(startup, bundle, gateway, nonce, heartbeats)
    finally:
        heartbeats.finish()


def unpacked(text: str) -> str:
    """Decode a startup document, packed or plain."""
    if not text.startswith(PACKED):
        return text
    return zlib.decompress(base64.b64decode(text[len(PACKED) :])).decode()


def driver_id(told_by: str) -> str:
    """This driver's id in the cluster: the name of its folder, or the value of a variable."""
    if told_by == "folder":
        return Path.cwd().name
    value = os.environ[told_by]
    if told_by == "CONTAINER_ID":  # of YARN: container_e17_1410901177871_0001_01_000005
        return "application_" + "_".join(value.split("_")[-4:-2])
    return value


def run_claimed(
    startup: Mapping[str, Any], bundle: Path, gateway: Gateway, nonce: str, heartbeats: HeartbeatThread
) -> int:
    """Run the task, and report how it ended."""
    terms = m.Terms(
        timeout_s=m.NEVER_S if startup["timeout_s"] is None else startup["timeout_s"],
        stop_grace_s=startup["stop_grace_s"],
        is_program=startup["driver"]["kind"] in ("shell", "spark_submit"),
    )
    report = {"nonce": nonce, "timeout_s": startup["timeout_s"], "is_program": terms.is_program}
    life = Life(terms, pace=None)
    life.apply(m.ClaimAnswered(m.ClaimHolder.OURS, boottime_s()), boottime_s())
    try:
        secret = secret_values(startup, nonce)
        folder = make_folder(startup, gateway, bundle)
    except (
        OSError,
        ValueError,
        GatewayRefusedError,
        GatewayUnreachableError,
        tarfile.TarError,
        zipfile.BadZipFile,
    ) as exc:
        why = f"the attempt cannot be set up in the cluster: {exc}"
        return deliver(gateway, {**report, "status": None, "refused": why[:_TEXT]})
    while not heartbeats.answers.empty():
        life.apply(heartbeats.answers.get(), boottime_s())
    life.apply(m.Prepared(), boottime_s())
    started_at = cost = None
    if isinstance(life.state, m.Running):
        started_at = datetime.now(timezone.utc).isoformat()
        task = TaskProcess(folder, startup, data_access(startup, nonce, gateway.endpoints), secret)
        log = LogThread(gateway, nonce, folder / "log")
        watch(task, life, heartbeats, folder / "work" / "done")
        _kill_descendants()
        cost = _cost(folder / "work")
        task.forget()
        log.finish()
    if not isinstance(life.state, m.Clearing):  # another process filled END
        return EXIT_NOT_STARTED
    story, kept = life.state.story, {}
    if story.is_success(terms):
        kept = keep_output(folder, startup, data_access(startup, nonce, gateway.endpoints))
    send_event_log(gateway, nonce, folder / "work")
    application = progress_in(folder / "work" / "progress.json").get("application")
    code = deliver(
        gateway,
        {
            **report,
            "status": story.status,
            "ordered": story.ordered.value,
            "came_to_its_end": story.came_to_its_end,
            "started_at": started_at,
            "log_tail": tail_of(folder / "log"),
            "not_flushed": kept.get("fault", "")[:_TEXT],
            "output": kept.get("output"),
            "application": application if isinstance(application, str) else None,
            "cost": cost,
            "result": text_in(folder / "work" / "result.json") if story.status == 0 else None,
            "checkpoint": text_in(folder / "work" / CHECKPOINT),
        },
    )
    for name in ("inputs", "output"):  # in a bucket
        shutil.rmtree(folder / name, ignore_errors=True)
    return code


def secret_values(startup: Mapping[str, Any], nonce: str) -> dict[str, str]:
    """The task's secrets, by variable, from a scheduler that is reached by TLS or on this host.

    Others are no source: their addresses are known from answers, perhaps without TLS, of anybody. Raises as
    `Gateway.post`; ValueError: no such scheduler, or its answer is not that of a scheduler.
    """
    if not startup["secrets"]:
        return {}
    safe = [url for url in startup["endpoints"] if url.startswith(_SAFE)]
    if not safe:
        raise ValueError(
            "its secrets need a scheduler with TLS: set api.tls, and an https address "
            "(scheduler.advertise_url, or `schedulers` of the target)"
        )
    asked = {"nonce": nonce, "names": startup["secrets"], "token": startup["secrets_token"]}
    values = Gateway({**startup, "endpoints": safe}).post("secrets", asked, _SECRETS_PATIENCE_S).get("values")
    if not isinstance(values, dict) or values.keys() != startup["secrets"].keys():
        raise ValueError("what answers at the address of a scheduler does not give its secrets")
    return {variable: str(value) for variable, value in values.items()}


def watch(task: TaskProcess, life: Life, heartbeats: HeartbeatThread, done: Path) -> None:
    """Wait for the task's end. End it when `nimbus.attempt` says so."""
    while isinstance(life.state, m.Running):
        event: m.Event = m.Tick()
        if (status := task.poll()) is not None:  # first, because a program that has ended was not told to
            event = m.Exited(status, done.exists())
        elif not heartbeats.answers.empty():
            event = heartbeats.answers.get()
        else:
            time.sleep(_TICK_S)
        for instruction in life.apply(event, boottime_s()):
            if isinstance(instruction, m.AskToEnd):
                was_done = done.exists()
                task.signal(signal.SIGTERM)
                life.apply(m.ToldToEnd(was_done), boottime_s())
            elif isinstance(instruction, m.KillDriver):
                task.signal(signal.SIGKILL)


def data_access(startup: Mapping[str, Any], nonce: str, endpoints: Sequence[str]) -> dict[str, Any] | None:
    """The bucket's access data for `nimbus.worker.data.signed`; None: outputs are in a folder."""
    if startup["data_token"] is None:
        return None
    return {
        **{name: startup[name] for name in ("attempt", "pipeline", "release")},
        **startup["context"]["data"],
        "endpoints": endpoints,
        "schedulers": str(Path.cwd() / SCHEDULERS),
        "token": startup["data_token"],
        "nonce": nonce,
    }


def keep_output(folder: Path, startup: Mapping[str, Any], access: Mapping[str, Any] | None) -> dict[str, str]:
    """Store the output of a success; return `output`, its reference in the bucket, or `fault`, the error."""
    if access is None:
        return {"fault": _flushed(Path(startup["context"]["output"]))}
    told = {"access": access, "output": str(folder / "output"), "noted": str(folder / "work" / "parts")}
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", _COMMIT, str(folder / "bundle.zip")],
            input=json.dumps(told).encode(),
            capture_output=True,
            check=False,
            timeout=END_PATIENCE_S,
            preexec_fn=partial(_die_with, os.getpid()),
        )
    except subprocess.TimeoutExpired:
        return {"fault": f"its output could not be stored within {END_PATIENCE_S:g} s"}
    try:
        answer: dict[str, str] = json.loads(done.stdout)
    except ValueError:
        why = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        return {
            "fault": f"its output could not be stored: {why or f'the upload ended with {done.returncode}'}"
        }
    return answer


def _flushed(output: Path) -> str:
    """Flush an output in a folder to the disk; return the error, or ""."""
    try:
        flush_tree(output)
        flush_above(output, output.parents[FOLDERS_ABOVE - 1])
    except (OSError, RuntimeError) as exc:  # RuntimeError: no thread can be started here
        return f"its output could not be brought to disk: {exc}"
    return ""


def _end_process(args: threading.ExceptHookArgs) -> None:
    """End this process, and with it the task, when an exception ends a thread: the attempt is lost."""
    say(f"nimbus: thread {args.thread.name if args.thread else ''} failed: {args.exc_value!r}")
    os._exit(EXIT_NOT_STARTED)
