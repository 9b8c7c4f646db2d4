"""Runs one attempt inside a Spark cluster: claims it, runs the task as its child, and reports the end.

The cluster downloads this file from a scheduler, or Spark's client uploads it. So it is one file that uses
only the standard library, for Python 3.11 or newer. With a token for this attempt it can reach only the slots
of its attempt, through any scheduler's door. It has no credentials of ZooKeeper or storage.

Guarantees:
  * User code starts only after CLAIM names this driver. A second driver of the attempt, however started,
    ends with 75.
  * It retries END until a scheduler has accepted it, for at most six hours, and ends the task if another
    process wrote END.
  * It sends beats from CLAIM until END is accepted, so that the attempt is not reported as lost.
  * The task dies with this process, and this process with its JVM (PDEATHSIG). Processes that the task has
    started are killed at its end, but not if this process is killed.

Threads: main; `bootstrap-beats`, which sends beats; `bootstrap-log`, which sends the log.
Exit codes: those of the task; 75 if another driver has the claim and user code did not run.
"""

from __future__ import annotations

import base64
import ctypes
import errno
import hashlib
import io
import json
import os
import secrets
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import threading
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, TypeVar

VARIABLE = "NIMBUS_APPLICATION"
"""Environment variable with the startup document, see `nimbus.worker.application.startup`."""
DATA_ACCESS = "NIMBUS_DATA_ACCESS"
"""The same as `nimbus.task.ACCESS_VARIABLE`."""
PACKED = "token:"
"""Prefix of a compressed document in base64. Spark masks values with this word on its pages."""
EXIT_NOT_STARTED = 75
_ANSWER_S = 20.0
_CLAIM_PATIENCE_S = 600.0
END_PATIENCE_S = 6 * 3600.0
"""How long the upload of an output, and END, are retried."""
_LONGEST_PAUSE_S = 10.0
_BEAT_S = 3.0
_TICK_S = 0.2
_LOG_POLL_S = 1.0
_LOG_PIECE_BYTES = 128 << 10
_TAIL_BYTES = 64 << 10
_LOG_PATIENCE_S = 30.0
_LARGEST_EVENT_LOG = 64 << 20
_EVENT_LOG_PATIENCE_S = 180.0
_LARGEST_PROGRESS = 32 << 10
_LARGEST_TEXT = 4096
"""Largest size of a result or a checkpoint, in bytes."""
_KILL_PATIENCE_S = 10.0
_TEXT = 500
"""Most characters of a reason."""
_FOLDERS_ABOVE = 4
"""Parent folders of an output: those of its task, run and pipeline, and the folder of all outputs."""
_LIBC = ctypes.CDLL(None)
T = TypeVar("T")
CHECKPOINT = "checkpoint.json"
DATA_MARK = ".nimbus-data"
"""The same as `nimbus.worker.data.mark.MARK`."""
"""The same as `nimbus.checkpoint.FILE`."""
SCHEDULERS = "nimbus/schedulers.json"
"""File with the last known base URLs of the schedulers, for the task's process."""
WORK = "nimbus/work"
"""The task's folder, below the driver's working folder; Spark writes its event log there."""
ARCHIVE = "nimbus_release"
"""The release's folder in the working folder of each executor."""
KIT = "nimbus_kit"
"""The kit's folder there, which the data source `nimbus` needs."""
_COMMIT = """
import sys
sys.path.insert(0, sys.argv[1])
from nimbus.worker.application.committing import main
main()
"""
"""The process that uploads an output."""
_START = """
import os, sys
kit, archives, folder = sys.argv[1:]
sys.path += filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
if archives and "PYSPARK_GATEWAY_PORT" in os.environ:
    from pyspark.java_gateway import launch_gateway
    system = launch_gateway().jvm.java.lang.System
    others = system.getProperty("spark.archives")
    system.setProperty("spark.archives", ",".join(filter(None, [others, archives])))
sys.path.insert(0, kit)
from nimbus.worker.driver import main
main([folder])
"""
"""The task's process. When the task creates a Spark context, that sends the archives to executors.

The cluster may have PySpark in PYTHONPATH, which `-I` ignores; packages of the interpreter take precedence.
"""


def say(text: str) -> None:
    """Write a line to the driver's own output, which the cluster stores, unless its disk is full."""
    with suppress(OSError):
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


class RefusedError(Exception):
    """A scheduler refused the request; a retry would fail again."""


class UnreachableError(Exception):
    """No scheduler answered in time."""


class Door:
    """Sends requests to schedulers, one after the other, until one answers. Any thread.

    Tries the one that answered last first, then those of the submission, then those named in answers.
    """

    def __init__(self, startup: Mapping[str, Any]) -> None:
        self._submitted_with = self._endpoints = tuple(startup["endpoints"])
        self._path = f"/attempt/v1/{startup['attempt']}"
        self._query = f"pipeline={startup['pipeline']}&release={startup['release']}"
        self._token = startup["token"]
        self._pause = threading.Event()

    def post(self, what: str, said: Mapping[str, Any], patience_s: float) -> dict[str, Any]:
        """Post a JSON document about the attempt; return the answer. Raises as `_ask_all`."""
        answer = self._ask_all(what, json.dumps(said).encode(), patience_s, "", _as_object)
        named = answer.get("schedulers")
        if isinstance(named, list):
            self.learn(map(str, named))
        return answer

    @property
    def endpoints(self) -> Sequence[str]:
        """Base URLs of the known schedulers."""
        return self._endpoints

    def learn(self, named: Iterable[str]) -> None:
        """Add these schedulers."""
        known = (*self._endpoints[:1], *self._submitted_with, *named)
        self._endpoints = tuple(dict.fromkeys(known))

    def send(self, what: str, data: bytes, query: str) -> dict[str, Any]:
        """Send bytes; return the answer. Raises as `_ask_all`."""
        return self._ask_all(what, data, _ANSWER_S, query, _as_object)

    def fetch(self, what: str, place: Path) -> str:
        """Download a file; return its SHA-256. Raises as `_ask_all`."""

        def take(answer: Any) -> str:
            digest = hashlib.sha256()
            with place.open("wb") as file:
                while piece := answer.read(1 << 20):
                    digest.update(piece)
                    file.write(piece)
            return digest.hexdigest()

        return self._ask_all(what, None, _CLAIM_PATIENCE_S, "", take)

    def _ask_all(
        self, what: str, data: bytes | None, patience_s: float, query: str, take: Callable[[Any], T]
    ) -> T:
        """Retry until an answer is complete. An endpoint that is not a scheduler any more is skipped.

        Raises:
            RefusedError: the request is too large, or has a form that schedulers do not accept.
            UnreachableError: no scheduler answered within `patience_s`.
        """
        until_s, pause_s, last = time.monotonic() + patience_s, 0.2, "none is known"
        while True:
            for endpoint in self._endpoints:
                try:
                    url = f"{endpoint}{self._path}/{what}?{self._query}{query}"
                    with self._open(url, data) as answer:
                        taken = take(answer)
                except urllib.error.HTTPError as exc:
                    if exc.code in (413, 422):
                        raise RefusedError(f"{what}: {exc.code}: {_detail(exc)}") from exc
                    last = f"{endpoint} says {exc.code}"
                except (OSError, HTTPException, ValueError) as exc:
                    last = f"{endpoint}: {exc}"
                else:
                    self._endpoints = tuple(dict.fromkeys((endpoint, *self._endpoints)))
                    return taken
            if time.monotonic() + pause_s > until_s:
                raise UnreachableError(f"{what}: no scheduler answered: {last}"[:400])
            self._pause.wait(pause_s * (0.5 + secrets.randbelow(1000) / 1000))
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def _open(self, url: str, data: bytes | None) -> Any:
        request = urllib.request.Request(url, data=data)  # noqa: S310 - the worker's own endpoints
        request.add_header("Authorization", f"Bearer {self._token}")
        kind = "application/octet-stream" if "/log?" in url else "application/json"
        request.add_header("Content-Type", kind)
        return urllib.request.urlopen(request, timeout=_ANSWER_S)  # noqa: S310 - as above


def _as_object(answer: Any) -> dict[str, Any]:
    found = json.load(answer)
    if not isinstance(found, dict):
        raise ValueError("the answer is no object")  # noqa: TRY004 - as of a broken answer
    return found


def _detail(error: urllib.error.HTTPError) -> str:
    """The reason in a scheduler's refusal."""
    try:
        return str(_as_object(error).get("detail", ""))[:_TEXT]
    except (OSError, HTTPException, ValueError):
        return error.reason


class LogThread:
    """Sends the task's log, piece by piece. Pieces that cannot be sent are retried for a limited time."""

    def __init__(self, door: Door, nonce: str, log: Path) -> None:
        self._door, self._nonce, self._log = door, nonce, log
        self._complete = threading.Event()
        self._given_up = threading.Event()
        self._sent = 0
        self._thread = threading.Thread(target=self._run, name="bootstrap-log", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Send the rest, with retries for at most `_LOG_PATIENCE_S`."""
        self._complete.set()
        self._thread.join(_LOG_PATIENCE_S)
        self._given_up.set()

    def _run(self) -> None:
        while not self._given_up.is_set():
            complete = self._complete.wait(_LOG_POLL_S)
            try:
                while self._send_piece():
                    pass
            except RefusedError as exc:
                say(f"nimbus: the log is not stored: {exc}")
                return
            except (UnreachableError, OSError):
                self._given_up.wait(_LOG_POLL_S)
            else:
                if complete:
                    return

    def _send_piece(self) -> bool:
        with open_regular(self._log) as log:
            log.seek(self._sent)
            piece = log.read(_LOG_PIECE_BYTES)
        if not piece:
            return False
        answer = self._door.send("log", piece, f"&offset={self._sent}&nonce={self._nonce}")
        if not answer.get("stored"):
            raise RefusedError("it is too long, or the attempt is over")
        self._sent += len(piece)
        sys.stdout.buffer.write(piece)  # for the cluster's own pages
        sys.stdout.flush()
        return True


class BeatThread:
    """Sends the task's progress; receives stop requests and the addresses of schedulers.

    It also sends new checkpoints of the task.

    Args:
        door: Connection to schedulers.
        nonce: The claim's nonce.
        work: The task's folder.
        schedulers: See `SCHEDULERS`.
    """

    def __init__(self, door: Door, nonce: str, work: Path, schedulers: Path) -> None:
        self._door, self._nonce, self._work, self._schedulers = door, nonce, work, schedulers
        self._kept: str | None = None
        self._ended = threading.Event()
        self.ordered = "not"
        """Why the task must end: a value of `nimbus.worker.verdict.Ordered`."""
        self._thread = threading.Thread(target=self._run, name="bootstrap-beats", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Stop, after END was accepted. A beat in progress is abandoned."""
        self._ended.set()

    def _run(self) -> None:
        number = 0
        while not self._ended.wait(_BEAT_S if number else 0.0):
            number += 1
            with suppress(UnreachableError, RefusedError):
                checkpoint = text_in(self._work / CHECKPOINT)
                new = None if checkpoint == self._kept else checkpoint
                progress = progress_in(self._work / "progress.json")
                said = {"nonce": self._nonce, "number": number, "progress": progress, "checkpoint": new}
                answer = self._door.post("beat", said, 0.0)
                self._kept = checkpoint
                self._note_schedulers()
                if self.ordered == "not" and (answer.get("stop") or answer.get("outdated")):
                    self.ordered = "stop" if answer.get("stop") else "outdated"

    def _note_schedulers(self) -> None:
        with suppress(OSError):  # the folder is created after the first beat
            part = self._schedulers.with_suffix(".part")
            part.write_text(json.dumps(self._door.endpoints))
            part.replace(self._schedulers)


def progress_in(file: Path) -> dict[str, Any]:
    """The task's progress; empty if there is none that can be read."""
    with suppress(OSError, ValueError, RecursionError), open_regular(file) as progress:
        return _as_object(io.BytesIO(progress.read(_LARGEST_PROGRESS)))
    return {}


def text_in(file: Path) -> str | None:
    """The text of a task's result or checkpoint, truncated if it is too large; None without a file."""
    with suppress(OSError), open_regular(file) as given:
        return given.read(_LARGEST_TEXT + 1).decode(errors="replace")
    return None


class Task:
    """The task's process and its descendants."""

    def __init__(
        self,
        folder: Path,
        *,
        uses_spark: bool,
        access: Mapping[str, Any] | None,
        variables: Mapping[str, str],
    ) -> None:
        self._short = short_path(folder / "work")
        kit = folder / "kit.zip"
        archives = f"{folder / 'release.tar'}#{ARCHIVE},{kit}#{KIT}" if uses_spark else ""
        environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
        environment |= {
            **variables,
            "NIMBUS_CONTEXT": str(folder / "context.json"),
            **({} if access is None else {DATA_ACCESS: json.dumps({"door": access})}),
            "TMPDIR": str(self._short / "tmp"),
            "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
        }
        with (folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-u", "-c", _START, str(kit), archives, str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder / "work" / "tmp",
                env=environment,
                process_group=0,
                preexec_fn=partial(die_with_parent, os.getpid()),  # noqa: PLW1509 - only calls prctl
            )

    def poll(self) -> int | None:
        """Like `Popen.returncode`; None while it runs."""
        return self._process.poll()

    def forget(self) -> None:
        """Remove its short path, after its end."""
        if self._short.is_symlink():
            self._short.unlink()

    def signal(self, number: int) -> None:
        """Send a signal to it and its process group."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def short_path(folder: Path) -> Path:
    """A link to a folder, for Unix sockets, as of `nimbus.worker.short_path`; or the folder itself."""
    link = Path("/tmp", f"nimbus-{secrets.token_hex(4)}")  # noqa: S108 - its name is random, and it is new
    try:
        link.symlink_to(folder)
    except OSError:
        return folder
    return link


def die_with_parent(parent: int) -> None:
    """Let the kernel end this process when its parent ends."""
    _LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(EXIT_NOT_STARTED)


def kill_descendants() -> None:
    """Kill all remaining processes of the task; orphans are adopted by this process."""
    until_s = time.monotonic() + _KILL_PATIENCE_S
    while (left := descendants()) and time.monotonic() < until_s:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.02)


def descendants() -> list[int]:
    """Living processes below this one."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if fields[0] != "Z":
                    parents[int(entry.name)] = int(fields[1])
    found: list[int] = []
    above = {os.getpid()}
    while above:
        above = {pid for pid, parent in parents.items() if parent in above}
        found += above
    return found


def main() -> int:
    """Run the attempt that the environment names."""
    die_with_parent(os.getppid())
    _LIBC.prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: adopt the task's orphans
    startup = json.loads(unpacked(os.environ.pop(VARIABLE)))
    door, nonce = Door(startup), secrets.token_hex(8)
    claim = {
        "nonce": nonce,
        "driver": driver_id(startup["driver_id"]),
        **{name: startup[name] for name in ("target", "worker", "host")},
    }
    try:
        granted = door.post("claim", claim, _CLAIM_PATIENCE_S)["granted"]
    except (RefusedError, UnreachableError, KeyError) as exc:
        say(f"nimbus: the attempt cannot be claimed: {exc}")
        return EXIT_NOT_STARTED
    if not granted:
        say("nimbus: the attempt is not ours to run: the task's code was not started")
        return EXIT_NOT_STARTED
    beats = BeatThread(door, nonce, Path.cwd() / WORK, Path.cwd() / SCHEDULERS)
    try:
        return run_claimed(startup, door, nonce, beats)
    finally:
        beats.finish()


def unpacked(text: str) -> str:
    """Decode a startup document, packed or plain."""
    if not text.startswith(PACKED):
        return text
    return zlib.decompress(base64.b64decode(text.removeprefix(PACKED))).decode()


def driver_id(told_by: str) -> str:
    """This driver's id in the cluster: the name of its folder, or the value of a variable."""
    if told_by == "folder":
        return Path.cwd().name
    found = os.environ[told_by]
    if told_by == "CONTAINER_ID":  # of YARN: container_e17_1410901177871_0001_01_000005
        return "application_" + "_".join(found.split("_")[-4:-2])
    return found


def run_claimed(startup: Mapping[str, Any], door: Door, nonce: str, beats: BeatThread) -> int:
    """Run the task, and report how it ended."""
    report: dict[str, Any] = {
        "nonce": nonce,
        "timeout_s": startup["timeout_s"],
        "is_program": startup["driver"]["kind"] in ("shell", "spark_submit"),
    }
    try:
        folder = make_folder(startup, door)
    except (OSError, ValueError, RefusedError, UnreachableError, tarfile.TarError, zipfile.BadZipFile) as exc:
        why = f"the attempt cannot be set up in the cluster: {exc}"
        return deliver(door, {**report, "status": None, "refused": why[:_TEXT]})
    if beats.ordered == "outdated":
        return EXIT_NOT_STARTED
    started_at = datetime.now(UTC)
    access = data_access(startup, nonce, door.endpoints)
    uses_spark, variables = startup["driver"]["kind"] in ("pyspark", "sql"), startup.get("environment", {})
    task = Task(folder, uses_spark=uses_spark, access=access, variables=variables)
    log = LogThread(door, nonce, folder / "log")
    done = folder / "work" / "done"
    ordered, came_to_its_end = watch(task, startup, beats, done)
    status = task.poll()
    kill_descendants()
    task.forget()
    log.finish()
    access = data_access(startup, nonce, door.endpoints)
    kept = keep_output(folder, startup, access) if status == 0 else {}
    send_event_log(door, nonce, folder / "work")
    application = progress_in(folder / "work" / "progress.json").get("application")
    report |= {
        "status": status,
        "ordered": ordered,
        "came_to_its_end": came_to_its_end,
        "started_at": started_at.isoformat(),
        "log_tail": tail_of(folder / "log"),
        "not_flushed": kept.get("fault", "")[:_TEXT],
        "output": kept.get("output"),
        "application": application if isinstance(application, str) else None,
        "result": text_in(folder / "work" / "result.json") if status == 0 else None,
        "checkpoint": text_in(folder / "work" / CHECKPOINT),
    }
    code = deliver(door, report)
    for name in ("inputs", "output"):  # in a bucket
        shutil.rmtree(folder / name, ignore_errors=True)
    return code


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
        return {"fault": sync_output(Path(startup["context"]["output"]))}
    told = {"access": access, "output": str(folder / "output"), "noted": str(folder / "work" / "parts")}
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", _COMMIT, str(folder / "kit.zip")],
            input=json.dumps(told).encode(),
            capture_output=True,
            check=False,
            timeout=END_PATIENCE_S,
            preexec_fn=partial(die_with_parent, os.getpid()),
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


def send_event_log(door: Door, nonce: str, work: Path) -> None:
    """Send Spark's last event log, if there is one. If it cannot be sent, it stays in the cluster."""
    try:
        found = sorted(work.glob("*.zstd*"), key=lambda file: file.lstat().st_mtime_ns)
        if not found:
            return
        with open_regular(found[-1]) as file:
            if os.fstat(file.fileno()).st_size <= _LARGEST_EVENT_LOG:
                _send_events(door, nonce, file)
    except (RefusedError, UnreachableError, OSError) as exc:
        say(f"nimbus: the event log is not stored: {exc}")


def _send_events(door: Door, nonce: str, file: BinaryIO) -> None:
    until_s = time.monotonic() + _EVENT_LOG_PATIENCE_S
    while piece := file.read(_LOG_PIECE_BYTES):
        if time.monotonic() > until_s:
            raise UnreachableError(f"it takes longer than {_EVENT_LOG_PATIENCE_S:g} s")
        offset = file.tell() - len(piece)
        if not door.send("log", piece, f"&kept=events&offset={offset}&nonce={nonce}").get("stored"):
            raise RefusedError("it is too long, or the attempt is over")


def deliver(door: Door, report: dict[str, Any]) -> int:
    """Report END, with retries; return the exit code of this process."""
    status = report["status"]
    try:
        try:
            door.post("end", report, END_PATIENCE_S)
        except RefusedError:  # a text from the task has an unexpected form
            fault = "its output was not kept" if report.get("not_flushed") else ""
            door.post("end", {**report, "log_tail": "", "not_flushed": fault}, END_PATIENCE_S)
    except (RefusedError, UnreachableError) as exc:
        say(f"nimbus: the end could not be reported: {exc}")
    if status is None:
        return 1
    return 128 - status if status < 0 else int(status)


def make_folder(startup: Mapping[str, Any], door: Door) -> Path:
    """Download the task's files. Raises RefusedError, UnreachableError, OSError, ValueError."""
    folder = Path.cwd() / "nimbus"
    for place in (folder, folder / "work", folder / "work" / "tmp", folder / "wheels"):
        place.mkdir(mode=0o700, exist_ok=True)
    door.fetch("kit.zip", folder / "kit.zip")
    found = door.fetch("release.tar", folder / "release.tar")
    if found != startup["release_sha256"]:
        raise ValueError(f"the release that came has SHA-256 {found}, not {startup['release_sha256']}")
    release = folder / "release"
    with tarfile.open(folder / "release.tar") as archive:
        unpack(archive, release)
    for link, place in ((KIT, folder / "kit.zip"), (ARCHIVE, release)):
        with suppress(FileExistsError):  # Spark starts Python workers in this folder, too
            Path(link).symlink_to(place)
    wheels = list(unpacked_wheels(release, folder / "wheels"))
    driver = {**startup["driver"], "release_root": str(release), "wheels": wheels}
    context = {**startup["context"], "release_root": str(release)}
    if startup["data_token"] is not None:
        context["output"] = str(folder / "output")
        places = {task: Path(place).name for task, place in context["inputs"].items()}
        context["inputs"] = {task: str(folder / "inputs" / name) for task, name in places.items()}
    elif not Path(context["output"]).parents[_FOLDERS_ABOVE - 1].joinpath(DATA_MARK).is_file():
        raise ValueError(f"{context['output']} is not below the cluster's folder of outputs: mount it here")
    Path(context["output"]).mkdir(parents=True, exist_ok=True)
    (folder / "driver.json").write_text(json.dumps(driver))
    (folder / "context.json").write_text(json.dumps(context))
    return folder


def unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """Write the files of a release. Checks names itself: `extractall(filter=...)` came with Python 3.11.4.

    Raises:
        ValueError: an entry is not a regular file, or its name leads out of `folder`.
    """
    for entry in archive:
        name = PurePosixPath(entry.name)
        source = archive.extractfile(entry) if entry.isreg() else None
        if source is None or name.is_absolute() or ".." in name.parts:
            raise ValueError(f"the release has {entry.name!r}, which is not a file below its folder")
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("wb") as file:
            shutil.copyfileobj(source, file)
        place.chmod(0o755 if entry.mode & stat.S_IXUSR else 0o644)


def unpacked_wheels(release: Path, root: Path) -> Iterator[str]:
    """Unpack the wheels of a release, which its publisher has checked; yield the folders to import from."""
    for wheel in sorted(release.rglob("*.whl")):
        place = root / wheel.stem
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(place)  # noqa: S202 - drops `..` and leading `/` of names
        yield str(place)


def watch(task: Task, startup: Mapping[str, Any], beats: BeatThread, done: Path) -> tuple[str, bool]:
    """Wait for the task's end; end it on request, at its timeout, or if another process filled END.

    Returns:
        Why it was ended: a value of `nimbus.worker.verdict.Ordered`; and whether its code had come to its end
        before.
    """
    was_done = False
    timeout_s = startup["timeout_s"] if startup["timeout_s"] is not None else float("inf")
    deadline_s, kill_at_s, ordered = time.monotonic() + timeout_s, float("inf"), "not"
    while task.poll() is None:
        now_s = time.monotonic()
        if now_s >= kill_at_s:
            task.signal(signal.SIGKILL)
        if ordered == "not":
            ordered = "timeout" if now_s >= deadline_s else beats.ordered
            if ordered != "not":
                was_done = done.exists()
                task.signal(signal.SIGTERM)
                kill_at_s = now_s + startup["stop_grace_s"]
        time.sleep(_TICK_S)
    return ordered, was_done if ordered != "not" else done.exists()


def sync_output(output: Path) -> str:
    """Flush the output and its parent folders to disk; return the error, or ""."""

    def fail(error: OSError) -> None:
        raise error

    try:
        for place, _, names in os.walk(output, onerror=fail):
            for path in (*(Path(place, name) for name in names), Path(place)):
                if stat.S_ISREG(mode := path.lstat().st_mode) or stat.S_ISDIR(mode):
                    sync(path)
        for folder in output.parents[:_FOLDERS_ABOVE]:
            sync(folder)
    except OSError as exc:
        return f"its output could not be brought to disk: {exc}"
    return ""


def sync(path: Path) -> None:
    """Flush a file or a folder to disk. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def open_regular(path: Path) -> BinaryIO:
    """Open a file that the task may have replaced: links are not followed, and pipes do not block.

    Raises:
        OSError: it is missing, or not a regular file.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "no regular file", str(path))
    return os.fdopen(fd, "rb")


def tail_of(log: Path) -> str:
    """The end of the log, which contains the error. Its size as JSON is limited."""
    try:
        with open_regular(log) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            tail = file.read(_TAIL_BYTES).decode(errors="replace")
    except OSError:  # the task has removed or replaced it
        return ""
    while len(json.dumps(tail)) > _TAIL_BYTES:
        tail = tail[len(tail) // 4 :]
    return tail


def end_process(args: threading.ExceptHookArgs) -> None:
    """End this process, and with it the task, when an exception ends a thread: the attempt is lost."""
    say(f"nimbus: thread {args.thread.name if args.thread else ''} failed: {args.exc_value!r}")
    os._exit(EXIT_NOT_STARTED)


if __name__ == "__main__":
    threading.excepthook = end_process
    sys.exit(main())
